"""Many runs from one grid."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from revbis.config import Config
    from revbis.sweep.driver import Entry, Runner, Sweep
    from revbis.sweep.grid import Grid
    from revbis.sweep.place import Place
    from revbis.sweep.projection import Speed

_MOST = 4096  # threads, GPUs or runs at once: more than any machine has


@dataclass(frozen=True)
class Where:
    """Where runs are made."""

    on: Literal["local", "ray"] = "local"
    """local: processes of this machine; ray: tasks of a Ray cluster."""
    address: str | None = None
    """Of an existing Ray cluster, such as auto or HOST:6379; without it Ray starts one here."""
    workers: int | None = None
    """Runs at once on this machine; as many as its cores and memory allow when not given."""
    threads: int = 1
    """Threads of a run; with Ray also the cores it asks for."""
    gpus: float = 0.0
    """GPUs a run asks Ray for; 0.25 lets four runs share one."""


HERE = Where()


def command(
    grid: Annotated[str | None, tyro.conf.Positional] = None,
    *,
    tasks: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    preset: Literal["paper", "cpu"] | None = None,
    set: tuple[str, ...] = (),  # noqa: A002 (the flag's name)
    out: str = "runs",
    where: Annotated[Where, tyro.conf.arg(name="")] = HERE,
    dry_run: bool = False,
    measure: bool = False,
    retry_failed: bool = False,
) -> None:
    """Makes every run of a grid: tasks x methods x seeds x overrides.

    revbis sweep table1-cpu --dry-run
    revbis sweep --tasks dmc:cartpole_balance --methods drqv2 simsr-rev --seeds 1 2 3

    Repeating the command goes on: finished runs are skipped, interrupted ones resumed. A run that
    fails is tried again from its last checkpoint; after three failures at the same one it is given
    up, and the others go on. A mistake, such as a reward that is no number, is not tried again.
    Ctrl-C saves all running ones first.

    Args:
        grid: A YAML file, or a grid that ships by its name; flags replace what it says.
        tasks: Tasks.
        methods: Methods.
        seeds: Seeds; 1 2 3 when not given.
        preset: Where settings come from; cpu when not given.
        set: Settings for every run as NAME=VALUE, such as frames=20000.
        out: Folder for all runs: a path that every machine sees, or an fsspec URL with Ray.
        where: Where runs are made.
        dry_run: Print the runs, their folders, and the projected time, memory and disk.
        measure: Measure the speed of one of the runs here, in at most 20 seconds, for the time that
            --dry-run prints; implies --dry-run.
        retry_failed: Try those again that were given up.
    """
    chosen = choose_grid(grid, tasks, methods, seeds, preset, set)
    if dry_run or measure:
        print_plan(chosen, out, where, measure=measure, retry_failed=retry_failed)
    else:
        sys.exit(run_grid(chosen, out, where, retry_failed=retry_failed))


def choose_grid(
    name: str | None,
    tasks: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    preset: str | None,
    settings: Sequence[str],
) -> Grid:
    """The grid of that name, with what flags say in place of what it says."""
    from revbis.sweep.grid import grid_from, parse_settings, read_grid, shipped_grids

    given = {"tasks": tasks, "methods": methods, "seeds": seeds, "preset": preset}
    flags = {key: value for key, value in given.items() if value}
    extra = parse_settings(settings)
    if name is None:
        if not tasks or not methods:
            raise ValueError(
                "give a grid (a YAML file, or one of "
                f"{', '.join(shipped_grids())}) or --tasks and --methods"
            )
        lists = {k: list(v) if isinstance(v, tuple) else v for k, v in flags.items()}
        return grid_from(lists | {"settings": extra}, "the flags")
    grid = read_grid(name)
    return replace(grid, **flags, settings={**grid.settings, **extra})  # type: ignore[arg-type]


def run_grid(grid: Grid, out: str, where: Where, *, retry_failed: bool = False) -> int:
    """Makes a grid's runs and returns the exit code: 0 if all are finished."""
    import filelock
    from rich.console import Console

    from revbis.sweep.board import table
    from revbis.sweep.driver import Sweep
    from revbis.sweep.place import lock_path

    configs, place, sweep = _open(grid, out, where)
    if where.on == "local" and not sweep.complete:
        _workers(where, _memory(sweep))  # refused before anything is written
    lock = lock_path(out)
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock, timeout=0):
            sweep = Sweep(configs, place, retry_failed=retry_failed)
            caught = [] if sweep.complete else _drive(sweep, place, where)
    except filelock.Timeout:
        raise ValueError(f"another sweep is driving {out}; wait for it or end it first") from None
    console = Console()
    console.print(table(sweep.entries, out, console.width))
    return _say_end(sweep, out, caught)


def _open(grid: Grid, out: str, where: Where) -> tuple[list[Config], Place, Sweep]:
    """The grid's runs, their folder and how they stand; refused if one of them cannot be made."""
    from revbis.sweep.driver import Sweep
    from revbis.sweep.place import Place

    _check_where(where, out)
    base = Path() if "://" in out else Path(out).resolve()
    configs = [replace(config, threads=where.threads) for config in grid.configs(base)]
    place = Place(out)
    sweep = Sweep(configs, place)
    sweep.check(here=where.on == "local" or where.address is None)  # else on the cluster's nodes
    return configs, place, sweep


def _check_where(where: Where, out: str) -> None:
    from revbis.sweep.ray import check_installed

    for name, count in (("threads", where.threads), ("workers", where.workers)):
        if count is not None and not 1 <= count <= _MOST:
            raise ValueError(f"--{name} must be a whole number from 1 to {_MOST}, got {count}")
    gpus = where.gpus
    if not (0 <= gpus < 1 or (1 <= gpus <= _MOST and gpus == int(gpus))):
        raise ValueError(
            f"--gpus must be a share from 0 to 1, or a whole number up to {_MOST}, got {gpus:g}"
        )
    if where.on == "ray":
        if where.workers is not None:
            raise ValueError("--workers is for --on local; with Ray the nodes decide")
        check_installed()
        return
    if "://" in out:
        raise ValueError(f"--out {out} is for --on ray; local runs need a path")
    if where.address is not None:
        raise ValueError("--address is for --on ray")
    if gpus:
        raise ValueError("--gpus is for --on ray; local runs use --set device=cuda")


def _drive(sweep: Sweep, place: Place, where: Where) -> list[int]:
    """Makes the runs; returns the signal that stopped it, if one did."""
    from revbis.commands.console import stop_signals
    from revbis.sweep.board import board

    runner = _runner(_memory(sweep), place, where)
    with stop_signals() as caught, board(runner.where) as show:
        sweep.run(runner, show, lambda: bool(caught))
    return caught


def _say_end(sweep: Sweep, out: str, caught: list[int]) -> int:
    if caught:
        print("stopped; repeat the command to go on")
        return 128 + caught[0]
    failed = [entry for entry in sweep.entries if entry.state == "failed"]
    for entry in failed:
        print(f"{entry.name} failed; the logs are in {out}/{entry.name}/attempts")
    if failed:
        print("--retry-failed tries them again")
    return 0 if sweep.complete else 1


def _memory(sweep: Sweep) -> int:
    """What the largest run that is not finished takes; all runs are given as much."""
    from revbis.sweep.projection import memory_bytes

    open_runs = (entry for entry in sweep.entries if entry.state != "finished")
    return max((memory_bytes(entry.config) for entry in open_runs), default=1)


def _runner(memory: int, place: Place, where: Where) -> Runner:
    if where.on == "ray":
        from revbis.sweep.ray import RayRunner, Request

        return RayRunner(where.address, Request(where.threads, where.gpus, memory), place)
    from revbis.sweep.local import LocalRunner

    return LocalRunner(_workers(where, memory))


def _workers(where: Where, memory: int) -> int:
    """Runs at once: what was asked for, if it fits, or what the machine has cores and memory for.

    Raises:
        MemoryError: If the memory is not there.
    """
    import os

    from revbis.memory import available_bytes, in_words

    free = available_bytes()
    fitting = free // memory
    wanted = where.workers or 1
    if fitting < wanted:
        raise MemoryError(
            f"{wanted} runs at once take {in_words(wanted * memory)} of memory, but only "
            f"{in_words(free)} is free; use fewer --workers, --set replay_storage=disk or a "
            "smaller --set replay_capacity=N"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return where.workers or max(1, min(fitting, (cores or 1) // where.threads))


def print_plan(
    grid: Grid, out: str, where: Where, *, measure: bool = False, retry_failed: bool = False
) -> None:
    """Prints the runs and what they will take; starts none."""
    from revbis.commands.console import print_table
    from revbis.memory import in_words
    from revbis.sweep.board import common_folder
    from revbis.sweep.plan import times_left
    from revbis.sweep.projection import disk_bytes

    configs, place, sweep = _open(grid, out, where)
    given_up = [entry for entry in sweep.entries if entry.state == "failed"]
    for entry in given_up if retry_failed else ():
        entry.state = "waiting"
    workers = _workers(where, _memory(sweep)) if where.on == "local" else None
    speed = _measured(sweep) if measure else None
    times = times_left(sweep.entries, speed)
    prefix = common_folder([entry.name for entry in sweep.entries])
    rows = [
        {"run": entry.name.removeprefix(f"{prefix}/"), **_plan_row(entry, seconds)}
        for entry, seconds in zip(sweep.entries, times, strict=True)
    ]
    same = _take_same(rows, ("frames", "memory", "disk"))
    print(f"in {place.folder(prefix)}:")
    print_table("1 run" if len(rows) == 1 else f"{len(rows)} runs", rows)
    if same:
        print("each run: " + ", ".join(f"{value} {name}" for name, value in same.items()))
    print(f"all runs: {in_words(sum(map(disk_bytes, configs)))} disk")
    source = "as the runs so far" if speed is None else "as measured here just now"
    print(_time_line(times, workers, source))
    if given_up and not retry_failed:
        print(f"given up: {len(given_up)} of them; --retry-failed tries those again")


def _plan_row(entry: Entry, seconds: float | None) -> dict[str, str]:
    from revbis.commands.console import in_time
    from revbis.memory import in_words
    from revbis.sweep.projection import disk_bytes, memory_bytes

    begun = entry.state == "waiting" and entry.standing.frames
    return {
        "state": "resumed" if begun else entry.state,
        "time": "not known" if seconds is None else in_time(seconds),
        "frames": f"{entry.config.frames:,}",
        "memory": in_words(memory_bytes(entry.config)),
        "disk": in_words(disk_bytes(entry.config)),
    }


def _time_line(times: Sequence[float | None], workers: int | None, source: str) -> str:
    """How long a sweep will take, in words."""
    from revbis.commands.console import in_time
    from revbis.sweep.plan import together

    total = together(times, workers or 1)
    if total is None:
        return "time: not known before runs have begun; --measure measures it, in 20 s at most"
    at_once = f"with {workers} at once" if workers else "divided by the number of runs at once"
    return f"time: about {in_time(total)} {at_once}, {source}"


def _take_same(rows: list[dict[str, str]], names: Sequence[str]) -> dict[str, str]:
    """Takes out of a table what is the same in every row."""
    same = {name: rows[0][name] for name in names if len({row[name] for row in rows}) == 1}
    for row in rows:
        for name in same:
            del row[name]
    return same


def _measured(sweep: Sweep) -> Speed | None:
    from revbis.sweep.measure import NotMeasuredError, measure
    from revbis.sweep.plan import representative

    config = representative(sweep.entries)
    if config is None:
        return None
    what = f"{config.task}, {config.method}"
    print(f"measuring {what}, for 20 s at most ...", file=sys.stderr, flush=True)
    try:
        speed = measure(config)
    except NotMeasuredError as problem:
        print(f"revbis: warning: {problem}", file=sys.stderr)
        return None
    times = {"a step": speed.step, "an update": speed.update}
    words = [f"{1000 * seconds:.3g} ms {name}" for name, seconds in times.items()]
    print(f"{what}: {', '.join(words)}", file=sys.stderr)
    return speed
