"""Many runs from one grid."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from revbis.config import Config
    from revbis.sweep.driver import Entry, Place, Runner, Sweep
    from revbis.sweep.grid import Grid


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
    retry_failed: bool = False,
) -> None:
    """Makes every run of a grid: tasks x methods x seeds x overrides.

    revbis sweep table1-cpu --dry-run
    revbis sweep --tasks dmc:cartpole_balance --methods drqv2 simsr-rev --seeds 1 2 3

    Repeating the command goes on: finished runs are skipped, interrupted ones resumed. A run that
    fails is tried again from its last checkpoint; after three failures at the same one it is given
    up, and the others go on. Ctrl-C saves all running ones first.

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
        retry_failed: Try those again that were given up.
    """
    from revbis import runtime

    runtime.prepare(where.threads)
    chosen = choose_grid(grid, tasks, methods, seeds, preset, set)
    sys.exit(run_grid(chosen, out, where, dry_run=dry_run, retry_failed=retry_failed))


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


def run_grid(
    grid: Grid, out: str, where: Where, *, dry_run: bool = False, retry_failed: bool = False
) -> int:
    """Makes a grid's runs and returns the exit code: 0 if all are finished."""
    import filelock
    from rich.console import Console

    from revbis.envs import check_task
    from revbis.sweep.board import table
    from revbis.sweep.driver import Place, Sweep, lock_path

    if where.on == "local" and "://" in out:
        raise ValueError(f"--out {out} is for --on ray; local runs need a path")
    if where.on == "local" and where.address is not None:
        raise ValueError("--address is for --on ray")
    for task in grid.tasks:
        with suppress(*([ModuleNotFoundError] if where.on == "ray" else [])):  # nodes may have it
            check_task(task)
    base = Path() if "://" in out else Path(out).resolve()
    configs = [replace(config, threads=where.threads) for config in grid.configs(base)]
    place = Place(out)
    if dry_run:
        _print_plan(configs, place, where)
        return 0
    lock = lock_path(out)
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock, timeout=0):
            sweep = Sweep(configs, place, retry_failed=retry_failed)
            caught = [] if sweep.complete else _drive(sweep, place, where)
    except filelock.Timeout:
        raise ValueError(f"another sweep is driving {out}; wait for it or end it first") from None
    Console(width=None if sys.stdout.isatty() else 140).print(table(sweep.entries, out))
    return _say_end(sweep, out, caught)


def _drive(sweep: Sweep, place: Place, where: Where) -> list[int]:
    """Makes the runs; returns the signal that stopped it, if one did."""
    from revbis.commands.console import stop_signals
    from revbis.sweep.board import board

    runner = _runner([entry.config for entry in sweep.entries], place, where)
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


def _runner(configs: Sequence[Config], place: Place, where: Where) -> Runner:
    from revbis.sweep.projection import memory_bytes

    memory = max(map(memory_bytes, configs))
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
    if where.workers is not None and where.workers < 1:
        raise ValueError(f"--workers must be at least 1, got {where.workers}")
    wanted = where.workers or 1
    if fitting < wanted:
        raise MemoryError(
            f"{wanted} runs at once take {in_words(wanted * memory)} of memory, but only "
            f"{in_words(free)} is free; use fewer --workers, --set replay_storage=disk or a "
            "smaller --set replay_capacity=N"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return where.workers or max(1, min(fitting, (cores or 1) // where.threads))


def _print_plan(configs: Sequence[Config], place: Place, where: Where) -> None:
    """The runs and what they will take."""
    from revbis.commands.console import in_time, print_table
    from revbis.memory import in_words
    from revbis.sweep.driver import Sweep
    from revbis.sweep.projection import disk_bytes, frames_per_second, memory_bytes

    workers = _workers(where, max(map(memory_bytes, configs))) if where.on == "local" else None
    sweep = Sweep(configs, place)
    speed, source = _known_speed(sweep.entries), "as the runs so far"
    if speed is None:
        print("measuring a few steps and updates ...", file=sys.stderr, flush=True)
        example = next((c for c in configs if c.agent.has_objective), configs[0])
        speed, source = frames_per_second(example), "measured just now on this machine"
    rows, hours = [], 0.0
    for entry in sweep.entries:
        done = int(entry.progress.get("frames", 0))
        seconds = 0.0 if entry.state == "finished" else (entry.config.frames - done) / speed
        hours += seconds / 3600
        rows.append(
            {
                "folder": entry.name,
                "state": entry.state if not done or entry.state == "finished" else "resumed",
                "frames": f"{entry.config.frames:,}",
                "time": in_time(seconds),
                "memory": in_words(memory_bytes(entry.config)),
                "disk": in_words(disk_bytes(entry.config)),
            }
        )
    print_table(f"{len(rows)} runs in {place.url or Path(configs[0].out)}", rows)
    disk = in_words(sum(disk_bytes(config) for config in configs))
    print(f"{speed:.3g} frames/s a run, {source}; {disk} of disk in all")
    if workers:
        print(f"{workers} at once: about {in_time(hours * 3600 / workers)}")
    else:
        print(f"about {in_time(hours * 3600)} through the number of runs at once")


def _known_speed(entries: Sequence[Entry]) -> float | None:
    """Median speed of runs that have begun."""
    from statistics import median

    speeds = [
        float(entry.progress["frames"]) / float(entry.progress["seconds"])
        for entry in entries
        if entry.progress.get("frames") and entry.progress.get("seconds")
    ]
    return median(speeds) if speeds else None
