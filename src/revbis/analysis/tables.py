"""Scores of a study as tables; what may not be compared is marked, not ranked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from revbis import checks
from revbis.analysis import compare, curves, paper, stats
from revbis.analysis.layout import FIRST, SECOND, Cell, Column, Table
from revbis.analysis.scores import Study


class Score(NamedTuple):
    """A method's score on a task.

    Attributes:
        result: Its seeds and their values.
        cell: How a table shows it.
    """

    result: curves.Result
    cell: Cell


def score_table(
    study: Study, *, kind: Literal["final", "best"], budget: int | None, reported: bool
) -> Table:
    """Mean ± standard deviation of each method on each task; best bold, second underlined.

    Measured numbers are ranked among themselves, and so are reported ones. A measured number is
    ranked if all its seeds have got to the budget and the row's environments and presets are one.

    Args:
        study: The runs.
        kind: The score at the budget, or the best evaluation within it.
        budget: In frames; when not given, for each task as `budgets` says.
        reported: Show the paper's numbers beside the measured ones.

    Raises:
        ValueError: If no run was evaluated, and for an unknown kind.
    """
    checks.choice(kind, ("final", "best"), "kind")
    checks.flag(reported, "reported")
    at = compare.budgets(study, budget)
    results = _results(study, kind, at)
    if not results:
        raise ValueError("there is nothing to tabulate: no run was evaluated within the budget")
    systems = [
        system
        for system in paper.SYSTEMS
        if reported and any(system in paper.reported(task) for task in at)
    ]
    usual = max(len(found.values) for found in results.values())
    rows, records, notes = [], [], []
    for task in at:
        of_task = {label: results.get((label, task)) for label in study.labels}
        numbers = paper.reported(task) if reported else {}
        shown = [numbers.get(system) for system in systems]
        row, remark = _row(study, task, at[task], of_task, usual, shown)
        rows.append(row)
        notes += [remark] if remark else []
        records += _records(study, task, kind, at[task], of_task, numbers)
    notes = compare.budget_notes(study, at) + notes + (_looks(study) if kind == "best" else [])
    caption = _caption(kind, usual, bool(systems))
    if reported:
        headline, about = paper.scale_notes(study, at)
        notes += about
        caption += f" {headline}" if headline else ""
    columns = [Column(label, "measured") for label in study.labels]
    columns += [Column(paper.SYSTEMS[system], "reported") for system in systems]
    return Table(caption, "task", tuple(columns), tuple(rows), tuple(notes), tuple(records))


def aggregate_table(study: Study, *, budget: int | None = None, seed: int = 0) -> Table:
    """Normalised final scores over all tasks that the methods share, with bootstrap intervals.

    Args:
        study: The runs.
        budget: In frames; when not given, for each task as `budgets` says.
        seed: Of the bootstrap's generator.

    Raises:
        ValueError: If the methods have no task in common.
    """
    shared = compare.together(study, "final", budget)
    statistics = {
        "IQM": stats.iqm,
        "median": stats.median,
        "mean": stats.mean,
        "optimality gap": stats.optimality_gap,
    }
    rows, records = [], []
    for label, scores in shared.scores.items():
        cells = []
        for name, statistic in statistics.items():
            value, low, high = map(float, stats.interval(statistic, scores, seed=seed))
            cells.append(Cell(f"{value:.3f} [{low:.3f}, {high:.3f}]"))
            runs = sum(map(len, scores.values()))
            records.append(
                {"method": label, "statistic": name, "value": value, "low": low, "high": high}
                | {"tasks": len(scores), "runs": runs}
            )
        rows.append((label, tuple(cells)))
    caption = (
        f"Normalised final scores, tasks together: {len(shared.tasks)}; with 95% "
        f"stratified bootstrap intervals ({stats.RESAMPLES:,} resamples)."
    )
    columns = tuple(Column(name, "measured") for name in statistics)
    notes = (*compare.budget_notes(study, shared.at), *shared.notes)
    return Table(caption, "method", columns, tuple(rows), notes, tuple(records))


def _caption(kind: str, usual: int, reported: bool) -> str:
    what = "Final score" if kind == "final" else "Best evaluation within the budget"
    among = "the measured and, apart from them, of the reported columns" if reported else "methods"
    of = f"mean ± one standard deviation (n − 1) over n = {usual} seeds"
    of = of if usual > 1 else "one seed (n = 1), so no spread is known,"
    return f"{what}: {of} unless a cell says otherwise. Bold: best, underlined: second of {among}."


def measured_scores(
    study: Study, *, kind: Literal["final", "best"], at: Mapping[str, int]
) -> dict[tuple[str, str], Score]:
    """What `score_table` shows of each method on each task, for those who show it otherwise.

    Args:
        study: The runs.
        kind: The score at the budget, or the best evaluation within it.
        at: The budget of each task, as `compare.budgets` gives it.

    Returns:
        By method and task; groups without a score are not in it.
    """
    results = _results(study, kind, at)
    usual = max((len(found.values) for found in results.values()), default=0)
    shown = {}
    for task in at:
        of_task = {label: results.get((label, task)) for label in study.labels}
        (_, cells), _ = _row(study, task, at[task], of_task, usual, [])
        for (label, result), cell in zip(of_task.items(), cells, strict=True):
            if result is not None:
                shown[label, task] = Score(result, cell)
    return shown


def _results(
    study: Study, kind: Literal["final", "best"], at: Mapping[str, int]
) -> dict[tuple[str, str], curves.Result]:
    return {
        (group.label, task): found
        for task in at
        for group in compare.groups_of(study, task)
        if (found := curves.result(group, kind, at[task])) is not None
    }


def _row(
    study: Study,
    task: str,
    budget: int,
    found: Mapping[str, curves.Result | None],
    usual: int,
    numbers: Sequence[paper.Reported | None],
) -> tuple[tuple[str, tuple[Cell, ...]], str]:
    """A task's row, and why it is not ranked if it is not."""
    percent = 100.0 if curves.measure(task) == "success" else 1.0
    summaries = {
        label: stats.summary(result.values * percent) for label, result in found.items() if result
    }
    means = [one.mean for one in summaries.values()] + [one.mean for one in numbers if one]
    digits = _digits(means)
    differing = compare.mixed(compare.groups_of(study, task))
    measured = []
    for label, result in found.items():
        group = study.group(label, task)
        if result is None or group is None:
            measured.append(Cell("–"))
            continue
        mean, deviation, _, n = summaries[label]
        spread = "" if math.isnan(deviation) else f" ± {deviation:.{digits}f}"
        remarks = [compare.seed_count(group, result)] if n != usual or n < len(group.seeds) else []
        remarks += [f"at {result.frames:,} frames"] if result.frames != budget else []
        ranked = not (result.short or differing)
        text = f"{mean:.{digits}f}{spread}"
        measured.append(Cell(text, ", ".join(remarks), mean if ranked else None))
    reported = [
        Cell(f"{one.mean:.{digits}f} ± {one.spread:.{digits}f}", "", one.mean) if one else Cell("–")
        for one in numbers
    ]
    frames = {result.frames for result in found.values() if result and not result.short}
    if len(frames) > 1:
        differing = differing or "not comparable, evaluations are at different frames"
        measured = [replace(cell, mean=None) for cell in measured]
    name = compare.short_name(task) + (" (success, %)" if percent == 100.0 else "")
    remark = f"{compare.short_name(task)}: {differing}; not ranked" if differing else ""
    return (name, (*_ranked(measured), *_ranked(reported))), remark


def _ranked(cells: Sequence[Cell]) -> list[Cell]:
    """Marks the best and the second of at least two; equal means share a rank."""
    cells = [c if c.mean is None else replace(c, mean=round(c.mean, 9)) for c in cells]
    means = [cell.mean for cell in cells if cell.mean is not None]
    order = sorted(set(means), reverse=True)
    if len(means) < 2 or len(order) < 2:
        return cells
    ranks = {order[0]: FIRST, order[1]: SECOND}
    return [
        replace(cell, rank=ranks.get(cell.mean, 0)) if cell.mean is not None else cell
        for cell in cells
    ]


def _digits(means: Sequence[float]) -> int:
    """Digits behind the point: none for returns in the hundreds, as in the paper."""
    largest = max(map(abs, means), default=0.0)
    return 0 if largest >= 100 else 1 if largest >= 10 else 2


def _records(
    study: Study,
    task: str,
    kind: str,
    budget: int,
    found: Mapping[str, curves.Result | None],
    numbers: Mapping[str, paper.Reported],
) -> list[dict[str, Any]]:
    """The numbers of a row: measured ones with all their spreads, reported ones with their own."""
    records: list[dict[str, Any]] = []
    for label, result in found.items():
        group = study.group(label, task)
        if result is None or group is None:
            continue
        mean, deviation, error, n = stats.summary(result.values)
        height = curves.result(group, "area", budget)
        records.append(
            {
                "task": task,
                "measure": curves.measure(task),
                "score": kind,
                "method": label,
                "source": "measured",
                "mean": mean,
                "standard_deviation": deviation,
                "standard_error": error,
                "reported_spread": None,
                "n": n,
                "seeds": " ".join(map(str, result.seeds)),
                "seeds_short_of_budget": " ".join(map(str, result.short)),
                "failed_share": _failed(task, result.values),
                "mean_height": None if height is None else float(height.values.mean()),
                "frames": result.frames,
                "budget": budget,
                "preset": " ".join(sorted({run.config.preset for run in group.runs})),
            }
        )
    for number in numbers.values():
        known = {"task": task, "measure": "return", "score": "final", "source": "reported"}
        of_it = {"method": number.system, "mean": number.mean, "reported_spread": number.spread}
        where = {"n": number.seeds, "frames": paper.FRAMES, "budget": paper.FRAMES}
        records.append({**known, **of_it, **where})
    return records


def _failed(task: str, values: stats.Array) -> float | None:
    """Share of seeds below half of the best one's score, where it is known what 0 is."""
    try:
        low = stats.default_bounds(task).low
    except ValueError:
        return None
    return stats.failed_share(values, float(values.max()), low=low)


def _looks(study: Study) -> list[str]:
    """Where the best of more, or of noisier, evaluations would win by chance."""
    notes = []
    for task in study.tasks:
        runs = [run for group in compare.groups_of(study, task) for run in group.runs]
        for name in ("eval_every", "eval_episodes"):
            values = sorted({getattr(run.config, name) for run in runs})
            if len(values) > 1:
                told = " and ".join(map(str, values))
                notes.append(
                    f"{compare.short_name(task)}: {name} is {told}, which biases a best score."
                )
    return notes
