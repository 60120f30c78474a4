"""The report of the benchmark against exact metrics: tables, CSV, pictures and a page."""

from __future__ import annotations

import base64
import csv
import io
import textwrap
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from revbis import __version__
from revbis.io.files import atomic_write
from revbis.io.statistics import LEAST, Interval, mean_interval, no_interval
from revbis.representation.cells import kept_results
from revbis.representation.exactness import BENCHMARK, read_dots, read_exactness
from revbis.representation.problems import FACTORS, SCENARIOS
from revbis.tabular.readers import read_npz

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from revbis.representation.cells import Record
    from revbis.representation.exactness import ExactnessCell

NONE = "–"
FILES = ("exactness.csv", "exactness.png", "factors.png", "distances.png", "index.html")
_DRAWN = (
    "laws",
    "simsr",
    "simsr-rev",
    "simsr-rev-full-no-c",
    "mico-rev-full-no-c",
    "energy-rev-full-no-c",
)
_MOST_DRAWN = 6  # methods
_MOST_ROWS = 2  # scenarios

# Columns of tables: heading, name of the measure, whether its interval is shown.
COLUMNS = (
    ("φ: ρ with U", "phi_spearman", True),
    ("φ: ρ with U of the data's policy", "phi_behaviour_spearman", True),
    ("ψ: ρ with G", "psi_spearman", True),
    ("φ: error", "phi_error", False),
    ("ψ: error", "psi_error", False),
    ("φ: neighbours", "phi_overlap", False),
    ("ψ: neighbours", "psi_overlap", False),
    ("φ: stress", "phi_stress", False),
    ("ψ: stress", "psi_stress", False),
    ("φ: ρ with ΔV", "phi_value", False),
    ("ψ: ρ with ΔQ", "psi_value", False),
    ("φ: spread", "phi_spread", False),
    ("ψ: spread", "psi_spread", False),
    ("φ: largest error", "largest_error", False),
    ("φ: bound on it", "bound", False),
    ("denoising", "denoising", True),
    *((f"R² of {heading}", f"{name}_r2", True) for name, heading in FACTORS.items()),
    *((f"share of {heading}", f"{name}_share", False) for name, heading in FACTORS.items()),
    ("c", "c", False),
)
_RELEVANT = ("controllable_relevant", "exogenous_relevant")
_IRRELEVANT = ("controllable_irrelevant", "exogenous_irrelevant")
_BEFORE = "before training"
_KEPT_CAPTION = (
    "R² of a linear read-out of each factor from φ, of states held out, with noise as large as φ's "
    "own spread; blue: kept and relevant, orange: kept and irrelevant. "
)


# Okabe and Ito's colours; the two differ in their marks, too.
_LOOKS = {
    "phi": ("distances between states", "#0072B2", "o"),
    "psi": ("distances between state-action pairs", "#D55E00", "D"),
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


@dataclass(frozen=True)
class Results:
    """Rows of finished cells.

    Attributes:
        rows: One for each cell.
        scenarios: Their names, in the order of the benchmark.
    """

    rows: Sequence[Record]
    scenarios: Sequence[str]

    def values(self, scenario: str, method: str, measure: str) -> list[float]:
        """A measure of each seed; none where it has no meaning or no seed was finished."""
        return [
            row[measure]
            for row in self.rows
            if (row["scenario"], row["method"]) == (scenario, method)
            and row.get(measure) is not None
        ]

    def of(self, scenario: str, method: str, measure: str) -> Interval[float] | None:
        """A measure over seeds; None if there is none."""
        values = self.values(scenario, method, measure)
        return mean_interval(values) if values else None

    @cached_property
    def methods(self) -> list[str]:
        """The methods, the best first: by the mean over scenarios of φ's rank correlation."""
        names = dict.fromkeys(row["method"] for row in self.rows)
        return sorted(names, key=lambda name: -self._score(name))

    def seeds(self, scenario: str, method: str) -> int:
        """How many seeds were finished."""
        keys = [(row["scenario"], row["method"]) for row in self.rows]
        return keys.count((scenario, method))

    def overview(self) -> list[dict[str, str]]:
        """A row for each method: ρ of φ in each scenario and, after a stroke, ρ of ψ."""
        table = []
        for method in self.methods:
            row = {"method": method}
            for scenario in self.scenarios:
                parts = [self.of(scenario, method, f"{name}_spearman") for name in ("phi", "psi")]
                row[scenario] = " / ".join(f"{each.value:.2f}" for each in parts if each) or NONE
            table.append(row)
        return table

    def table(self, scenario: str) -> list[dict[str, str]]:
        """A row for each method of a scenario; measures without a value for any are left out."""
        methods = [method for method in self.methods if self.seeds(scenario, method)]
        table = [{"method": method} for method in methods]
        for heading, measure, with_ends in COLUMNS:
            values = [self.of(scenario, method, measure) for method in methods]
            if any(value is not None for value in values):
                for row, value in zip(table, values, strict=True):
                    row[heading] = interval_text(value, with_ends)
        return table

    def _score(self, method: str) -> float:
        means = [self.of(scenario, method, "phi_spearman") for scenario in self.scenarios]
        return float(np.mean([each.value for each in means if each is not None]))


def write_csv(rows: Sequence[Record], path: Path) -> None:
    """A line for each row; the columns are those of all rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    for row in rows:
        short = {name: f"{each:.6g}" for name, each in row.items() if isinstance(each, float)}
        writer.writerow(row | short)
    atomic_write(path, text.getvalue().encode())


def interval_text(value: Interval[float] | None, with_ends: bool) -> str:
    """A mean with its interval, if that is wanted and known."""
    if value is None:
        return NONE
    if not with_ends or np.isnan(value.low):
        return f"{value.value:.2f}"
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def intervals_text(rows: Iterable[Record]) -> str:
    """What numbers over the seeds of these results are."""
    counts = Counter((row.get("scenario"), row["method"]) for row in rows).values()
    fewest, most = min(counts), max(counts)
    if most < LEAST:
        return f"Mean over seeds; {no_interval(most)}"
    several = f"{most}" if fewest == most else f"{fewest} to {most}"
    fewer = "" if fewest >= LEAST else f", from {LEAST} seeds on"
    return f"Mean over {several} seeds with 95% intervals (Student's t{fewer})"


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
            panel.set_xlabel("rank correlation of learned with exact distances")
        figure.legend(
            *axes[0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=2,
            frameon=False,
            fontsize=13,
        )
        figure.supxlabel(caption, fontsize=10, color="0.35")
    return figure


def draw_kept(results: Results, caption: str) -> Figure | None:
    """What φ keeps of each factor: methods × factors with numbers, a panel for each scenario.

    Methods are sorted by how much more they keep of the relevant factors than of the others, on
    average over scenarios. Blue is kept and relevant, orange kept and irrelevant.

    Args:
        results: Of at least one cell.
        caption: The line below.

    Returns:
        None if no scenario has factors.
    """
    names = (*_RELEVANT, *_IRRELEVANT)
    scenarios = [name for name in results.scenarios if SCENARIOS[name].mdp == "factors"]
    selective = {
        method: gaps
        for method in results.methods
        if (gaps := [g for s in scenarios if (g := _selectivity(results, s, method)) is not None])
    }
    if not selective:
        return None
    methods = sorted(selective, key=lambda method: -float(np.mean(selective[method])))
    size = (2.6 + 3.6 * len(scenarios), 2.2 + 0.27 * (1 + len(methods)))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(scenarios), squeeze=False, sharey=True)[0]
        for panel, scenario in zip(axes, scenarios, strict=True):
            panel.set_title(scenario, loc="left", fontweight="bold", fontsize=11)
            for row, method in enumerate((*methods, _BEFORE)):
                for column, name in enumerate(names):
                    value = _kept(results, scenario, method, name)
                    if value is None:
                        continue
                    shades = mpl.colormaps["Blues" if name in _RELEVANT else "Oranges"]
                    place = (column - 0.5 + 0.15 * (column >= len(_RELEVANT)), row - 0.5)
                    panel.add_patch(Rectangle(place, 0.97, 0.94, color=shades(0.75 * value)))
                    centre = (place[0] + 0.49, place[1] + 0.47)
                    ink = "white" if value > 0.7 else "0.15"
                    panel.text(*centre, f"{value:.2f}", ha="center", va="center", color=ink, size=9)
            headings = [FACTORS[name].replace(", ", "\n") for name in names]
            panel.set_xticks([0.0, 1.0, 2.15, 3.15], headings, fontsize=8)
            panel.set_xlim(-0.55, 3.7)
            panel.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
            panel.spines[:].set_visible(False)
        shown = [_short(method) for method in methods] + [_BEFORE]
        axes[0].set_yticks(range(len(shown)), shown, fontsize=9)
        axes[0].set_ylim(len(methods) + 0.55, -0.55)
        title = _kept_title(results, scenarios, methods)
        figure.suptitle(textwrap.fill(title, int(11 * size[0])), fontsize=10.5)
        figure.supxlabel(textwrap.fill(caption, int(16 * size[0])), fontsize=8, color="0.35")
    return figure


def _kept(results: Results, scenario: str, method: str, factor: str) -> float | None:
    """R² of a factor, mean over seeds; before training, over methods, too."""
    if method == _BEFORE:
        values = [
            value
            for each in results.methods
            for value in results.values(scenario, each, f"{factor}_r2_untrained")
        ]
        return float(np.mean(values)) if values else None
    found = results.of(scenario, method, f"{factor}_r2")
    return None if found is None else found.value


def _selectivity(results: Results, scenario: str, method: str) -> float | None:
    """Mean R² of the relevant factors minus that of the irrelevant ones."""
    kept = [[_kept(results, scenario, method, n) for n in s] for s in (_RELEVANT, _IRRELEVANT)]
    numbers = [[value for value in each if value is not None] for each in kept]
    return float(np.mean(numbers[0]) - np.mean(numbers[1])) if all(numbers) else None


def _kept_title(results: Results, scenarios: Sequence[str], methods: Sequence[str]) -> str:
    """Which method keeps most of the relevant and least of the others, and which does least so."""

    def said(method: str) -> str:
        parts = []
        for group in (_RELEVANT, _IRRELEVANT):
            values = [_kept(results, s, method, n) for s in scenarios for n in group]
            parts.append(f"{np.mean([v for v in values if v is not None]):.2f}")
        return f"{_short(method)} (R² {parts[0]} of what is relevant, {parts[1]} of what is not)"

    if len(methods) == 1:
        return f"What φ keeps: {said(methods[0])}."
    first, last = said(methods[0]), said(methods[-1])
    return f"φ of {first} is the most selective of {len(methods)} methods, {last} the least."


def draw_dots(dots: Mapping[tuple[str, str], Dots], results: Results, caption: str) -> Figure:
    """Learned against exact distances, a row for each scenario and a column for each method.

    Args:
        dots: Learned and exact distances by scenario and method (`exactness.read_dots`).
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
        means = [results.of(scenario, method, f"{name}_spearman") for method in results.methods]
        places = [row + shift for row, value in enumerate(means) if value is not None]
        measured = [m for m, value in zip(results.methods, means, strict=True) if value is not None]
        values = [value for value in means if value is not None]
        if not values:
            continue
        low, high = ([value[end] for value in values] for end in (1, 2))
        panel.hlines(places, low, high, color=colour, lw=2.2)  # none where they are NaN
        for place, method, end in zip(places, measured, low, strict=True):
            if np.isnan(end):
                seeds = results.values(scenario, method, f"{name}_spearman")
                panel.plot(seeds, [place] * len(seeds), ".", color=colour, ms=4, alpha=0.6)
        centres = [value.value for value in values]
        panel.plot(centres, places, marker, color=colour, ms=6, mec="white", mew=0.6, label=label)
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
    """The lowest number that is drawn; intervals may end below −1, where no correlation is."""
    keys = [
        (scenario, method, f"{name}_spearman")
        for scenario in results.scenarios
        for method in results.methods
        for name in _LOOKS
    ]
    means = [value for key in keys if (value := results.of(*key)) is not None]
    drawn = [number for value in means for number in value]
    drawn += [number for key in keys for number in results.values(*key)]
    return max(-1.0, float(np.nanmin(drawn)))


def _short(method: str) -> str:
    return method if len(method) <= _SHORTEST else f"…{method[-_SHORTEST:]}"


def read_results(cells: Iterable[ExactnessCell], out: Path) -> Results:
    """The results of these cells that there are, in the order of the benchmark.

    Those that the folder has of other methods, with the same settings, are among them.

    Raises:
        ValueError: If there is none.
    """
    cells, order = list(cells), {name: place for place, name in enumerate(SCENARIOS)}
    rows = [row for cell in cells if (row := read_exactness(cell, out)) is not None]
    if not rows:
        raise ValueError(f"there are no results in {out}")
    kept = (each.result for each in kept_results(cells, out))
    rows += [row for row in kept if row["scenario"] in order]
    rows.sort(key=lambda row: (order[row["scenario"]], row["method"], row["seed"]))
    return Results(rows, sorted({row["scenario"] for row in rows}, key=order.__getitem__))


def write_report(
    results: Results, cells: Sequence[ExactnessCell], out: Path, problems: list[str]
) -> None:
    """Writes `FILES`.

    Args:
        results: Of these cells.
        cells: What was asked for, with the same settings.
        out: The folder.
        problems: Cells without a result, and why.
    """
    settings = cells[0].settings
    how = f"{settings.steps:,} steps, γ = {settings.gamma:g}"
    version = f"Version {BENCHMARK} of the benchmark"
    caption = f"{intervals_text(results.rows)}; {how}; pairs of different elements only. {version}"
    write_csv(results.rows, out / "exactness.csv")
    overview = as_png(draw_overview(results, caption))
    atomic_write(out / "exactness.png", overview)
    drawn = results.methods
    if len(drawn) > _MOST_DRAWN:  # a user's own, and the best known of ours
        known = [name for name in drawn if ":" in name or name in _DRAWN]
        drawn = (known or drawn)[:_MOST_DRAWN]
    dots = {
        (scenario, method): pairs
        for (scenario, method), pairs in _all_dots(cells, out).items()
        if method in drawn and scenario in results.scenarios[:_MOST_ROWS]
    }
    pictures, kept = [overview], None
    if (
        figure := draw_kept(results, f"{_KEPT_CAPTION}Mean over seeds; {how}. {version}")
    ) is not None:
        kept = as_png(figure)
        atomic_write(out / "factors.png", kept)
    if dots:
        pictures.append(as_png(draw_dots(dots, results, "Seed 0, a sample of the pairs")))
        atomic_write(out / "distances.png", pictures[1])
    templates = Environment(
        loader=PackageLoader("revbis.representation", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = templates.get_template("exactness.html").render(
        results=results,
        scenarios=SCENARIOS,
        settings=settings,
        size=cells[0].size,
        seeds=len({row["seed"] for row in results.rows}),
        intervals=intervals_text(results.rows),
        problems=problems,
        pictures=[base64.b64encode(picture).decode() for picture in pictures],
        kept=None if kept is None else base64.b64encode(kept).decode(),
        version=__version__,
    )
    atomic_write(out / "index.html", text.encode(errors="replace"))


def _all_dots(cells: Sequence[ExactnessCell], out: Path) -> dict[tuple[str, str], Dots]:
    """Learned and exact distances of the first seed, by scenario and method; kept ones too."""
    dots = {
        (cell.scenario, cell.method): pairs
        for cell in cells
        if cell.seed == 0
        and read_exactness(cell, out) is not None
        and (pairs := read_dots(cell, out))
    }
    for folder, name, row in kept_results(cells, out):
        path = folder / f"{name}.npz"
        if row["seed"] == 0 and path.exists():
            with suppress(ValueError):  # a damaged file is a picture less
                dots[row["scenario"], row["method"]] = read_npz(path)
    return dots
