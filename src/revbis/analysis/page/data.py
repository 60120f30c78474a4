"""What the page's script draws from, and what it shows of train.jsonl files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from revbis.analysis import stats
from revbis.analysis.problems import Kind, StudyProblem
from revbis.analysis.runs import as_count, as_number
from revbis.analysis.scores import group_scores, measure_of
from revbis.envs.suite import Measure
from revbis.io.files import Record, record_of
from revbis.io.statistics import mean_interval
from revbis.runs.folder import TRAINING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from revbis.analysis.runs import Run
    from revbis.analysis.scores import Pooled
    from revbis.analysis.study import RunGroup, Study

_POINTS = 200  # a curve is a few hundred pixels wide
_PHASE = "seconds/"
_LARGEST = 1e100  # that a chart can scale
_COUNTERS = frozenset(("frames", "agent_steps", "updates", "episodes", "seconds"))


@dataclass(frozen=True)
class TrainingSample:
    """The training of one run, at evenly spaced lines, the newest among them.

    Attributes:
        frames: Simulator steps.
        updates: Updates so far.
        hours: Time so far.
        values: Every other number by name; None where a line does not have it.
        phases: Seconds spent in each phase so far.
        problems: What cannot be read in the file.
    """

    frames: list[int] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    hours: list[float | None] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    problems: tuple[StudyProblem, ...] = ()

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
        self._seen: dict[Path, tuple[tuple[int, int], TrainingSample]] = {}

    def of(self, run: Run) -> TrainingSample:
        """The training of a run; empty if it has none yet."""
        path, known = run.folder / TRAINING, self._seen.get(run.folder)
        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_size)
            if known is None or known[0] != stamp:
                known = self._seen[run.folder] = (stamp, _read(run.folder))
        except FileNotFoundError:
            return TrainingSample()
        except OSError as reason:
            return TrainingSample(
                problems=(_problem(Kind.BAD_RECORDS, run.folder, reason=reason.strerror),)
            )
        return known[1]


def rounded(value: object, digits: int = 5) -> float | None:
    """A finite number rounded to some significant digits, or None."""
    known = as_number(value)
    if known is None or not abs(known) <= _LARGEST:
        return None
    return float(f"{known:.{digits}g}")


def hours(seconds: object) -> float | None:
    """A time in hours."""
    known = as_number(seconds)
    return None if known is None else rounded(known / 3600)


def _read(folder: Path) -> TrainingSample:
    """A sample of the file's lines: parsing all lines of a sweep would take most of the time.

    The last line may be incomplete, as a run appends to it.
    """
    lines = (folder / TRAINING).read_text(errors="replace").split("\n")
    half = lines.pop()
    if record_of(half) is not None:
        lines.append(half)
    malformed = [i for i, line in enumerate(lines, 1) if not (line[:1] == "{" and line[-1:] == "}")]
    good = sorted(set(range(1, len(lines) + 1)) - set(malformed))
    step = max(1, math.ceil(len(good) / _POINTS))
    records = []
    for i in reversed(good[::-step]):
        record = record_of(lines[i - 1])
        if record is None or as_count(record.get("frames")) is None:
            malformed.append(i)
        else:
            records.append(record)
    problems = []
    if malformed:
        details = {"lines": sorted(malformed), "record": "training record"}
        problems.append(_problem(Kind.INVALID_LINES, folder, **details))
    not_numbers = {
        name
        for record in records
        for name, value in record.items()
        if value is not None and as_number(value) is None
    }
    if not_numbers:
        problems.append(_problem(Kind.NOT_NUMBERS, folder, names=sorted(not_numbers)))
    return _summarise(records, tuple(problems))


def _problem(kind: Kind, folder: Path, **details: Any) -> StudyProblem:
    return StudyProblem(kind, folder, {"file": TRAINING, **details})


def _summarise(lines: Sequence[Record], problems: tuple[StudyProblem, ...]) -> TrainingSample:
    if not lines:
        return TrainingSample(problems=problems)
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
    return TrainingSample(
        frames=[as_count(line["frames"]) or 0 for line in lines],
        updates=[as_count(line.get("updates")) or 0 for line in lines],
        hours=[hours(line.get("seconds")) for line in lines],
        values={
            name: series for name, series in values.items() if any(v is not None for v in series)
        },
        phases=phases,
        problems=problems,
    )


RunState = Literal["finished", "unfinished", "stalled", "failed"]
_NUMBERS = 300_000  # of training in the whole page: about 2 MB
_FEWEST = 30  # points of a curve
_OF_ONE = ("episode_return",)  # what only a page about one run has room for
_THRESHOLDS = np.linspace(0.0, 1.0, 101)


def page_data(
    study: Study, trainings: Trainings, at: Mapping[str, int], pool: Pooled | None
) -> dict[str, Any]:
    """Everything that is drawn, with labels and tasks by index."""
    alone = len(study.runs) == 1
    read = {run.folder: trainings.of(run) for run in study.runs}
    numbers = sum(len(one.frames) * (3 + len(one.values)) for one in read.values())
    every = max(1, -(-numbers // _NUMBERS))
    return {
        "labels": study.labels,
        "tasks": study.tasks,
        "measures": [measure_of(task) for task in study.tasks],
        "maximal": [_maximal(task) for task in study.tasks],
        "groups": [
            {
                "label": study.labels.index(group.label),
                "task": study.tasks.index(group.task),
                "method": group.runs[0].config.method,
                "best": (best := _bests(group, at[group.task])),
                "best_ends": {of: _ends(values) for of, values in best.items()},
                "runs": [_run(run, read[run.folder], alone, every) for run in group.runs],
            }
            for group in study.groups
        ],
        "profiles": [] if pool is None else _profiles(study, pool),
    }


def _maximal(task: str) -> float | None:
    """The score that the task's suite counts as 1; None if it knows none."""
    try:
        return rounded(stats.default_bounds(task).high)
    except ValueError:
        return None


def run_state(run: Run) -> RunState:
    """How a run stands; one with a loss that is not finite, or that was given up, has failed."""
    kinds = {alarm.name for alarm in run.alarms}
    given_up = run.failures is not None and run.failures.given_up and not run.finished
    if "non_finite" in kinds or given_up:
        return "failed"
    if not run.finished:
        return "unfinished"
    return "stalled" if "stalled" in kinds else "finished"


def _profiles(study: Study, pool: Pooled) -> list[dict[str, Any]]:
    """Performance profiles with their pointwise intervals, where there are any."""
    profiles = []
    x = [rounded(threshold) for threshold in _THRESHOLDS]
    for label, scores in pool.scores.items():
        value, *ends = stats.profile_interval(scores, _THRESHOLDS)
        drawn = {"label": study.labels.index(label), "x": x, "y": list(map(rounded, value))}
        if not any(np.isnan(end).any() for end in ends):
            low, high = ([rounded(share) for share in end] for end in ends)
            drawn |= {"low": low, "high": high}
        profiles.append(drawn)
    return profiles


def _bests(group: RunGroup, budget: int) -> dict[str, list[float | None]]:
    """The seeds' best scores within the budget, in each measure."""
    bests = {}
    for of in get_args(Measure):
        scores = group_scores(group, "best", budget, of)
        bests[of] = [] if scores is None else [rounded(value) for value in scores.values.tolist()]
    return bests


def _ends(values: Sequence[float | None]) -> list[float | None] | None:
    """Of the interval of their mean; None if there is none."""
    known = [value for value in values if value is not None]
    if not known or math.isnan((interval := mean_interval(known)).low):
        return None
    return [rounded(interval.low), rounded(interval.high)]


def _run(run: Run, training: TrainingSample, alone: bool, every: int) -> dict[str, Any]:
    evaluations = run.evaluations
    shares = [rounded(one.success) for one in evaluations]
    names = dict.fromkeys(name for one in evaluations for name in one.status)
    reported = [name for name in names if name not in training.values]
    values: dict[str, Any] = {
        "seed": run.config.seed,
        "state": run_state(run),
        "budget": run.config.frames,
        "frames": [one.frames for one in evaluations],
        "updates": [one.updates for one in evaluations],
        "hours": [hours(one.seconds) for one in evaluations],
        "return": [rounded(one.mean_return) for one in evaluations],
        "success": shares if any(share is not None for share in shares) else None,
        "status": {
            name: [rounded(one.status.get(name)) for one in evaluations] for name in reported
        },
        "training": _thinned(training, alone, every),
    }
    if alone:  # one run has room for its every episode
        values["episodes"] = [[rounded(value) for value in one.returns] for one in evaluations]
    return values


def _thinned(training: TrainingSample, alone: bool, every: int) -> dict[str, Any]:
    """One x for all metrics of a run, and every n-th point, the newest among them."""
    step = max(1, min(every, len(training.frames) // _FEWEST))
    first = (len(training.frames) - 1) % step
    return {
        "frames": training.frames[first::step],
        "updates": training.updates[first::step],
        "hours": training.hours[first::step],
        "values": {
            name: values[first::step]
            for name, values in training.values.items()
            if alone or name not in _OF_ONE
        },
    }
