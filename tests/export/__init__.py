"""Runs that are exported."""

from pathlib import Path
from typing import Any

from tests.runs import tiny_config

from revbis.runs.config import Config
from revbis.runs.run import train

WALK = {"task": "tests.runs:Walk", "quality": "full", "action_repeat": 2, "frames": 160}
PLANNER = {"samples": 12, "policy_samples": 2, "elites": 4, "iterations": 2, "horizon_steps": 60}


def trained(out: Path, method: str, **settings: Any) -> Config:
    """A run of a second, on the walk."""
    small = WALK | {"method": method, "explore_steps": 13, "eval_every": 80}
    config = tiny_config(out, **small | (PLANNER if method == "tdmpc" else {}) | settings)
    assert train(config)
    return config
