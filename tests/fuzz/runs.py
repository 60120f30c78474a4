"""Small runs, made once, for inputs that are changes of them."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.runs import stop_after, tiny_config

from revbis.runs.config import Config
from revbis.runs.run import train

_WALK = {"task": "tests.runs:Walk", "observation": "state", "quality": "full", "frames": 800}


def walk(out: Path, **settings: Any) -> Config:
    """The config of a small run."""
    return tiny_config(out, **_WALK | settings)


def finished(folder: Path) -> Path:
    """A folder with two finished runs."""
    out = folder.parent / "finished"
    if not out.exists():
        with _same_records():
            for method in ("drqv2", "mico"):
                assert train(walk(_from_here(out), frames=160, method=method))
    return out


def stopped(folder: Path) -> Path:
    """A folder with a run that was stopped."""
    out = folder.parent / "stopped"
    if not out.exists():
        with _same_records():
            assert not train(walk(_from_here(out)), **stop_after(21))
    return out


def _from_here(out: Path) -> Path:
    """The same from every input's working folder, wherever that is."""
    return Path(os.path.relpath(out))


@contextlib.contextmanager
def _same_records() -> Iterator[None]:
    """A clock that counts, so that a run's files have the same bytes each time.

    No beat looks at it: on a busy machine there would be one more now and then.
    """
    ticks = itertools.count()
    with (
        patch("time.perf_counter", lambda: next(ticks) / 1000),
        patch("revbis.runs.trainer.resident_bytes", lambda: 10**8),
        patch("revbis.runs.folder.RunFolder.beat", lambda *_: False),
    ):
        yield
