"""Small sweeps for the tests."""

from pathlib import Path
from typing import Any

from revbis.config import Config
from revbis.sweep.grid import Grid, grid_from

SETTINGS: dict[str, Any] = {
    "observation": "state",
    "frames": 1200,
    "eval_every": 400,
    "eval_episodes": 1,
    "checkpoint_every": 100,
    "log_every": 100,
    "action_repeat": 1,
    "update_every": 4,
    "batch_size": 8,
    "hidden": 16,
    "explore_steps": 10,
    "noise_steps": 50,
    "replay_capacity": 300,
    "tensorboard": False,
    "quality": "full",
}


def small_grid(task: str = "tests.training:Walk", **changes: Any) -> Grid:
    """Runs that take a second or two once they have started."""
    settings = SETTINGS | changes.pop("settings", {})
    start = {"tasks": [task], "methods": ["drqv2", "simsr-rev"], "seeds": [1]}
    return grid_from(start | changes | {"settings": settings})


def evaluations(configs: list[Config]) -> dict[str, list[dict[str, Any]]]:
    """The lines of each run's eval.jsonl but for the times."""
    import json

    found = {}
    for config in configs:
        lines = Path(config.directory / "eval.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        name = config.directory.relative_to(config.out).as_posix()
        found[name] = [{k: v for k, v in r.items() if k != "seconds"} for r in records]
    return found
