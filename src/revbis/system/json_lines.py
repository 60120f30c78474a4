"""Files of JSON lines: one way to write a line, and one reader.

The reader trusts nothing: a line may be half written, as while a run appends to it, or hold
anything else. Lines that are no JSON objects are skipped and reported.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Record = dict[str, Any]
_SHOWN_LINES = 3


class Lines(NamedTuple):
    """The content of a file.

    Attributes:
        records: Line number and content of each line that is a JSON object.
        odd: Numbers of the lines that are not.
    """

    records: list[tuple[int, Record]]
    odd: list[int]


def line_of(record: Record) -> str:
    """A record as a line; NaN and infinity, which JSON does not have, become words."""
    finite = {name: _finite(value) for name, value in record.items()}
    return json.dumps(finite, allow_nan=False) + "\n"


def read_records(path: Path) -> list[Record]:
    """The lines of a file that are JSON objects; empty if there is no such file."""
    return [record for _, record in read_lines(path).records]


def read_lines(path: Path, problem: Callable[[str], None] = lambda _: None) -> Lines:
    """The lines of a file by number; empty if there is no such file.

    Args:
        path: The file.
        problem: Called with the lines that are no JSON objects, and if the file cannot be read.
    """
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


def _finite(value: object) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
