"""Reading .npz and .npy files from untrusted sources."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from revbis.system.memory import available_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

Header = tuple[tuple[int, ...], np.dtype[Any]]
_UNREADABLE = (  # what NumPy, zipfile and zlib raise for damaged files
    ValueError,
    TypeError,
    KeyError,
    OSError,
    EOFError,
    RuntimeError,  # with RecursionError and NotImplementedError
    OverflowError,
    MemoryError,
    SyntaxError,
    TokenError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays of a .npz file; nothing is unpickled, nothing is read that does not fit in memory.

    Raises:
        ValueError: If the file is missing or not readable.
    """
    try:
        with Path(path).open("rb") as handle, zipfile.ZipFile(handle) as archive:
            _refuse_what_does_not_fit(archive)
            _refuse_false_headers(archive)
            handle.seek(0)
            with np.load(handle, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except _UNREADABLE as error:
        raise ValueError(f"{path} is not a readable .npz of plain arrays: {error}") from None


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a .npy file; nothing is unpickled.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not readable.
    """
    try:
        with Path(path).open("rb") as handle:
            header = _header(handle)
            if header is None:
                raise ValueError("it is not one, or it is an archive of several arrays")
            _refuse_too_short(header, os.fstat(handle.fileno()).st_size, "it")
            handle.seek(0)
            return np.asarray(np.load(handle, allow_pickle=False))
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        raise ValueError(f"{path} is not a .npy file of plain numbers: {error}") from None


def _refuse_what_does_not_fit(archive: zipfile.ZipFile) -> None:
    size, free = sum(entry.file_size for entry in archive.infolist()), available_bytes()
    if size > free:
        raise ValueError(f"it unpacks to {size / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free")


def _refuse_false_headers(archive: zipfile.ZipFile) -> None:
    """An array whose header declares more than its file holds would be allocated first."""
    for entry in archive.infolist():
        with archive.open(entry) as member:
            header = _header(member)
        if header is not None:
            _refuse_too_short(header, entry.file_size, entry.filename)


def _refuse_too_short(header: Header, size: int, name: str) -> None:
    shape, dtype = header
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects; expected arrays of numbers")
    if prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{name} should hold {shape} of {dtype}, but is shorter")


def _header(member: IO[bytes]) -> Header | None:
    """Shape and type of an array; None for what is not an array."""
    if member.read(6) != b"\x93NUMPY":
        return None
    major, minor = member.read(2)
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if (major, minor) not in readers:
        raise ValueError(f"version {major}.{minor} of the format is not supported")
    shape, _, dtype = readers[major, minor](member)
    return shape, dtype
