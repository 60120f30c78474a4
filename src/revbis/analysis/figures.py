"""Figures of a study: learning curves, ablation, the coefficient, differences, objectives alone."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from revbis.analysis import paper, stats
from revbis.analysis.differences import Differences, refuse_nothing
from revbis.analysis.scores import (
    Curve,
    GroupScores,
    align_curves,
    budgets,
    curve,
    group_scores,
    measure_of,
    mixed_settings,
    pool_scores,
    short_name,
    status_curve,
)
from revbis.analysis.study import RunGroup, Study, as_study
from revbis.io.files import atomic_file
from revbis.io.statistics import LEAST, mean_interval, no_interval
from revbis.representation import MEASURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from revbis.analysis.runs import Run

# Okabe and Ito's colours without yellow, which is hard to see on white, and five more.
_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#8A7A00", "#882255", "#332288", "#8C8C8C", "#7F4F24"),
)
_SHADES = ((1.0, 1.0), (0.6, 0.0), (0.55, 1.0))  # how much is kept, and of what grey the rest is
_LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
_MARKERS = "osD^vPX*"
_COLUMNS = 3
_PANEL = (2.7, 2.0)  # inches
_NAME = 28  # letters of a method's name on a line
_LINE_HEIGHT = 0.112  # inches, of the caption
_LETTERS = 19  # of the caption, per inch
_MARKS = 8  # on a curve
STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "svg.hashsalt": "revbis",
    "pdf.fonttype": 42,
}


class Look(NamedTuple):
    """How a method is drawn.

    Attributes:
        colour: Of its lines.
        line: Its dashes, as matplotlib takes them.
        marker: On its lines.
    """

    colour: str
    line: Any
    marker: str


def columns_of(count: int) -> int:
    """Panels beside each other: four make a square, not a row and a rest."""
    return 2 if count == 4 else min(count, _COLUMNS)


def make_panels(
    count: int,
    caption: str,
    legend: Sequence[tuple[str, Look]],
    height: float = _PANEL[1],
    share: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure of panels with a legend and, below it, a caption."""
    columns = columns_of(count)
    rows = -(-count // columns)
    across = max(columns * _PANEL[0] + (1.0 if share else 0.0), 4.2)
    lines = textwrap.wrap(caption, int(_LETTERS * across))
    fit = max(1, int(across / (0.5 + 0.065 * max((len(k) for k, _ in legend), default=1))))
    legend_rows = -(-len(legend) // min(fit, len(legend))) if legend else 0
    words = _LINE_HEIGHT * len(lines) + 0.08
    below = words + (0.16 * legend_rows + 0.12 if legend else 0.0)
    tall = rows * height + below
    figure = Figure(figsize=(across, tall), layout="constrained")
    figure.set_label(caption)
    figure.get_layout_engine().set(rect=(0, below / tall, 1, 1 - below / tall))  # type: ignore[call-arg, union-attr]
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share)
    for unused in grid.flat[count:]:
        unused.remove()
    figure.text(0.08 / across, words / tall, "\n".join(lines), va="top", fontsize=6.5, color="0.25")
    if legend:
        for label, look in legend:
            grid.flat[0].plot([], [], label=label, **_drawn(look))
        figure.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, words / tall),
            ncols=min(fit, len(legend)),
            frameon=False,
            borderpad=0.2,
            handlelength=3.2,
            columnspacing=1.6,
        )
    return figure, list(grid.flat[:count])


def looks_of(study: Study) -> dict[str, Look]:
    """A look for each method, the same in all figures of a study."""
    return {
        label: Look(_colour(i), _LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)])
        for i, label in enumerate(study.labels)
    }


def _colour(place: int) -> str:
    """A colour for each of many methods: after the first twelve, darker and lighter ones."""
    kept, grey = _SHADES[place // len(_COLOURS) % len(_SHADES)]
    base = _COLOURS[place % len(_COLOURS)]
    if base == "#000000":  # it has no darker shade
        grey = max(grey, 0.5)
    red, green, blue = (kept * part + (1 - kept) * grey for part in to_rgb(base))
    return to_hex((red, green, blue))


def _drawn(look: Look) -> dict[str, Any]:
    return {
        "color": look.colour,
        "linestyle": look.line,
        "marker": look.marker,
        "markersize": 3.5,
        "markeredgewidth": 0,
    }


def draw_mean(panel: Axes, seeds: Sequence[Curve], look: Look, alpha: float) -> None:
    """The mean over seeds with one standard error, and single seeds beyond their shared frames."""
    frames, scores = align_curves(seeds)
    smooth = stats.ewma(scores, alpha)
    if len(seeds) > 1:
        middle = smooth.mean(axis=0)
        error = smooth.std(axis=0, ddof=1) / np.sqrt(len(seeds))
        panel.fill_between(
            frames, middle - error, middle + error, color=look.colour, alpha=0.18, lw=0
        )
    every = max(1, len(frames) // _MARKS)
    panel.plot(frames, smooth.mean(axis=0), markevery=every, **_drawn(look))
    shared = frames[-1] if len(frames) else -1
    for one in seeds:
        if one.frames[-1] > shared:
            beyond = one.frames >= shared
            own = stats.ewma(one.scores, alpha)[beyond]
            panel.plot(one.frames[beyond], own, color=look.colour, lw=0.5, ls=look.line)


def draw_interval(panel: Axes, row: float, ends: Sequence[Any], look: Look) -> None:
    """A bar from low to high, where there is an interval, with a mark at the value."""
    value, low, high = map(float, ends)
    if not math.isnan(low):
        panel.barh(row, high - low, left=low, height=0.55, color=look.colour, alpha=0.45, lw=0)
    panel.plot([value, value], [row - 0.275, row + 0.275], color=look.colour, lw=2)


def method_height(labels: Sequence[str]) -> float:
    """Of a panel with a row for each method: names with settings take several lines."""
    lines = max(len(textwrap.wrap(label, _NAME)) for label in labels)
    return 0.75 + max(0.2, 0.14 * lines) * len(labels)


def method_axis(panel: Axes, labels: Sequence[str], places: Sequence[float] | None = None) -> None:
    """Methods by name, the first on top; at equal distances unless places are given."""
    at = range(len(labels)) if places is None else places
    panel.set_yticks(at, [textwrap.fill(label, _NAME) for label in labels])
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(at[-1] + 0.6, -0.6)
    panel.use_sticky_edges = False
    panel.margins(x=0.06)
    panel.xaxis.set_major_locator(MaxNLocator(4))
    panel.grid(axis="x", color="0.9", lw=0.5)
    panel.set_axisbelow(True)


def short_number(value: float) -> str:
    """Such as 250k and 1.5M."""
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


_PAPER_ALPHA = {"success": 0.5, "return": 0.2}

Shown = list[tuple[RunGroup, list[Curve]]]


def learning_curves(study: Study, *, alpha: float | None = None, reported: bool = False) -> Figure:
    """Score over frames, a panel for each task: mean over seeds with one standard error.

    A mean is drawn only at frames that all seeds of a curve have; seeds that have gone further
    continue as thin lines.

    Args:
        study: The runs.
        alpha: Of the moving average, `stats.ewma`; 1 for none. By default the paper's: 0.2, and 0.5
            on Meta-World.
        reported: Mark the paper's final scores at the right edge, for the tasks of its Table 1.

    Raises:
        ValueError: If no run was evaluated, and for an alpha out of range.
    """
    shown = _shown(study, curve)
    if not shown:
        raise ValueError("there is nothing to draw: no run has been evaluated yet")
    alpha = None if alpha is None else stats.check_alpha(alpha)
    alphas = {
        group.task: _PAPER_ALPHA[measure_of(group.task)] if alpha is None else alpha
        for group, _ in shown
    }
    used = sorted(set(alphas.values()))
    smoothing = " and ".join(f"{one:g}" for one in used)
    smoothing += " (Meta-World)" if len(used) > 1 else ""
    smoothed = "Not smoothed." if used == [1.0] else f"Smoothed by EWMA with α = {smoothing}."
    caption = f"Evaluations with the mean action: {_mean_text(shown)} {smoothed}"
    if reported:
        caption += " Marks at the right edge: the paper's means at 1M frames (Table 1)."
    figure, panels = _curve_panels(study, shown, caption, alphas)
    for task, panel in panels.items():
        if reported:
            _mark_reported(panel, task, looks_of(study))
        if measure_of(task) == "success":
            panel.set(ylabel="success rate", ylim=(-0.03, 1.03))
            panel.yaxis.set_major_formatter(PercentFormatter(1.0))
        else:
            panel.set_ylabel("return")
            if all(np.min(line.get_ydata(), initial=0.0) >= 0 for line in panel.lines):
                panel.set_ylim(bottom=0)
    return figure


def _mark_reported(panel: Axes, task: str, looks: Mapping[str, Look]) -> None:
    numbers = paper.reported(task)
    for label, look in looks.items():
        if label in numbers:
            edge = panel.get_yaxis_transform()  # x from 0 to 1 over the panel, y in data
            style: dict[str, Any] = {"color": look.colour, "mfc": "white", "clip_on": False}
            panel.plot(1, numbers[label].mean, marker=look.marker, transform=edge, **style)


def coefficients(study: Study) -> Figure:
    """The coefficient c over training, a panel for each task: mean with one standard error.

    Raises:
        ValueError: If no run has a coefficient.
    """
    shown = _shown(study, lambda run: status_curve(run, "c"))
    if not shown:
        raise ValueError(
            "there is nothing to draw: no run reports a coefficient c; methods that learn one have "
            "-rev in their name and not -no-c"
        )
    caption = (
        f"Coefficient c, the weight of the next-state distance: {_mean_text(shown)} Not smoothed. "
        "Dotted: 0.5, the start."
    )
    figure, panels = _curve_panels(study, shown, caption, {group.task: 1.0 for group, _ in shown})
    for panel in panels.values():
        panel.axhline(0.5, color="0.5", lw=0.7, ls=":", zorder=0)
        panel.set_ylabel("c")
    return figure


def ablation(study: Study, budget: int | None = None, seed: int = 0) -> Figure:
    """Best score within the budget: IQM over seeds with its 95% interval, that of `stats.interval`.

    A panel for each task and, where tasks can be pooled, one of all, normalised.

    Args:
        study: The runs.
        budget: In frames; by default for each task as `scores.budgets` says.
        seed: Of the bootstrap's generator.

    Raises:
        ValueError: If no run was evaluated within the budget.
    """
    at = budgets(study, budget)
    best = [
        (group, scores)
        for group in study.groups
        if (scores := group_scores(group, "best", at[group.task])) is not None
    ]
    if not best:
        raise ValueError("there is nothing to draw: no run was evaluated within the budget")
    tasks = list(dict.fromkeys(group.task for group, _ in best))
    overall, of_all = _overall(study, budget, seed) if len(tasks) > 1 else ({}, "")
    caption = _ablation_caption(best, at, of_all)
    labels = [label for label in study.labels if any(g.label == label for g, _ in best)]
    looks = looks_of(study)
    with mpl.rc_context(STYLE):
        height = method_height(labels)
        figure, panels = make_panels(len(tasks) + bool(overall), caption, [], height, share=True)
        of_task = dict(zip(tasks, panels, strict=False))
        for group, scores in best:
            row, panel = labels.index(group.label), of_task[group.task]
            ends = stats.interval(stats.iqm, {group.task: scores.values}, seed=seed)
            draw_interval(panel, row, ends, looks[group.label])
            panel.plot(scores.values, [row] * len(scores.values), "o", ms=2.2, color="0.2", mew=0)
        for label, interval in overall.items():
            draw_interval(panels[-1], labels.index(label), interval, looks[label])
        for task, panel in of_task.items():
            panel.set_title(short_name(task))
            panel.set_xlabel("return")
            if measure_of(task) == "success":
                panel.set_xlabel("success rate")
                panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        if overall:
            panels[-1].set(title="all tasks", xlabel="normalised score")
        for panel in panels:
            method_axis(panel, labels)
    return figure


def forest(study: Study, compared: Differences) -> Figure:
    """Differences from a baseline with their intervals: a panel for all tasks and for each.

    Raises:
        ValueError: If nothing could be paired.
    """
    looks = looks_of(as_study(study))
    refuse_nothing(compared)
    labels = [label for label in looks if any(row.label == label for row in compared.rows)]
    places = {row.task: row for row in compared.rows}
    with mpl.rc_context(STYLE):
        height = method_height(labels)
        caption = _forest_caption(compared)
        figure, panels = make_panels(len(places), caption, [], height, share=True)
        of_task = dict(zip(places, panels, strict=True))
        for row in compared.rows:
            panel, y = of_task[row.task], labels.index(row.label)
            draw_interval(panel, y, row.of[:3], looks[row.label])
            panel.plot(row.gaps, [y] * len(row.gaps), "o", ms=2.2, color="0.2", mew=0)
        for (task, row), panel in zip(places.items(), panels, strict=True):
            joint = "," if task is None else " of"
            panel.set(title=row.place, xlabel=f"difference{joint} {row.unit}")
            if task is not None and measure_of(task) == "success":
                panel.xaxis.set_major_formatter(PercentFormatter(1.0))
            panel.axvline(0, color="0.35", lw=0.8, zorder=0)
            method_axis(panel, labels)
    return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes a figure as PNG, SVG and PDF; the same figure gives the same bytes.

    Args:
        figure: The figure.
        folder: Created if it does not exist.
        name: Of the files, without a suffix.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    metadata: Mapping[str, dict[str, str | None]] = {
        "png": {"Description": str(figure.get_label())},
        "svg": {"Description": str(figure.get_label()), "Date": None},
        "pdf": {"Subject": str(figure.get_label()), "CreationDate": None},
    }
    paths = []
    with mpl.rc_context(STYLE):
        for kind, about in metadata.items():
            path = folder / f"{name}.{kind}"
            with atomic_file(path) as file:
                figure.savefig(file, format=kind, dpi=200, metadata=about)
            paths.append(path)
    return paths


def _shown(study: Study, of: Callable[[Run], Curve]) -> Shown:
    """The curves of each group that has any."""
    shown = []
    for group in as_study(study).groups:
        seeds = [one for run in group.runs if len((one := of(run)).frames)]
        shown += [(group, seeds)] if seeds else []
    return shown


def _curve_panels(
    study: Study, shown: Shown, caption: str, alphas: Mapping[str, float]
) -> tuple[Figure, dict[str, Axes]]:
    """Mean curves, a panel for each task."""
    parts = [caption, *_remarks([group for group, _ in shown])]
    if any(len({int(one.frames[-1]) for one in seeds}) > 1 for _, seeds in shown):
        parts.append("Thin lines: single seeds beyond the frames that all have.")
    tasks = list(dict.fromkeys(group.task for group, _ in shown))
    looks = looks_of(study)
    legend = {k: look for k, look in looks.items() if any(g.label == k for g, _ in shown)}
    with mpl.rc_context(STYLE):
        figure, panels = make_panels(len(tasks), " ".join(parts), list(legend.items()))
        of_task = dict(zip(tasks, panels, strict=True))
        for group, seeds in shown:
            draw_mean(of_task[group.task], seeds, looks[group.label], alphas[group.task])
        for place, (task, panel) in enumerate(of_task.items()):
            panel.set_title(short_name(task))
            panel.set_xlabel("frames" if place + columns_of(len(tasks)) >= len(tasks) else "")
            panel.set_xlim(left=0)
            panel.xaxis.set_major_locator(MaxNLocator(4))
            panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    return figure, of_task


def _forest_caption(compared: Differences) -> str:
    tasks = [row for row in compared.rows if row.task is not None] or list(compared.rows)
    counted = _counted([(row.of.pairs, row.label, row.place) for row in tasks])
    parts = [
        f"Final scores minus those of {compared.baseline}, right of 0 is better: mean over seeds "
        f"that both have ({counted}; dots)"
        + _with_interval([row.of.fewest for row in compared.rows], "Student's t")
        + ".",
        f"Left out, as only one of the two has their seed: {compared.unpaired} runs."
        if compared.unpaired
        else "",
        *(f"{note}." for note in compared.notes),
    ]
    return " ".join(filter(None, parts))


def _ablation_caption(
    best: Sequence[tuple[RunGroup, GroupScores]], at: Mapping[str, int], of_all: str
) -> str:
    seeds = [(len(scores.seeds), group.label, short_name(group.task)) for group, scores in best]
    budget = ", ".join(f"{value:,} ({short_name(task)})" for task, value in at.items())
    if len(set(at.values())) == 1:
        budget = f"{next(iter(at.values())):,}"
    parts = [
        f"Best evaluation within {budget} frames: interquartile mean over seeds "
        f"({_counted(seeds)}; dots)"
        + _with_interval([n for n, *_ in seeds], "Student's t with a bootstrap's standard error")
        + ". Not smoothed."
    ]
    parts += [of_all] if of_all else []
    parts += [
        f"{short_name(group.task)}, {group.label}: only {scores.frames:,} frames."
        for group, scores in best
        if scores.frames != at[group.task]
    ]
    return " ".join(parts + _remarks([group for group, _ in best]))


def _overall(study: Study, budget: int | None, seed: int) -> tuple[dict[str, Sequence[Any]], str]:
    """The IQM over all tasks, and its part of the caption."""
    try:
        pool = pool_scores(study, "best", budget)
    except ValueError:
        return {}, ""
    intervals: dict[str, Sequence[Any]] = {
        label: stats.interval(stats.iqm, scores, seed=seed) for label, scores in pool.scores.items()
    }
    return intervals, f"All tasks, normalised: {'; '.join(pool.notes)}."


def _mean_text(shown: Shown) -> str:
    """What a curve shows, for a caption."""
    if all(len(seeds) == 1 for _, seeds in shown):
        return "one seed (n = 1), so no standard error is known."
    counts = [(len(seeds), group.label, short_name(group.task)) for group, seeds in shown]
    return f"mean over seeds ({_counted(counts)}); shaded: ± one standard error."


def _counted(counts: Sequence[tuple[int, str, str]]) -> str:
    """n, and the methods and places where it differs."""
    usual = max(n for n, *_ in counts)
    others = [f"{n} for {label} on {place}" for n, label, place in counts if n != usual]
    return f"n = {usual}" + (f", but {', '.join(others)}" if others else "")


def _with_interval(seeds: Sequence[int], law: str) -> str:
    """What a caption says about intervals: their law, or why some or all are missing."""
    few = sorted({n for n in seeds if n < LEAST})
    missing = "; ".join(map(no_interval, few))
    if len(few) == len(set(seeds)):
        return f"; {missing}"
    return f" with its 95% interval ({law})" + (f"; {missing}" if missing else "")


def _remarks(groups: Sequence[RunGroup]) -> list[str]:
    """What may not be compared, and what is still running."""
    remarks = [
        f"{short_name(task)}: {differing}."
        for task in dict.fromkeys(group.task for group in groups)
        if (differing := mixed_settings([group for group in groups if group.task == task]))
    ]
    runs = [run for group in groups for run in group.runs]
    running = sum(not run.finished for run in runs)
    return remarks + ([f"Not finished: {running} of {len(runs)} runs."] if running else [])


_SHOWN = ("denoising_ood", "state_r2", "value")
_BEST = {  # what the method with the highest mean of a measure does
    "denoising_ood": "Noise moves the embeddings of {} least",
    "state_r2": "The embeddings of {} tell most of the state",
    "value": "The distances of {} rank value gaps best",
}
_GAP = 0.7  # rows between families
_OF_LAWS = ("laws", "laws-zp", "means", "means-pairs")  # a family whose names do not say so
_OTHERS = "#666666"


def draw_offline(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel for each measure that there is, a row for each method, families together.

    Families, and methods within them, are sorted by the first measure, the best on top.

    Args:
        rows: Of finished cells, as `cells.read_cell` gives them; at least one.
    """
    shown = [name for name in _SHOWN if any(f"phi_{name}" in row for row in rows)]
    families = _families(_means(rows, f"phi_{shown[0]}"))
    places, looks = _family_rows(families)
    with mpl.rc_context(STYLE):
        seeds = [sum(row["method"] == method for row in rows) for method in places]
        caption = (
            f"{rows[0]['task']}. Embeddings φ of encoders trained by the objective alone, right is "
            "better: mean over seeds (dots)" + _with_interval(seeds, "Student's t") + ". "
            "Dashed: before training. Colours: families of methods."
        )
        height = method_height(list(places)) + 0.12 * len(families)
        figure, panels = make_panels(len(shown), caption, (), height, share=True)
        figure.suptitle(textwrap.fill(_offline_title(rows, shown[0], families), 105), fontsize=9)
        for name, panel in zip(shown, panels, strict=True):
            for method, place in places.items():
                trained, untrained = (
                    [row[key] for row in rows if row["method"] == method and key in row]
                    for key in (f"phi_{name}", f"phi_{name}_untrained")
                )
                draw_interval(panel, place, mean_interval(trained), looks[method])
                panel.plot(trained, [place] * len(trained), ".", color="0.2", ms=3)
                before = float(np.mean(untrained))
                ends = [place - 0.45, place + 0.45]
                panel.plot([before, before], ends, color="0.35", lw=0.8, ls="--")
            panel.set(title=MEASURES[name])
            method_axis(panel, list(places), list(places.values()))
        for tick, method in zip(panels[0].get_yticklabels(), places, strict=True):
            tick.set_color(looks[method].colour)
    return figure


def _means(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, float]:
    """The mean of a measure, by method."""
    methods = dict.fromkeys(row["method"] for row in rows)
    return {
        method: float(np.mean([row[key] for row in rows if row["method"] == method and key in row]))
        for method in methods
    }


def _families(means: Mapping[str, float]) -> list[list[str]]:
    """Methods by the one that they revise, the best first; those alone are the last family."""
    found: dict[str, list[str]] = {}
    for method in sorted(means, key=lambda name: -means[name]):
        found.setdefault(_family(method), []).append(method)
    alone = [method for members in found.values() if len(members) == 1 for method in members]
    return [members for members in found.values() if len(members) > 1] + ([alone] if alone else [])


def _family_rows(families: Sequence[Sequence[str]]) -> tuple[dict[str, float], dict[str, Look]]:
    """The height of each method's row, and its look: a colour for each family, by its name."""
    places, looks, place = {}, {}, 0.0
    revised = sorted({_family(members[0]) for members in families if _is_family(members)})
    for members in families:
        colour = _OTHERS
        if _is_family(members):
            colour = _COLOURS[revised.index(_family(members[0])) % len(_COLOURS)]
        for method in members:
            places[method], looks[method] = place, Look(colour, "-", "o")
            place += 1.0
        place += _GAP
    return places, looks


def _family(method: str) -> str:
    return "laws" if method in _OF_LAWS else method.partition("-rev")[0]


def _is_family(members: Sequence[str]) -> bool:
    """Whether they revise one method, and do not just stand alone."""
    return len(members) > 1 and len(set(map(_family, members))) == 1


def _offline_title(
    rows: Sequence[Mapping[str, Any]], measure: str, families: Sequence[Sequence[str]]
) -> str:
    """Which method has the highest mean of a measure, and which have that of other families.

    If its interval does not end above the mean before training, only that nothing is gained.
    """
    key, name = f"phi_{measure}", MEASURES[measure]
    trained, before = _means(rows, key), _means(rows, f"{key}_untrained")
    first, *others = sorted((members[0] for members in families), key=lambda each: -trained[each])
    of = mean_interval([row[key] for row in rows if row["method"] == first and key in row])
    low = of.value if math.isnan(of.low) else of.low
    numbers = f"{_hundredths(trained[first])}; {_hundredths(before[first])} before training"
    if low <= before[first]:
        return (
            f"Training by the objective alone does not raise {name} (highest: {first}, {numbers})."
        )
    said = first if len(trained) == 1 else f"{_BEST[measure].format(first)}, on average"
    title = f"{said} ({name}: {numbers})."
    if others:
        best = ", ".join(f"{each} {_hundredths(trained[each])}" for each in others)
        title += f" Best of the other families: {best}."
    return title


def _hundredths(value: float) -> str:
    return f"{round(value, 2) or 0.0:.2f}"  # no minus before 0
