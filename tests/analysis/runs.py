"""Run folders as a training run leaves them, written without training."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from revbis.analysis.study import Study, read_study
from revbis.runs.config import Config
from revbis.runs.presets import preset_config

ABOUT = {"versions": {"revbis": "0.1.0", "torch": "2.13.0"}, "revision": "abc", "command": "revbis"}


def write_run(
    out: Path,
    scores: Mapping[int, Any] | Sequence[float],
    *,
    task: str = "dmc:cheetah_run",
    method: str = "drqv2",
    seed: int = 1,
    preset: str = "cpu",
    c: Mapping[int, Any] | None = None,
    train: Mapping[int, Any] | None = None,
    about: Mapping[str, Any] = ABOUT,
    **settings: Any,
) -> Path:
    """Writes a run and gives its folder.

    Args:
        out: Where runs are.
        scores: By frame, or every 10 frames from 0 on: a return, or on Meta-World a success rate.
        task: The task.
        method: The method.
        seed: The seed.
        preset: Where other settings come from.
        c: The coefficient by agent step.
        train: By frame, the score on training variants; without it, as older runs are.
        about: What run.json holds.
        **settings: Other settings; the budget is the last frame if it is not given.
    """
    if not isinstance(scores, Mapping):
        scores = {10 * i: score for i, score in enumerate(scores)}
    given = {"frames": max(max(scores, default=1), 1), "eval_every": 10, "action_repeat": 2}
    values = preset_config(preset, task, method).as_dict() | {"seed": seed, "out": str(out)}
    config = Config.from_dict(values | given | settings)
    folder = config.directory
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.as_dict()))
    (folder / "run.json").write_text(json.dumps(about))
    lines = [evaluation(frame, score, task) for frame, score in scores.items()]
    for line in lines:
        if line["frames"] in (train or {}):
            second = evaluation(line["frames"], (train or {})[line["frames"]], task)
            names = ("mean_return", "returns", "success_any")
            line |= {f"train_{name}": second[name] for name in names}
    write_lines(folder / "eval.jsonl", lines)
    training = [
        {"frames": step * config.action_repeat, "agent_steps": step, "c": value}
        for step, value in (c or {}).items()
    ]
    write_lines(folder / "train.jsonl", training)
    last = max(scores, default=0)
    if last >= config.frames:
        (folder / "result.json").write_text(json.dumps({"frames": last, "mean_return": 1.0}))
    return folder


def evaluation(frame: int, score: Any, task: str) -> dict[str, Any]:
    """A line of eval.jsonl."""
    successes: list[bool | None] = [None] * 10
    if task.startswith("metaworld:"):
        successes = [i < round(10 * score) for i in range(10)]
        score = 1000 * score + 5
    counts = {"frames": frame, "agent_steps": frame // 2, "updates": frame // 2, "seconds": 1.5}
    return counts | {"mean_return": score, "returns": [score], "success_any": successes, "c": None}


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def study_of(
    out: Path, finals: Mapping[tuple[str, str], Sequence[float]], **settings: Any
) -> Study:
    """A study whose runs go straight from 0 to their final scores.

    Args:
        out: Where runs are.
        finals: By task and method, the final scores of seeds 1, 2, ...
        **settings: Of all runs.
    """
    for (task, method), scores in finals.items():
        for seed, score in enumerate(scores, 1):
            write_run(out, [0.0, score], task=task, method=method, seed=seed, **settings)
    return read_study([out])
