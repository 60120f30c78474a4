"""Small runs, made once, for inputs that are changes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.training import tiny_config

from revbis.config import Config
from revbis.training.run import train

_WALK = {"task": "tests.training:Walk", "observation": "state", "quality": "full", "frames": 800}


def walk(out: Path, **settings: Any) -> Config:
    """The config of a small run."""
    return tiny_config(out, **_WALK | settings)


def finished(folder: Path) -> Path:
    """A folder with two finished runs."""
    out = folder.parent / "finished"
    if not out.exists():
        for method in ("drqv2", "mico"):
            assert train(walk(out, frames=160, method=method))
    return out


def stopped(folder: Path) -> Path:
    """A folder with a run that was stopped."""
    out = folder.parent / "stopped"
    if not out.exists():
        left = iter(range(20))
        assert not train(walk(out), stop=lambda: next(left, None) is None)
    return out
