"""Writes a run's agent for others to load, with a model card."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from revbis.analysis.runs import read_run
from revbis.export.agent import (
    CARD,
    FORMAT,
    SETTINGS,
    WEIGHTS,
    check_code,
    check_method,
    inference_state,
    load,
    read_settings,
    write_weights,
)
from revbis.io.files import atomic_write, digest, naming, new_folder, sync_folder
from revbis.runs.config import Config, RunSettings
from revbis.runs.folder import CONFIG, unpacked
from revbis.runs.presets import command_line
from revbis.runs.run import open_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from revbis.analysis.runs import Evaluation
    from revbis.io.schema import ExportFile

_CARD = """\
---
library_name: revbis
license: mit
pipeline_tag: reinforcement-learning
tags: [{tags}]
---

# {method} on {task}

A policy and its embedding of observations, trained with revbis {version} for {frames:,} frames.

| | |
|---|---|
| task | {task} |
| method | {method} |
| preset, seed | {preset}, {seed} |
| observations | {observations} |
| actions | {actions}, each repeated for {repeat} frames |
{returns}| revision of revbis | {revision} |

The command that trained it:

```sh
{command}
```

To load it (with revbis installed; no code in this folder is executed):

```python
import revbis

agent = revbis.load("{folder}")
env = revbis.envs.make_env(**agent.environment, seed=0)
observation, _ = env.reset()
agent.begin_episode()
action = agent.act(observation)
embedding = agent.embed(observation[None])
```

Licence: MIT, as revbis. Whoever trained the weights may choose another one, here and in the
first lines.
"""


def card(
    config: Config, content: ExportFile, evaluations: Sequence[Evaluation], folder: str
) -> str:
    """The text of the card; `content` is agent.json, `folder` the name of the export's folder."""
    shape = tuple(content["observation_shape"])
    kind = "stacked frames, uint8" if len(shape) == 3 else "state vectors, float32"
    return _CARD.format(
        tags=", ".join(json.dumps(_line(tag)) for tag in (config.method, config.task)),
        method=_line(config.system),
        task=_line(config.task),
        version=content["versions"].get("revbis", "of an unknown version"),
        frames=content["frames"],
        preset=config.preset,
        seed=config.seed,
        observations=f"{kind} {shape}",
        actions=_actions(content["action_size"], content.get("discrete", False)),
        repeat=config.action_repeat,
        returns=_returns(evaluations, content["frames"]),
        revision=_line(content["revision"] or "not recorded"),
        command=_line(command_line(replace(config, out=RunSettings.out))),
        folder=_line(folder),
    )


def _actions(size: int, discrete: bool) -> str:
    if discrete:
        return f"one of {size}, as a one-hot vector, float32 ({size},)"
    return f"float32 ({size},) in [−1, 1]"


def _returns(evaluations: Sequence[Evaluation], frames: int) -> str:
    """Rows with the newest returns that these weights, or earlier ones, had."""
    known = [one for one in evaluations if one.reached <= frames]
    if not known:
        return "| mean return | not evaluated yet |\n"
    last = known[-1]
    count = len(last.returns)
    when = f"over {count} episode{'' if count == 1 else 's'} at frame {last.reached:,}"
    if last.train_return is None:
        return f"| mean return | {last.mean_return:.1f} {when} |\n"
    return (
        f"| mean return, variants of evaluation | {last.mean_return:.1f} {when} |\n"
        f"| mean return, variants of training | {last.train_return:.1f} {when} |\n"
    )


def _line(text: str) -> str:
    """Text that stays within its line, its table and its block of code."""
    return " ".join(text.split()).replace("`", "'").replace("|", "/")


def write_export(run: Path, out: Path, *, trust: bool = False) -> None:
    """Writes the agent of a run's newest checkpoint: weights, settings and a model card.

    An earlier export in `out` is replaced.

    Args:
        run: The run's folder.
        out: The folder to write.
        trust: Whether code that the run's folder names, for its task, may be imported.

    Raises:
        ValueError: If the folder is no run or has no checkpoint, or names code that is not trusted;
            if its agent cannot be exported, or if `out` has other files in it.
        OSError: For example if the disk is full; `out` is then what it was before.
    """
    run, out = unpacked(run), out.resolve()
    config = Config.read(run / CONFIG)
    check_method(config.method)
    check_code(config)
    _check_replaceable(out)
    unfinished = out.with_name(f".{os.getpid()}-{out.name}")
    with new_folder(out.parent), naming(out):
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            _write(run, unfinished, out.name, trust)
            load(unfinished)  # what cannot be loaded is not kept
            _put(unfinished, out)
        except OSError as problem:
            if unfinished.name not in str(problem.filename):
                raise
            raise OSError(problem.errno, problem.strerror, str(out)) from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _write(run: Path, folder: Path, name: str, trust: bool) -> None:
    config, agent, frames, *_ = open_run(run, trust=trust)
    parts = inference_state(config.method, agent)
    read = read_run(run, lambda _: None)
    about = read.about if read is not None else {}
    write_weights(folder, parts.tensors)
    path = folder / WEIGHTS
    # Where the run was written, and on what, is nobody's business who loads it.
    shared = replace(config, out=RunSettings.out, device=RunSettings.device, wandb=None)
    content: ExportFile = {
        "format": FORMAT,
        "config": shared.as_dict(),
        "frames": frames,
        "observation_shape": list(parts.observation_shape),
        "action_size": parts.action_size,
        "discrete": parts.discrete,
        "numbers": {**parts.numbers},
        "weights": {"bytes": path.stat().st_size, "digest": digest(path)},
        "versions": about.get("versions", {}),
        "revision": about.get("revision"),
    }
    settings = json.dumps(content, indent=2, allow_nan=False)
    atomic_write(folder / SETTINGS, settings.encode())
    evaluations = read.evaluations if read is not None else []
    atomic_write(folder / CARD, card(shared, content, evaluations, name).encode())


def _check_replaceable(out: Path) -> None:
    """Refuses a folder with anything in it but an export."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"{out} is a file: choose another --out")
    names = {path.name for path in out.iterdir()}
    if not names:
        return
    foreign = sorted(names - {WEIGHTS, SETTINGS, CARD})
    if foreign:
        raise ValueError(f"{out} has other files in it ({foreign[0]!r:.80}): choose another --out")
    try:
        read_settings(out)
    except ValueError as problem:
        raise ValueError(f"{problem}; it is not replaced: choose another --out") from None


def _put(unfinished: Path, out: Path) -> None:
    """Gives the new folder its name; the one before is deleted once that has worked."""
    before = out.with_name(f".{os.getpid()}-before-{out.name}")
    replaced = out.exists()
    if replaced:
        out.rename(before)
    try:
        unfinished.rename(out)
    except BaseException:
        if replaced:
            before.rename(out)
        raise
    sync_folder(out.parent)
    shutil.rmtree(before, ignore_errors=True)
