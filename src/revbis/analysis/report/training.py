"""What the page shows of train.jsonl files; each is read again only when it has changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from revbis.analysis.files import count, number
from revbis.system.json_lines import Record, named, record_of
from revbis.training.folder import TRAINING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from revbis.analysis.runs import Run

_POINTS = 200  # a curve is a few hundred pixels wide
_PHASE = "seconds/"
_LARGEST = 1e100  # that a chart can scale
_COUNTERS = frozenset(("frames", "agent_steps", "updates", "episodes", "seconds"))


@dataclass(frozen=True)
class Training:
    """The training of one run, at evenly spaced lines, the newest among them.

    Attributes:
        frames: Simulator steps.
        updates: Updates so far.
        hours: Time so far.
        values: Every other number by name; None where a line does not have it.
        phases: Seconds spent in each phase so far.
        odd: What cannot be read in the file, in words.
    """

    frames: list[int] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    hours: list[float | None] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    odd: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Time of all phases."""
        return sum(self.phases.values())

    @property
    def last_frame(self) -> int:
        """Frames at the newest line."""
        return self.frames[-1] if self.frames else 0

    @property
    def seconds_per_frame(self) -> float:
        """Of a run that has frames."""
        return self.seconds / self.last_frame


class Trainings:
    """Reads the training of runs, and remembers it while the file stays the same."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[int, int], Training]] = {}

    def of(self, run: Run) -> Training:
        """The training of a run; empty if it has none yet."""
        path, known = run.folder / TRAINING, self._seen.get(run.folder)
        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_size)
            if known is None or known[0] != stamp:
                known = self._seen[run.folder] = (stamp, _read(path))
        except FileNotFoundError:
            return Training()
        except OSError as reason:
            return Training(odd=(f"{path} cannot be read: {reason.strerror}",))
        return known[1]


def rounded(value: object, digits: int = 5) -> float | None:
    """A finite number rounded to some significant digits, or None."""
    known = number(value)
    if known is None or not abs(known) <= _LARGEST:
        return None
    return float(f"{known:.{digits}g}")


def hours(seconds: object) -> float | None:
    """A time in hours."""
    known = number(seconds)
    return None if known is None else rounded(known / 3600)


def _read(path: Path) -> Training:
    """A sample of the file's lines: parsing all lines of a sweep would take most of the time.

    The last line may be incomplete, as a run appends to it.
    """
    lines = path.read_text(errors="replace").split("\n")
    half = lines.pop()
    if record_of(half) is not None:
        lines.append(half)
    odd = [i for i, line in enumerate(lines, 1) if not (line[:1] == "{" and line[-1:] == "}")]
    good = sorted(set(range(1, len(lines) + 1)) - set(odd))
    step = max(1, math.ceil(len(good) / _POINTS))
    records = []
    for i in reversed(good[::-step]):
        record = record_of(lines[i - 1])
        if record is None or count(record.get("frames")) is None:
            odd.append(i)
        else:
            records.append(record)
    problems = [f"{path}: {named(sorted(odd))} skipped: not a training record"] if odd else []
    return _summarise(records, path, problems)


def _summarise(lines: Sequence[Record], path: Path, problems: list[str]) -> Training:
    if not lines:
        return Training(odd=tuple(problems))
    names = dict.fromkeys(
        name
        for line in lines
        for name in line
        if name not in _COUNTERS and not name.startswith(_PHASE)
    )
    values = {name: [rounded(line.get(name), 4) for line in lines] for name in names}
    phases = {
        name.removeprefix(_PHASE): spent
        for name, value in lines[-1].items()
        if name.startswith(_PHASE) and (spent := rounded(value)) is not None and spent >= 0
    }
    odd = sorted({name for line in lines for name in _odd(line)})
    if odd:
        text = f"{path}: values that are not numbers are skipped: {', '.join(odd)}"
        problems = [*problems, text]
    return Training(
        frames=[count(line["frames"]) or 0 for line in lines],
        updates=[count(line.get("updates")) or 0 for line in lines],
        hours=[hours(line.get("seconds")) for line in lines],
        values={
            name: series for name, series in values.items() if any(v is not None for v in series)
        },
        phases=phases,
        odd=tuple(problems),
    )


def _odd(line: Record) -> list[str]:
    """Names of values that are neither numbers nor null."""
    return [name for name, value in line.items() if value is not None and number(value) is None]
