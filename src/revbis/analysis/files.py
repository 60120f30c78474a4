"""Files of runs read without trust: anything may be in them, and a running run renames them.

Everything here reads; nothing writes, renames or deletes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]

# A folder with one of these is a run, whole or not.
_MARKS = frozenset(("config.json", "run.json", "eval.jsonl", "train.jsonl", "failures.json"))
# Folders of a run that hold no other run, and many files that come and go.
_WITHIN = frozenset(("checkpoints", "attempts", "diagnosis", "tensorboard", "wandb"))
_LARGEST_COUNT = 2**53  # the largest that the page's script can tell from its neighbours
_SHOWN_LINES = 3
_LETTERS = 300  # of a reason


def run_folders(top: Path, problem: Callable[[str], None] = lambda text: None) -> Iterator[Path]:
    """The run folders in or below a folder, sorted within each level.

    What disappears meanwhile is skipped; folders that may not be read are named.
    """

    def failed(reason: OSError) -> None:
        if not isinstance(reason, FileNotFoundError):
            problem(f"{reason.filename} cannot be read: {reason.strerror}")

    for path, folders, files in os.walk(top, onerror=failed):
        folders.sort()
        if _MARKS & {*folders, *files}:
            folders[:] = [name for name in folders if name not in _WITHIN]
            yield Path(path)


class Lines(NamedTuple):
    """A file of JSON lines.

    Attributes:
        records: Line number and content of each line that is a JSON object.
        odd: Numbers of the lines that are not.
    """

    records: list[tuple[int, Record]]
    odd: list[int]


def read_lines(path: Path, problem: Callable[[str], None]) -> Lines:
    """The lines of a file; empty if it is not there. Lines that are no JSON objects are named."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return Lines([], [])
    except OSError as reason:
        problem(f"{path} cannot be read: {reason.strerror}")
        return Lines([], [])
    records, odd = [], []
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        record = record_of(line)
        if record is None:
            odd.append(number)
        else:
            records.append((number, record))
    if odd:
        problem(f"{path}: {named(odd)} skipped: incomplete or not a JSON object")
    return Lines(records, odd)


def record_of(line: str) -> Record | None:
    """The JSON object in a line; None if there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def named(lines: Iterable[int]) -> str:
    """Lines by their numbers, with a verb: `line 4 is`, `lines 4, 5, 6 and 9 more are`."""
    numbers = list(lines)
    if len(numbers) == 1:
        return f"line {numbers[0]} is"
    shown = ", ".join(map(str, numbers[:_SHOWN_LINES]))
    more = len(numbers) - _SHOWN_LINES
    return f"lines {shown} and {more} more are" if more > 0 else f"lines {shown} are"


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
    known = number(value)
    if known is None or not 0 <= known <= _LARGEST_COUNT or known != int(known):
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
