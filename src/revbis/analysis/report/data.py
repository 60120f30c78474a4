"""What the page's script draws from: short arrays of rounded numbers, a set for each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from revbis.analysis import curves
from revbis.analysis.report.training import Training, Trainings, hours, rounded
from revbis.analysis.runs import Run
from revbis.analysis.scores import Group, Study

State = Literal["finished", "unfinished", "stalled", "failed"]
_NUMBERS = 300_000  # of training in the whole page: about 2 MB
_FEWEST = 30  # points of a curve
_OF_ONE = ("episode_return",)  # what only a page about one run has room for


def page_data(study: Study, trainings: Trainings, at: Mapping[str, int]) -> dict[str, Any]:
    """Everything that is drawn, with labels and tasks by index.

    Args:
        study: The runs.
        trainings: Reads their training.
        at: The budget of each task.
    """
    alone = len(study.runs) == 1
    found = {run.folder: trainings.of(run) for run in study.runs}
    numbers = sum(len(one.frames) * (3 + len(one.values)) for one in found.values())
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
                "runs": [_run(run, found[run.folder], alone, every) for run in group.runs],
            }
            for group in study.groups
        ],
    }


def state(run: Run) -> State:
    """How a run stands; one that met a loss that is not finite, or was given up, has failed."""
    kinds = {alarm.name for alarm in run.alarms}
    given_up = run.failures is not None and run.failures.given_up and not run.finished
    if "non_finite" in kinds or given_up:
        return "failed"
    if not run.finished:
        return "unfinished"
    return "stalled" if "stalled" in kinds else "finished"


def _bests(group: Group, budget: int) -> dict[str, list[float | None]]:
    """The seeds' best scores within the budget, in each measure."""
    found = {}
    for of in get_args(curves.Measure):
        result = curves.result(group, "best", budget, of)
        found[of] = [] if result is None else [rounded(value) for value in result.values.tolist()]
    return found


def _run(run: Run, training: Training, alone: bool, every: int) -> dict[str, Any]:
    made = run.evaluations
    shares = [rounded(one.success) for one in made]
    found: dict[str, Any] = {
        "seed": run.config.seed,
        "state": state(run),
        "budget": run.config.frames,
        "frames": [one.frames for one in made],
        "updates": [one.updates for one in made],
        "hours": [hours(one.seconds) for one in made],
        "return": [rounded(one.mean_return) for one in made],
        "success": shares if any(share is not None for share in shares) else None,
        "training": _thinned(training, alone, every),
    }
    if alone:  # one run has room for its every episode
        found["episodes"] = [[rounded(value) for value in one.returns] for one in made]
    return found


def _thinned(training: Training, alone: bool, every: int) -> dict[str, Any]:
    """One x for all metrics of a run, and every so-manieth point, the newest among them."""
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
