"""The sweep's folder: what the driver reads and notes there, whatever the files may hold."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from revbis import schema
from revbis.config import Config
from revbis.schema import Beat, Failure, Failures, Result
from revbis.training.folder import is_url, open_storage
from revbis.training.records import agent_status

T = TypeVar("T")


@dataclass(frozen=True)
class Standing:
    """How far a run is, by its files; None for what they do not say.

    Attributes:
        frames: Frames made.
        frames_per_second: Speed since the attempt began.
        seconds: Time spent on all frames.
        mean_return: Of the last evaluation.
        status: What the agent tells of itself.
        beat: Frames in progress.json, which change while the run is alive.
    """

    frames: int = 0
    frames_per_second: float | None = None
    seconds: float | None = None
    mean_return: float | None = None
    status: dict[str, float] = field(default_factory=dict)
    beat: int = 0


class Place:
    """The sweep's folder, on a path or at an fsspec URL.

    A file that cannot be read, is no JSON or holds values of other types counts as not there.

    Args:
        out: Path or URL.
    """

    def __init__(self, out: str) -> None:
        self.url = out if is_url(out) else None
        self._storage, self._root = open_storage(
            out if self.url else f"file://{Path(out).resolve()}"
        )

    def name(self, config: Config) -> str:
        """A run's folder below the sweep's."""
        if self.url:
            return config.directory.as_posix()
        return config.directory.resolve().relative_to(self._root).as_posix()

    def folder(self, name: str) -> str:
        """A run's folder as the user would write it."""
        return f"{self.url.rstrip('/') if self.url else self._root}/{name}"

    def config(self, name: str) -> Config | None:
        """What the run in a folder was begun with; None if there is no run.

        Raises:
            ValueError: If there is one, but its settings cannot be read.
        """
        content = self._read(name, "config.json")
        if content is None:
            return None
        try:
            return Config.from_dict(schema.parse_json(content, dict[str, Any], "it"))
        except (ValueError, TypeError) as problem:
            raise ValueError(
                f"{self.folder(name)}/config.json is not a revbis config: {problem}; remove the "
                "folder or give another --out"
            ) from None

    def standing(self, name: str) -> Standing:
        """How far a run is."""
        progress = self._parsed(name, "progress.json", Beat) or Beat()
        result = self._parsed(name, "result.json", Result)
        beat = progress.get("frames", 0)
        newest = result if result is not None and result["frames"] >= beat else progress
        return Standing(
            frames=newest.get("frames", 0),
            frames_per_second=_positive(progress.get("frames_per_second")),
            seconds=_positive(newest.get("seconds")),
            mean_return=_finite(newest.get("mean_return")),
            status=_status(progress),
            beat=beat,
        )

    def result_frames(self, name: str) -> int:
        """Frames of a run that has spent a budget; 0 if it has not."""
        result = self._parsed(name, "result.json", Result)
        return 0 if result is None else result["frames"]

    def failures(self, name: str) -> list[Failure]:
        """The failed attempts at a run that were its own fault."""
        noted = self._parsed(name, "failures.json", Failures)
        return [] if noted is None else noted["failures"]

    def note_failures(self, name: str, failures: list[Failure]) -> None:
        """Writes the failed attempts at a run."""
        self.write(name, "failures.json", {"failures": failures})

    def checkpoint(self, name: str) -> int:
        """Frames at a run's newest checkpoint."""
        self._storage.invalidate_cache()
        try:
            paths = self._storage.ls(f"{self._root}/{name}/checkpoints", detail=False)
        except OSError:
            return 0
        matches = [re.search(r"frame-(\d{12})/?$", str(path)) for path in paths]
        return max((int(match[1]) for match in matches if match), default=0)

    def write(self, name: str, file: str, content: dict[str, Any]) -> None:
        """Writes a JSON file of a run."""
        self._storage.makedirs(f"{self._root}/{name}", exist_ok=True)
        self._storage.pipe_file(f"{self._root}/{name}/{file}", json.dumps(content).encode())

    def _parsed(self, name: str, file: str, kind: type[T]) -> T | None:
        """A JSON file of a run, if it is there and of that type."""
        content = self._read(name, file)
        try:
            return None if content is None else schema.parse_json(content, kind, file)
        except ValueError:
            return None

    def _read(self, name: str, file: str) -> bytes | None:
        self._storage.invalidate_cache()
        try:
            content: bytes = self._storage.cat_file(f"{self._root}/{name}/{file}")
        except OSError:
            return None
        return content


def lock_path(out: str) -> Path:
    """The file that keeps a second driver away; for a URL it is only this machine's."""
    if not is_url(out):
        return Path(out) / ".sweep.lock"
    digest = blake2b(out.encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"revbis-sweep-{os.getuid()}-{digest}.lock"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _positive(value: float | None) -> float | None:
    return value if value is not None and 0 < value < math.inf else None


def _status(beat: Beat) -> dict[str, float]:
    """The finite numbers of an agent's status."""
    return {name: value for name, value in agent_status(beat).items() if math.isfinite(value)}
