"""Writing that is either done or not done, whatever happens in between."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_BLOCK = 1 << 20


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file under another name, makes sure it is on the disk, and renames it.

    Raises:
        OSError: As when the disk is full; the file is then what it was before.
    """
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that gets its name when all is on the disk.

    Raises:
        OSError: As when the disk is full, with the path; the file is then what it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException as problem:
        unfinished.unlink(missing_ok=True)
        if isinstance(problem, OSError) and problem.errno is not None:
            raise OSError(problem.errno, problem.strerror, str(path)) from None
        raise
    sync_folder(path.parent)


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
    """Makes a folder for what is written inside; if that fails, no empty folder is left.

    Raises:
        OSError: If it cannot be made.
    """
    made = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            try:
                folder.rmdir()
            except OSError:  # something is in it
                break
        raise


def sync_folder(folder: Path) -> None:
    """Makes sure that new names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """A checksum of a file's content."""
    found = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def digest_of_bytes(content: bytes) -> str:
    """The checksum that a file of this content has."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
