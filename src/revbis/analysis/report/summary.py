"""The numbers of the summary table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from revbis.analysis.report.data import evaluated, success
from revbis.analysis.report.training import hours
from revbis.analysis.scores import Group, Record


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: The mean.
        error: Its standard error; None for one seed.
    """

    mean: float
    error: float | None


@dataclass(frozen=True)
class Summary:
    """A group in a line.

    Attributes:
        group: The group.
        seeds: Seeds that have been evaluated.
        frames: The last frame at which all of them have.
        final: Return at that frame.
        best: Each seed's best return up to that frame.
        success: Share of successful episodes at that frame, where the task knows success.
        hours: Mean time of the seeds so far.
    """

    group: Group
    seeds: int
    frames: int
    final: Estimate | None
    best: Estimate | None
    success: Estimate | None
    hours: float


def summarise(group: Group) -> Summary:
    """The summary of a group: its seeds are compared at a frame that all of them have reached."""
    runs = evaluated(group)
    frames = _last_common([run.evaluations for run in runs])
    last = [_at(run.evaluations, frames) for run in runs]
    until = [[r for r in run.evaluations if int(r["frames"]) <= frames] for run in runs]
    best = [max(float(record["mean_return"]) for record in records) for records in until if records]
    shares = [share for record in last if record and (share := success(record)) is not None]
    times = [hours(run.evaluations[-1]) or 0.0 for run in runs]
    return Summary(
        group=group,
        seeds=len(runs),
        frames=frames,
        final=estimate([float(record["mean_return"]) for record in last if record]),
        best=estimate(best),
        success=estimate(shares),
        hours=fmean(times) if times else 0.0,
    )


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and standard error; None without values."""
    if not values:
        return None
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return Estimate(fmean(values), error)


def _last_common(evaluations: Sequence[Sequence[Record]]) -> int:
    sets = [{int(record["frames"]) for record in records} for records in evaluations]
    return max(set.intersection(*sets), default=0) if sets else 0


def _at(records: Sequence[Record], frames: int) -> Record | None:
    found = [record for record in records if int(record["frames"]) == frames]
    return found[-1] if found else None
