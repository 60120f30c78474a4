"""Console output of commands: tables, progress bars and status lines."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING

from revbis.io.text import format_duration, lay_out, line_width

if TYPE_CHECKING:
    from revbis.tabular.registry import OnIteration

_QUIET_SECONDS = 2.0
_PLAIN_SECONDS = 10.0
_LIVE_SECONDS = 0.5


def print_table(title: str, rows: Sequence[dict[str, str]], spare: Sequence[str] = ()) -> None:
    """Prints rows with the same keys under their names, no wider than the terminal or COLUMNS.

    Args:
        title: Line above the table; none if empty.
        rows: Cells by the name of their column.
        spare: Columns to drop first if the width does not suffice.
    """
    print("\n".join(lay_out(title, rows, line_width(), spare)))


@contextmanager
def solver_bar(name: str, tol: float) -> Iterator[OnIteration]:
    """Shows the current error and the time left, for a solver with tolerance `tol`."""
    first: list[float] = []
    with progress_bar(f"{name}: starting (the first run compiles for a few seconds)", 1.0) as show:

        def report(iteration: int, bound: float) -> None:
            if math.isfinite(bound) and bound > tol:
                first.append(bound)
                del first[1:]
            text = f"{name}: step {iteration}, error ≤ {bound:.1e} (target {tol:.0e})"
            show(text, _share_done(first[0], bound, tol) if first else 0.0)

        yield report


@contextmanager
def step_bar(total: int) -> Iterator[Callable[[str], None]]:
    """Shows progress over `total` equal steps; each call is one step, with a text to show."""
    done = count(1)
    with progress_bar("starting", total) as show:
        yield lambda text: show(text, next(done))


@contextmanager
def progress_bar(text: str, total: float) -> Iterator[Callable[[str, float], None]]:
    """A progress bar on a terminal, after two seconds; elsewhere a plain line every ten seconds."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(total)
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Bar(*columns, TimeRemainingColumn(), console=console, transient=True)
    task = bar.add_task(text, total=total)
    timer = threading.Timer(_QUIET_SECONDS, bar.start)
    timer.start()
    try:
        yield lambda text, done: bar.update(task, completed=done, description=text)
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()


@contextmanager
def status_line() -> Iterator[Callable[[Callable[[], str]], None]]:
    """A live status line on a terminal; elsewhere a plain line every ten seconds.

    Yields:
        A function that takes a callable for the text, which is called only when a line is due.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    every = _LIVE_SECONDS if console.is_terminal else _PLAIN_SECONDS
    shown_at = time.monotonic() - every + _LIVE_SECONDS
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def show(text: Callable[[], str]) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at < every:
            return
        shown_at = time.monotonic()
        if live is None:
            print(text(), file=sys.stderr, flush=True)
        else:
            live.update(Text(text()), refresh=True)

    with live or nullcontext():
        yield show


def _plain_lines(total: float) -> Callable[[str, float], None]:
    start = shown_at = time.monotonic()

    def show(text: str, done: float) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - shown_at > _PLAIN_SECONDS:
            shown_at = now
            if done > 0:
                text += f", about {format_duration((now - start) * (total / done - 1))} left"
            print(f"{text}, {done / total:.0%} done", file=sys.stderr, flush=True)

    return show


def _share_done(first: float, bound: float, tol: float) -> float:
    """Errors shrink geometrically: progress is linear in their logarithm."""
    if not math.isfinite(bound):
        return 0.0
    return min(max(math.log(first / max(bound, tol)) / math.log(first / tol), 0.0), 1.0)
