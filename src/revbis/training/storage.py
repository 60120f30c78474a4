"""Shared storage at fsspec URLs, and a run's folder that is mirrored there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from revbis.training.folder import (
    ATTEMPTS,
    MANIFEST,
    PROGRESS,
    REPLAY,
    RESULT,
    STOP,
    RunFolder,
    claimed_numbers,
)

if TYPE_CHECKING:
    from fsspec.implementations.dirfs import DirFileSystem

_BEAT_SECONDS = 20.0


def is_url(place: str) -> bool:
    """Whether a string is an fsspec URL and not a path."""
    return "://" in place


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

    beat_seconds = _BEAT_SECONDS

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
