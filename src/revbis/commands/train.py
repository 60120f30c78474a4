"""Trains DrQ-v2, alone or with a bisimulation objective."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import tyro

from revbis.commands.console import in_time, print_table, status_line, stop_signals
from revbis.commands.tables import line_width, wrap
from revbis.config import Config
from revbis.presets import preset_config

if TYPE_CHECKING:
    from revbis.progress import Status

_HELP = """Trains DrQ-v2, alone or with a bisimulation objective, on one task.

revbis train --task dmc:cheetah_run --method simsr-rev --preset paper --seed 1

Repeating the command resumes an interrupted run; Ctrl-C saves first. Defaults are those of
the preset, cpu unless given. revbis train --list shows tasks, methods and presets."""


@dataclass(frozen=True)
class _Once:
    """What a call is told, and the run does not keep."""

    restart: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Discard the run's checkpoints and records and train from frame 0."""
    list: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """List tasks, methods and presets, and exit."""


@dataclass(frozen=True)
class _Arguments:
    run: Annotated[Config, tyro.conf.arg(name="")]
    once: Annotated[_Once, tyro.conf.arg(name="")] = _Once()


def parse(words: Sequence[str], prog: str) -> Callable[[], None]:
    """The command with its flags filled in; defaults come from the preset and the task."""
    if "--list" in words:
        return _list
    wants_help = "-h" in words or "--help" in words
    task = _given(words, "--task") or ("dmc:cartpole_balance" if wants_help else None)
    if task is None:
        raise ValueError("--task is missing; revbis train --list shows tasks, methods and presets")
    default = _Arguments(preset_config(_given(words, "--preset") or "cpu", task))
    flags = tyro.cli(_Arguments, prog=prog, args=words, default=default, description=_HELP)
    return partial(_train, flags.run, flags.once.restart)


def _train(config: Config, restart: bool) -> None:
    from revbis import runtime

    runtime.prepare()  # before anything imports torch
    from revbis.runs import finished, train

    if finished(config) and not restart:
        print(
            f"{config.directory} is finished: {config.frames:,} frames. "
            "Pass a larger --frames to continue."
        )
        return
    print(f"{config.task} · {config.method} · {config.preset} · seed {config.seed}")
    print(f"in {config.directory}")
    with stop_signals() as caught, status_line() as show:
        done = train(
            config,
            stop=lambda: bool(caught),
            report=lambda status: show(lambda: describe(status, config.frames)),
            restart=restart,
        )
    if not done:
        print(f"saved in {config.directory}; repeat the command to go on")
        sys.exit(128 + caught[0])
    _print_result(config)


def describe(status: Status, budget: int) -> str:
    """A run's state in one line."""
    progress, rate = status.progress, max(status.frames_per_second, 1e-9)
    parts = [
        f"{progress.frames:,}/{budget:,} frames",
        f"{rate:.0f}/s",
        f"{in_time((budget - progress.frames) / rate)} left",
    ]
    if status.last_return is not None:
        parts.append(f"return {status.last_return:.1f}")
    if status.last_evaluation is not None:
        parts.append(f"eval {status.last_evaluation:.1f}")
    if status.c is not None:
        parts.append(f"c {status.c:.3f}")
    total = max(sum(status.seconds.values()), 1e-9)
    shares = {name: seconds / total for name, seconds in status.seconds.items()}
    split = [f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005]
    return " · ".join(parts) + "  [" + " ".join(split) + "]"


def _print_result(config: Config) -> None:
    from revbis.runs import read_evaluations

    rows = [
        {
            "frames": f"{record['frames']:,}",
            "mean return": f"{record['mean_return']:.1f}",
            "lowest": f"{min(record['returns']):.1f}",
            "highest": f"{max(record['returns']):.1f}",
            "c": "" if record["c"] is None else f"{record['c']:.3f}",
            "time": in_time(record["seconds"]),
        }
        for record in read_evaluations(config.directory)
    ]
    print_table(f"{config.task}, {config.method}, seed {config.seed}", rows)
    print(f"finished: {config.directory}")


def _list() -> None:
    from revbis.envs import missing, task_names
    from revbis.methods import METHODS
    from revbis.presets import PRESETS

    print("presets:")
    for name, what in PRESETS.items():
        print(f"  {name:<6} {what}")
    print("methods:")
    _print_names(METHODS)
    print("tasks (any gym:ID and package.module:factory too):")
    for suite in ("dmc", "metaworld"):
        _print_names(task_names(suite))
        text = missing(suite)
        if text is not None:
            print(f"  {text}")


def _print_names(names: Iterable[str]) -> None:
    for line in wrap(" ".join(names), line_width() - 2):
        print(f"  {line}")


def _given(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag, before flags are parsed."""
    for number, word in enumerate(words):
        if word == flag:
            return words[number + 1] if number + 1 < len(words) else None
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None
