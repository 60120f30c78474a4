"""Atomic writes and checksums."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCK = 1 << 20


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file atomically: under another name, synced to disk, then renamed.

    Raises:
        OSError: If the disk is full, for example; the file is then unchanged.
    """
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that gets its name once everything is on disk.

    Raises:
        OSError: If the disk is full, for example, with the path; the file is then unchanged.
    """
    with named_when_whole(path) as unfinished, unfinished.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
def named_when_whole(path: Path) -> Iterator[Path]:
    """Another path to write to: the file gets its name at the end, or is deleted after an error.

    It may still be lost when the power fails; `whole_file` waits for the disk.

    Raises:
        OSError: As when the disk is full, with the path; the file is then what it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")  # what writes it may need the suffix
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException as problem:
        unfinished.unlink(missing_ok=True)
        if isinstance(problem, OSError) and problem.errno is not None:
            # the error of a full disk does not name the file
            raise OSError(problem.errno, problem.strerror, str(path)) from None
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds a path to errors of the system that name none: a full disk does not say which file."""
    try:
        yield
    except OSError as problem:
        if problem.errno is None or problem.filename is not None:
            raise
        raise OSError(problem.errno, problem.strerror, str(path)) from None


@contextmanager
def new_folder(path: Path) -> Iterator[None]:
    """Creates a folder for what is written inside; if that fails, no empty folder is left.

    Raises:
        OSError: If it cannot be created.
    """
    created = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in created:
            try:
                folder.rmdir()
            except OSError:  # something is in it
                break
        raise


def sync_folder(folder: Path) -> None:
    """Syncs the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """The checksum of a file's content."""
    checksum = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum.update(block)
    return checksum.hexdigest()


def digest_of_bytes(content: bytes) -> str:
    """The checksum of a file with this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
