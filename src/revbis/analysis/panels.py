"""Parts of figures: panels with a legend and a caption, lines, bands and intervals."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from revbis.analysis import curves, stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from revbis.analysis.scores import Study

# Okabe and Ito's colours without yellow, which is hard to see on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
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
    width: float = _PANEL[0],
    share: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure of panels with a legend and, below it, a caption."""
    columns = columns_of(count)
    rows = -(-count // columns)
    across = max(columns * width + (1.0 if share else 0.0), 4.2)
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
        label: Look(
            _COLOURS[i % len(_COLOURS)], _LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)]
        )
        for i, label in enumerate(study.labels)
    }


def _drawn(look: Look) -> dict[str, Any]:
    return {
        "color": look.colour,
        "linestyle": look.line,
        "marker": look.marker,
        "markersize": 3.5,
        "markeredgewidth": 0,
    }


def draw_line(panel: Axes, x: Any, y: Any, look: Look) -> None:
    """A curve with a few markers of its method."""
    panel.plot(x, y, markevery=max(1, len(x) // _MARKS), **_drawn(look))


def draw_mean(panel: Axes, seeds: Sequence[curves.Curve], look: Look, alpha: float) -> None:
    """The mean over seeds with one standard error, and single seeds beyond their shared frames."""
    frames, scores = curves.common(seeds)
    smooth = stats.ewma(scores, alpha)
    if len(seeds) > 1:
        middle = smooth.mean(axis=0)
        error = smooth.std(axis=0, ddof=1) / np.sqrt(len(seeds))
        panel.fill_between(
            frames, middle - error, middle + error, color=look.colour, alpha=0.18, lw=0
        )
    draw_line(panel, frames, smooth.mean(axis=0), look)
    shared = frames[-1] if len(frames) else -1
    for one in seeds:
        if one.frames[-1] > shared:
            beyond = one.frames >= shared
            own = stats.ewma(one.scores, alpha)[beyond]
            panel.plot(one.frames[beyond], own, color=look.colour, lw=0.5, ls=look.line)


def draw_interval(panel: Axes, row: int, ends: Sequence[Any], look: Look) -> None:
    """A bar from low to high with a mark at the value."""
    value, low, high = map(float, ends)
    panel.barh(row, high - low, left=low, height=0.55, color=look.colour, alpha=0.45, lw=0)
    panel.plot([value, value], [row - 0.275, row + 0.275], color=look.colour, lw=2)


def method_height(labels: Sequence[str]) -> float:
    """Of a panel with a row for each method: names with settings take several lines."""
    lines = max(len(textwrap.wrap(label, _NAME)) for label in labels)
    return 0.75 + max(0.2, 0.14 * lines) * len(labels)


def method_axis(panel: Axes, labels: Sequence[str]) -> None:
    """Methods by name, the first on top."""
    panel.set_yticks(range(len(labels)), [textwrap.fill(label, _NAME) for label in labels])
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(labels) - 0.4, -0.6)
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
