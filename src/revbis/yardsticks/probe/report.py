"""Writes the probe's results: CSV, pictures and a page that holds all it needs."""

from __future__ import annotations

import base64
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from revbis import __version__
from revbis.system.files import write_whole
from revbis.yardsticks.probe.cells import Cell, read_cell, read_dots
from revbis.yardsticks.probe.pictures import as_png, chosen, draw_dots, draw_overview
from revbis.yardsticks.probe.scenarios import SCENARIOS
from revbis.yardsticks.probe.summaries import Results, write_csv

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FILES = ("probe.csv", "probe.png", "distances.png", "index.html")
_DRAWN = (
    "simsr",
    "mico",
    "simsr-rev",
    "simsr-rev-full-no-c",
    "mico-rev-full-no-c",
    "energy-rev-full-no-c",
)
_MOST_DRAWN = 6  # methods
_MOST_ROWS = 2  # scenarios


def read_results(cells: Iterable[Cell], out: Path) -> Results:
    """The results of these cells that there are, in the order of the benchmark.

    Raises:
        ValueError: If there is none.
    """
    order = {name: place for place, name in enumerate(SCENARIOS)}
    rows = [row for cell in cells if (row := read_cell(cell, out)) is not None]
    if not rows:
        raise ValueError(f"there are no results in {out}")
    rows.sort(key=lambda row: (order[row["scenario"]], row["method"], row["seed"]))
    return Results(rows, sorted({row["scenario"] for row in rows}, key=order.__getitem__))


def write_report(results: Results, cells: Sequence[Cell], out: Path, problems: list[str]) -> None:
    """Writes `FILES`.

    Args:
        results: Of these cells.
        cells: What was asked for, with the same settings.
        out: The folder.
        problems: Cells without a result, and why.
    """
    settings, seeds = cells[0].settings, len({row["seed"] for row in results.rows})
    count = f"{seeds} seeds" if seeds > 1 else "1 seed, so no intervals"
    caption = (
        f"Mean over {count}" + (" with 95% bootstrap intervals" if seeds > 1 else "") + "; "
        f"{settings.steps:,} steps, γ = {settings.gamma:g}; pairs of different elements only. "
        f"revbis {__version__}"
    )
    write_csv(results, out / "probe.csv")
    overview = as_png(draw_overview(results, caption))
    write_whole(out / "probe.png", overview)
    drawn = chosen(results.methods, _DRAWN, _MOST_DRAWN)
    dots = {
        (cell.scenario, cell.method): read_dots(cell, out)
        for cell in cells
        if cell.seed == 0
        and cell.method in drawn
        and cell.scenario in results.scenarios[:_MOST_ROWS]
        and read_cell(cell, out) is not None
    }
    pictures = [overview]
    if dots:
        pictures.append(as_png(draw_dots(dots, results, "Seed 0, a sample of the pairs")))
        write_whole(out / "distances.png", pictures[1])
    page = _templates().get_template("page.html")
    text = page.render(
        results=results,
        scenarios=SCENARIOS,
        settings=settings,
        size=cells[0].size,
        seeds=seeds,
        problems=problems,
        pictures=[base64.b64encode(picture).decode() for picture in pictures],
        version=__version__,
    )
    write_whole(out / "index.html", text.encode(errors="replace"))


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("revbis.yardsticks.probe", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
