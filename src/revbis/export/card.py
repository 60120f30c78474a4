"""The model card of an exported agent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from revbis.config import RunSettings
from revbis.presets import command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from revbis.analysis.runs import Evaluation
    from revbis.config import Config
    from revbis.schema import ExportFile

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
| actions | float32 ({actions},) in [−1, 1], each repeated for {repeat} frames |
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
    """The text of the card.

    Args:
        config: The run.
        content: agent.json.
        evaluations: Those of the run.
        folder: Name of the export's folder.
    """
    shape = tuple(content["observation_shape"])
    kind = "stacked frames, uint8" if len(shape) == 3 else "state vectors, float32"
    return _CARD.format(
        tags=", ".join(json.dumps(_line(tag)) for tag in (config.method, config.task)),
        method=_line(config.method),
        task=_line(config.task),
        version=content["versions"].get("revbis", "of an unknown version"),
        frames=content["frames"],
        preset=config.preset,
        seed=config.seed,
        observations=f"{kind} {shape}",
        actions=content["action_size"],
        repeat=config.action_repeat,
        returns=_returns(evaluations, content["frames"]),
        revision=_line(content["revision"] or "not recorded"),
        command=_line(command_line(replace(config, out=RunSettings.out))),
        folder=_line(folder),
    )


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
