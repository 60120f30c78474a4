"""Scores of a study as tables; what may not be compared is marked, not ranked."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from revbis.analysis import paper, stats
from revbis.analysis.scores import (
    GroupScores,
    Pooled,
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
from revbis.envs.distractors import GAUSSIAN
from revbis.io import schema
from revbis.io.statistics import no_interval
from revbis.representation import EMBEDDINGS, NO_NOISE, shown_measures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from revbis.analysis.study import RunGroup, Study

Origin = Literal["measured", "reported"]
FIRST, SECOND = 1, 2
NONE = "–"
_WIDE = 5  # columns that still fit a page
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "†": r"$\dagger$",
    "–": "--",
    "“": "``",
    "”": "''",
}


class Column(NamedTuple):
    """A column.

    Attributes:
        label: Its name.
        source: Whether its numbers are measured or the paper's.
    """

    label: str
    source: Origin


@dataclass(frozen=True)
class TableCell:
    """A cell.

    Attributes:
        text: Its text.
        remark: How it differs from the others, such as fewer seeds.
        rank: 1 for the best of its source in its row, 2 for the second, 0 for all others.
    """

    text: str
    remark: str = ""
    rank: int = 0


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        caption: What it shows.
        corner: Heading of the first column.
        columns: Its columns, those of one source together.
        rows: Name and cells of each row.
        notes: What a reader must know.
        records: The numbers, for CSV.
        marks: What bold and underlined mean; empty if nothing is ranked.
        scale: Whether measured and reported numbers are at one scale; empty without the latter.
    """

    caption: str
    corner: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[TableCell, ...]], ...]
    notes: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...]
    marks: str = ""
    scale: str = ""

    def full_caption(self, *, marks: bool = True) -> str:
        """The caption, with what the marks of ranks mean unless they are words."""
        return " ".join(filter(None, (self.caption, self.marks if marks else "", self.scale)))

    def text(self, width: int = 80) -> str:
        """Plain text for a terminal: a line for each cell, below its row's name.

        Args:
            width: Of the terminal, in columns; no line is longer.
        """
        both = len({column.source for column in self.columns}) > 1
        names = [f"{each.label} ({each.source})" if both else each.label for each in self.columns]
        room = max(map(len, names), default=0)
        lines = [*_indented(self.full_caption(marks=False), width, ""), ""]
        for name, cells in self.rows:
            lines += _indented(f"{self.corner} {name}", width, "")
            for label, cell in zip(names, cells, strict=True):
                value = _in_words(cell)
                if 4 + room + len(value) <= width:
                    lines.append(f"  {label:<{room}}  {value}")
                else:
                    lines += _indented(label, width, "  ") + _indented(value, width, "    ")
        lines += [""] if self.notes else []
        for note in self.notes:
            lines += _indented(note, width, "- ", "  ")
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """GitHub's Markdown: caption, table, notes."""
        head = [self.corner, *(f"{column.label} ({column.source})" for column in self.columns)]
        lines = [head, ["---"] + ["---:"] * len(self.columns)]
        lines += [[name, *map(_in_markdown, cells)] for name, cells in self.rows]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "".join(f"- {note}\n" for note in self.notes)
        return f"{self.full_caption()}\n\n{body}\n\n{notes}"

    def latex(self) -> str:
        """A table environment; it needs the packages booktabs and graphicx."""
        sources = Counter(column.source for column in self.columns)
        over, rules, left = [], [], 2
        for source, count in sources.items():
            over.append(rf"\multicolumn{{{count}}}{{c}}{{{source}}}")
            rules.append(rf"\cmidrule(lr){{{left}-{left + count - 1}}}")
            left += count
        head = " & ".join(_escape(name) for name in (self.corner, *(c.label for c in self.columns)))
        lines = [
            rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
            r"\toprule",
            rf" & {' & '.join(over)} \\",
            " ".join(rules),
            rf"{head} \\",
            r"\midrule",
            *(
                rf"{_escape(name)} & {' & '.join(map(_in_latex, cells))} \\"
                for name, cells in self.rows
            ),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        if len(self.columns) > _WIDE:
            lines = [r"\resizebox{\linewidth}{!}{%", *lines[:-1], lines[-1] + "}"]
        notes = [rf"\par {_escape(note)}" for note in self.notes]
        return "\n".join(
            [
                r"% needs \usepackage{booktabs,graphicx}",
                r"\begin{table*}",
                r"\centering",
                rf"\caption{{{_escape(self.full_caption())}}}",
                *lines,
                r"\begin{minipage}{\linewidth}\footnotesize",
                *notes,
                r"\end{minipage}",
                r"\end{table*}",
                "",
            ]
        )

    def csv(self) -> str:
        """A row for each number, not rounded; what is not known is empty."""
        text = io.StringIO()
        names = dict.fromkeys(name for record in self.records for name in record)
        writer = csv.DictWriter(text, list(names), lineterminator="\n")
        writer.writeheader()
        for record in self.records:
            writer.writerow({k: v for k, v in record.items() if v == v})  # NaN is not itself
        return text.getvalue()


def _in_words(cell: TableCell) -> str:
    ranks = {FIRST: "best", SECOND: "second"}
    remarks = [*filter(None, (cell.remark, ranks.get(cell.rank)))]
    return cell.text + (f" ({', '.join(remarks)})" if remarks else "")


def _indented(text: str, width: int, first: str, others: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_on_hyphens=False,
    )


def _in_markdown(cell: TableCell) -> str:
    marks = {FIRST: ("**", "**"), SECOND: ("<ins>", "</ins>")}
    before, after = marks.get(cell.rank, ("", ""))
    return f"{before}{cell.text}{after}" + (f" ({cell.remark})" if cell.remark else "")


def _in_latex(cell: TableCell) -> str:
    text = _escape(cell.text)
    if cell.rank:
        text = rf"\{'textbf' if cell.rank == FIRST else 'underline'}{{{text}}}"
    return text + (f" ({_escape(cell.remark)})" if cell.remark else "")


def _escape(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


INTERVALS = "95% intervals by Student's t"
TESTED = (
    "p: sign-flip test of the difference, at least 2/2^N with N pairs. p, Holm: corrected for the "
    "family of comparisons that the note below names"
)


def family_note(count: int, what: str) -> str:
    """Which comparisons Holm's correction is for."""
    return f"Family of Holm's correction: {what} in this table, {count} in number."


def interval_cell(ends: Sequence[float], seeds: int, spec: str) -> TableCell:
    """A statistic with its interval, or with why there is none.

    Args:
        ends: The statistic and both ends.
        seeds: How many there are, of the task with the fewest.
        spec: How numbers are shown, such as `+.3f`.
    """
    value, low, high = (format(float(each), spec) for each in ends)
    if math.isnan(float(ends[1])):
        return TableCell(value, no_interval(seeds))
    return TableCell(f"{value} [{low}, {high}]")


def published_share(task: str, mean: float) -> float | None:
    """A mean return relative to the published final one; None where none is known."""
    published = stats.published_return(task) if measure_of(task) == "return" else None
    return None if published is None else mean / published


def has_published(tasks: Iterable[str]) -> bool:
    """Whether a table of these tasks shows shares of published returns."""
    return any(published_share(task, 0.0) is not None for task in tasks)


def share_text(*shares: float | None) -> str:
    """Shares in percent: one, or from the lowest to the highest."""
    known = sorted(round(100 * share) for share in shares if share is not None)
    ends = dict.fromkeys(f"{share}" for share in (known[:1] + known[-1:]))
    return f"{'–'.join(ends)}%" if ends else NONE


PUBLISHED = "of the published final return"
PUBLISHED_NOTE = (
    "Of the published final return: of DrQ-v2's on clean pixels near 1M frames; "
    f"{NONE} where none is known."
)


class MeasuredScore(NamedTuple):
    """A method's score on a task, as tables show it.

    Attributes:
        of: Its seeds and their values.
        summary: Their mean and spread, in percent where the task is scored by success.
        digits: How many decimals to show.
        remark: How it differs from the others, such as fewer seeds.
        rank: As of a cell.
    """

    of: GroupScores
    summary: stats.Summary
    digits: int
    remark: str
    rank: int

    @property
    def cell(self) -> TableCell:
        """How a table shows it."""
        return TableCell(summary_text(self.summary, self.digits), self.remark, self.rank)


def score_table(
    study: Study, *, kind: Literal["final", "best"], budget: int | None, reported: bool
) -> Table:
    """Mean ± standard deviation of each method on each task; best bold, second underlined.

    Measured numbers are ranked among themselves, and so are reported ones. A measured number is
    ranked if all its seeds have reached the budget and the environments and presets of its row are
    the same.

    Args:
        study: The runs.
        kind: The score at the budget, or the best evaluation within it.
        budget: In frames; by default for each task as `scores.budgets` says.
        reported: Show the paper's numbers beside the measured ones.

    Raises:
        ValueError: If no run was evaluated, and for an unknown kind.
    """
    schema.choice(kind, ("final", "best"), "kind")
    schema.flag(reported, "reported")
    at = budgets(study, budget)
    systems = [
        system
        for system in paper.SYSTEMS
        if reported and any(system in paper.reported(task) for task in at)
    ]
    published = has_published(at)
    measured = measured_scores(study, kind=kind, at=at, reported=reported)
    if not measured:
        raise ValueError("there is nothing to tabulate: no run was evaluated within the budget")
    rows, records, notes = [], [], [f"{note}." for note in budget_notes(study, at)]
    for task in at:
        of_task = {label: measured.get((label, task)) for label in study.labels}
        numbers = paper.reported(task) if reported else {}
        cells = [score.cell if score else TableCell(NONE) for score in of_task.values()]
        digits = next((score.digits for score in of_task.values() if score), None)
        cells += _reported_cells([numbers.get(system) for system in systems], digits)
        if published:
            means = [score.summary.mean for score in of_task.values() if score]
            share = share_text(*(published_share(task, mean) for mean in means))
            cells.insert(len(of_task), TableCell(share))
        unit = " (success, %)" if measure_of(task) == "success" else ""
        rows.append((short_name(task) + unit, tuple(cells)))
        if differing := _not_ranked(study, task, [score.of for score in of_task.values() if score]):
            notes.append(f"{short_name(task)}: {differing}; not ranked")
        records += _records(study, task, kind, at[task], of_task, numbers)
    notes += _looks(study) if kind == "best" else []
    scale, about = paper.scale_notes(study, at) if reported else ("", [])
    usual = max(score.summary.n for score in measured.values())
    what = "Final score" if kind == "final" else "Best evaluation within the budget"
    of = f"mean ± one standard deviation (n − 1) over n = {usual} seeds"
    of = of if usual > 1 else "one seed (n = 1), so no spread is known,"
    among = "the measured and, separately, the reported columns" if systems else "methods"
    columns = [Column(label, "measured") for label in study.labels]
    columns += [Column(PUBLISHED, "measured")] if published else []
    columns += [Column(paper.SYSTEMS[system], "reported") for system in systems]
    return Table(
        f"{what}: {of} unless a cell says otherwise.",
        "task",
        tuple(columns),
        tuple(rows),
        (*notes, *([PUBLISHED_NOTE] if published else []), *about),
        tuple(records),
        marks=f"Bold: best, underlined: second of {among}.",
        scale=scale,
    )


def aggregate_table(study: Study, *, budget: int | None = None, seed: int = 0) -> Table:
    """Normalised scores over all tasks that the methods share, with intervals.

    Args:
        study: The runs.
        budget: In frames; by default for each task as `scores.budgets` says.
        seed: Of the bootstrap's generator.

    Raises:
        ValueError: If the methods have no task in common.
    """
    final, area = (pool_scores(study, kind, budget) for kind in ("final", "area"))

    iqm = partial(stats.interval, stats.iqm, seed=seed)
    statistics: dict[str, tuple[Pooled, Callable[[stats.Scores], Sequence[stats.Array]]]] = {
        "IQM": (final, iqm),
        "median": (final, partial(stats.interval, stats.median, seed=seed)),
        "mean": (final, stats.mean_interval),
        "optimality gap": (final, stats.gap_interval),
        "IQM of area": (area, iqm),
    }
    rows, records = [], []
    for label, scores in final.scores.items():
        cells = []
        seeds = list(map(len, scores.values()))
        for name, (pooled, interval) in statistics.items():
            value, low, high = map(float, interval(pooled.scores[label]))
            cells.append(interval_cell((value, low, high), min(seeds), ".3f"))
            records.append(
                {"method": label, "statistic": name, "value": value, "low": low, "high": high}
                | {"tasks": len(scores), "runs": sum(seeds)}
            )
        rows.append((label, tuple(cells)))
    caption = (
        f"Normalised final scores, tasks pooled: {len(final.tasks)}; with {INTERVALS}, over other "
        "seeds of these tasks: with Welch and Satterthwaite's degrees of freedom and, for IQM and "
        "median, a bootstrap's standard error. IQM: interquartile mean over runs. Optimality gap: "
        "mean shortfall from 1, lower is better. Area: mean height of the normalised learning "
        "curve."
    )
    columns = tuple(Column(name, "measured") for name in statistics)
    return Table(caption, "method", columns, tuple(rows), _pool_notes(study, final), tuple(records))


def pair_table(study: Study, *, budget: int | None = None, seed: int = 0) -> Table:
    """Methods in pairs: how often the one with the higher IQM wins, and by how much.

    Raises:
        ValueError: If the methods have no task in common.
    """
    pool = pool_scores(study, "final", budget)
    order = sorted(pool.scores, key=lambda label: -float(stats.iqm(pool.scores[label])))
    pairs = list(combinations(order, 2))
    gaps = {pair: gap for pair in pairs if (gap := pool.paired(*pair, seed)) is not None}
    corrected = dict(zip(gaps, stats.holm([gap.p_value for gap in gaps.values()]), strict=True))
    rows, records = [], []
    for pair in pairs:
        first, second = pair
        scores = pool.scores[first], pool.scores[second]
        fewest = min(len(values) for one in scores for values in one.values())
        chance = stats.improvement_interval(*scores)
        cells = [interval_cell(chance, fewest, ".2f")]
        record = {"method": first, "other": second, "improvement": chance.value}
        record |= {"improvement_low": chance.low, "improvement_high": chance.high}
        if pair not in gaps:
            cells += [TableCell(NONE)] * 4
        else:
            gap, holm = gaps[pair], corrected[pair]
            cells.append(interval_cell(gap[:3], gap.fewest, "+.3f"))
            cells += map(TableCell, (f"{gap.p_value:.2g}", f"{holm:.2g}", str(gap.pairs)))
            record |= gap._asdict() | {"p_holm": holm}
        rows.append((f"{first} vs {second}", tuple(cells)))
        records.append(record)
    caption = (
        "Pairs of methods. Improvement: probability that a run of the first method scores higher "
        "than one of the second on the same task, ties count half; with Newcombe's 95% interval. "
        "Difference: mean difference of normalised final scores over tasks and seeds that both "
        f"have, – if a task has none; with {INTERVALS}, over other seeds of these tasks. {TESTED}."
    )
    columns = tuple(
        Column(name, "measured") for name in ("improvement", "difference", "p", "p, Holm", "N")
    )
    notes = (*_pool_notes(study, pool), *([family_note(len(gaps), "all pairs")] if gaps else []))
    return Table(caption, "methods", columns, tuple(rows), notes, tuple(records))


def _pool_notes(study: Study, pool: Pooled) -> tuple[str, ...]:
    return tuple(f"{note}." for note in (*budget_notes(study, pool.at), *pool.notes))


def measured_scores(
    study: Study, *, kind: Literal["final", "best"], at: Mapping[str, int], reported: bool = False
) -> dict[tuple[str, str], MeasuredScore]:
    """The measured numbers of `score_table`, for it and for other layouts.

    Args:
        study: The runs.
        kind: The score at the budget, or the best evaluation within it.
        at: The budget of each task, as `scores.budgets` gives it.
        reported: Whether the paper's numbers are beside them, with as many decimals.

    Returns:
        By method and task; groups without a score are not in it.
    """
    measured = [
        (group, scores)
        for group in study.groups
        if (scores := group_scores(group, kind, at[group.task])) is not None
    ]
    usual = max((len(scores.values) for _, scores in measured), default=0)
    shown: dict[tuple[str, str], MeasuredScore] = {}
    for task in at:
        of_task = [(group, scores) for group, scores in measured if group.task == task]
        percent = 100.0 if measure_of(task) == "success" else 1.0
        summaries = [stats.summarise(scores.values * percent) for _, scores in of_task]
        numbers = paper.reported(task).values() if reported else ()
        digits = decimals([one.mean for one in (*summaries, *numbers)])
        comparable = not _not_ranked(study, task, [scores for _, scores in of_task])
        ranks = _ranks(
            [
                one.mean if comparable and not scores.short else None
                for one, (_, scores) in zip(summaries, of_task, strict=True)
            ]
        )
        for (group, scores), one, rank in zip(of_task, summaries, ranks, strict=True):
            few = one.n != usual or one.n < len(group.seeds)
            remarks = [seed_count(group, scores)] if few else []
            remarks += [f"at {scores.frames:,} frames"] if scores.frames != at[task] else []
            remark = ", ".join(remarks)
            shown[group.label, task] = MeasuredScore(scores, one, digits, remark, rank)
    return shown


def _not_ranked(study: Study, task: str, scores: Sequence[GroupScores]) -> str:
    """Why a task's methods are not ranked; empty if they are."""
    if mixed := mixed_settings(groups_of(study, task)):
        return mixed
    uneven = len({each.frames for each in scores if not each.short}) > 1
    return "not comparable, evaluations are at different frames" if uneven else ""


def _reported_cells(
    numbers: Sequence[paper.Reported | None], digits: int | None
) -> list[TableCell]:
    if digits is None:  # there is nothing beside them
        digits = decimals([one.mean for one in numbers if one])
    ranks = _ranks([one.mean if one else None for one in numbers])
    return [
        TableCell(f"{one.mean:.{digits}f} ± {one.spread:.{digits}f}", "", rank)
        if one
        else TableCell(NONE)
        for one, rank in zip(numbers, ranks, strict=True)
    ]


def _ranks(means: Sequence[float | None]) -> list[int]:
    """The best and the second of at least two; equal means share a rank, others have 0."""
    rounded = [None if mean is None else round(mean, 9) for mean in means]
    order = sorted({mean for mean in rounded if mean is not None}, reverse=True)
    if len(order) < 2:
        return [0] * len(means)
    ranks = {order[0]: FIRST, order[1]: SECOND}
    return [0 if mean is None else ranks.get(mean, 0) for mean in rounded]


def summary_text(of: stats.Summary, digits: int, sign: str = "") -> str:
    """A mean and, where it is known, the standard deviation."""
    mean, spread = summary_parts(of, digits, sign)
    return f"{mean} ± {spread}" if spread else mean


def summary_parts(of: stats.Summary, digits: int, sign: str = "") -> tuple[str, str]:
    """A mean and the standard deviation, which is empty where it is not known."""
    spread = "" if math.isnan(of.deviation) else f"{of.deviation:.{digits}f}"
    return f"{of.mean:{sign}.{digits}f}", spread


def decimals(means: Sequence[float]) -> int:
    """How many decimals to show: none for returns in the hundreds, as in the paper."""
    largest = max(map(abs, means), default=0.0)
    return 0 if largest >= 100 else 1 if largest >= 10 else 2


def _records(
    study: Study,
    task: str,
    kind: str,
    budget: int,
    measured: Mapping[str, MeasuredScore | None],
    numbers: Mapping[str, paper.Reported],
) -> list[dict[str, Any]]:
    """The numbers of a row: measured ones with every spread, reported ones with the paper's."""
    records: list[dict[str, Any]] = []
    for label, score in measured.items():
        group = study.group(label, task)
        if score is None or group is None:
            continue
        scores = score.of
        mean, deviation, error, n = stats.summarise(scores.values)
        area = group_scores(group, "area", budget)
        records.append(
            {
                "task": task,
                "measure": measure_of(task),
                "score": kind,
                "method": label,
                "source": "measured",
                "mean": mean,
                "of_published": published_share(task, mean),
                "standard_deviation": deviation,
                "standard_error": error,
                "reported_spread": None,
                "n": n,
                "seeds": " ".join(map(str, scores.seeds)),
                "seeds_short_of_budget": " ".join(map(str, scores.short)),
                "failed_share": _failed(task, scores.values),
                "mean_height": None if area is None else float(area.values.mean()),
                "frames": scores.frames,
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
    """Share of seeds below half of the best one, where bounds are known."""
    try:
        low = stats.default_bounds(task).low
    except ValueError:
        return None
    return stats.failed_share(values, float(values.max()), low=low)


def _looks(study: Study) -> list[str]:
    """Where best scores are of more, or of noisier, evaluations than others."""
    notes = []
    for task in study.tasks:
        runs = [run for group in groups_of(study, task) for run in group.runs]
        for name in ("eval_every", "eval_episodes"):
            values = sorted({getattr(run.config, name) for run in runs})
            if len(values) > 1:
                shown = " and ".join(map(str, values))
                notes.append(f"{short_name(task)}: {name} is {shown}, which biases a best score.")
    return notes


_GAP_CAPTION = (
    "Final scores on the training and on the evaluation variants of the distractor or the state "
    "noise, of the same agents and with the same seeds: mean ± one standard deviation (n − 1) over "
    "N seeds. Gap: training minus evaluation."
)
_COLUMNS = ("training variants", "evaluation variants", PUBLISHED, "gap", "N")


def gap_table(study: Study, *, budget: int | None = None) -> Table:
    """Final scores on both kinds of variants and their difference, of each method on each task.

    Raises:
        ValueError: If no run was evaluated on both.
    """
    at = budgets(study, budget)
    lines = [
        line
        for group in study.groups
        if (line := _gap_line(group, at[group.task], has_published(at))) is not None
    ]
    if not lines:
        raise ValueError(
            "there is no generalisation gap: no run was evaluated on training variants too, which "
            "runs with a distractor or state noise are"
        )
    notes = [f"{note}." for note in budget_notes(study, at)]
    notes += [PUBLISHED_NOTE] if has_published(at) else []
    if any(run.config.distractor == GAUSSIAN for run in study.runs):
        notes.append(
            "The variants of the distractor gaussian have the same distribution: its gap is chance."
        )
    rows, records = zip(*lines, strict=True)
    shown = [name for name in _COLUMNS if name != PUBLISHED or has_published(at)]
    columns = tuple(Column(name, "measured") for name in shown)
    return Table(_GAP_CAPTION, "task and method", columns, rows, tuple(notes), records)


def _gap_line(
    group: RunGroup, budget: int, published: bool
) -> tuple[tuple[str, tuple[TableCell, ...]], dict[str, Any]] | None:
    """A group's row and its numbers; None if it was not evaluated on both kinds of variants."""
    seen = group_scores(group, "final", budget, variants="train")
    gap = group_scores(group, "final", budget, variants="gap")
    if seen is None or gap is None:
        return None
    success = measure_of(group.task) == "success"
    scale = 100.0 if success else 1.0
    values = {"train": seen.values, "eval": seen.values - gap.values, "gap": gap.values}
    summaries = {name: stats.summarise(each * scale) for name, each in values.items()}
    digits = decimals([one.mean for one in summaries.values()])
    remark = "" if gap.frames == budget else f"at {gap.frames:,} frames"
    cells = [TableCell(summary_text(summaries[name], digits)) for name in ("train", "eval")]
    share = published_share(group.task, float(values["eval"].mean()))
    cells += [TableCell(share_text(share))] if published else []
    cells.append(TableCell(summary_text(summaries["gap"], digits, "+"), remark))
    count, seeds = len(gap.seeds), len(group.seeds)
    cells.append(TableCell(str(count) if count == seeds else f"{count} of {seeds}"))
    name = f"{short_name(group.task)}, {group.label}" + (" (success, %)" if success else "")
    record: dict[str, Any] = {"task": group.task, "measure": measure_of(group.task)}
    record |= {"method": group.label}
    for kind, each in values.items():
        mean, deviation, error, _ = stats.summarise(each)
        record |= {kind: mean, f"{kind}_deviation": deviation, f"{kind}_error": error}
    record |= {"eval_of_published": share, "n": count, "seeds": " ".join(map(str, gap.seeds))}
    return (name, tuple(cells)), record | {"frames": gap.frames, "budget": budget}


_YARDSTICK_CAPTION = (
    "Mean ± one standard deviation (n − 1) over the N seeds that were measured at the furthest "
    "frame. DF, "
    "the denoising factor, is 1 if noise does not move an embedding and 0 if it moves it as much "
    "as other states do. State R²: how much of the simulator's state a linear map finds, on "
    "held-out episodes. Effective rank: dimensions in use. ρ with ΔV: rank correlation of "
    "distances with differences of returns. ρ with U: with the true revised metric of the agent's "
    "policy, between moments of different episodes. R² of gate, instance, shadow, walk, gaussian: "
    "how much of each of these a linear map finds."
)


def yardstick_table(study: Study) -> Table:
    """Every measure of every embedding, of each method on each task.

    Raises:
        ValueError: If they were measured of no run.
    """
    measures = shown_measures(run.yardsticks for group in study.groups for run in group.runs)
    lines = [
        line
        for group in study.groups
        for embedding in EMBEDDINGS
        if (line := _yardstick_line(group, embedding, measures)) is not None
    ]
    if not lines:
        raise ValueError(
            "there are no yardsticks: measure them with revbis yardstick RUN, or during training "
            "with --yardstick-every"
        )
    rows, records = zip(*lines, strict=True)
    columns = tuple(Column(name, "measured") for name in (*measures.values(), "N"))
    without = any("denoising_id" not in record for record in records)
    notes = (f"{NONE}: {NO_NOISE}.",) if without else ()
    notes = (*notes, *(f"{note}." for note in study.machine_notes))
    return Table(_YARDSTICK_CAPTION, "task, method and embedding", columns, rows, notes, records)


def _yardstick_line(
    group: RunGroup, embedding: str, measures: Iterable[str]
) -> tuple[tuple[str, tuple[TableCell, ...]], dict[str, Any]] | None:
    """A group's row and its numbers; None if the embedding was measured of no seed."""
    measured = [run for run in group.runs if f"{embedding}_effective_rank" in run.yardsticks]
    if not measured:
        return None
    frames = max(run.yardstick_frames for run in measured)
    measured = [run for run in measured if run.yardstick_frames == frames]
    seeds = [run.config.seed for run in measured]
    record: dict[str, Any] = {"task": group.task, "method": group.label, "embedding": embedding}
    cells = []
    for measure in measures:
        key = f"{embedding}_{measure}"
        values = [run.yardsticks[key] for run in measured if key in run.yardsticks]
        if not values:
            cells.append(TableCell(NONE))
            continue
        of = stats.summarise(np.asarray(values))
        cells.append(TableCell(summary_text(of, 2)))
        record |= {measure: of.mean}
        record |= {f"{measure}_deviation": of.deviation, f"{measure}_error": of.error}
    count, every = len(measured), len(group.seeds)
    cells.append(TableCell(str(count) if count == every else f"{count} of {every}"))
    name = f"{short_name(group.task)}, {group.label}, {EMBEDDINGS[embedding]}"
    record |= {"frames": frames, "n": count, "seeds": " ".join(map(str, seeds))}
    return (name, tuple(cells)), record
