"""A run's folder: the names of its files, whether it is finished, and who may write to it.

Each start or resumption of a run is an attempt. It claims the next number by creating a file that
must not exist yet, and may write only while no later attempt has claimed one. A process that was
frozen or disconnected therefore notices before it does harm. No clocks are compared.
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
PROGRESS = "progress.json"  # progress of the running attempt
RESULT = "result.json"  # written last, when the budget is spent
FAILURES = "failures.json"  # failed attempts, written by the sweep
STOP = "stop"  # tells the running attempt to save and exit
NEIGHBOURS = "neighbours.png"  # drawn by `revbis neighbours`
YARDSTICKS = "yardsticks.json"  # measured by `revbis yardstick`
WANDB_ID = "wandb-id.txt"  # the run's id at Weights & Biases
RECORDS = (TRAINING, EVALUATIONS, ALARMS)

# Its folders.
CHECKPOINTS = "checkpoints"
ATTEMPTS = "attempts"  # claims and logs
DIAGNOSIS = "diagnosis"  # networks and metrics at a loss that is not finite
TENSORBOARD = "tensorboard"
WANDB = "wandb"  # written by Weights & Biases
PAGE = "page"  # written by `revbis report`
EXPORT = "export"  # written by `revbis export`

# What a run and the commands that read it write; with a new run they would be mixed.
OUTPUTS = (
    *(CHECKPOINTS, *RECORDS, RESULT, FAILURES, PROGRESS, YARDSTICKS, NEIGHBOURS),
    *(WANDB_ID, DIAGNOSIS, TENSORBOARD, WANDB, PAGE, EXPORT, CONFIG, ABOUT),
)

# Files of a checkpoint and of a diagnosis, and the folder of the replay buffer's records.
AGENT, STATE, MANIFEST, FACTS = "agent.pt", "state.json", "manifest.json", "facts.json"
REPLAY = "replay"

# A folder with one of MARKS is a run, complete or not; the folders WITHIN contain no other run.
MARKS = frozenset((CONFIG, ABOUT, EVALUATIONS, TRAINING, FAILURES))
WITHIN = frozenset((CHECKPOINTS, ATTEMPTS, DIAGNOSIS, TENSORBOARD, WANDB))

_CLAIM = re.compile(r"attempt-(\d{4,})\.json")
_CHECKPOINT = re.compile(r"frame-(\d{12})")
_BEAT_SECONDS = 2.0


def is_finished(result: ResultFile | None, budget: int) -> bool:
    """Whether a run has spent its budget.

    Args:
        result: Its result.json; None if there is none.
        budget: In frames; it may have been increased since the run finished.
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
    """The name of a checkpoint's folder."""
    return f"frame-{frames:012d}"


def checkpoint_frames(name: str) -> int | None:
    """The frame of the checkpoint in the folder with this name; None for other folders."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def newest_checkpoint(names: Iterable[str]) -> int | None:
    """The frame of the newest checkpoint among the names in a folder; None without one."""
    frames = (checkpoint_frames(name) for name in names)
    return max((frame for frame in frames if frame is not None), default=None)


def claimed_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the attempts that have claimed a run, from the names in `attempts`."""
    return [int(match[1]) for name in names if (match := _CLAIM.fullmatch(name))]


class SupersededError(RuntimeError):
    """A later attempt has taken over the run."""


class RunFolder:
    """A run's folder on a file system that all machines of the run share.

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
        """Makes this process the only one that may write, and sets `attempt` to its number."""
        content = json.dumps({"host": platform.node(), "process": os.getpid()}).encode()
        self._created = [each for each in (self.path, *self.path.parents) if not each.exists()]
        while True:
            number = max(self._claims(), default=0) + 1
            if self._create(f"{ATTEMPTS}/attempt-{number:04d}.json", content):
                self.attempt = number
                self._remove(STOP)
                return

    def check(self) -> None:
        """Stops a process whose run another one has taken over.

        Raises:
            SupersededError: If a later attempt has claimed the folder.
        """
        newest = max(self._claims(), default=0)
        if newest != self.attempt:
            raise SupersededError(
                f"attempt {newest} has taken over {self.path}; attempt {self.attempt} stops here"
            )

    def abandon(self) -> None:
        """Removes what the claim created, if the run could not start and has no config yet."""
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
        """Reports progress every few seconds; returns whether the run should stop."""
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
        except OSError:  # the next checkpoint will report a full disk
            return False
        return self._exists(STOP)

    def saved(self) -> None:
        """Called after each checkpoint and at the end; nothing to do for a shared folder."""

    @property
    def log(self) -> Path:
        """The log file of this attempt."""
        return self.path / ATTEMPTS / f"attempt-{self.attempt:04d}.log"

    def _claims(self) -> list[int]:
        try:
            return claimed_numbers(path.name for path in (self.path / ATTEMPTS).iterdir())
        except FileNotFoundError:
            return []

    def _create(self, name: str, content: bytes) -> bool:
        """Creates a file; returns False if it exists."""
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
