"""What the page shows of the train.jsonl files, each read again only when it has changed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from revbis.analysis.scores import Record, Run

_POINTS = 200  # a curve is a few hundred pixels wide
_PHASE = "seconds/"


@dataclass(frozen=True)
class Series:
    """Values along a run.

    Attributes:
        frames: Simulator steps.
        updates: Updates so far.
        hours: Time so far.
        values: One at each.
    """

    frames: list[int]
    updates: list[int]
    hours: list[float | None]
    values: list[float | None]


@dataclass(frozen=True)
class Training:
    """The training of one run.

    Attributes:
        coefficient: c, if the method has one.
        returns: Returns of training episodes.
        phases: Seconds spent in each phase so far.
        frames: Frames at the last line.
    """

    coefficient: Series | None = None
    returns: Series | None = None
    phases: dict[str, float] = field(default_factory=dict)
    frames: int = 0

    @property
    def seconds(self) -> float:
        """Time of all phases."""
        return sum(self.phases.values())


class Trainings:
    """Reads the training of runs, and remembers it while the file stays the same."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[int, int], Training]] = {}

    def of(self, run: Run) -> Training:
        """The training of a run; empty if it has none yet."""
        path, known = run.folder / "train.jsonl", self._seen.get(run.folder)
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if known is None or known[0] != stamp:
                known = self._seen[run.folder] = (stamp, _summarise(_thinned(path)))
        except OSError:
            return Training()
        return known[1]


def number(value: Any, digits: int = 5) -> float | None:
    """A finite number with so many significant digits, or None."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return float(f"{found:.{digits}g}") if math.isfinite(found) else None


def count(value: Any) -> int:
    """A whole number; 0 for what is none."""
    found = number(value, 15)
    return 0 if found is None else int(found)


def hours(record: Record) -> float | None:
    """When a record was made."""
    seconds = number(record.get("seconds"), 15)
    return None if seconds is None else number(seconds / 3600)


def _thinned(path: Path) -> list[Record]:
    """Some lines of a record file, evenly spread, the newest whole one among them.

    The files of a sweep are long: reading every number in them would take most of the time.
    """
    lines = path.read_text(errors="replace").splitlines()
    while lines and _record(lines[-1]) is None:
        lines.pop()
    step = max(1, math.ceil(len(lines) / _POINTS))
    records = [_record(line) for line in lines[::-step]]
    return [record for record in reversed(records) if record is not None]


def _record(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _summarise(lines: Sequence[Record]) -> Training:
    lines = [line for line in lines if number(line.get("frames")) is not None]
    if not lines:
        return Training()
    last = lines[-1]
    spent = {
        name.removeprefix(_PHASE): number(value)
        for name, value in last.items()
        if name.startswith(_PHASE)
    }
    return Training(
        coefficient=_series(lines, "c"),
        returns=_series(lines, "episode_return"),
        phases={name: value for name, value in spent.items() if value is not None},
        frames=count(last["frames"]),
    )


def _series(lines: Sequence[Record], name: str) -> Series | None:
    there = [line for line in lines if line.get(name) is not None]
    if not there:
        return None
    return Series(
        frames=[count(line["frames"]) for line in there],
        updates=[count(line.get("updates")) for line in there],
        hours=[hours(line) for line in there],
        values=[number(line[name], 4) for line in there],
    )
