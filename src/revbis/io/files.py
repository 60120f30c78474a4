"""Atomic writes, checksums, zip files, tensors, and files of JSON lines."""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
import tempfile
import warnings
import zipfile
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# The class that PyTorch's safe reader refuses, in its message.
_REFUSED = re.compile(r"[Uu]nsupported (?:global: )?(?:GLOBAL|class) ([\w.]+)")
_UNFINISHED = re.compile(r"\.(\d+)-(.+)")  # the names that `atomic_path` writes to
_MOST_ENTRIES, _MOST_BYTES = 1_000_000, 16 << 30  # of a zip file, unpacked


def atomic_write(path: Path, content: bytes) -> None:
    """Writes a file atomically: under another name, synced to disk, then renamed.

    Raises:
        OSError: If the disk is full, for example; the file is then unchanged.
    """
    with atomic_file(path) as file:
        file.write(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that gets its name once everything is on disk.

    Raises:
        OSError: If the disk is full, for example, with the path; the file is then unchanged.
    """
    with atomic_path(path) as unfinished, unfinished.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Another path to write to: the file gets its name at the end, or is deleted after an error.

    It may still be lost when the power fails; `atomic_file` waits for the disk.

    Raises:
        OSError: As when the disk is full, with the path; the file is then what it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")  # what writes it may need the suffix
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException as problem:
        with suppress(OSError):  # its own error would name the other path
            unfinished.unlink(missing_ok=True)
        if isinstance(problem, OSError) and problem.errno is not None:
            # the error of a full disk does not name the file, others the other path
            raise OSError(problem.errno, problem.strerror, str(path)) from None
        raise


def remove_unfinished(folder: Path, names: Iterable[str]) -> None:
    """Removes what processes that were killed while they wrote these files have left behind."""
    known = frozenset(names)
    for path in folder.glob(".*-*"):
        match = _UNFINISHED.fullmatch(path.name)
        if not match or match[2] not in known or _is_running(int(match[1])):
            continue
        if path.is_dir() and not path.is_symlink():  # of an export
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


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


def read_tensors(content: bytes) -> Any:
    """What `torch.save` wrote, on the CPU: tensors and plain values, never code.

    Raises:
        ValueError: If it is anything else. PyTorch's messages advise to load it unsafely, so they
            are not repeated.
    """
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the pickle protocol of foreign files
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as problem:  # noqa: BLE001 (the reader can raise anything for a foreign file)
        refused = _REFUSED.search(str(problem))
        what = f"it has an object of {refused[1]} in it" if refused else "it is something else"
        raise ValueError(
            "only tensors, numbers, texts, lists and dicts are read, as revbis writes them, "
            f"because others could run code; {what}"
        ) from None


def digest(path: Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def digest_of_bytes(content: bytes) -> str:
    """The checksum of a file with this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def unzip(archive: Path) -> Path:
    """The content of a zip file, in a temporary folder that is removed when the process ends.

    It is unpacked once, and again if the file has changed.

    Raises:
        ValueError: If it is damaged or too large, or has links or names that leave the folder.
    """
    path = archive.resolve()
    folder = _temporary_folder().joinpath(*path.parts[1:])
    try:
        stamp = (path.stat().st_mtime_ns, path.stat().st_size)
        if _unzipped.get(folder) != stamp:
            _unzipped.pop(folder, None)
            shutil.rmtree(folder, ignore_errors=True)
            with zipfile.ZipFile(path) as file:
                _check_entries(file.infolist())
                folder.mkdir(parents=True)
                file.extractall(folder)
            _unzipped[folder] = stamp
    except Exception as problem:  # noqa: BLE001 (a damaged archive can fail in any way)
        shutil.rmtree(folder, ignore_errors=True)
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise ValueError(f"{archive} cannot be unpacked: {reason or problem}") from None
    return folder


def shown_path(path: Path) -> Path:
    """The path as a user knows it: for what `unzip` has unpacked, the one in the zip file."""
    if not _unzipped or _temporary_folder() not in path.parents:
        return path
    return Path("/", path.relative_to(_temporary_folder()))


_unzipped: dict[Path, tuple[int, int]] = {}


@cache
def _temporary_folder() -> Path:
    folder, process = Path(tempfile.mkdtemp(prefix="revbis-")).resolve(), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not in a fork of it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _check_entries(entries: Sequence[zipfile.ZipInfo]) -> None:
    size = sum(entry.file_size for entry in entries)
    room = min(_MOST_BYTES, shutil.disk_usage(_temporary_folder()).free)
    if len(entries) > _MOST_ENTRIES or size > room:
        raise ValueError(
            f"it has {len(entries):,} files of {size:,} bytes, and there is room for "
            f"{_MOST_ENTRIES:,} of {room:,} in {tempfile.gettempdir()}; unzip it elsewhere and "
            "pass the folder"
        )
    for entry in entries:
        name, kind = PurePosixPath(entry.filename), stat.S_IFMT(entry.external_attr >> 16)
        if name.is_absolute() or ".." in name.parts:
            raise ValueError(f"{entry.filename!r:.80} in it leads out of the folder")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"{entry.filename!r:.80} in it is neither a file nor a folder")


Record = dict[str, Any]


class Lines(NamedTuple):
    """The content of a file.

    Attributes:
        records: Line number and content of each line that is a JSON object.
        malformed: Numbers of the lines that are not.
        unreadable: Why the file cannot be read; empty if it can, or if there is none.
    """

    records: list[tuple[int, Record]]
    malformed: list[int]
    unreadable: str = ""


def line_of(record: Record) -> str:
    """A record as a line; NaN and infinity, which JSON does not have, become words."""
    finite = {name: _finite(value) for name, value in record.items()}
    return json.dumps(finite, allow_nan=False) + "\n"


def read_records(path: Path) -> list[Record]:
    """The lines of a file that are JSON objects; empty if there is no such file."""
    return [record for _, record in read_lines(path).records]


def read_lines(path: Path) -> Lines:
    """The lines of a file by number; empty if there is no such file."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return Lines([], [])
    except OSError as reason:
        return Lines([], [], reason.strerror or "unknown")
    records, malformed = [], []
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        record = record_of(line)
        if record is None:
            malformed.append(number)
        else:
            records.append((number, record))
    return Lines(records, malformed)


def record_of(line: str) -> Record | None:
    """The JSON object in a line; None if there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _finite(value: object) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
