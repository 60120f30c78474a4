"""The summary: what the tables say of each group, and its time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import fmean

from revbis.analysis import compare, curves, stats, tables
from revbis.analysis.report.markup import Html, element, join, row, section, table, text
from revbis.analysis.scores import Group, Study

_NOTE = (
    "Scores are returns, on Meta-World success rates: mean over seeds ± one standard deviation "
    "(n − 1), at the budget, as in the tables of revbis reproduce. Best: each seed's best "
    "evaluation within the budget. Seeds that have not got there are left out; where none has, "
    "the last frame that all share counts. Bold: the best of a task, which need not be a "
    "difference that more seeds would confirm."
)


def summary(study: Study, at: Mapping[str, int]) -> Html:
    """The table of results.

    Args:
        study: The runs.
        at: The budget of each task.
    """
    final = tables.measured_scores(study, kind="final", at=at)
    best = tables.measured_scores(study, kind="best", at=at)
    with_success = any(curves.measure(task) == "success" for task in study.tasks)
    rows, previous = [], ""
    for group in study.groups:
        key = (group.label, group.task)
        cells: list[object] = [
            element(
                "span",
                _breakable(group.task),
                class_="task" if group.task != previous else "again",
            ),
            _breakable(group.label),
            _score(final.get(key), group.task),
            _score(best.get(key), group.task),
        ]
        if with_success:
            cells.append(_return(group, at[group.task]))
        cells += [*_reached(group, final.get(key), at[group.task]), f"{_hours(group):.2f}"]
        place = {
            "data_task": study.tasks.index(group.task),
            "data_label": study.labels.index(group.label),
        }
        rows.append(row(*cells, class_="first" if group.task != previous else None, **place))
        previous = group.task
    head = ["task", "method", "final score", "best score"]
    head += [*(["final return"] if with_success else []), "seeds", "frames", "hours"]
    notes = " ".join(compare.budget_notes(study, at))
    return section(
        "summary", "Summary", table(head, rows, "results", "Summary"), note=f"{_NOTE} {notes}"
    )


def _breakable(name: str) -> Html:
    """A name with the places where a phone may break it."""
    return Html(re.sub(r"([:_=])", r"\1<wbr>", text(name)))


def _reached(group: Group, score: tables.Score | None, budget: int) -> tuple[str, str]:
    """Of how many seeds a score is, and at which frame."""
    if score is None:
        return f"0 of {len(group.runs)}", "–"
    n, frames = len(score.result.seeds), score.result.frames
    return (
        f"{n} of {len(group.runs)}" if n < len(group.runs) else str(n),
        f"{frames:,}" if frames >= budget else f"{frames:,} of {budget:,}",
    )


def _score(score: tables.Score | None, task: str) -> Html:
    if score is None:
        return Html("–")
    mean, _, spread = score.cell.text.partition(" ± ")
    percent = "%" if curves.measure(task) == "success" else ""
    shown = join([f"{mean}{percent}", element("small", f" ± {spread}{percent}") if spread else ""])
    return element("b" if score.cell.rank == 1 else "span", shown)


def _return(group: Group, budget: int) -> Html:
    """The return of a group whose score is another."""
    if curves.measure(group.task) == "return":
        return Html()
    found = curves.result(group, "final", budget, "return")
    if found is None:
        return Html("–")
    mean, deviation, _, n = stats.summary(found.values)
    spread = element("small", f" ± {deviation:.0f}") if n > 1 else ""
    return join([f"{mean:.0f}", spread])


def _hours(group: Group) -> float:
    """Mean time of the seeds that have been evaluated."""
    times = [run.seconds / 3600 for run in group.runs if run.evaluations]
    return fmean(times) if times else 0.0
