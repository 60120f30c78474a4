"""Problems of runs and studies: records where they are found, sentences where they are shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from revbis.io.files import shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from revbis.analysis.runs import Failures

_LETTERS = 300  # of a reason
_SHOWN_LINES = 3


class Kind(Enum):
    """What is wrong; the value is its sentence, with the names of its details."""

    BAD_FOLDER = "{reason}"
    ABSENT = "{run} does not exist"
    NOT_A_FOLDER = "{run} is not a run folder: pass folders that revbis train or sweep made"
    NO_RUN = "{run} contains no run"
    BAD_CONFIG = "{run} is left out: {reason}"
    DUPLICATE = "{run} is left out: {kept} is the same run"
    BAD_FILE = "{run}: {file} cannot be read: {reason}"
    BAD_ABOUT = "{run}: {file} cannot be read: {reason}; its versions and command are not known"
    BAD_RECORDS = "{run}/{file} cannot be read: {reason}"
    NOT_JSON = "{run}/{file}: {lines} skipped: incomplete or not a JSON object"
    INVALID_LINES = "{run}/{file}: {lines} skipped: not a {record}"
    NOT_NUMBERS = "{run}/{file}: values that are not numbers are skipped: {names}"
    NOT_FINITE = "{run}: the return at frame {frame:,} is not finite, left out"
    TRAIN_NOT_FINITE = (
        "{run}: the return on training variants at frame {frame:,} is not finite, left out"
    )
    FROM_CHECKPOINT = "{run}: {file} is missing; its lines are read from the checkpoint"
    NO_EVALUATION = "{run} has no evaluation yet"
    UNFINISHED = "{run} is not finished: {frames:,} of {budget:,} frames"
    FAILED = "{run} is {failures}"
    MIXED_SETTING = "{task}: {setting} is {values}: returns are not comparable"
    MIXED_PRESETS = "{task}: presets {values} are not comparable"
    MIXED_VERSIONS = "versions are mixed: {name} {values}"
    MIXED_SIMULATORS = "the runs were made {mixed}; their physics and images may differ"
    MIXED_MACHINES = "the runs were made {mixed}; seeds do not reproduce across them"
    SEPARATE = "{label} is kept separate: its settings differ from those of other runs"
    NO_SEEDS = "{task}, {label}: no seed {seeds}"
    ONE_SEED = "{task}, {label}: one seed only, so no spread is known"
    MISSING_RUNS = "{missing} of {runs} runs are missing"
    NO_ROOM = "{name}: {file} is left out, the page would be too large"


LEFT_OUT = frozenset((Kind.BAD_CONFIG, Kind.DUPLICATE))  # a run that is not in the study
MIXED = frozenset((Kind.MIXED_SIMULATORS, Kind.MIXED_MACHINES))  # what tables name, too


@dataclass(frozen=True)
class StudyProblem:
    """Something that a reader of a study must know; `str` gives its sentence.

    Attributes:
        kind: What is wrong.
        run: The folder it is about; None for a study.
        details: What its sentence names beside the run.
    """

    kind: Kind
    run: Path | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = {name: _shown(name, value) for name, value in self.details.items()}
        return printable(self.kind.value.format(run=self.run and shown_path(self.run), **shown))


OnProblem = Callable[[StudyProblem], None]
_JOINED = {"values": " and ", "seeds": ", ", "names": ", "}
_HASH = re.compile(r"\b([0-9a-f]{7})[0-9a-f]{33}\b")  # of a commit


def short_hashes(text: object) -> str:
    """A text with hashes of commits as git abbreviates them: seven characters."""
    return _HASH.sub(r"\1", str(text))


def _shown(name: str, value: Any) -> Any:
    if name == "lines":
        return _named(value)
    if name == "failures":
        return failure_text(value)
    if name == "mixed":
        return "; ".join(_made(each, runs) for each, runs in value.items())
    return _JOINED[name].join(map(short_hashes, value)) if name in _JOINED else value


def _made(name: str, runs: Mapping[str, int]) -> str:
    """On which processors, or with what else, how many runs were made; empty is not recorded."""
    known, package = sum(map(bool, runs)), name.removeprefix("BLAS of ")
    if name == "processor":
        what = f"on {known} processors" if known > 1 else "on processors not all recorded"
    elif name == "threads":
        what = f"with {known} numbers of threads"
    else:
        what = f"with {known} {'versions' if package == name else 'BLAS libraries'} of {package}"
    total = sum(runs.values())
    values = (f"{value or 'not recorded'} ({n} of {total})" for value, n in runs.items())
    return f"{what}: {' and '.join(values)}"


def failure_text(failures: Failures) -> str:
    """How a run failed, in words."""
    what = "given up" if failures.given_up else "to be retried"
    often = "1 failure" if failures.total == 1 else f"{failures.total} failures"
    return f"{what} after {often}; last reason: {failures.reason}"


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


def _named(numbers: Sequence[int]) -> str:
    """Lines by their numbers, with a verb: `line 4 is`, `lines 4, 5, 6 and 9 more are`."""
    if len(numbers) == 1:
        return f"line {numbers[0]} is"
    shown = ", ".join(map(str, numbers[:_SHOWN_LINES]))
    more = len(numbers) - _SHOWN_LINES
    return f"lines {shown} and {more} more are" if more > 0 else f"lines {shown} are"
