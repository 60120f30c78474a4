"""A run's folder: the names of its files, whether it is finished, and who may write to it.

Each time a run is started or resumed is an attempt. It claims the next number by creating a file
that must not exist yet, and may write only while no later attempt has claimed one: a process that
was frozen, or cut off from the network, and comes back notices before it does harm. No clocks are
compared.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
from typing import TYPE_CHECKING

from revbis import schema
from revbis.schema import ProgressFile, ResultFile
from revbis.system.files import named_when_whole, naming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from revbis.training.progress import Status

# Files of a run.
CONFIG = "config.json"  # its settings
ABOUT = "run.json"  # versions, revision, command and machine
TRAINING = "train.jsonl"  # metrics of training, appended line by line
EVALUATIONS = "eval.jsonl"
ALARMS = "alarms.jsonl"
PROGRESS = "progress.json"  # how far the running attempt is
RESULT = "result.json"  # written last, when the budget is spent
FAILURES = "failures.json"  # failed attempts, written by the sweep
STOP = "stop"  # asks the running attempt to save and end
NEIGHBOURS = "neighbours.png"  # drawn by `revbis neighbours`
RECORDS = (TRAINING, EVALUATIONS, ALARMS)

# Its folders.
CHECKPOINTS = "checkpoints"
ATTEMPTS = "attempts"  # claims and logs
DIAGNOSIS = "diagnosis"  # networks and metrics at a loss that is not finite
TENSORBOARD = "tensorboard"
WANDB = "wandb"  # made by Weights & Biases
PAGE = "page"  # made by `revbis report`

# Files of a checkpoint and of a diagnosis, and the folder of the replay buffer's records.
AGENT, STATE, MANIFEST, FACTS = "agent.pt", "state.json", "manifest.json", "facts.json"
REPLAY = "replay"

# A folder with one of the first is a run, whole or not; the second hold no other run.
MARKS = frozenset((CONFIG, ABOUT, EVALUATIONS, TRAINING, FAILURES))
WITHIN = frozenset((CHECKPOINTS, ATTEMPTS, DIAGNOSIS, TENSORBOARD, WANDB))

_CLAIM = re.compile(r"attempt-(\d{4,})\.json")
_CHECKPOINT = re.compile(r"frame-(\d{12})")
_BEAT_SECONDS = 2.0


def is_finished(result: ResultFile | None, budget: int) -> bool:
    """Whether a run has spent its budget.

    Args:
        result: Its result.json, None if there is none.
        budget: In frames; that of a finished run may have been raised since.
    """
    return result is not None and result["frames"] >= budget


def read_result(folder: Path) -> ResultFile | None:
    """A run's result.json; None if there is none.

    Raises:
        ValueError: If it is not a result.
        OSError: If it cannot be read.
    """
    try:
        content = (folder / RESULT).read_bytes()
    except FileNotFoundError:
        return None
    return schema.parse_json(content, ResultFile, RESULT)


def checkpoint_name(frames: int) -> str:
    """The folder of a checkpoint."""
    return f"frame-{frames:012d}"


def checkpoint_frames(name: str) -> int | None:
    """The frame of the checkpoint in a folder of that name; None if it is no checkpoint's."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def newest_checkpoint(names: Iterable[str]) -> int | None:
    """The frame of the newest checkpoint among the names in a folder; None without any."""
    frames = (checkpoint_frames(name) for name in names)
    return max((frame for frame in frames if frame is not None), default=None)


def claimed_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the attempts that have claimed a run, by the names in `attempts`."""
    return [int(match[1]) for name in names if (match := _CLAIM.fullmatch(name))]


class SupersededError(RuntimeError):
    """A later attempt has taken the run over."""


class RunFolder:
    """A run's folder on a file system that every machine of the run sees.

    Args:
        path: The folder; it need not exist yet.
    """

    beat_seconds = _BEAT_SECONDS

    def __init__(self, path: Path) -> None:
        self.path = path
        self.attempt = 0
        self._created: list[Path] = []  # folders that the claim created, the deepest first
        self._last_beat = time.monotonic()

    def claim(self) -> None:
        """Makes this process the one that may write; `attempt` is its number from now on."""
        content = json.dumps({"host": platform.node(), "process": os.getpid()}).encode()
        self._created = [each for each in (self.path, *self.path.parents) if not each.exists()]
        while True:
            number = max(self._claims(), default=0) + 1
            if self._create(f"{ATTEMPTS}/attempt-{number:04d}.json", content):
                self.attempt = number
                self._remove(STOP)
                return

    def check(self) -> None:
        """Stops a process whose run was taken over.

        Raises:
            SupersededError: If a later attempt has claimed the folder.
        """
        newest = max(self._claims(), default=0)
        if newest != self.attempt:
            raise SupersededError(
                f"{self.path} was taken over by attempt {newest}; attempt {self.attempt} ends here"
            )

    def abandon(self) -> None:
        """Removes what the claim created, for a run that could not start: it has no config yet."""
        taken_over = max(self._claims(), default=0) != self.attempt
        if not self._created or taken_over or (self.path / CONFIG).exists():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in self._created[1:]:
            try:
                folder.rmdir()
            except OSError:  # another run is in it
                return

    def beat(self, status: Callable[[], Status]) -> bool:
        """Reports progress every few seconds; returns whether the run was asked to stop."""
        if time.monotonic() - self._last_beat < self.beat_seconds:
            return False
        self._last_beat = time.monotonic()
        now = status()
        progress: ProgressFile = {
            "attempt": self.attempt,
            "frames": now.progress.frames,
            "frames_per_second": round(now.frames_per_second, 2),
            "seconds": round(sum(now.seconds.values()), 1),
            "mean_return": now.last_evaluation,
            "status": {**now.agent},
        }
        try:
            self._write(PROGRESS, json.dumps(progress).encode())
        except OSError:  # a full disk is for the next checkpoint to report
            return False
        return self._exists(STOP)

    def saved(self) -> None:
        """Called after each checkpoint and at the end; here everything is in its place already."""

    @property
    def log(self) -> Path:
        """Where the output of this attempt may go."""
        return self.path / ATTEMPTS / f"attempt-{self.attempt:04d}.log"

    def _claims(self) -> list[int]:
        try:
            return claimed_numbers(path.name for path in (self.path / ATTEMPTS).iterdir())
        except FileNotFoundError:
            return []

    def _create(self, name: str, content: bytes) -> bool:
        """Creates a file that must not exist; False if it does."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with naming(path), path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def _write(self, name: str, content: bytes) -> None:
        with named_when_whole(self.path / name) as path:
            path.write_bytes(content)

    def _exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def _remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
