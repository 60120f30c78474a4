"""The sweep's folder: what the driver reads and writes there, whatever the files may hold."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from revbis import schema
from revbis.config import Config
from revbis.schema import Failure, FailuresFile, ProgressFile, ResultFile
from revbis.system.files import write_whole
from revbis.training.folder import (
    ATTEMPTS,
    CHECKPOINTS,
    CONFIG,
    FAILURES,
    PROGRESS,
    RESULT,
    STOP,
    claimed_numbers,
    is_finished,
    newest_checkpoint,
)
from revbis.training.records import agent_status
from revbis.training.storage import is_url, open_storage

T = TypeVar("T")


@dataclass(frozen=True)
class Standing:
    """How far a run is, by its files; None for what they do not say.

    Attributes:
        frames: Frames so far.
        frames_per_second: Speed since the attempt started.
        seconds: Time spent on all frames.
        mean_return: Of the last evaluation.
        status: The agent's status.
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
        self._root = Path() if self.url else Path(out).resolve()
        self._storage = open_storage(self.url or f"file://{self._root}")

    def name(self, config: Config) -> str:
        """A run's folder below the sweep's."""
        if self.url:
            return config.directory.as_posix()
        return config.directory.resolve().relative_to(self._root).as_posix()

    def folder(self, name: str) -> str:
        """A run's folder as the user would write it."""
        return f"{self.url.rstrip('/') if self.url else self._root}/{name}"

    def config(self, name: str) -> Config | None:
        """The settings of the run in a folder; None if there is no run.

        Raises:
            ValueError: If there is one, but its settings cannot be read.
        """
        content = self._read(name, CONFIG)
        if content is None:
            return None
        try:
            return Config.from_json(content)
        except ValueError as problem:
            raise ValueError(
                f"{self.folder(name)}/{CONFIG} is {problem}; remove the folder or pass another "
                "--out"
            ) from None

    def standing(self, name: str) -> Standing:
        """How far a run is."""
        progress = self._parsed(name, PROGRESS, ProgressFile) or ProgressFile()
        result = self._result(name)
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

    def finished(self, name: str, budget: int) -> bool:
        """Whether a run has spent its budget."""
        return is_finished(self._result(name), budget)

    def failures(self, name: str) -> list[Failure]:
        """The failed attempts at a run that were its own fault."""
        content = self._parsed(name, FAILURES, FailuresFile)
        return [] if content is None else content["failures"]

    def write_failures(self, name: str, failures: list[Failure]) -> None:
        """Replaces the list of failed attempts at a run."""
        self.write(name, FAILURES, {"failures": failures})

    def ask_to_stop(self, name: str) -> None:
        """Asks the running attempt at a run to save and end."""
        self.write(name, STOP, {})

    def checkpoint(self, name: str) -> int:
        """The frame of a run's newest checkpoint; 0 without one."""
        return newest_checkpoint(self._names(f"{name}/{CHECKPOINTS}")) or 0

    def claims(self, name: str) -> int:
        """How many attempts have claimed a run."""
        return len(claimed_numbers(self._names(f"{name}/{ATTEMPTS}")))

    def write(self, name: str, file: str, content: dict[str, Any]) -> None:
        """Writes a JSON file of a run; on a path it is replaced as a whole."""
        encoded = json.dumps(content).encode()
        if self.url is None:
            write_whole(self._root / name / file, encoded)
            return
        self._storage.makedirs(name, exist_ok=True)
        self._storage.pipe_file(f"{name}/{file}", encoded)

    def _result(self, name: str) -> ResultFile | None:
        return self._parsed(name, RESULT, ResultFile)

    def _parsed(self, name: str, file: str, kind: type[T]) -> T | None:
        """A JSON file of a run, if it is there and of that type."""
        content = self._read(name, file)
        try:
            return None if content is None else schema.parse_json(content, kind, file)
        except ValueError:
            return None

    def _names(self, folder: str) -> list[str]:
        """The names in a folder; none if it cannot be read."""
        self._storage.fs.invalidate_cache()
        try:
            paths = self._storage.ls(folder, detail=False)
        except OSError:
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def _read(self, name: str, file: str) -> bytes | None:
        self._storage.fs.invalidate_cache()
        try:
            content: bytes = self._storage.cat_file(f"{name}/{file}")
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


def _status(progress: ProgressFile) -> dict[str, float]:
    """The finite numbers of an agent's status."""
    return {name: value for name, value in agent_status(progress).items() if math.isfinite(value)}
