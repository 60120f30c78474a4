"""Folders of runs that were never trained, in the form that training writes."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from revbis.runs.config import Config

_PHASES = {
    "environment": 0.03,
    "rendering": 0.07,
    "acting": 0.05,
    "sampling": 0.04,
    "update": 0.72,
    "evaluation": 0.06,
    "saving": 0.01,
    "other": 0.02,
}
VERSIONS = {"revbis": "0.1.0", "python": "3.11.7", "torch": "2.13.0+cpu", "numpy": "2.3.5"}


def fake_run(
    out: Path,
    task: str = "dmc:cartpole_balance",
    method: str = "simsr-rev",
    seed: int = 1,
    *,
    returns: Sequence[float] | None = None,
    done: float = 1.0,
    lines: int = 20,
    success: Sequence[float] | None = None,
    alarms: Sequence[dict[str, Any]] = (),
    rate: float = 100.0,
    more: dict[str, float] | None = None,
    **settings: Any,
) -> Path:
    """Writes a run's folder.

    Args:
        out: The folder above it.
        task: The task.
        method: The method.
        seed: The seed.
        returns: Mean returns of evaluations over the budget; five, rising, when not given.
        done: Share of the budget that is spent.
        lines: Lines of train.jsonl.
        success: Share of successful episodes at each evaluation; none when not given.
        alarms: Lines of alarms.jsonl.
        rate: Frames per second.
        more: More numbers in each line of train.jsonl.
        settings: Of the config.
    """
    returns = [100.0, 300.0, 500.0, 600.0, 650.0] if returns is None else returns
    budget = settings.pop("frames", 40_000)
    named = {"task": task, "method": method, "seed": seed, "frames": budget, "preset": "cpu"}
    config = Config.from_dict(named | {"out": str(out)} | settings)
    name = re.sub(r"[^\w-]+", "-", task)
    folder = out / "cpu" / name / method / f"seed-{seed}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.as_dict()))
    about = {
        "versions": VERSIONS,
        "revision": "33e300566c29a7554ee2ad841b1f18794c61dc5d",
        "command": f"revbis train --task {task} --method {method} --seed {seed}",
        "machine": "Linux",
    }
    (folder / "run.json").write_text(json.dumps(about))
    frames = np.linspace(0, budget, len(returns)).round().astype(int).tolist()
    frames = [frame for frame in frames if frame <= done * budget]
    has_c = method.endswith(("-rev", "-no-sa"))
    write_lines(
        folder / "eval.jsonl",
        [
            {
                **_times(frame, rate),
                "mean_return": value,
                "returns": [value - 20, value, value + 20],
                "success_any": [None] * 3 if success is None else _flags(success[i]),
                "success_last": [None] * 3,
                "c": _c(frame, budget, seed) if has_c else None,
            }
            for i, (frame, value) in enumerate(zip(frames, returns, strict=False))
        ],
    )
    write_lines(
        folder / "train.jsonl",
        [
            {
                **_times(frame, rate),
                "episodes": frame // 1000,
                "episode_return": returns[-1] * frame / budget if returns else None,
                "c": _c(frame, budget, seed) if has_c else None,
                "critic_loss": 0.5 + seed,
                "critic_q1": frame / 1000,
                **({} if method == "drqv2" else {"objective/effective_rank": 4.0 + seed}),
                **{f"seconds/{k}": round(frame / rate * v, 3) for k, v in _PHASES.items()},
                **(more or {}),
            }
            for frame in np.linspace(0, done * budget, lines + 1)[1:].round().astype(int).tolist()
        ],
    )
    if alarms:
        write_lines(folder / "alarms.jsonl", alarms)
    if frames and frames[-1] >= budget:
        (folder / "result.json").write_text(
            json.dumps({"frames": budget, "mean_return": returns[-1]})
        )
    return folder


def large_study(out: Path, padding: int = 0) -> None:
    """150 runs of 100 evaluations: six tasks, five methods, five seeds.

    Args:
        out: The folder above them.
        padding: More numbers in each training line, as many as real ones have.
    """
    generator = np.random.default_rng(0)
    methods = ("drqv2", "simsr", "simsr-rev", "simsr-rev-no-c", "simsr-rev-no-sa")
    tasks = ("cartpole_swingup", "cheetah_run", "finger_spin", "walker_walk", "hopper_hop")
    for t, task in enumerate([*(f"dmc:{name}" for name in tasks), "metaworld:hammer"]):
        for m, method in enumerate(methods):
            for seed in range(1, 6):
                speed = 0.5 + 0.4 * m + 0.2 * t + generator.uniform(0, 0.8)
                rise = 1 - np.exp(-speed * np.linspace(0, 4, 100))
                noise = generator.normal(0, 25, 100)
                top = 900 - 90 * t + generator.normal(0, 40)
                stuck = (t, m, seed) == (1, 2, 4)
                returns = np.clip(noise + (60 if stuck else top * rise), 0, 1000)
                fake_run(
                    out,
                    task,
                    method,
                    seed,
                    returns=returns.round(3).tolist(),
                    done=0.6 if (t, m, seed) == (4, 4, 5) else 1.0,
                    lines=400,
                    success=(rise * 0.9).tolist() if t == 5 else None,
                    alarms=[_STALLED] if stuck else (),
                    rate=60 + 10 * m,
                    more={f"objective/part_{i}_loss": math.pi * i for i in range(padding)},
                    frames=1_000_000,
                )


_STALLED = {
    "frames": 610_000,
    "name": "stalled",
    "text": "no evaluation beat 101.2 (frame 40,000) in the last 570,000 frames",
}


def write_lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def _times(frame: int, rate: float) -> dict[str, Any]:
    return {
        "frames": frame,
        "agent_steps": frame // 2,
        "updates": frame // 4,
        "seconds": frame / rate,
    }


def _c(frame: int, budget: int, seed: int) -> float:
    return 0.5 + (0.3 + 0.02 * seed) * (1 - math.exp(-4 * frame / budget))


def _flags(share: float) -> list[bool]:
    return [i < round(10 * share) for i in range(10)]


def rewrite(path: Path, change: Any) -> None:
    """Changes every record of a file."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path, [change(record) for record in records])
