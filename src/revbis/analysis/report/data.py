"""What the page's script draws from: short arrays of rounded numbers, a set for each run."""

from __future__ import annotations

import json
from typing import Any, Literal

from revbis.analysis.report.training import Series, Training, Trainings, count, hours, number
from revbis.analysis.scores import Group, Record, Run, Study, success_share

State = Literal["finished", "unfinished", "stalled", "failed"]


def page_data(study: Study, trainings: Trainings) -> dict[str, Any]:
    """Everything that is drawn, with labels and tasks by index."""
    labels, tasks = study.labels, study.tasks
    alone = len(study.runs) == 1
    return {
        "labels": labels,
        "tasks": tasks,
        "groups": [
            {
                "label": labels.index(group.label),
                "task": tasks.index(group.task),
                "method": group.runs[0].config.method,
                "runs": [_run(run, trainings.of(run), alone) for run in group.runs],
            }
            for group in study.groups
        ],
    }


def embedded(values: Any) -> str:
    """JSON that may stand inside a script element, whatever its strings hold."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def state(run: Run) -> State:
    """How a run stands; one that met a loss that is not finite has failed."""
    kinds = {record.get("name") for record in run.alarms}
    if "non_finite" in kinds:
        return "failed"
    if not run.finished:
        return "unfinished"
    return "stalled" if "stalled" in kinds else "finished"


def success(record: Record) -> float | None:
    """Share of an evaluation's episodes with success at any step; None without such a notion."""
    return number(success_share(record.get("success_any")))


def evaluated(group: Group) -> list[Run]:
    """The group's runs that have been evaluated at all."""
    return [run for run in group.runs if run.evaluations]


def _run(run: Run, training: Training, alone: bool) -> dict[str, Any]:
    records = run.evaluations
    shares = [success(record) for record in records]
    found: dict[str, Any] = {
        "seed": run.config.seed,
        "state": state(run),
        "budget": run.config.frames,
        "frames": [count(record["frames"]) for record in records],
        "updates": [count(record.get("updates")) for record in records],
        "hours": [hours(record) for record in records],
        "return": [number(record["mean_return"]) for record in records],
        "success": shares if any(share is not None for share in shares) else None,
        "c": _arrays(training.coefficient),
    }
    if alone:  # one run has room for its every episode
        found["episodes"] = [_numbers(record.get("returns")) for record in records]
        found["training"] = _arrays(training.returns)
    return found


def _arrays(series: Series | None) -> dict[str, Any] | None:
    return None if series is None else vars(series)


def _numbers(values: Any) -> list[float]:
    known = [number(value) for value in values] if isinstance(values, list) else []
    return [value for value in known if value is not None]
