"""A run's folder: its files' names, whether it is finished, who may write to it, its mirror."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from revbis.io import schema
from revbis.io.files import atomic_path, naming, unzip
from revbis.io.schema import ProgressFile, ResultFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fsspec.implementations.dirfs import DirFileSystem

    from revbis.io.schema import Failure
    from revbis.runs.records import Status

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

ARCHIVE = "runs.zip"  # run folders of a study; commands read it as if it were unpacked

_CLAIM = re.compile(r"attempt-(\d{4,})\.json")
_CHECKPOINT = re.compile(r"frame-(\d{12})")
_BEAT_SECONDS, _MIRROR_BEAT_SECONDS = 2.0, 20.0
_SAME_CHECKPOINT, _IN_ALL = 3, 20  # failures after which a run is given up


def unpacked(path: Path) -> Path:
    """Where to read a path: the path itself, or an unpacked copy if it leads into a zip file.

    FILE.zip and FILE.zip/cpu/TASK lead into one, as does FOLDER/cpu/TASK if there is no such path
    and FOLDER/runs.zip has it.

    Raises:
        ValueError: If the zip file cannot be unpacked, or FILE.zip does not have the rest.
    """
    nearest = next((each for each in (path, *path.parents) if each.exists()), path)
    inside = path.relative_to(nearest)
    if nearest.suffix == ".zip" and nearest.is_file():
        copy = unzip(nearest) / inside
        if not copy.exists():
            raise ValueError(f"{nearest} has no {inside}")
        return copy
    if nearest != path and (nearest / ARCHIVE).is_file():
        copy = unzip(nearest / ARCHIVE) / inside
        return copy if copy.exists() else path
    return path


def check_writable(path: Path) -> None:
    """Raises a ValueError for a run that is in a zip file."""
    named = any(each.suffix == ".zip" and each.is_file() for each in (path, *path.parents))
    if named or unpacked(path) != path:
        raise ValueError(f"{path} is in a zip file, which is only read: unzip it, or pass --out")


def is_finished(result: ResultFile | None, budget: int) -> bool:
    """Whether a run has spent its budget of frames, which may have grown since it finished."""
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


def given_up(failures: Sequence[Failure]) -> bool:
    """Whether a run is not retried any more.

    A run is given up if its last failure is final (such as a mistake in its settings), after three
    failures at the same checkpoint, or after twenty in total.
    """
    if not failures:
        return False
    last = failures[-1]
    here = sum(each["checkpoint"] == last["checkpoint"] for each in failures)
    return last.get("final", False) or here >= _SAME_CHECKPOINT or len(failures) >= _IN_ALL


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
        with atomic_path(self.path / name) as path:
            path.write_bytes(content)

    def _exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def _remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


def is_url(out: str) -> bool:
    """Whether a string is an fsspec URL and not a path."""
    return "://" in out


def open_storage(url: str) -> DirFileSystem:
    """The folder at a URL as a file system: names are relative to the folder.

    Other processes write there too, and listings may be cached. `fs.invalidate_cache()` of the
    result clears all listings; its own `invalidate_cache` may keep those of subfolders.

    Raises:
        ValueError: If the kind of storage is unknown, or its package is not installed.
    """
    import fsspec
    from fsspec.implementations.dirfs import DirFileSystem

    try:
        storage, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as problem:
        raise ValueError(f"{url} cannot be used: {problem}") from None
    return DirFileSystem(path=root or "/", fs=storage)


class MirroredFolder(RunFolder):
    """A run's folder on this machine's disk, mirrored at an fsspec URL.

    An attempt first downloads the folder, and uploads new files after each checkpoint. The
    manifest of a checkpoint is uploaded last, so that an incomplete upload is ignored.

    Args:
        path: The folder on this machine.
        url: The run's folder on the shared storage.
    """

    beat_seconds = _MIRROR_BEAT_SECONDS

    def __init__(self, path: Path, url: str) -> None:
        super().__init__(path)
        self._storage = open_storage(url)
        self._sent: dict[str, tuple[int, int]] = {}

    def claim(self) -> None:
        """Claims the folder at the URL, then downloads it."""
        super().claim()
        self._fetch()

    def saved(self) -> None:
        """Uploads new files and deletes those that no longer exist here.

        Raises:
            SupersededError: If a later attempt has claimed the folder.
        """
        self.check()
        here = self._local_files()
        new = {name: stamp for name, stamp in here.items() if self._sent.get(name) != stamp}
        for name in sorted(new, key=_sending_order):
            with suppress(FileNotFoundError):  # deleted since it was listed
                self._write(name, (self.path / name).read_bytes())
                self._sent[name] = new[name]
        for name in sorted(set(self._sent) - set(here), key=_sending_order, reverse=True):
            self._remove(name)
            del self._sent[name]

    def _fetch(self) -> None:
        """Makes the local folder equal to the one at the URL."""
        there = {
            name
            for name in self._remote_files()
            if not name.startswith(f"{ATTEMPTS}/") and name not in (PROGRESS, STOP)
        }
        for name in set(self._local_files()) - there:
            (self.path / name).unlink(missing_ok=True)
        for name in sorted(there):
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self._storage.cat_file(name))
        self._sent = self._local_files()

    def _local_files(self) -> dict[str, tuple[int, int]]:
        """Size and modification time of each file that belongs to the run.

        Files and folders may be renamed or deleted during the listing; `Path.rglob` fails then,
        `os.walk` does not.
        """
        stamps = {}
        for folder, folders, names in os.walk(self.path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for path in (Path(folder, name) for name in names if not name.startswith(".")):
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    name = path.relative_to(self.path).as_posix()
                    stamps[name] = (stat.st_size, stat.st_mtime_ns)
        return stamps

    def _remote_files(self) -> list[str]:
        try:
            names = self._storage.find("")
        except FileNotFoundError:
            return []
        return [name for name in names if not name.rpartition("/")[2].startswith(".")]

    def _claims(self) -> list[int]:
        self._storage.fs.invalidate_cache()
        try:
            names = self._storage.ls(ATTEMPTS, detail=False)
        except FileNotFoundError:
            return []
        return claimed_numbers(name.rpartition("/")[2] for name in names)

    def _create(self, name: str, content: bytes) -> bool:
        self._storage.makedirs(name.rpartition("/")[0], exist_ok=True)
        try:
            with self._storage.open(name, "xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        except (ValueError, NotImplementedError):  # storages without exclusive creation
            if self._storage.exists(name):
                return False
            self._storage.pipe_file(name, content)
        return True

    def _write(self, name: str, content: bytes) -> None:
        self._storage.makedirs(name.rpartition("/")[0], exist_ok=True)
        self._storage.pipe_file(name, content)

    def _exists(self, name: str) -> bool:
        self._storage.fs.invalidate_cache()
        return bool(self._storage.exists(name))

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._storage.rm_file(name)


def _sending_order(name: str) -> tuple[int, str]:
    """Replay first, manifests after the files they list, the result last."""
    if name.endswith(RESULT):
        return 3, name
    if name.endswith(MANIFEST):
        return 2, name
    return (0, name) if f"/{REPLAY}/" in name else (1, name)
