"""Small sweeps for the tests."""

import json
import os
from pathlib import Path
from typing import Any

from revbis.runs.config import Config
from revbis.runs.folder import checkpoint_name
from revbis.sweep.grid import Grid, grid_from

SETTINGS: dict[str, Any] = {
    "observation": "state",
    "frames": 600,
    "eval_every": 200,
    "eval_episodes": 1,
    "checkpoint_every": 100,
    "log_every": 100,
    "action_repeat": 2,
    "update_every": 8,
    "batch_size": 8,
    "hidden": 16,
    "explore_steps": 5,
    "noise_steps": 50,
    "replay_capacity": 300,
    "tensorboard": False,
    "quality": "full",
}


TASK = "tests.runs:Held"


def small_grid(task: str = TASK, **changes: Any) -> Grid:
    """Runs that take about a second once they have started."""
    settings = SETTINGS | changes.pop("settings", {})
    start = {"tasks": [task], "methods": ["drqv2", "simsr-rev"], "seeds": [1]}
    return grid_from(start | changes | {"settings": settings})


def names_in(folder: Path, start: str, end: str = "") -> list[str]:
    """Names in a folder of a run, which may not be there yet and may change while it is read."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.startswith(start) and name.endswith(end))


def checkpoints(config: Config) -> list[str]:
    """The names of a run's checkpoints but for the one of its beginning."""
    names = names_in(config.directory / "checkpoints", "frame-")
    return [name for name in names if name != checkpoint_name(0)]


def attempts(config: Config) -> list[str]:
    """The names of the files by which attempts at a run have claimed it."""
    return names_in(config.directory / "attempts", "attempt-", ".json")


def newest_process(config: Config) -> int | None:
    """The process of the newest attempt; None while its file is being written."""
    try:
        newest = config.directory / "attempts" / attempts(config)[-1]
        return int(json.loads(newest.read_text())["process"])
    except ValueError:
        return None


def evaluations(configs: list[Config]) -> dict[str, list[dict[str, Any]]]:
    """The lines of each run's eval.jsonl but for the times."""
    found = {}
    for config in configs:
        lines = Path(config.directory / "eval.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        name = config.directory.relative_to(config.out).as_posix()
        found[name] = [{k: v for k, v in r.items() if k != "seconds"} for r in records]
    return found
