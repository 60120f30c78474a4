"""What the benchmarks share: one thread, fair timing, a table, a JSON line and an exit status.

The JSON line names the revision, the processor and the versions, so that it can be stored as it is.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from revbis.io.machine import processor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def one_thread() -> None:
    """Starts the script again with every thread pool at one thread, unless it runs that way.

    NumPy reads these variables when it is imported, so setting them later would be too late.
    """
    wanted = dict.fromkeys(_THREADS, "1")
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def timed(run: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """Seconds of one call by the clock, and what it returned."""
    start = clock()
    result = run()
    return clock() - start, result


def in_turn(
    runs: Sequence[Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[list[list[float]], list[Any]]:
    """Times the runs one after the other, several rounds, so that a busy moment hits them all.

    Returns:
        The seconds of each run, round by round, and what each returned last.
    """
    times: list[list[float]] = [[] for _ in runs]
    results: list[Any] = [None for _ in runs]
    for _ in range(rounds):
        for i, run in enumerate(runs):
            spent, results[i] = timed(run, clock)
            times[i].append(spent)
    return times, results


def median_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """The median over rounds of slow/fast."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def peak_gigabytes() -> float:
    """The most memory this process has had resident, in 10⁹ bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e9 if sys.platform == "darwin" else peak * 1024 / 1e9


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under a header, columns aligned, numbers to three digits."""
    cells = [[_cell(value) for value in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for first, *others in cells:
        numbers = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join((first.ljust(widths[0]), *numbers)))


def finish(benchmark: str, figures: dict[str, Any], missed: Sequence[str]) -> NoReturn:
    """Prints what was missed and the JSON line; the exit status is 1 if anything was missed."""
    for requirement in missed:
        print(f"MISSED: {requirement}")
    short = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in figures.items()}
    print_line({"benchmark": benchmark, **short, "met": not missed})
    sys.exit(1 if missed else 0)


def print_line(figures: dict[str, Any]) -> None:
    """Prints figures as a JSON line, with what they depend on beside the program."""
    where = {
        "revision": revision(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "torch")},
    }
    print(json.dumps(figures | where), flush=True)


def machine() -> str:
    """Processor, cores and Python of this machine in one line."""
    return f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def revision() -> str:
    """The git revision, with a + if files under src or benchmarks differ from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "benchmarks")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else _whole(value)


def _whole(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
