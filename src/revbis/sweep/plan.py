"""A sweep before it starts: its runs, how far they are and what they will take; and its start."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import filelock

from revbis.agents.registry import resolve
from revbis.runs.folder import check_writable, is_url
from revbis.runs.memory import disk_bytes, memory_bytes, replay_bytes
from revbis.runs.preflight import UnfitMachineError
from revbis.sweep.backend import Backend, check_backend, local_workers, make_runner
from revbis.sweep.driver import Sweep, SweepStorage, lock_path
from revbis.sweep.live import board, common_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from revbis.runs.config import Config
    from revbis.sweep.driver import Entry
    from revbis.sweep.grid import Grid

_OVER = ("finished", "failed")  # no more attempts are made at such a run


@dataclass(frozen=True)
class Plan:
    """A sweep that could start, if not on this machine.

    Attributes:
        out: Its folder, a path or a URL.
        backend: Where its runs train.
        configs: Its runs.
        storage: Its folder, opened.
        sweep: Its runs as they stand.
        retry_failed: Whether runs that were given up are retried.
        lack: Why this machine cannot train every run, such as a missing package; None if it can.
    """

    out: str
    backend: Backend
    configs: list[Config]
    storage: SweepStorage
    sweep: Sweep
    retry_failed: bool
    lack: str | None = None

    def workers(self) -> int | None:
        """Runs in parallel; None with Ray, where the nodes decide.

        Raises:
            MemoryError: If this machine does not have the memory.
        """
        if self.backend.on == "ray":
            return None
        return local_workers(self.backend, _memory(self.sweep))


def make_plan(grid: Grid, out: str, backend: Backend, *, retry_failed: bool = False) -> Plan:
    """Opens the sweep's folder and checks every run; starts and writes nothing.

    Raises:
        ValueError: If a run can be trained nowhere, with every reason.
    """
    check_backend(backend, out)
    base = Path() if is_url(out) else Path(out).resolve()
    configs = grid.configs(base, backend.threads)
    if not is_url(out):
        for folder in {config.directory.parent for config in configs}:
            check_writable(folder)
    storage = SweepStorage(out)
    sweep = Sweep(configs, storage)
    # The nodes of another cluster check themselves.
    lack = sweep.check(here=backend.on == "local" or backend.address is None)
    for entry in sweep.entries if retry_failed else ():
        entry.state = "waiting" if entry.state == "failed" else entry.state
    return Plan(out, backend, configs, storage, sweep, retry_failed, lack)


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
    if plan.lack is not None:
        raise UnfitMachineError(plan.lack)
    if not plan.sweep.complete:
        plan.workers()  # refused before anything is written
    lock = lock_path(plan.out)
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock, timeout=0):
            sweep = Sweep(plan.configs, plan.storage, retry_failed=plan.retry_failed)
            if not sweep.complete:
                runner = make_runner(plan.backend, _memory(sweep), plan.storage)
                with board(runner.where) as show:
                    sweep.run(runner, show, stop)
    except filelock.Timeout:
        raise ValueError(
            f"another sweep is driving {plan.out}; wait for it or stop it first"
        ) from None
    return sweep


def _memory(sweep: Sweep) -> int:
    """Bytes of the largest run that is not finished; every run is given as much."""
    unfinished = (entry.config for entry in sweep.entries if entry.state != "finished")
    kinds = {config.kind: config for config in unfinished}
    return max(map(memory_bytes, kinds.values()), default=1)


@dataclass(frozen=True)
class Speed:
    """Seconds that the parts of a run take.

    Attributes:
        step: An agent step of the environment, rendering included.
        act: The choice of an action by the networks.
        update: An update.
        episode: Agent steps of an episode, where known: evaluations play whole ones.
    """

    step: float
    act: float
    update: float
    episode: int | None = None


@dataclass(frozen=True)
class RunForecast:
    """What a run will take.

    Attributes:
        name: Its folder below the one that all runs share.
        state: waiting, resumed, finished or failed.
        frames: Its budget.
        seconds: Time it will still take; None if that is not known.
        memory: Of its process, in bytes.
        replay: Part of it that the replay buffer takes.
        disk: In bytes.
    """

    name: str
    state: str
    frames: int
    seconds: float | None
    memory: int
    replay: int
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
    kinds = {entry.config.kind: entry.config for entry in entries}
    sizes = {
        kind: {
            "memory": memory_bytes(config),
            "replay": replay_bytes(config),
            "disk": disk_bytes(config),
        }
        for kind, config in kinds.items()
    }
    runs = [
        RunForecast(
            name=entry.name.removeprefix(f"{shared}/"),
            state="resumed" if entry.state == "waiting" and entry.progress.frames else entry.state,
            frames=entry.config.frames,
            seconds=seconds,
            **sizes[entry.config.kind],
        )
        for entry, seconds in zip(entries, times, strict=True)
    ]
    return Forecast(
        folder=plan.storage.folder(shared),
        runs=runs,
        workers=workers,
        seconds=together(times, workers or 1),
        disk=sum(run.disk for run in runs),
        given_up=sum(entry.state == "failed" for entry in entries),
    )


def seconds_left(config: Config, done: int, speed: Speed) -> float:
    """Time a run will still take; its first steps are random, without network and update."""
    first = done // config.action_repeat
    steps = max(-(-config.frames // config.action_repeat) - first, 0)
    learning = max(steps - max(config.agent.explore_steps - first, 0), 0)
    training = steps * speed.step + learning * (speed.act + speed.update / config.update_every)
    if not steps or speed.episode is None:
        return training
    evaluations = config.frames // config.eval_every - done // config.eval_every + (done == 0)
    played = evaluations * config.eval_episodes * len(config.splits) * speed.episode
    return training + played * (speed.step + speed.act)


def times_left(entries: Sequence[Entry], speeds: Mapping[str, Speed] | None) -> list[float | None]:
    """Seconds that each run will still take; None where nothing is known, 0 if it is given up.

    Args:
        entries: The runs.
        speeds: As measured, by agent; else runs are taken to be as fast as those that have started.
    """
    if speeds is not None:
        return [_measured_time(entry, speeds) for entry in entries]
    known: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for entry in entries:
        if (rate := _rate(entry)) is not None:
            for key in _likeness(entry):
                known[key].append(rate)
    rates = {key: median(each) for key, each in known.items()}
    return [_time_left(entry, rates) for entry in entries]


def representatives(entries: Sequence[Entry]) -> list[Config]:
    """Runs to measure: of each agent one that is still to train, with an objective if there is one.

    The agents differ in what an action and an update take, far more than an agent's objectives do.
    """
    chosen: dict[str, Config] = {}
    for config in (entry.config for entry in entries if entry.state not in _OVER):
        known = chosen.setdefault(agent_of(config), config)
        if resolve(config.method).objective and not resolve(known.method).objective:
            chosen[agent_of(config)] = config
    return list(chosen.values())


def agent_of(config: Config) -> str:
    """Name of a run's agent."""
    return resolve(config.method).agent.name


def together(times: Sequence[float | None], workers: int) -> float | None:
    """Seconds until the last run ends, with `workers` in parallel; None if a time is not known."""
    known = [each for each in times if each is not None]
    if len(known) < len(times):
        return None
    return max(sum(known) / workers, max(known, default=0.0))


def _measured_time(entry: Entry, speeds: Mapping[str, Speed]) -> float | None:
    if entry.state in _OVER:
        return 0.0
    speed = speeds.get(agent_of(entry.config))
    return None if speed is None else seconds_left(entry.config, entry.progress.frames, speed)


def _rate(entry: Entry) -> float | None:
    """Frames per second of a run that has learned for as long as it explored.

    Random steps take next to no time: they count neither here nor among the frames left.
    """
    explored = _explored(entry)
    learned = entry.progress.frames - explored
    if learned <= 0 or learned < explored or not entry.progress.seconds:
        return None
    return learned / entry.progress.seconds


def _explored(entry: Entry) -> int:
    """Frames of random actions at the start of a run."""
    return entry.config.agent.explore_steps * entry.config.action_repeat


def _likeness(entry: Entry) -> list[tuple[str, ...]]:
    """What a run has in common with others: itself, its task and method, its method, nothing."""
    config = entry.config
    return [("run", entry.name), (config.task, config.method, ""), (config.method,), ()]


def _time_left(entry: Entry, rates: Mapping[tuple[str, ...], float]) -> float | None:
    """By the rate of the run itself, of runs of its task and method, of its method, or of all."""
    if entry.state in _OVER:
        return 0.0
    left = max(entry.config.frames - max(entry.progress.frames, _explored(entry)), 0)
    rate = next((rates[key] for key in _likeness(entry) if key in rates), None)
    return None if rate is None else left / rate
