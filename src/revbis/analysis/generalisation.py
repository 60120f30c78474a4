"""The generalisation gap: scores on the variants of training minus those on others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from revbis.analysis import compare, curves, stats
from revbis.analysis.layout import Cell, Column, Table
from revbis.analysis.tables import decimals
from revbis.envs.distractors import GAUSSIAN

if TYPE_CHECKING:
    from revbis.analysis.scores import Group, Study

_CAPTION = (
    "Final scores on the training and on the evaluation variants of the distractor or the state "
    "noise, of the same agents and with the same seeds: mean ± one standard deviation (n − 1) over "
    "N seeds. Gap: training minus evaluation."
)
_COLUMNS = ("training variants", "evaluation variants", "gap", "N")


def gap_table(study: Study, *, budget: int | None = None) -> Table:
    """Final scores on both kinds of variants and their difference, of each method on each task.

    Args:
        study: The runs.
        budget: In frames; by default for each task as `compare.budgets` says.

    Raises:
        ValueError: If no run was evaluated on both.
    """
    at = compare.budgets(study, budget)
    lines = [line for group in study.groups if (line := _line(group, at[group.task])) is not None]
    if not lines:
        raise ValueError(
            "there is no generalisation gap: no run was evaluated on training variants too, which "
            "runs with a distractor or state noise are"
        )
    notes = compare.budget_notes(study, at)
    if any(run.config.distractor == GAUSSIAN for run in study.runs):
        notes.append(
            "The variants of the distractor gaussian have the same distribution: its gap is chance."
        )
    rows, records = zip(*lines, strict=True)
    columns = tuple(Column(name, "measured") for name in _COLUMNS)
    return Table(_CAPTION, "task and method", columns, rows, tuple(notes), records)


def _line(group: Group, budget: int) -> tuple[tuple[str, tuple[Cell, ...]], dict[str, Any]] | None:
    """A group's row and its numbers; None if it was not evaluated on both kinds of variants."""
    seen = curves.group_scores(group, "final", budget, variants="train")
    gap = curves.group_scores(group, "final", budget, variants="gap")
    if seen is None or gap is None:
        return None
    success = curves.measure(group.task) == "success"
    scale = 100.0 if success else 1.0
    values = {"train": seen.values, "eval": seen.values - gap.values, "gap": gap.values}
    summaries = {name: stats.summary(each * scale) for name, each in values.items()}
    digits = decimals([one.mean for one in summaries.values()])
    remark = "" if gap.frames == budget else f"at {gap.frames:,} frames"
    cells = [
        Cell(_text(one, digits, "+" if name == "gap" else ""), remark if name == "gap" else "")
        for name, one in summaries.items()
    ]
    count, seeds = len(gap.seeds), len(group.seeds)
    cells.append(Cell(str(count) if count == seeds else f"{count} of {seeds}"))
    name = f"{compare.short_name(group.task)}, {group.label}" + (" (success, %)" if success else "")
    record: dict[str, Any] = {"task": group.task, "measure": curves.measure(group.task)}
    record |= {"method": group.label}
    for kind, each in values.items():
        mean, deviation, error, _ = stats.summary(each)
        record |= {kind: mean, f"{kind}_deviation": deviation, f"{kind}_error": error}
    record |= {"n": count, "seeds": " ".join(map(str, gap.seeds))}
    return (name, tuple(cells)), record | {"frames": gap.frames, "budget": budget}


def _text(of: stats.Summary, digits: int, sign: str) -> str:
    spread = "" if math.isnan(of.deviation) else f" ± {of.deviation:.{digits}f}"
    return f"{of.mean:{sign}.{digits}f}{spread}"
