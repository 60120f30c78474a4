"""What a sweep looks like on the screen."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from revbis.io.text import format_duration, format_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from revbis.sweep.driver import Entry, EntryState

_ORDER: tuple[EntryState, ...] = ("running", "failed", "waiting", "finished")
_PLAIN_SECONDS = 30.0
_COLOURS = {"running": "cyan", "failed": "red", "waiting": "dim", "finished": "green"}
_COLUMNS = ("state", "frames", "done", "frames/s", "left", "return")
# Left out one after the other where the screen is narrow, after attempts and agents' status;
# `done` stands in for `frames`.
_DROPPED = ("frames", "frames/s", "left", "return")
_GAP = 2  # between columns
_LEAST_NAME = 24  # letters of a name in one line; longer names continue in the next
_REASONS = 3  # of failed runs, on a live board
_AROUND = 6  # lines that are no runs


@contextmanager
def board(where: str) -> Iterator[Callable[[Sequence[Entry]], None]]:
    """A live table on a terminal; elsewhere a line for each change, and a summary every 30 s."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield PlainBoard(where)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda entries: live.update(
            table(entries, where, console.width, console.height), refresh=True
        )


def table(
    entries: Sequence[Entry], where: str, width: int, height: int | None = None
) -> RenderableType:
    """All runs, or as many as fit: running ones first, then failed, waiting and finished ones.

    Args:
        entries: The runs.
        where: Where they train.
        width: Columns of the screen; what does not fit is left out.
        height: Lines of the screen; all runs when not given.
    """
    prefix = common_folder([entry.name for entry in entries])
    title = [f"{summary(entries)} · {where}", *([f"runs in {prefix}"] if prefix else [])]
    failed = [entry for entry in entries if entry.state == "failed"]
    reasons = failed if height is None else failed[:_REASONS]
    shown = sorted(entries, key=lambda entry: _ORDER.index(entry.state))
    if height is not None:
        shown = shown[: max(height - _AROUND - 2 * len(reasons), 1)]
    parts: list[RenderableType] = [Text(line, style="bold") for line in title]
    parts.append(_rows(shown, prefix, width))
    if len(shown) < len(entries):
        parts.append(Text(f"and {len(entries) - len(shown)} more runs"))
    parts += [
        Text(f"{_below(entry.name, prefix)} failed: {entry.text}", style="red") for entry in reasons
    ]
    if len(reasons) < len(failed):
        parts.append(Text(f"and {len(failed) - len(reasons)} more failed", style="red"))
    return Group(*parts)


def common_folder(names: Sequence[str]) -> str:
    """The folders that all runs share; at least the last part of a name is a run's own."""
    parts = [name.split("/")[:-1] for name in names]
    same = takewhile(lambda each: len(set(each)) == 1, zip(*parts, strict=False))
    return "/".join(each[0] for each in same)


def summary(entries: Sequence[Entry]) -> str:
    """How many runs are in which state, and the time left."""
    count = Counter(entry.state for entry in entries)
    words = [f"{count[state]} {state}" for state in _ORDER if count[state]]
    left = time_left(entries)
    return " · ".join([*words, f"about {left} left"] if left else words)


def time_left(entries: Sequence[Entry]) -> str:
    """The time until the last run ends, at the present speed; empty while that is not known."""
    speeds = [entry.progress.frames_per_second for entry in entries if entry.state == "running"]
    known = [speed for speed in speeds if speed]
    if not known or len(known) < len(speeds):
        return ""
    left = sum(
        max(entry.config.frames - entry.progress.frames, 0)
        for entry in entries
        if entry.state in ("running", "waiting")
    )
    return format_duration(left / sum(known))


def _rows(entries: Sequence[Entry], prefix: str, width: int) -> RenderableType:
    names = [_below(entry.name, prefix) for entry in entries]
    status = list(dict.fromkeys(name for entry in entries for name in entry.progress.status))
    cells = [{"state": entry.state} | _cells(entry, status) for entry in entries]
    all_columns = (*_COLUMNS, *status, "attempts")
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) for name in all_columns}
    dropped = ("attempts", *reversed(status), *_DROPPED)
    columns, room = _fitting(widths, dropped, max(map(len, names)), width)
    rows = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), collapse_padding=True)
    rows.add_column("run", overflow="fold", width=room)
    for column in columns:
        side: Literal["left", "right"] = "left" if column == "state" else "right"
        rows.add_column(column, justify=side, no_wrap=True, width=widths[column])
    for name, row in zip(names, cells, strict=True):
        style = _COLOURS[row["state"]]
        rows.add_row(Text(name), *(Text(row[c], style if c == "state" else "") for c in columns))
    return rows


def _fitting(
    widths: dict[str, int], spare_columns: Sequence[str], name: int, screen: int
) -> tuple[list[str], int]:
    """The columns that fit beside the names, and the room left for these."""
    for count in range(len(spare_columns) + 1):
        dropped = spare_columns[:count]
        spare = () if "frames" in dropped else ("done",)
        columns = [column for column in widths if column not in (*dropped, *spare)]
        room = screen - sum(widths[column] + _GAP for column in columns)
        if room >= name:
            return columns, max(name, len("run"))
    return columns, max(room, min(name, _LEAST_NAME))


def _cells(entry: Entry, names: Sequence[str]) -> dict[str, str]:
    progress, budget = entry.progress, entry.config.frames
    speed = progress.frames_per_second if entry.state == "running" else None
    mean, status = progress.mean_return, progress.status
    return {
        "frames": f"{progress.frames:,}/{budget:,}",
        "done": f"{min(progress.frames / budget, 1):.0%}",
        "frames/s": f"{speed:.0f}" if speed else "",
        "left": format_duration(max(budget - progress.frames, 0) / speed) if speed else "",
        "return": "" if mean is None else _short(mean),
        **{name: format_number(status[name]) if name in status else "" for name in names},
        "attempts": str(entry.attempts or ""),
    }


def _short(number: float) -> str:
    """A return in about eight characters at most: 0.5, 812.4, 1.2e+08."""
    return f"{round(number, 1) + 0.0:.1f}" if abs(number) < 1e6 else f"{number:.1e}"


def _below(name: str, prefix: str) -> str:
    return name.removeprefix(f"{prefix}/") if prefix else name


class PlainBoard:
    """The board where there is no terminal: lines on standard error.

    Args:
        where: Where runs train.
    """

    def __init__(self, where: str) -> None:
        self._where, self._states = where, dict[str, tuple[str, int]]()
        self._printed: float | None = None

    def __call__(self, entries: Sequence[Entry]) -> None:
        """Prints what has changed, and a summary every 30 s."""
        for entry in entries:
            now = (entry.state, entry.attempts)
            if self._states.get(entry.name, ("waiting", 0)) != now:
                told = entry.state in ("waiting", "failed")  # a new attempt does not repeat it
                why = f": {entry.text}" if entry.text and told else ""
                attempt = f", attempt {entry.attempts}" if entry.attempts > 1 else ""
                _print(f"{entry.name} {entry.state}{attempt}{why}")
            self._states[entry.name] = now
        if self._printed is None or time.monotonic() - self._printed > _PLAIN_SECONDS:
            self._printed = time.monotonic()
            _print(f"{summary(entries)} · {self._where}")


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
