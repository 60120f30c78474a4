"""Every other method of a study against a baseline: differences over equal seeds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from revbis.analysis import stats
from revbis.analysis.scores import (
    GroupScores,
    budget_notes,
    budgets,
    group_scores,
    groups_of,
    measure_of,
    mixed_settings,
    pool_scores,
    seed_count,
    short_name,
)
from revbis.analysis.study import as_study
from revbis.analysis.tables import (
    INTERVALS,
    TESTED,
    Column,
    Table,
    TableCell,
    decimals,
    family_note,
    interval_cell,
)
from revbis.io import schema

if TYPE_CHECKING:
    from revbis.analysis.study import Study

_COLUMNS = ("difference", "p", "p, Holm", "pairs", "left out")
_TOLD_APART = 0.05  # p, after Holm's correction


class Difference(NamedTuple):
    """A method's scores minus the baseline's.

    Attributes:
        label: The method.
        task: The task; None for all tasks, in percent of the baseline's mean on each.
        of: Mean over pairs, interval, test, and the seeds that only one of the two has.
        gaps: The difference of each pair; none for all tasks.
    """

    label: str
    task: str | None
    of: stats.Paired
    gaps: tuple[float, ...] = ()

    @property
    def place(self) -> str:
        """The task in short, or all tasks."""
        return "all tasks" if self.task is None else short_name(self.task)

    @property
    def unit(self) -> str:
        """What the difference is one of: return, success, or percent of the baseline's mean."""
        return "% of the baseline" if self.task is None else measure_of(self.task)


class Differences(NamedTuple):
    """A baseline and what was compared with it.

    Attributes:
        baseline: Its label.
        rows: All tasks first, then task by task; methods in the study's order.
        notes: Budgets, and what is left out and why, without full stops.
        left_out: Those of the notes that are about single tasks.
    """

    baseline: str
    rows: tuple[Difference, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def unpaired(self) -> int:
        """Runs left out of the single tasks because only one of the two has their seed."""
        return sum(row.of.unpaired for row in self.rows if row.task is not None)


def differences(
    study: Study, baseline: str, *, budget: int | None = None, seed: int = 0
) -> Differences:
    """Final scores of every method minus the baseline's, seed by seed.

    Only seeds that both have, at the budget, are paired. The mean over all tasks is of scores in
    percent of the baseline's mean on the task, each task with the same weight; it is there if all
    methods share at least two tasks, and the baseline scores on each.

    Args:
        study: The runs.
        baseline: One of the study's labels.
        budget: In frames; by default for each task as `scores.budgets` says.
        seed: Of the test's generator.

    Raises:
        ValueError: If the baseline is not in the study, with what is.
    """
    schema.choice(baseline, as_study(study).labels, "baseline")
    schema.integer(seed, "seed", 0)
    at = budgets(study, budget)
    notes = budget_notes(study, at)
    rows = _over_all_tasks(study, baseline, budget, seed, notes) if len(at) > 1 else []
    single: list[str] = []
    for task in at:
        name = short_name(task)
        if differing := mixed_settings(groups_of(study, task)):
            single.append(f"{name} is left out: {differing}")
            continue
        scores = _by_seed(study, task, at[task], single)
        if baseline not in scores:
            single.append(f"{name} is left out: {baseline} has no score there to compare with")
            continue
        for label in (label for label in scores if label != baseline):
            own, other = scores[label], scores[baseline]
            gaps = tuple(own[one] - other[one] for one in sorted(own.keys() & other.keys()))
            if gaps:
                of = stats.paired({task: own}, {task: other}, seed=seed)
                rows.append(Difference(label, task, of, gaps))
            else:
                single.append(f"{name}, {label}: no seed in common with {baseline}")
    return Differences(baseline, tuple(rows), (*notes, *single), tuple(single))


def difference_table(compared: Differences) -> Table:
    """A row for each method on all tasks and on each; the CSV has the numbers.

    Raises:
        ValueError: If nothing could be paired, with the reasons.
    """
    refuse_nothing(compared)
    rows, records = [], []
    corrected = stats.holm([row.of.p_value for row in compared.rows])
    for row, holm in zip(compared.rows, corrected, strict=True):
        of = row.of
        texts = (f"{of.p_value:.2g}", f"{holm:.2g}", str(of.pairs), str(of.unpaired))
        cells = (_difference_cell(row), *map(TableCell, texts))
        unit = "success, %" if row.unit == "success" else row.unit
        rows.append((f"{row.label}, {row.place} ({unit})", cells))
        about = {"method": row.label, "other": compared.baseline, "task": row.task or "all"}
        records.append(about | {"unit": row.unit} | of._asdict() | {"p_holm": holm})
    caption = (
        f"Final scores minus those of {compared.baseline}, seed by seed: mean difference over the "
        f"seeds that both have, with {INTERVALS}, over other seeds of these tasks. {TESTED}. "
        "Left out: runs whose seed only one of the two has."
    )
    columns = tuple(Column(name, "measured") for name in _COLUMNS)
    notes = (
        family_note(len(rows), f"all comparisons with {compared.baseline}"),
        *(f"{note}." for note in compared.notes),
    )
    return Table(caption, "method", columns, tuple(rows), notes, tuple(records))


def verdict(compared: Differences) -> tuple[str, ...]:
    """What the differences come to, in sentences: which have p < 0.05 after Holm's correction.

    Raises:
        ValueError: If nothing could be paired, with the reasons.
    """
    refuse_nothing(compared)
    rows, baseline = compared.rows, compared.baseline
    corrected = stats.holm([row.of.p_value for row in rows])
    found = [(row, p) for row, p in zip(rows, corrected, strict=True) if p < _TOLD_APART]
    sentences = []
    for word, sign in (("Better", 1), ("Worse", -1)):
        if some := [_found(row, p) for row, p in found if sign * row.of.difference > 0]:
            sentences.append(f"{word} than {baseline}: {'; '.join(some)}.")
    if found:
        rest = len(rows) - len(found)
        return (*sentences, f"Not told apart from it: {rest} of {len(rows)} comparisons.")
    clearest, p = min(zip(rows, corrected, strict=True), key=lambda each: each[0].of.p_value)
    least = len(rows) * 2 / 2 ** max(row.of.pairs for row in rows)
    return (
        f"No method is told apart from {baseline}: p, after Holm's correction, is below "
        f"{_TOLD_APART:g} in none of {len(rows)} comparison{'s'[: len(rows) > 1]}"
        + ("; with so few seeds it could not be." if least >= _TOLD_APART else "."),
        f"The clearest difference: {_found(clearest, p)}.",
    )


def _found(row: Difference, p: float) -> str:
    """A difference in words: `simsr on walker_walk, +12.0 [+3.0, +21.0], corrected p = 0.02`."""
    where = "over all tasks" if row.task is None else f"on {row.place}"
    unit = {"return": "", "success": " points of success"}.get(row.unit, f" {row.unit}")
    cell = _difference_cell(row)
    ends = ", ".join(filter(None, (cell.text + unit, cell.remark)))
    return f"{row.label} {where}, {ends}, corrected p = {p:.2g}"


def _difference_cell(row: Difference) -> TableCell:
    """The mean difference with its interval; success in percent."""
    factor = 100.0 if row.unit == "success" else 1.0
    ends = [factor * number for number in row.of[:3]]
    digits = decimals([number for number in ends if not math.isnan(number)])
    return interval_cell(ends, row.of.fewest, f"+.{digits}f")


def refuse_nothing(compared: Differences) -> None:
    """Refuses differences of which there are none.

    Raises:
        ValueError: With the reasons.
    """
    if not compared.rows:
        why = f"no method has a score to compare with {compared.baseline}, seed by seed"
        raise ValueError("; ".join([why, *compared.left_out]))


def _over_all_tasks(
    study: Study, baseline: str, budget: int | None, seed: int, notes: list[str]
) -> list[Difference]:
    """Differences in percent of the baseline's mean on each task, pooled; why not is noted."""
    try:
        pool = pool_scores(study, "final", budget)
    except ValueError as problem:
        notes.append(f"Nothing is pooled over tasks: {problem}")
        return []
    if baseline not in pool.scores:
        notes.append(f"Nothing is pooled over tasks: {baseline} has no score yet")
        return []
    if len(pool.tasks) < 2:
        notes.append("Nothing is pooled over tasks: fewer than two are shared by all methods")
        return []
    unit = {task: float(pool.scores[baseline][task].mean()) / 100 for task in pool.tasks}
    if nothing := [short_name(task) for task in unit if not unit[task]]:
        notes.append(f"Nothing is pooled over tasks: {baseline} scores 0 on {nothing[0]}")
        return []
    notes += [f"All tasks: {note}" for note in pool.left_out]
    in_percent = {
        label: {task: values / unit[task] for task, values in scores.items()}
        for label, scores in pool.scores.items()
    }
    pool = pool._replace(scores=in_percent)
    rows = []
    for label in (label for label in pool.scores if label != baseline):
        of = pool.paired(label, baseline, seed)
        if of is None:
            notes.append(f"All tasks: {label} is left out: no seed in common on some task")
            continue
        rows.append(Difference(label, None, of))
    return rows


def _by_seed(study: Study, task: str, budget: int, notes: list[str]) -> dict[str, dict[int, float]]:
    """Scores of a task, label → seed → score; what is left out is noted."""
    groups, name = groups_of(study, task), short_name(task)
    scores: dict[str, GroupScores] = {}
    for group in groups:
        of = group_scores(group, "final", budget)
        if of is None or len(of.short) == len(group.seeds):
            notes.append(f"{name}, {group.label}: no seed has reached the budget")
            continue
        scores[group.label] = of
        if of.short:
            notes.append(f"{name}, {group.label}: {seed_count(group, of)} at the budget")
    if len({of.frames for of in scores.values()}) > 1:
        notes.append(f"{name} is left out: evaluations are at different frames")
        return {}
    return {
        label: dict(zip(of.seeds, of.values.tolist(), strict=True)) for label, of in scores.items()
    }
