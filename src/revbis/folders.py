"""A run's folder, who may write to it, and its copy on shared storage.

Each time a run is begun or taken up again is an attempt. It claims the next number by making a file
that must not exist yet, and may write only while no later attempt has claimed one: a process that
was frozen, or cut off from the network, and comes back finds out before it does harm. No clocks are
compared.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revbis.files import naming

if TYPE_CHECKING:
    from revbis.progress import Status

_ATTEMPTS = "attempts"
_CLAIM = re.compile(r"attempt-(\d{4,})\.json")
_BEAT_SECONDS, _REMOTE_BEAT_SECONDS = 2.0, 20.0


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
        self._made: list[Path] = []  # folders that the claim made, the deepest first
        self._beaten = time.monotonic()

    def claim(self) -> None:
        """Makes this process the one that may write; `attempt` is its number from now on."""
        about = {"host": platform.node(), "process": os.getpid()}
        self._made = [each for each in (self.path, *self.path.parents) if not each.exists()]
        while True:
            number = max(self._claims(), default=0) + 1
            if self._create(f"{_ATTEMPTS}/attempt-{number:04d}.json", json.dumps(about).encode()):
                self.attempt = number
                self._remove("stop")
                return

    def check(self) -> None:
        """Stops a process whose run was taken over.

        Raises:
            SupersededError: If a later attempt has claimed the folder.
        """
        newest = max(self._claims(), default=0)
        if newest != self.attempt:
            raise SupersededError(
                f"{self.path} was taken over by attempt {newest}; this one, {self.attempt}, ends"
            )

    def abandon(self) -> None:
        """Removes what the claim made, for a run that could not begin: it has no config yet."""
        taken_over = max(self._claims(), default=0) != self.attempt
        if not self._made or taken_over or (self.path / "config.json").exists():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in self._made[1:]:
            try:
                folder.rmdir()
            except OSError:  # another run is in it
                return

    def beat(self, status: Callable[[], Status]) -> bool:
        """Tells now and then how far the run is; returns whether it was asked to stop."""
        if time.monotonic() - self._beaten < self.beat_seconds:
            return False
        self._beaten = time.monotonic()
        now = status()
        progress = {
            "attempt": self.attempt,
            "frames": now.progress.frames,
            "frames_per_second": round(now.frames_per_second, 2),
            "seconds": round(sum(now.seconds.values()), 1),
            "mean_return": now.last_evaluation,
            "c": now.c,
        }
        try:
            self._write("progress.json", json.dumps(progress).encode())
        except OSError:  # a full disk is for the next checkpoint to report
            return False
        return self._exists("stop")

    def saved(self) -> None:
        """Called after each checkpoint and at the end; here everything is in its place already."""

    @property
    def log(self) -> Path:
        """Where what this attempt prints may go."""
        return self.path / _ATTEMPTS / f"attempt-{self.attempt:04d}.log"

    def _claims(self) -> list[int]:
        try:
            names = os.listdir(self.path / _ATTEMPTS)
        except FileNotFoundError:
            return []
        return [int(found[1]) for name in names if (found := _CLAIM.fullmatch(name))]

    def _create(self, name: str, content: bytes) -> bool:
        """Makes a file that must not exist; False if it does."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with naming(path), open(path, "xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def _write(self, name: str, content: bytes) -> None:
        unfinished = self.path / f".{name}.{os.getpid()}"
        unfinished.write_bytes(content)
        os.replace(unfinished, self.path / name)

    def _exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def _remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


class MirroredFolder(RunFolder):
    """A run's folder on this machine's disk, copied to and from any fsspec URL.

    The attempt begins by fetching the copy, and sends what is new after each checkpoint. A
    checkpoint's manifest goes last, so that one which was cut off on its way is passed over.

    Args:
        path: The folder on this machine.
        url: The run's folder on the shared storage.
    """

    beat_seconds = _REMOTE_BEAT_SECONDS

    def __init__(self, path: Path, url: str) -> None:
        super().__init__(path)
        self._storage, self._root = open_storage(url)
        self._sent: dict[str, tuple[int, int]] = {}

    def claim(self) -> None:
        """Claims the copy, then fetches it."""
        super().claim()
        self._fetch()

    def saved(self) -> None:
        """Sends what is new and deletes what is gone.

        Raises:
            SupersededError: If a later attempt has claimed the copy.
        """
        self.check()
        here = self._local_files()
        new = {name: stamp for name, stamp in here.items() if self._sent.get(name) != stamp}
        for name in sorted(new, key=_sending_order):
            with suppress(FileNotFoundError):  # deleted since it was listed
                self._put(name, (self.path / name).read_bytes())
                self._sent[name] = new[name]
        for name in sorted(set(self._sent) - set(here), key=_sending_order, reverse=True):
            self._remove(name)
            del self._sent[name]

    def _fetch(self) -> None:
        """Makes the folder here equal to the copy."""
        there = {
            name
            for name in self._remote_files()
            if not name.startswith(f"{_ATTEMPTS}/") and name not in ("progress.json", "stop")
        }
        for name in set(self._local_files()) - there:
            (self.path / name).unlink(missing_ok=True)
        for name in sorted(there):
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self._storage.cat_file(f"{self._root}/{name}"))
        self._sent = self._local_files()

    def _local_files(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of each file that belongs to the run.

        Files and folders may be renamed or deleted while they are listed; `Path.rglob` cannot
        stand that, `os.walk` can.
        """
        found = {}
        for folder, folders, names in os.walk(self.path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for path in (Path(folder, name) for name in names if not name.startswith(".")):
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    name = path.relative_to(self.path).as_posix()
                    found[name] = (stat.st_size, stat.st_mtime_ns)
        return found

    def _remote_files(self) -> list[str]:
        try:
            paths = self._storage.find(self._root)
        except FileNotFoundError:
            return []
        root = self._root.strip("/")
        names = [str(path).strip("/").removeprefix(root).lstrip("/") for path in paths]
        return [name for name in names if not name.rpartition("/")[2].startswith(".")]

    def _claims(self) -> list[int]:
        self._storage.invalidate_cache()  # others write there too
        try:
            paths = self._storage.ls(f"{self._root}/{_ATTEMPTS}", detail=False)
        except FileNotFoundError:
            return []
        names = [str(path).rstrip("/").rpartition("/")[2] for path in paths]
        return [int(found[1]) for name in names if (found := _CLAIM.fullmatch(name))]

    def _create(self, name: str, content: bytes) -> bool:
        path = f"{self._root}/{name}"
        self._storage.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            with self._storage.open(path, "xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        except (ValueError, NotImplementedError):  # a storage that cannot refuse existing files
            if self._storage.exists(path):
                return False
            self._storage.pipe_file(path, content)
        return True

    def _write(self, name: str, content: bytes) -> None:
        self._put(name, content)

    def _put(self, name: str, content: bytes) -> None:
        path = f"{self._root}/{name}"
        self._storage.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._storage.pipe_file(path, content)

    def _exists(self, name: str) -> bool:
        self._storage.invalidate_cache()
        return bool(self._storage.exists(f"{self._root}/{name}"))

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._storage.rm_file(f"{self._root}/{name}")


def is_url(place: str) -> bool:
    """Whether a place is an fsspec URL and not a path."""
    return "://" in place


def open_storage(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path in it.

    Raises:
        ValueError: If the URL's kind is unknown, or what it needs is not installed.
    """
    import fsspec

    try:
        storage, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as problem:
        raise ValueError(f"{url} cannot be used: {problem}") from None
    return storage, str(root).rstrip("/")


def _sending_order(name: str) -> tuple[int, str]:
    """Replay first, manifests of checkpoints after all they list, the result last."""
    if name.endswith("result.json"):
        return 3, name
    if name.endswith("manifest.json"):
        return 2, name
    return (0, name) if "/replay/" in name else (1, name)
