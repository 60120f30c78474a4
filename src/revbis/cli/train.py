"""Trains an agent: DrQ-v2, alone or with a bisimulation objective, or another."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from revbis.agents.registry import OWN, resolve
from revbis.cli.console import print_table, status_line
from revbis.cli.interrupts import stop_signals
from revbis.io import runtime
from revbis.io.plugins import is_factory_name
from revbis.io.text import format_bytes, format_duration, format_number, line_width, wrap
from revbis.runs.config import Config, RunSettings, check_effective
from revbis.runs.folder import CHECKPOINTS, CONFIG, check_writable
from revbis.runs.presets import preset_config

if TYPE_CHECKING:
    from revbis.agents import AgentSettings
    from revbis.io.files import Record
    from revbis.runs.records import Status

_HELP = """Trains DrQ-v2, alone or with a bisimulation objective, or another agent on a task.

revbis train --task dmc:cheetah_run --method simsr-rev --preset paper --seed 1

revbis train RUN resumes the run in a folder, with its own settings; Ctrl-C saves first.

revbis train RUN --frames 200000 extends it.

revbis train --list shows tasks, methods and presets. Defaults are those of the preset, which is cpu
by default. With other settings, --name NAME keeps a run beside the others."""
# What a run's folder stands for: it cannot be changed when the folder is given.
_OF_FOLDER = ("task", "method", "objective", "agent", "preset", "seed", "name", "out")


@dataclass(frozen=True)
class _Call:
    """Flags that are not settings of the run."""

    objective: str | None = None
    """Your own objective for DrQ-v2, as package.module:factory; replaces --method."""
    agent: str | None = None
    """Your own agent, as package.module:factory; replaces --method."""
    restart: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Discard the run's checkpoints and records and train from frame 0."""
    list: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """List tasks, methods and presets, and exit."""
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """With RUN: import the task, agent or objective that its folder names as
    package.module:factory."""


def parse(words: Sequence[str], prog: str) -> Callable[[], None]:
    """The command with its flags filled in; defaults come from the preset and the task."""
    if "--list" in words:
        return _list
    if words and not words[0].startswith("-"):
        return _parse_resume(Path(words[0]), words[1:], prog)
    wants_help = "-h" in words or "--help" in words
    task = _given(words, "--task") or ("dmc:cartpole_balance" if wants_help else None)
    if task is None:
        raise ValueError(
            "--task is required, or first of all the folder of a run to resume; revbis train "
            "--list shows tasks, methods and presets"
        )
    own = {name: _given(words, f"--{name}") for name in ("objective", "agent")}
    method = _method(_given(words, "--method"), **own)
    observation = "state" if _given(words, "--observation") == "state" else "pixels"
    usual = preset_config(_given(words, "--preset") or "cpu", task, method, observation)
    return _parse_flags(usual, words, prog)


def _parse_resume(run: Path, words: Sequence[str], prog: str) -> Callable[[], None]:
    """The command that resumes the run in a folder, with its settings where flags do not differ."""
    config = _config_of(run)
    fixed = [f"--{name}" for name in _OF_FOLDER if _is_given(words, name)]
    if fixed:
        raise ValueError(
            f"{fixed[0]} is what {run} was started with: leave it out to resume that run, or give "
            "--task and no folder for another one"
        )
    return _parse_flags(config, words, prog, run)


def _config_of(run: Path) -> Config:
    """The settings of the run in a folder, of which the folder's place determines `out`."""
    check_writable(run)
    config = None
    if not (run / CONFIG).exists():
        runtime.prepare()  # before this imports torch
        from revbis.runs.run import read_config

        config = read_config(run)
    config = config or Config.read(run / CONFIG)  # which says what is missing
    inside = config.directory.relative_to(config.out).parts
    path = run if run.parts[-len(inside) :] == inside else run.resolve()
    if path.parts[-len(inside) :] != inside:
        raise ValueError(
            f"{run} has the settings of a run in {'/'.join(inside)}; rename the folders so that "
            "its path ends like that"
        )
    return replace(config, out=path.parents[len(inside) - 1])


def _parse_flags(
    usual: Config, words: Sequence[str], prog: str, run: Path | None = None
) -> Callable[[], None]:
    """The command with the values of a config, of a run in a folder, where flags give no others."""
    kind = _arguments(type(usual.agent))
    own = RunSettings(**{each.name: getattr(usual, each.name) for each in fields(RunSettings)})
    default = kind(own, usual.agent, _Call())
    flags = tyro.cli(kind, prog=prog, args=words, default=default, description=_HELP)
    config = Config(**vars(flags.run) | {"method": usual.method}, agent=flags.agent)
    check_effective((name for name in config.as_dict() if _is_given(words, name)), config)
    if flags.call.trust and run is None:
        raise ValueError("--trust is for the folder of a run: what --task names is imported anyway")
    return partial(_train, config, flags.call.restart, None if flags.call.trust else run)


def _method(method: str | None, objective: str | None, agent: str | None) -> str:
    """The method that the flags name; your own objective or agent is a method too."""
    given = {"objective": objective, "agent": agent}
    own = {kind: name for kind, name in given.items() if name is not None}
    if not own:
        return "drqv2" if method is None else method
    if len(own) == 2:
        raise ValueError(f"--objective is for DrQ-v2: drop it, or --agent {agent}")
    [(kind, name)] = own.items()
    if not is_factory_name(name):
        raise ValueError(
            f"--{kind} must be package.module:factory, got {name!r:.80}; the {kind}s that come "
            "with revbis are methods: see revbis train --list"
        )
    meant = f"{OWN}{name}" if kind == "agent" else name
    if method not in (None, meant) and (kind, method) != ("objective", "drqv2"):
        raise ValueError(f"--{kind} {name} replaces the method: drop --method {method}")
    return meant


def _arguments(agent: type[AgentSettings]) -> type:
    """A dataclass of all flags: the run's, its agent's and the call's, without prefixes."""
    parts = {"run": RunSettings, "agent": agent, "call": _Call}
    named = [(name, Annotated[kind, tyro.conf.arg(name="")]) for name, kind in parts.items()]
    return make_dataclass("Arguments", named, frozen=True)


def _train(config: Config, restart: bool, untrusted: Path | None) -> None:
    runtime.prepare()  # before anything imports torch
    from revbis.runs.run import check_trusted, finished, train

    if untrusted is not None:
        check_trusted(config, untrusted)
    if finished(config) and not restart:
        train(config)  # refuses other settings than the run's, and trains nothing
        _print_finished(config)
        return
    print(f"{config.task} · {config.label} · {config.preset} · seed {config.seed}")
    print(f"in {config.directory}, action repeat {config.action_repeat}", flush=True)
    forewarn(config, new=restart or not (config.directory / CHECKPOINTS).exists())
    with stop_signals() as caught, status_line() as show:
        done = train(
            config,
            stop=lambda: bool(caught),
            report=lambda status: show(lambda: describe(status, config.frames)),
            restart=restart,
        )
    if not done:
        print(f"saved; to resume: {_resuming(config)}")
        sys.exit(128 + caught[0])
    _print_result(config)


def _print_finished(config: Config) -> None:
    from revbis.runs.folder import read_result

    result = read_result(config.directory)
    assert result is not None
    spent, budget = result["frames"], config.frames
    less = f"; the {budget:,} of --frames are spent already" if budget < spent else ""
    print(f"{config.directory} is finished: it has {spent:,} frames{less}.")
    print(f"To continue it: {_resuming(config)} --frames N, with N above {spent:,}.")


def _resuming(config: Config) -> str:
    """The command that resumes a run."""
    trust = " --trust" if config.code else ""
    return f"revbis train {shlex.quote(str(config.directory))}{trust}"


def forewarn(config: Config, *, new: bool) -> None:
    """Says what a run of the paper's size will take, before it starts.

    On a GPU that is memory; on a CPU it is the time, which is measured if the run is a new one.
    """
    from revbis.runs import preflight
    from revbis.runs.trainer import resolve_device

    if not new or config.preset != "paper":
        return
    preflight.check(config)
    device = resolve_device(config.device)
    if device == "cpu":
        _warn_of_time(config)
    if text := _gpu_text(config):
        print(f"on a GPU: {text}" if device == "cpu" else text, file=sys.stderr, flush=True)


def _warn_of_time(config: Config) -> None:
    from revbis.sweep.measure import NotMeasuredError, measure_speed
    from revbis.sweep.plan import seconds_left

    text = "measuring how long the paper preset takes on this CPU, for at most 20 s ..."
    print(text, file=sys.stderr, flush=True)
    try:
        seconds = seconds_left(config, 0, measure_speed(config))
        takes = f"about {format_duration(seconds)} for {config.frames:,} frames"
    except NotMeasuredError as problem:
        takes = f"days or weeks ({problem})"
    print(
        f"revbis: warning: the paper preset is for a GPU; on this CPU the run takes {takes}. "
        "--preset cpu has smaller images and networks; Ctrl-C ends this run, and saves it",
        file=sys.stderr,
        flush=True,
    )


def _gpu_text(config: Config) -> str | None:
    """An estimate of the GPU's memory in a line; None for agents of which it is not known."""
    from revbis.agents import make_agent
    from revbis.runs.memory import ACTIONS, gpu_bytes

    method, shape = config.method, config.observation_shape
    if resolve(method).factory is not None or resolve(method).agent.requires is not None:
        return None
    agent = make_agent(method, config.agent.for_inference(), shape, ACTIONS, seed=0)
    parts = gpu_bytes(config, agent)
    if parts is None:
        return None
    words = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
    total = format_bytes(sum(parts.values()))
    return f"about {total} of GPU memory, an estimate that was not measured: {words}"


def describe(status: Status, budget: int) -> str:
    """A run's status in one line."""
    progress, rate = status.progress, status.frames_per_second
    parts = [f"{progress.frames:,}/{budget:,} frames"]
    if progress.updates and rate > 0:  # until then the first evaluation is most of the time
        parts += [f"{rate:.0f}/s", f"{format_duration((budget - progress.frames) / rate)} left"]
    if status.evaluating is not None:
        parts.append("evaluating, episode {} of {}".format(*status.evaluating))
    if status.last_return is not None:
        parts.append(f"return {status.last_return:.1f}")
    if status.last_evaluation is not None:
        parts.append(f"eval {status.last_evaluation:.1f}")
    parts += [f"{name} {format_number(value)}" for name, value in status.agent.items()]
    total = max(sum(status.seconds.values()), 1e-9)
    shares = {name: seconds / total for name, seconds in status.seconds.items()}
    split = [f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005]
    if status.evaluating is not None:  # whose own time is counted at its end
        split = []
    return " · ".join(parts) + (f"  [{' '.join(split)}]" if split else "")


def _print_result(config: Config) -> None:
    from revbis.runs.records import agent_status
    from revbis.runs.run import read_evaluations

    records = read_evaluations(config.directory)
    both = any("train_mean_return" in record for record in records)
    columns = dict.fromkeys((name for record in records for name in agent_status(record)), "")
    rows = [
        {
            "frames": f"{record['frames']:,}",
            "mean return": f"{record['mean_return']:.1f}",
            "lowest": f"{min(record['returns']):.1f}",
            "highest": f"{max(record['returns']):.1f}",
            **({"on training variants": _on_training(record)} if both else {}),
            **columns
            | {name: format_number(value) for name, value in agent_status(record).items()},
            "time": format_duration(record["seconds"]),
        }
        for record in records
    ]
    print_table(f"{config.task}, {config.label}, seed {config.seed}", rows)
    print(f"finished: {config.directory}")


def _on_training(record: Record) -> str:
    """The mean return on the training variants; earlier versions did not record it."""
    return f"{record['train_mean_return']:.1f}" if "train_mean_return" in record else "–"


def _list() -> None:
    from revbis.agents.registry import agents
    from revbis.envs import task_names
    from revbis.envs.gymnasium import CUSTOM as OWN
    from revbis.envs.suites import SUITES
    from revbis.objectives.registry import OBJECTIVES
    from revbis.runs.presets import PRESETS

    print("presets:")
    for name, what in PRESETS.items():
        print(f"  {name:<6} {what}")
    print("methods:")
    for agent in agents():
        print(f"  {agent.name:<20} {agent.description}")
    print("  DrQ-v2 with an objective:")
    for name, entry in OBJECTIVES.items():
        print(f"  {name:<20} {entry.description}")
    print("tasks:")
    for suite in (*SUITES.values(), OWN):
        print(f"  {suite.form:<23} {suite.description}")
        if suite.tasks:
            for line in wrap(" ".join(task_names(suite.name)), line_width() - 4):
                print(f"    {line}")
        text = suite.missing()
        if text is not None:
            print(f"    {text}")


def _is_given(words: Sequence[str], name: str) -> bool:
    """Whether there is a flag for a setting, in any of the forms that tyro takes."""
    forms = {name, f"no_{name}"}
    given = (word.partition("=")[0] for word in words if word.startswith("--"))
    return any(flag.removeprefix("--").replace("-", "_") in forms for flag in given)


def _given(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag, before flags are parsed; of a repeated flag the last, as for tyro."""
    for number, word in reversed(list(enumerate(words))):
        if word == flag:
            return words[number + 1] if number + 1 < len(words) else None
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None
