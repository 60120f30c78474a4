"""The summary: scores of each group, as in the tables, and its time."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from revbis.analysis import curves, stats, tables
from revbis.analysis.layout import FIRST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from revbis.analysis.scores import Group, Study


class Shown(NamedTuple):
    """A mean and its spread as text; `best` if no method has a better one."""

    mean: str = "–"
    spread: str = ""
    best: bool = False


class SummaryRow(NamedTuple):
    """A group's scores, the seeds and the frame they are of, and the mean time of a run.

    `final_return` is the return of a group that is not scored by it.
    """

    group: Group
    final: Shown
    best: Shown
    final_return: Shown
    seeds: str
    frames: str
    hours: float


def summary(study: Study, at: Mapping[str, int]) -> list[SummaryRow]:
    """A row for each group.

    Args:
        study: The runs.
        at: The budget of each task.
    """
    final = tables.measured_scores(study, kind="final", at=at)
    best = tables.measured_scores(study, kind="best", at=at)
    rows = []
    for group in study.groups:
        key, budget = (group.label, group.task), at[group.task]
        times = [run.seconds / 3600 for run in group.runs if run.evaluations]
        rows.append(
            SummaryRow(
                group,
                _score(final.get(key), group.task),
                _score(best.get(key), group.task),
                _return(group, budget),
                *_reached(group, final.get(key), budget),
                fmean(times) if times else 0.0,
            )
        )
    return rows


def _reached(group: Group, score: tables.Score | None, budget: int) -> tuple[str, str]:
    """The number of seeds of a score, and its frame."""
    if score is None:
        return f"0 of {len(group.runs)}", "–"
    n, frames = len(score.of.seeds), score.of.frames
    return (
        f"{n} of {len(group.runs)}" if n < len(group.runs) else str(n),
        f"{frames:,}" if frames >= budget else f"{frames:,} of {budget:,}",
    )


def _score(score: tables.Score | None, task: str) -> Shown:
    if score is None:
        return Shown()
    mean, _, spread = score.cell.text.partition(" ± ")
    percent = "%" if curves.measure(task) == "success" else ""
    return Shown(mean + percent, spread and spread + percent, score.cell.rank == FIRST)


def _return(group: Group, budget: int) -> Shown:
    """The return of a group that is not scored by it."""
    if curves.measure(group.task) == "return":
        return Shown("")
    returns = curves.group_scores(group, "final", budget, "return")
    if returns is None:
        return Shown()
    mean, deviation, _, n = stats.summary(returns.values)
    return Shown(f"{mean:.0f}", f"{deviation:.0f}" if n > 1 else "")
