"""Many runs from one grid."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import tyro
from rich.console import Console

from revbis.cli.console import print_table
from revbis.cli.interrupts import stop_signals
from revbis.io.text import format_bytes, format_duration, format_interval
from revbis.runs.folder import ATTEMPTS
from revbis.sweep.backend import HERE, Backend
from revbis.sweep.grid import choose_grid
from revbis.sweep.live import table
from revbis.sweep.measure import NotMeasuredError
from revbis.sweep.measure import measure_speed as measure_speed
from revbis.sweep.plan import (
    Forecast,
    Plan,
    Speed,
    agent_of,
    forecast,
    make_plan,
    representatives,
    run_plan,
)


def command(
    grid: Annotated[str | None, tyro.conf.Positional] = None,
    *,
    tasks: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    preset: Literal["paper", "cpu"] | None = None,
    set: tuple[str, ...] = (),  # noqa: A002 (the flag's name)
    overrides: tuple[str, ...] = (),
    out: str = "runs",
    backend: Annotated[Backend, tyro.conf.arg(name="")] = HERE,
    dry_run: bool = False,
    measure: bool = False,
    retry_failed: bool = False,
) -> None:
    """Trains every run of a grid: tasks x methods x seeds x overrides.

    revbis sweep table1-cpu --dry-run

    revbis sweep --tasks dmc:cartpole_balance --methods drqv2 simsr-rev --seeds 1 2 3

    Repeating the command resumes the sweep: finished runs are skipped, interrupted ones resume
    from their last checkpoint. A run that fails is retried from its last checkpoint; after three
    failures at the same checkpoint it is given up, and the others continue. A mistake, such as a
    reward that is not a number, is not retried. Ctrl-C saves all running runs first.

    Args:
        grid: A YAML file, or the name of a grid that ships with revbis; flags replace its values.
        tasks: Tasks.
        methods: Methods.
        seeds: Seeds; 1 2 3 when not given.
        preset: Where settings come from; cpu when not given.
        set: Settings for every run as NAME=VALUE, such as frames=20000.
        overrides: Names of the grid's overrides to train; all when not given.
        out: Folder for all runs: a path that every machine sees, or an fsspec URL with Ray.
        backend: Where runs train.
        dry_run: Print the runs, their folders, and the projected time, memory and disk space.
        measure: Measure the speed of a run of each agent here, in at most 20 seconds each, to
            project the time that --dry-run prints; implies --dry-run.
        retry_failed: Retry runs that were given up.
    """
    chosen = choose_grid(
        grid,
        tasks=tasks,
        methods=methods,
        seeds=seeds,
        preset=preset,
        settings=set,
        overrides=overrides,
    )
    plan = make_plan(chosen, out, backend, retry_failed=retry_failed)
    if dry_run or measure:
        print_plan(plan, measure=measure)
    else:
        sys.exit(run_and_show(plan))


def run_and_show(plan: Plan) -> int:
    """Trains a sweep's runs, prints how they ended and returns the exit code: 0 if all finished."""
    with stop_signals() as caught:
        sweep = run_plan(plan, lambda: bool(caught))
    console = Console()
    console.print(table(sweep.entries, plan.out, console.width))
    if caught:
        print("stopped; repeat the command to resume")
        return 128 + caught[0]
    failed = [entry for entry in sweep.entries if entry.state == "failed"]
    for entry in failed:
        print(f"{entry.name} failed; see the logs in {plan.out}/{entry.name}/{ATTEMPTS}")
    if failed:
        print("pass --retry-failed to retry")
    return 0 if sweep.complete else 1


def print_plan(plan: Plan, *, measure: bool | None) -> None:
    """Prints a sweep's runs and what they will take; nothing is started."""
    plan.workers()  # refused before anything is measured
    speeds = _measure(plan) if measure else None
    expected = forecast(plan, speeds)
    rows = [
        {
            "run": run.name,
            "state": run.state,
            "time": "unknown" if run.seconds is None else format_duration(run.seconds),
            "frames": f"{run.frames:,}",
            "memory": format_bytes(run.memory),
            "replay buffer": format_bytes(run.replay),
            "disk": format_bytes(run.disk),
        }
        for run in expected.runs
    ]
    names = ("frames", "memory", "replay buffer", "disk")
    same = {name: rows[0][name] for name in names if len({row[name] for row in rows}) == 1}
    rows = [{name: row[name] for name in row if name not in same} for row in rows]
    print(f"in {expected.folder}:")
    print_table("1 run" if len(rows) == 1 else f"{len(rows)} runs", rows)
    if same:
        print("each run: " + _shared(same))
    print(f"all runs: {format_bytes(expected.disk)} disk")
    print(_time_line(expected, asked=measure, measured=bool(speeds)))
    if expected.given_up:
        print(f"given up: {expected.given_up} of them; pass --retry-failed to retry")
    if plan.lack is not None:
        print(f"revbis: warning: {plan.lack}", file=sys.stderr)


def _shared(same: dict[str, str]) -> str:
    """What all runs have in common."""
    replay = same.get("replay buffer")
    of_it = f" of its process ({replay} of it the replay buffer)"
    words = [
        f"{value} {name}{of_it if name == 'memory' and replay else ''}"
        for name, value in same.items()
        if name != "replay buffer" or "memory" not in same
    ]
    return ", ".join(words)


def _time_line(expected: Forecast, *, asked: bool | None, measured: bool) -> str:
    if expected.seconds is None and asked:
        return "time: not known for runs that could not be measured"
    if expected.seconds is None:
        how = "; --measure measures it, in 20 s an agent" if asked is not None else ""
        return f"time: unknown until runs have started{how}"
    parallel = "divided by the number of parallel runs"
    if expected.workers:
        parallel = f"with {expected.workers} in parallel"
    source = "as measured here just now" if measured else "at the speed of the runs so far"
    return f"time: about {format_duration(expected.seconds)} {parallel}, {source}"


def _measure(plan: Plan) -> dict[str, Speed] | None:
    """The speed of a run of each agent; a warning for one that cannot be measured.

    Returns:
        By agent; None if no run is left to train, or none can be measured.
    """
    speeds: dict[str, Speed] = {}
    for config in representatives(plan.sweep.entries):
        what = f"{config.task}, {config.system}"
        print(f"measuring {what}, for at most 20 s ...", file=sys.stderr, flush=True)
        try:
            speed = speeds[agent_of(config)] = measure_speed(config)
        except NotMeasuredError as problem:
            print(f"revbis: warning: {problem}", file=sys.stderr)
            continue
        times = {"step": speed.step, "action": speed.act, "update": speed.update}
        words = [f"{format_interval(seconds)} per {name}" for name, seconds in times.items()]
        print(f"{what}: {', '.join(words)}", file=sys.stderr)
    return speeds or None
