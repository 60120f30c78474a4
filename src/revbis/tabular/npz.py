"""Reading .npz and .npy files that anybody may have written."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from math import prod
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from revbis.system.memory import available_bytes

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
    """The arrays of an .npz; nothing is unpickled, and nothing is read that memory cannot hold.

    Raises:
        ValueError: Whatever is wrong with the file.
    """
    try:
        with open(path, "rb") as handle, zipfile.ZipFile(handle) as archive:
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
    """The array of an .npy; nothing is unpickled.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: Whatever is wrong with it.
    """
    try:
        with open(path, "rb") as handle:
            header = _header(handle)
            if header is None:
                raise ValueError("it is none, or an archive of several arrays")
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
        raise ValueError(f"unpacked it has {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")


def _refuse_false_headers(archive: zipfile.ZipFile) -> None:
    """An array that says it is larger than its file would be allocated before that is noticed."""
    for entry in archive.infolist():
        with archive.open(entry) as member:
            header = _header(member)
        if header is not None:
            _refuse_too_short(header, entry.file_size, entry.filename)


def _refuse_too_short(header: Header, size: int, name: str) -> None:
    shape, dtype = header
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects; arrays of numbers are wanted")
    if prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{name} should hold {shape} of {dtype}, but ends before")


def _header(member: IO[bytes]) -> Header | None:
    """Shape and type of an array; None for what is no array."""
    if member.read(6) != b"\x93NUMPY":
        return None
    major, minor = member.read(2)
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if (major, minor) not in readers:
        raise ValueError(f"version {major}.{minor} of the format is not known")
    shape, _, dtype = readers[major, minor](member)
    return shape, dtype
