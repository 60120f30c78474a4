"""The probe's pictures: one for a slide, and learned against exact distances."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from revbis.yardsticks.probe.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from revbis.yardsticks.probe.summaries import Results

# Okabe and Ito's colours; φ and ψ differ in their marks, too.
_LOOKS = {
    "phi": ("φ against U, between states", "#0072B2", "o"),
    "psi": ("ψ against G, between state-action pairs", "#D55E00", "D"),
}
_STYLE: dict[Any, Any] = {
    "font.size": 11.0,
    "axes.titlesize": 13.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
}
_COLUMNS = 3
_WIDTH = 16.0  # inches: a slide is 16 × 9
_LEAST_HEIGHT, _ROW_HEIGHT = 1.4, 0.2  # inches, of a panel and of a method in it
_SHORTEST = 30  # letters of a method's name before it is cut, at its start

Dots = dict[str, np.ndarray]


def draw_overview(results: Results, caption: str) -> Figure:
    """A panel for each scenario, a row for each method: rank correlations with intervals.

    Args:
        results: Of at least one cell.
        caption: The line below.
    """
    methods, scenarios = results.methods, results.scenarios
    columns = 2 if len(scenarios) == 4 else min(_COLUMNS, len(scenarios))
    rows = -(-len(scenarios) // columns)
    height = rows * (_LEAST_HEIGHT + _ROW_HEIGHT * len(methods))
    width = max(9.0, _WIDTH * columns / _COLUMNS)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height + 0.9), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for panel, scenario in zip(axes, scenarios, strict=False):
            _draw_scenario(panel, results, scenario)
        for panel in axes[len(scenarios) :]:
            panel.set_visible(False)
        axes[0].set_yticks(range(len(methods)), [_short(method) for method in methods])
        axes[0].set_ylim(len(methods) - 0.4, -0.6)
        axes[0].set_xlim(min(-0.05, _lowest(results)) - 0.03, 1.03)
        for panel in axes[max(0, len(scenarios) - columns) : len(scenarios)]:
            panel.tick_params(labelbottom=True)
            panel.set_xlabel("rank correlation with the exact metric")
        figure.legend(
            *axes[0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=2,
            frameon=False,
            fontsize=13,
        )
        figure.supxlabel(caption, fontsize=10, color="0.35")
    return figure


def draw_dots(dots: Mapping[tuple[str, str], Dots], results: Results, caption: str) -> Figure:
    """Learned against exact distances, a row for each scenario and a column for each method.

    Args:
        dots: Learned and exact distances by scenario and method, as `cells.read_dots` gives them.
        results: What they are of.
        caption: The line below.
    """
    scenarios = list(dict.fromkeys(scenario for scenario, _ in dots))
    methods = [method for method in results.methods if any(key[1] == method for key in dots)]
    size = (max(5.0, 2.7 * len(methods)), 2.8 * len(scenarios) + 0.9)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(scenarios), len(methods), squeeze=False)
        for panels, scenario in zip(axes, scenarios, strict=True):
            for panel, method in zip(panels, methods, strict=True):
                if (scenario, method) in dots:
                    _draw_dots(panel, dots[scenario, method])
            panels[0].set_ylabel(f"{scenario}\nlearned")
        for top, bottom, method in zip(axes[0], axes[-1], methods, strict=True):
            top.set_title(_short(method), fontsize=11)
            bottom.set_xlabel("exact")
        handles = {
            label: handle
            for panel in axes.flat
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside upper center",
            ncols=3,
            frameon=False,
            markerscale=4,
        )
        figure.supxlabel(caption, fontsize=9, color="0.35")
    return figure


def as_png(figure: Figure) -> bytes:
    """The figure as PNG; the same figure gives the same bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def _draw_scenario(panel: Axes, results: Results, scenario: str) -> None:
    panel.set_title(f"{scenario}\n", loc="left", fontweight="bold")
    text = SCENARIOS[scenario].description
    panel.text(0, 1.02, text, transform=panel.transAxes, fontsize=10, color="0.35")
    for row in range(0, len(results.methods), 2):
        panel.axhspan(row - 0.5, row + 0.5, color="0.955", lw=0, zorder=0)
    for value in (0.0, 0.5, 1.0):
        panel.axvline(value, color="0.8", lw=0.8, zorder=0.5)
    for name, (label, colour, marker) in _LOOKS.items():
        shift = {"phi": -0.17, "psi": 0.17}[name]
        found = [results.of(scenario, method, f"{name}_spearman") for method in results.methods]
        places = [row + shift for row, value in enumerate(found) if value is not None]
        values = [value for value in found if value is not None]
        if not values:
            continue
        low, high = ([value[end] for value in values] for end in (1, 2))
        panel.hlines(places, low, high, color=colour, lw=2.2)
        means = [value.mean for value in values]
        panel.plot(means, places, marker, color=colour, ms=6, mec="white", mew=0.6, label=label)
    panel.tick_params(axis="y", length=0)


def _draw_dots(panel: Axes, dots: Dots) -> None:
    for name, (label, colour, _) in _LOOKS.items():
        if name in dots:
            learned, exact = dots[name]
            panel.plot(exact, learned, ".", color=colour, ms=2, alpha=0.5, label=label)
    both = np.concatenate([values.ravel() for values in dots.values()])
    ends = [min(0.0, float(both.min())), float(both.max())]
    panel.plot(ends, ends, color="0.3", lw=0.9, ls=(0, (4, 3)), label="learned = exact")
    panel.tick_params(labelsize=8)


def _lowest(results: Results) -> float:
    found = [
        results.of(scenario, method, f"{name}_spearman")
        for scenario in results.scenarios
        for method in results.methods
        for name in _LOOKS
    ]
    return float(np.nanmin([number for value in found if value for number in value]))


def _short(method: str) -> str:
    return method if len(method) <= _SHORTEST else f"…{method[-_SHORTEST:]}"


def chosen(methods: Sequence[str], favourites: Sequence[str], most: int) -> list[str]:
    """A user's own methods and the favourites among these; all of them if they are few."""
    if len(methods) <= most:
        return list(methods)
    wanted = [m for m in methods if ":" in m or m in favourites]
    return (wanted or list(methods))[:most]
