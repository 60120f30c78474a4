"""What the page's script draws from: short arrays of rounded numbers, a set for each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from revbis.analysis import curves, stats
from revbis.analysis.report.training import Training, Trainings, hours, rounded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from revbis.analysis.compare import Pooled
    from revbis.analysis.runs import Run
    from revbis.analysis.scores import Group, Study

RunState = Literal["finished", "unfinished", "stalled", "failed"]
_NUMBERS = 300_000  # of training in the whole page: about 2 MB
_FEWEST = 30  # points of a curve
_OF_ONE = ("episode_return",)  # what only a page about one run has room for
_THRESHOLDS = np.linspace(0.0, 1.0, 101)
_RESAMPLES = 2_000  # for a band that is a few pixels wide


def page_data(
    study: Study, trainings: Trainings, at: Mapping[str, int], pool: Pooled | None
) -> dict[str, Any]:
    """Everything that is drawn, with labels and tasks by index.

    Args:
        study: The runs.
        trainings: Reads their training.
        at: The budget of each task.
        pool: Normalised scores of all methods, where there are any.
    """
    alone = len(study.runs) == 1
    read = {run.folder: trainings.of(run) for run in study.runs}
    numbers = sum(len(one.frames) * (3 + len(one.values)) for one in read.values())
    every = max(1, -(-numbers // _NUMBERS))
    return {
        "labels": study.labels,
        "tasks": study.tasks,
        "measures": [curves.measure(task) for task in study.tasks],
        "groups": [
            {
                "label": study.labels.index(group.label),
                "task": study.tasks.index(group.task),
                "method": group.runs[0].config.method,
                "best": _bests(group, at[group.task]),
                "runs": [_run(run, read[run.folder], alone, every) for run in group.runs],
            }
            for group in study.groups
        ],
        "profiles": [] if pool is None else _profiles(study, pool),
    }


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
    """Performance profiles with their pointwise bootstrap intervals."""
    profiles = []
    for label, scores in pool.scores.items():
        ends = stats.interval(
            lambda one: stats.profile(one, _THRESHOLDS), scores, resamples=_RESAMPLES
        )
        value, low, high = ([rounded(share) for share in each.tolist()] for each in ends)
        x = [rounded(threshold) for threshold in _THRESHOLDS]
        place = study.labels.index(label)
        profiles.append({"label": place, "x": x, "y": value, "low": low, "high": high})
    return profiles


def _bests(group: Group, budget: int) -> dict[str, list[float | None]]:
    """The seeds' best scores within the budget, in each measure."""
    bests = {}
    for of in get_args(curves.Measure):
        scores = curves.group_scores(group, "best", budget, of)
        bests[of] = [] if scores is None else [rounded(value) for value in scores.values.tolist()]
    return bests


def _run(run: Run, training: Training, alone: bool, every: int) -> dict[str, Any]:
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


def _thinned(training: Training, alone: bool, every: int) -> dict[str, Any]:
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
