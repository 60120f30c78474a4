"""What commands show: tables, and bars once something takes more than a moment."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from revbis.tabular.linear import Progress

_QUIET_SECONDS = 2.0
_PLAIN_WIDTH = 140


def print_table(title: str, rows: list[dict[str, str]]) -> None:
    """Prints rows with the same keys under their names."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, overflow="fold", no_wrap=name in ("metric", "method", "solver"))
    for row in rows:
        table.add_row(*row.values())
    Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH).print(table)


@contextmanager
def solver_bar(name: str, tol: float) -> Iterator[Progress]:
    """A bar with the error reached and the time left, for a solver that is to reach `tol`."""
    first: list[float] = []
    with _late_bar(f"{name}: starting (the first run compiles for some seconds)", 1.0) as bar:

        def report(iteration: int, bound: float) -> None:
            if math.isfinite(bound) and bound > tol:
                first.append(bound)
                del first[1:]
            text = f"{name}: step {iteration}, error ≤ {bound:.1e} (wanted {tol:.0e})"
            done = _share_done(first[0], bound, tol) if first else 0.0
            bar.update(bar.task_ids[0], completed=done, description=text)

        yield report


@contextmanager
def step_bar(total: int) -> Iterator[Callable[[str], None]]:
    """A bar over so many equal steps; each call is one step and says what it belongs to."""
    with _late_bar("starting", total) as bar:

        def advance(text: str) -> None:
            bar.update(bar.task_ids[0], advance=1, description=text)

        yield advance


@contextmanager
def _late_bar(text: str, total: float) -> Iterator[Bar]:
    """A bar that shows itself after a moment, and leaves nothing behind."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    bar.add_task(text, total=total)
    timer = threading.Timer(_QUIET_SECONDS, bar.start)
    timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def _share_done(first: float, bound: float, tol: float) -> float:
    """Errors shrink geometrically: progress is linear in their logarithm."""
    if not math.isfinite(bound):
        return 0.0
    return min(max(math.log(first / max(bound, tol)) / math.log(first / tol), 0.0), 1.0)
