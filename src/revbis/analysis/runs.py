"""A run's folder as the analysis reads it: invalid records are named, all others are kept."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from revbis.analysis.problems import Kind, StudyProblem, explained, shortened
from revbis.io import schema
from revbis.io.files import Lines, Record, read_lines, read_records
from revbis.io.schema import AboutFile, AlarmLine, EvaluationLine, FailuresFile, YardsticksFile
from revbis.runs.config import SAFE, Config
from revbis.runs.folder import (
    ABOUT,
    ALARMS,
    ARCHIVE,
    CHECKPOINTS,
    CONFIG,
    EVALUATIONS,
    FAILURES,
    MARKS,
    RESULT,
    TRAINING,
    WITHIN,
    YARDSTICKS,
    given_up,
    is_finished,
    read_result,
    unpacked,
)
from revbis.runs.records import agent_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from revbis.analysis.problems import OnProblem

_LARGEST_COUNT = 2**53  # the largest that the page's script can tell from its neighbours


def run_folders(top: Path, problem: Callable[[str], None] = lambda _: None) -> Iterator[Path]:
    """The run folders in or below a folder or a zip file, sorted within each level.

    What disappears meanwhile is skipped; what cannot be read is reported. A `runs.zip` is read as
    if it were unpacked, but not one within another.
    """
    try:
        folder = unpacked(top)
    except ValueError as reason:
        problem(str(reason))
        return

    def failed(reason: OSError) -> None:
        if not isinstance(reason, FileNotFoundError):
            problem(f"{reason.filename} cannot be read: {reason.strerror}")

    for path, folders, files in os.walk(folder, onerror=failed):
        folders.sort()
        if ARCHIVE in files and folder == top:
            yield from run_folders(Path(path, ARCHIVE), problem)
        if MARKS & {*folders, *files}:
            folders[:] = [name for name in folders if name not in WITHIN]
            yield Path(path)


def as_number(value: Any) -> float | None:
    """A number, finite or not; None for what is none. Records hold NaN and infinity as words."""
    if isinstance(value, str):
        return float(value) if value in ("nan", "inf", "-inf") else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_count(value: Any) -> int | None:
    """A whole number from 0 to 2^53; None for what is none."""
    real = as_number(value)
    if real is None or not 0 <= real <= _LARGEST_COUNT or real != int(real):
        return None
    return int(value)


# Not part of a method: where and on what it ran, and how it was evaluated.
_ASIDE = SAFE | {"task", "method", "name", "seed", "eval_every", "eval_episodes", "yardstick_every"}
_LARGEST_RETURN = 1e100
T = TypeVar("T")


class Evaluation(NamedTuple):
    """An evaluation, as a line of eval.jsonl has it.

    Attributes:
        frames: The frame it was due at, `due_frame`: what scores are compared by.
        reached: Simulator steps when it was made.
        agent_steps: Actions by then.
        updates: Updates by then.
        seconds: Time by then, if it is known.
        mean_return: Mean over its episodes.
        returns: Of each episode.
        success: Share of episodes with success at any step; None where the task has none.
        train_return: Mean return on the training variants; None where there are none, and in
            records of earlier versions.
        train_success: The same of success.
        status: What the agent reported of itself, such as c.
        yardsticks: Measures of its embeddings; empty where they were not measured.
    """

    frames: int
    reached: int
    agent_steps: int
    updates: int
    seconds: float | None
    mean_return: float
    returns: tuple[float, ...]
    success: float | None
    train_return: float | None
    train_success: float | None
    status: Mapping[str, float]
    yardsticks: Mapping[str, float]


class RaisedAlarm(NamedTuple):
    """An alarm that a run has raised, as a line of alarms.jsonl has it.

    Attributes:
        frames: When it was raised, if that is known.
        name: Its kind.
        text: What was seen, and the flag to try.
    """

    frames: int | None
    name: str
    text: str


class Failures(NamedTuple):
    """The failed attempts at a run, as the sweep writes them to failures.json.

    Attributes:
        total: How many.
        reason: Why the last one did.
        given_up: Whether the sweep makes no more attempts.
    """

    total: int
    reason: str
    given_up: bool


@dataclass(frozen=True)
class Run:
    """A run's folder.

    Attributes:
        folder: Where it is.
        config: Its settings.
        about: Versions, revision, command and machine, from run.json.
        evaluations: The lines of eval.jsonl that are whole and finite, by frame.
        alarms: The lines of alarms.jsonl.
        failures: Its failed attempts, if there are any.
        finished: Whether its budget is spent.
        yardsticks: The newest measures of its embeddings, of `revbis yardstick` or of an
            evaluation, by names such as `phi_state_r2`; empty if there are none.
        yardstick_frames: The frame of the checkpoint that they were measured of.
    """

    folder: Path
    config: Config
    about: AboutFile
    evaluations: list[Evaluation]
    alarms: list[RaisedAlarm]
    failures: Failures | None
    finished: bool
    yardsticks: Mapping[str, float] = field(default_factory=dict)
    yardstick_frames: int = 0

    @cached_property
    def training(self) -> list[Record]:
        """The complete lines of train.jsonl."""
        return read_records(self.folder / TRAINING)

    @property
    def settings(self) -> tuple[tuple[str, Any], ...]:
        """What the runs of one group have in common."""
        values = sorted(self.config.effective().items())
        return tuple(
            (k, tuple(v) if isinstance(v, list) else v) for k, v in values if k not in _ASIDE
        )

    @property
    def frames(self) -> int:
        """Frames at the last evaluation."""
        return max((one.reached for one in self.evaluations), default=0)

    @property
    def seconds(self) -> float:
        """Time at the last evaluation; 0 where it is not known."""
        return self.evaluations[-1].seconds or 0.0 if self.evaluations else 0.0


def read_run(folder: Path, problem: OnProblem) -> Run | None:
    """Reads a run; invalid records are named, and a run that cannot be read is None."""
    try:
        config = Config.read(folder / CONFIG)
    except (ValueError, OSError) as reason:
        where = "" if isinstance(reason, ValueError) else f"{CONFIG}: "
        problem(StudyProblem(Kind.BAD_CONFIG, folder, {"reason": where + explained(reason)}))
        return None
    evaluations = _read_evaluations(folder, config, problem)
    yardsticks, measured_at = _read_yardsticks(folder, evaluations, problem)
    about = _read_file(folder, ABOUT, AboutFile, problem, Kind.BAD_ABOUT) or {}
    alarms = [
        RaisedAlarm(line.get("frames"), shortened(line["name"]), shortened(line.get("text", "")))
        for line in _valid(read_lines(folder / ALARMS), folder, ALARMS, AlarmLine, problem)
    ]
    failures = read_failures(folder, problem)
    try:
        finished = is_finished(read_result(folder), config.frames)
    except (OSError, ValueError) as reason:
        problem(StudyProblem(Kind.BAD_FILE, folder, {"file": RESULT, "reason": explained(reason)}))
        finished = False
    run = Run(
        folder, config, about, evaluations, alarms, failures, finished, yardsticks, measured_at
    )
    if not run.evaluations:
        problem(StudyProblem(Kind.NO_EVALUATION, folder))
    elif not run.finished:
        frames = {"frames": run.frames, "budget": config.frames}
        problem(StudyProblem(Kind.UNFINISHED, folder, frames))
    return run


def due_frame(frames: int, config: Config) -> int:
    """The frame an evaluation was due at.

    An evaluation comes with the first action that passes its frame, and an action has up to
    `action_repeat` frames: 10,003 was due at 10,000. A run may have been resumed with another
    `eval_every` or budget, which are then not known: the roundest of the possible frames counts.
    """
    earliest = max(frames - config.action_repeat + 1, min(frames, 1))  # at 0 it is never late
    if earliest <= config.frames <= frames:
        return config.frames
    sizes = (config.eval_every, *(int(10**power) for power in range(len(str(frames)), -1, -1)))
    possible = (frames // size * size for size in sizes)
    return next(due for due in possible if due >= earliest)


def read_failures(folder: Path, problem: OnProblem) -> Failures | None:
    """The failed attempts at a run; None without any."""
    file = _read_file(folder, FAILURES, FailuresFile, problem)
    if file is None or not file["failures"]:
        return None
    failures = file["failures"]
    return Failures(len(failures), shortened(failures[-1]["text"]), given_up(failures))


def _read_evaluations(folder: Path, config: Config, problem: OnProblem) -> list[Evaluation]:
    by_frame: dict[int, Evaluation] = {}
    lines = read_lines(folder / EVALUATIONS)
    there = [(folder / name).exists() for name in (RESULT, CHECKPOINTS, EVALUATIONS)]
    if there == [True, True, False]:
        lines = _saved_lines(folder, problem)
    for line in _valid(lines, folder, EVALUATIONS, EvaluationLine, problem):
        one = _evaluation(line, config)
        if one.train_return is not None and not abs(one.train_return) <= _LARGEST_RETURN:
            problem(StudyProblem(Kind.TRAIN_NOT_FINITE, folder, {"frame": one.reached}))
            one = one._replace(train_return=None)
        if abs(one.mean_return) <= _LARGEST_RETURN:
            by_frame[one.frames] = one
        else:
            problem(StudyProblem(Kind.NOT_FINITE, folder, {"frame": one.reached}))
    return [by_frame[frames] for frames in sorted(by_frame)]


def _saved_lines(folder: Path, problem: OnProblem) -> Lines:
    """A finished run's evaluations as its checkpoint has them, for one without eval.jsonl."""
    from revbis.runs.checkpoint import saved_evaluations  # which imports torch

    saved = saved_evaluations(folder / CHECKPOINTS)
    if saved:
        problem(StudyProblem(Kind.FROM_CHECKPOINT, folder, {"file": EVALUATIONS}))
    return Lines(list(enumerate(saved, 1)), [])


def _evaluation(line: EvaluationLine, config: Config) -> Evaluation:
    seconds = line.get("seconds")
    return Evaluation(
        frames=due_frame(line["frames"], config),
        reached=line["frames"],
        agent_steps=line.get("agent_steps", 0),
        updates=line.get("updates", 0),
        seconds=seconds if seconds is not None and 0 <= seconds <= _LARGEST_RETURN else None,
        mean_return=line["mean_return"],
        returns=tuple(v for v in line.get("returns", ()) if abs(v) <= _LARGEST_RETURN),
        success=_share(line.get("success_any")),
        train_return=line.get("train_mean_return"),
        train_success=_share(line.get("train_success_any")),
        status=agent_status(line),
        yardsticks=_finite(line.get("yardsticks", {})),
    )


def _share(successes: Sequence[bool | None] | None) -> float | None:
    """The share of episodes with success; None where the task has none."""
    known = [value for value in successes or () if value is not None]
    return sum(known) / len(known) if known else None


def _valid(lines: Lines, folder: Path, name: str, kind: type[T], problem: OnProblem) -> list[T]:
    """The valid lines of a file; the others are named."""
    details: dict[str, Any]
    if lines.unreadable:
        details = {"file": name, "reason": lines.unreadable}
        problem(StudyProblem(Kind.BAD_RECORDS, folder, details))
    if lines.malformed:
        problem(StudyProblem(Kind.NOT_JSON, folder, {"file": name, "lines": lines.malformed}))
    what = {EVALUATIONS: "evaluation", ALARMS: "alarm"}[name]
    records: list[T] = []
    invalid: list[int] = []
    for line, record in lines.records:
        try:
            records.append(schema.convert(record, kind, what))
        except ValueError:
            invalid.append(line)
    if invalid:
        details = {"file": name, "lines": invalid, "record": f"valid {what}"}
        problem(StudyProblem(Kind.INVALID_LINES, folder, details))
    return records


def _read_yardsticks(
    folder: Path, evaluations: Sequence[Evaluation], problem: OnProblem
) -> tuple[Mapping[str, float], int]:
    """The newest yardsticks and their frame; at the same frame those of the command."""
    measured = [one for one in evaluations if one.yardsticks]
    newest = (measured[-1].yardsticks, measured[-1].reached) if measured else ({}, 0)
    file = _read_file(folder, YARDSTICKS, YardsticksFile, problem)
    if file is None:
        return newest
    own = _finite(file["yardsticks"]), file["frames"]
    return own if own[1] >= newest[1] else newest


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if abs(value) <= _LARGEST_RETURN}


def _read_file(
    folder: Path, name: str, kind: type[T], problem: OnProblem, bad: Kind = Kind.BAD_FILE
) -> T | None:
    """The content of a JSON file; None if there is none, or if it cannot be read."""
    try:
        return cast("T", schema.parse_json((folder / name).read_bytes(), kind, name))
    except (OSError, ValueError) as reason:
        if not isinstance(reason, FileNotFoundError) or bad is Kind.BAD_ABOUT:
            problem(StudyProblem(bad, folder, {"file": name, "reason": explained(reason)}))
        return None
