"""Runs cells on all cores: one process for each, with one thread, seed by seed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from revbis.objectives import NonFiniteError
from revbis.system import runtime
from revbis.yardsticks.probe.cells import Cell, run_cell
from revbis.yardsticks.probe.scenarios import SCENARIOS, build
from revbis.yardsticks.probe.training import ProbeSettings, make

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_POLL_SECONDS = 0.2
_NOISY = 1.5  # how much longer a step takes with noisy pixels, and with ψ or a tie
_WITH_PSI = 0.3
_WITH_POLICY = 0.2

_counter: Any = None  # of a worker: steps that all have made, and whether to stop
_stop: Any = None


def plan(
    scenarios: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    size: int,
    settings: ProbeSettings,
) -> dict[Cell, float]:
    """The cells, seed by seed, the longest of each first, and how much work each is.

    Raises:
        ValueError: For an objective or a grid that cannot be made, before time is spent on others.
    """
    problems = {name: build(name, size, settings.gamma) for name in scenarios}
    cost = {}
    for method in dict.fromkeys(methods):
        for actions in {problem.mdp.n_actions for problem in problems.values()}:
            objective = make(method, actions, settings)
        psi = _WITH_PSI * (objective.compares == "state_action")
        cost[method] = 1 + psi + _WITH_POLICY * len(objective.policy_actions)
    cells = {
        Cell(scenario, method, seed, size, settings): settings.steps
        * cost[method]
        * (_NOISY if SCENARIOS[scenario].pixels == "noisy" else 1.0)
        for scenario in problems
        for method in cost
        for seed in range(seeds)
    }
    return dict(sorted(cells.items(), key=lambda item: (item[0].seed, -item[1])))


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_cells(
    cells: Mapping[Cell, float], out: Path, workers: int, show: Callable[[str, float], None]
) -> dict[Cell, str]:
    """Runs the cells that have no result yet; what is finished stays, whatever happens to the rest.

    Args:
        cells: The cells in turn, and how much work each is.
        out: Folder for the results.
        workers: Number of processes; with one, cells run in this process.
        show: Called now and then with a text and with how much of the work is done.

    Returns:
        The cells that failed, as when training diverged, and why.

    Raises:
        ValueError: If a worker ended without a word.
    """
    if workers == 1 or len(cells) == 1:
        return _run_here(cells, out, show)
    context = multiprocessing.get_context("spawn")
    counter, stop = context.Value("d", 0.0), context.Event()
    workers = min(workers, len(cells))
    problems: dict[Cell, str] = {}
    with _pool(context, workers, counter, stop) as pool:
        with _deaf_to_interrupts():
            waiting: dict[Future[str | None], Cell] = {
                pool.submit(_work, cell, out, cost): cell for cell, cost in cells.items()
            }
        count = len(waiting)
        while waiting:
            done, _ = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
            for future in done:
                cell = waiting.pop(future)
                problem = future.result()
                if problem is not None:
                    problems[cell] = problem
            show(f"{count - len(waiting)} of {count} cells", counter.value)
    return problems


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Holds Ctrl-C back while workers start: one whose parent leaves before would print an error.

    Workers stay deaf to it: their end is that of the process above.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone can be interrupted
        yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # workers inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if heard:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _pool(context: Any, workers: int, counter: Any, stop: Any) -> Iterator[ProcessPoolExecutor]:
    """Workers that stop in the middle of a cell when this process leaves."""
    pool = ProcessPoolExecutor(workers, context, _begin, (counter, stop))
    try:
        yield pool
    except BrokenProcessPool:
        raise ValueError(
            "a worker of the probe ended without a word (was it killed, or out of memory?); "
            "finished cells are kept: repeat the command with fewer --workers"
        ) from None
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(counter: Any, stop: Any) -> None:
    """Prepares a worker: one thread; Ctrl-C is for the process above, whose end is the worker's."""
    global _counter, _stop  # the one way from a pool's initialiser to its tasks
    _counter, _stop = counter, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    runtime.prepare(1)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(cell: Cell, out: Path, cost: float) -> str | None:
    """One cell in a worker; returns what went wrong."""

    def progress(steps: int) -> None:
        if _stop.is_set():
            raise KeyboardInterrupt
        with _counter.get_lock():
            _counter.value += cost * steps / cell.settings.steps

    return _try(cell, out, progress)


def _run_here(
    cells: Mapping[Cell, float], out: Path, show: Callable[[str, float], None]
) -> dict[Cell, str]:
    problems: dict[Cell, str] = {}
    before = 0.0
    for number, (cell, cost) in enumerate(cells.items(), 1):
        text = f"{cell.title} ({number} of {len(cells)})"
        progress = _Steps(partial(show, text), before, cost / cell.settings.steps)
        problem = _try(cell, out, progress)
        before += cost
        if problem is not None:
            problems[cell] = problem
    return problems


class _Steps:
    """Counts steps of a cell and shows how much of all work is done."""

    def __init__(self, show: Callable[[float], None], before: float, cost: float) -> None:
        self._show, self._done, self._cost = show, before, cost

    def __call__(self, steps: int) -> None:
        self._done += self._cost * steps
        self._show(self._done)


def _try(cell: Cell, out: Path, progress: Callable[[int], None]) -> str | None:
    try:
        run_cell(cell, out, progress)
    except (ValueError, NonFiniteError) as problem:
        return f"{cell.title}: {problem}"
    return None
