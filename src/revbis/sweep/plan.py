"""A sweep before it starts: its runs, how far they are and what they will take; and its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from revbis.sweep.board import board, common_folder
from revbis.sweep.driver import Sweep
from revbis.sweep.place import Place, lock_path
from revbis.sweep.projection import disk_bytes, memory_bytes, times_left, together
from revbis.sweep.where import Where, check_where, local_workers, make_runner
from revbis.training.preflight import UnfitMachineError
from revbis.training.storage import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from revbis.config import Config
    from revbis.sweep.grid import Grid
    from revbis.sweep.projection import Speed


@dataclass(frozen=True)
class Plan:
    """A sweep that could start, if not on this machine.

    Attributes:
        out: Its folder, a path or a URL.
        where: Where its runs train.
        configs: Its runs.
        place: Its folder, opened.
        sweep: Its runs as they stand.
        retry_failed: Whether runs that were given up are retried.
        lack: Why this machine cannot train every run, such as a missing package; None if it can.
    """

    out: str
    where: Where
    configs: list[Config]
    place: Place
    sweep: Sweep
    retry_failed: bool
    lack: str | None = None

    def workers(self) -> int | None:
        """Runs in parallel; None with Ray, where the nodes decide.

        Raises:
            MemoryError: If this machine does not have the memory.
        """
        if self.where.on == "ray":
            return None
        return local_workers(self.where, _memory(self.sweep))


@dataclass(frozen=True)
class RunForecast:
    """What a run will take.

    Attributes:
        name: Its folder below the one that all runs share.
        state: waiting, resumed, finished or failed.
        frames: Its budget.
        seconds: Time it will still take; None if that is not known.
        memory: In bytes.
        disk: In bytes.
    """

    name: str
    state: str
    frames: int
    seconds: float | None
    memory: int
    disk: int


@dataclass(frozen=True)
class Forecast:
    """What a sweep will take.

    Attributes:
        folder: The folder that all runs share.
        runs: What each of them takes.
        workers: Runs in parallel; None with Ray, where the nodes decide.
        seconds: Time of all runs with so many in parallel, with Ray one after the other; None if
            that is not known.
        disk: Disk space of all runs, in bytes.
        given_up: Runs that have failed too often, and are not retried.
    """

    folder: str
    runs: list[RunForecast]
    workers: int | None
    seconds: float | None
    disk: int
    given_up: int


def make_plan(grid: Grid, out: str, where: Where, *, retry_failed: bool = False) -> Plan:
    """Opens the sweep's folder and checks every run; starts and writes nothing.

    Args:
        grid: The runs.
        out: The sweep's folder, a path or a URL.
        where: Where the runs train.
        retry_failed: Forget earlier failures.

    Raises:
        ValueError: If a run can be trained nowhere, with every reason.
    """
    check_where(where, out)
    base = Path() if is_url(out) else Path(out).resolve()
    configs = [config.with_settings(threads=where.threads) for config in grid.configs(base)]
    place = Place(out)
    sweep = Sweep(configs, place)
    here = where.on == "local" or where.address is None  # else the cluster's nodes check themselves
    lack = sweep.check(here=here)
    for entry in sweep.entries if retry_failed else ():
        entry.state = "waiting" if entry.state == "failed" else entry.state
    return Plan(out, where, configs, place, sweep, retry_failed, lack)


def forecast(plan: Plan, speeds: Mapping[str, Speed] | None = None) -> Forecast:
    """Time, memory and disk of a sweep.

    Args:
        plan: The sweep.
        speeds: As measured, by agent; else runs are taken to be as fast as those that have started.

    Raises:
        MemoryError: If this machine does not have the memory.
    """
    workers, entries = plan.workers(), plan.sweep.entries
    times = times_left(entries, speeds)
    shared = common_folder([entry.name for entry in entries])
    runs = [
        RunForecast(
            name=entry.name.removeprefix(f"{shared}/"),
            state="resumed" if entry.state == "waiting" and entry.standing.frames else entry.state,
            frames=entry.config.frames,
            seconds=seconds,
            memory=memory_bytes(entry.config),
            disk=disk_bytes(entry.config),
        )
        for entry, seconds in zip(entries, times, strict=True)
    ]
    return Forecast(
        folder=plan.place.folder(shared),
        runs=runs,
        workers=workers,
        seconds=together(times, workers or 1),
        disk=sum(run.disk for run in runs),
        given_up=sum(entry.state == "failed" for entry in entries),
    )


def run_plan(plan: Plan, stop: Callable[[], bool]) -> Sweep:
    """Trains every run of a sweep, with a board on the screen.

    Args:
        plan: The sweep.
        stop: Asked every second; then running attempts save and end.

    Returns:
        The runs as they stand now.

    Raises:
        ValueError: If this machine lacks what a run needs, another sweep drives the same folder, or
            there is no Ray cluster.
        MemoryError: If this machine does not have the memory.
    """
    import filelock

    if plan.lack is not None:
        raise UnfitMachineError(plan.lack)
    if not plan.sweep.complete:
        plan.workers()  # refused before anything is written
    lock = lock_path(plan.out)
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock, timeout=0):
            sweep = Sweep(plan.configs, plan.place, retry_failed=plan.retry_failed)
            if not sweep.complete:
                runner = make_runner(plan.where, _memory(sweep), plan.place)
                with board(runner.where) as show:
                    sweep.run(runner, show, stop)
    except filelock.Timeout:
        raise ValueError(
            f"another sweep is driving {plan.out}; wait for it or stop it first"
        ) from None
    return sweep


def _memory(sweep: Sweep) -> int:
    """Bytes of the largest run that is not finished; every run is given as much."""
    unfinished = (entry for entry in sweep.entries if entry.state != "finished")
    return max((memory_bytes(entry.config) for entry in unfinished), default=1)
