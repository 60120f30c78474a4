"""Runs independent pieces of work on all cores: one process for each, with one thread."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from revbis.io import runtime
from revbis.objectives import NonFiniteError

Steps = Callable[[int], None]
Show = Callable[[str, float], None]
_POLL_SECONDS = 0.2

_counter: Any = None  # of a worker: how much of the work is done


class Work(Protocol):
    """A piece of work, such as a training."""

    @property
    def title(self) -> str:
        """It in a few words."""

    @property
    def steps(self) -> int:
        """Its number of steps."""


W = TypeVar("W", bound=Work)


def run_all(
    works: Mapping[W, float], run: Callable[[W, Steps], None], workers: int, show: Show
) -> dict[W, str]:
    """Runs every piece of work; what is finished stays, whatever happens to the rest.

    Args:
        works: The pieces in turn, and how much work each is.
        run: Runs one and keeps its result; it calls its second argument now and then with a number
            of further steps. It must be a function that another process can import.
        workers: Number of processes; with one, all is run in this process.
        show: Called now and then with a text and with how much of the work is done.

    Returns:
        The pieces that failed, as when training diverged, and why.

    Raises:
        ValueError: If a worker died unexpectedly.
    """
    if workers == 1 or len(works) == 1:
        return _run_here(works, run, show)
    context = multiprocessing.get_context("spawn")
    counter = context.Value("d", 0.0)
    workers = min(workers, len(works))
    problems: dict[W, str] = {}
    with _pool(context, workers, counter) as pool:
        with _deaf_to_interrupts():
            waiting: dict[Future[str | None], W] = {
                pool.submit(_work, run, work, cost): work for work, cost in works.items()
            }
        count = len(waiting)
        while waiting:
            done, _ = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
            for future in done:
                work = waiting.pop(future)
                problem = future.result()
                if problem is not None:
                    problems[work] = problem
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
def _pool(context: Any, workers: int, counter: Any) -> Iterator[ProcessPoolExecutor]:
    """Workers that are ended in the middle of a cell when this process leaves."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, context, _begin, (counter,))
    try:
        yield pool
    except BaseException as problem:
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        if isinstance(problem, BrokenProcessPool):
            raise ValueError(
                "a worker died unexpectedly (was it killed, or out of memory?); "
                "finished cells are kept: repeat the command with fewer --workers"
            ) from None
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(counter: Any) -> None:
    """Prepares a worker: one thread; Ctrl-C is for the process above, whose end is the worker's."""
    logging.getLogger("revbis").setLevel(logging.ERROR)  # what the process above has said already
    global _counter  # noqa: PLW0603 (the one way from a pool's initialiser to its tasks)
    _counter = counter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    runtime.prepare(1)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(run: Callable[[W, Steps], None], work: W, cost: float) -> str | None:
    """One piece in a worker; returns what went wrong."""

    def progress(steps: int) -> None:
        with _counter.get_lock():
            _counter.value += cost * steps / work.steps

    return _try(run, work, progress)


def _run_here(
    works: Mapping[W, float], run: Callable[[W, Steps], None], show: Show
) -> dict[W, str]:
    problems: dict[W, str] = {}
    before = 0.0
    for number, (work, cost) in enumerate(works.items(), 1):
        text = f"{work.title} ({number} of {len(works)})"
        progress = _Count(partial(show, text), before, cost / work.steps)
        problem = _try(run, work, progress)
        before += cost
        if problem is not None:
            problems[work] = problem
    return problems


class _Count:
    """Counts steps and shows how much of all work is done."""

    def __init__(self, show: Callable[[float], None], before: float, cost: float) -> None:
        self._show, self._done, self._cost = show, before, cost

    def __call__(self, steps: int) -> None:
        self._done += self._cost * steps
        self._show(self._done)


def _try(run: Callable[[W, Steps], None], work: W, progress: Steps) -> str | None:
    try:
        run(work, progress)
    except (ValueError, NonFiniteError) as problem:
        return f"{work.title}: {problem}"
    return None
