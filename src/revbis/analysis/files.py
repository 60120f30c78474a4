"""Folders and values of runs read without trust: anything may be in them.

Everything here reads; nothing writes, renames or deletes.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revbis.training.folder import MARKS, WITHIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LARGEST_COUNT = 2**53  # the largest that the page's script can tell from its neighbours
_LETTERS = 300  # of a reason


def run_folders(top: Path, problem: Callable[[str], None] = lambda _: None) -> Iterator[Path]:
    """The run folders in or below a folder, sorted within each level.

    What disappears meanwhile is skipped; folders that may not be read are reported.
    """

    def failed(reason: OSError) -> None:
        if not isinstance(reason, FileNotFoundError):
            problem(f"{reason.filename} cannot be read: {reason.strerror}")

    for path, folders, files in os.walk(top, onerror=failed):
        folders.sort()
        if MARKS & {*folders, *files}:
            folders[:] = [name for name in folders if name not in WITHIN]
            yield Path(path)


def number(value: Any) -> float | None:
    """A number, finite or not; None for what is none. Records hold NaN and infinity as words."""
    if isinstance(value, str):
        return float(value) if value in ("nan", "inf", "-inf") else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def count(value: Any) -> int | None:
    """A whole number from 0 to 2^53; None for what is none."""
    real = number(value)
    if real is None or not 0 <= real <= _LARGEST_COUNT or real != int(real):
        return None
    return int(value)


def explained(reason: Exception) -> str:
    """Why something cannot be read, in a line that is not too long."""
    if isinstance(reason, RecursionError):
        return "it is nested too deeply"
    if isinstance(reason, UnicodeDecodeError):
        return "it is not text"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return shortened(str(reason))


def shortened(text: str) -> str:
    """A text in one line that is not too long."""
    text = " ".join(printable(text).split())
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


def printable(text: str) -> str:
    """A text without halves of surrogate pairs, which JSON and file names can hold."""
    return text.encode(errors="replace").decode()
