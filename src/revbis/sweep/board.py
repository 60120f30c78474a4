"""What a sweep looks like on the screen."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from revbis.sweep.driver import Entry, State

_ORDER: tuple[State, ...] = ("running", "failed", "waiting", "finished")
_PLAIN_SECONDS = 30.0
_COLOURS = {"running": "cyan", "failed": "red", "waiting": "dim", "finished": "green"}


@contextmanager
def board(where: str) -> Iterator[Callable[[Sequence[Entry]], None]]:
    """A live table on a terminal; elsewhere a line for each change, and a summary now and then.

    Args:
        where: Where runs are made.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(where)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda entries: live.update(
            table(entries, where, rows=console.height - 8), refresh=True
        )


def table(entries: Sequence[Entry], where: str, rows: int | None = None) -> Table:
    """All runs, or as many as fit: first those that run, have failed, and wait."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=f"{summary(entries)} · {where}", title_justify="left")
    for name in ("run", "state", "frames", "frames/s", "left", "return", "c", "attempts"):
        made.add_column(name, no_wrap=name != "run", overflow="fold")
    shown = sorted(entries, key=lambda entry: _ORDER.index(entry.state))
    limit = len(shown) if rows is None else max(rows, 1)
    for entry in shown[:limit]:
        made.add_row(
            Text(entry.name), Text(entry.state, style=_COLOURS[entry.state]), *_cells(entry)
        )
        if entry.state == "failed":
            made.add_row(Text(f"  {entry.text}", style="red"))
    if len(shown) > limit:
        made.add_row(f"and {len(shown) - limit} more")
    return made


def summary(entries: Sequence[Entry]) -> str:
    """How many runs are in which state, and the time left."""
    count = Counter(entry.state for entry in entries)
    words = [f"{count[state]} {state}" for state in _ORDER if count[state]]
    left = time_left(entries)
    return " · ".join([*words, f"about {left} left"] if left else words)


def time_left(entries: Sequence[Entry]) -> str:
    """The time until the last run ends, as the running ones go; empty while that is not known."""
    from revbis.commands.console import in_time

    running = [entry for entry in entries if entry.state == "running"]
    speeds = [float(entry.progress.get("frames_per_second") or 0) for entry in running]
    together = sum(speeds)
    if not together or not all(speeds):
        return ""
    left = sum(
        max(entry.config.frames - int(entry.progress.get("frames", 0)), 0)
        for entry in entries
        if entry.state in ("running", "waiting")
    )
    return in_time(left / together)


def _cells(entry: Entry) -> list[str]:
    from revbis.commands.console import in_time

    told: dict[str, Any] = entry.progress
    frames, speed = int(told.get("frames", 0)), told.get("frames_per_second")
    running = entry.state == "running" and bool(speed)
    left = in_time((entry.config.frames - frames) / float(speed)) if running and speed else ""
    mean, c = told.get("mean_return"), told.get("c")
    return [
        f"{frames:,}/{entry.config.frames:,}",
        f"{float(speed):.0f}" if running and speed else "",
        left,
        "" if mean is None else f"{float(mean):.1f}",
        "" if c is None else f"{float(c):.3f}",
        str(entry.attempts or ""),
    ]


class _Lines:
    """The board where there is no terminal."""

    def __init__(self, where: str) -> None:
        self._where, self._states, self._said = where, dict[str, tuple[str, int]](), 0.0

    def __call__(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            now = (entry.state, entry.attempts)
            if self._states.get(entry.name, ("waiting", 0)) != now:
                why = f": {entry.text}" if entry.text and entry.state != "finished" else ""
                attempt = f", attempt {entry.attempts}" if entry.attempts > 1 else ""
                print(f"{entry.name} {entry.state}{attempt}{why}", file=sys.stderr, flush=True)
            self._states[entry.name] = now
        if time.monotonic() - self._said > _PLAIN_SECONDS:
            self._said = time.monotonic()
            print(f"{summary(entries)} · {self._where}", file=sys.stderr, flush=True)
