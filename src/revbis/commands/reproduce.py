"""The paper's tables and figures from runs of this project."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import tyro

from revbis.commands.sweep import HERE, Where

if TYPE_CHECKING:
    from revbis.analysis.scores import Study

Artefact = Literal["table1", "figure-dmc", "figure-metaworld", "figure-ablation", "figure-c"]
_LOG = logging.getLogger("revbis")


def command(
    artefact: Annotated[Artefact, tyro.conf.Positional],
    *,
    scale: Literal["paper", "cpu"] = "cpu",
    out: Path = Path("runs"),
    where: Annotated[Where, tyro.conf.arg(name="")] = HERE,
    sweep: bool = True,
) -> None:
    """Makes the runs that are missing, then a table or a figure of the paper from them.

    revbis reproduce table1 --scale cpu

    Repeating the command goes on where it stopped. At scale cpu tasks, networks and budgets are
    smaller, and what comes out is labelled so; scale paper wants GPUs. revbis sweep GRID --dry-run
    tells the time: the grids are table1 (also figure-dmc), metaworld, ablation and c-curves.

    Args:
        artefact: What to make.
        scale: The paper's sizes, or those for a few cores.
        out: Folder for the runs; what is made goes to `reproduced` in it.
        where: Where runs are made.
        sweep: Make missing runs first; else take those that are there.
    """
    from revbis.analysis.scores import read_study
    from revbis.commands.sweep import run_grid
    from revbis.sweep.grid import read_grid

    recipe = _RECIPES[artefact]
    grid = read_grid(recipe.grid if scale == "paper" else f"{recipe.grid}-cpu")
    code = run_grid(grid, str(out), where) if sweep else 0
    if code > 1:  # stopped by a signal
        sys.exit(code)
    folders = [config.directory for config in grid.configs(out)]
    there = [folder for folder in folders if (folder / "config.json").exists()]
    if not there:
        raise ValueError(f"no run of {grid.preset} {recipe.grid} in {out}: leave out --no-sweep")
    if len(there) < len(folders):
        _LOG.warning("%d of %d runs are missing", len(folders) - len(there), len(folders))
    study = read_study(there)
    for problem in study.problems:
        _LOG.warning("%s", problem)
    for path in recipe.make(study, out / "reproduced", f"{artefact}-{scale}"):
        print(path)
    sys.exit(code)


def _table(study: Study, folder: Path, name: str) -> list[Path]:
    from revbis.analysis.tables import score_table
    from revbis.system.files import write_whole

    table = score_table(study, kind="final", budget=None, reported=True)
    print(table.text())
    texts = {"md": table.markdown(), "tex": table.latex(), "csv": table.csv()}
    paths = [folder / f"{name}.{kind}" for kind in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_whole(path, text.encode())
    return paths


def _figure(kind: str) -> Callable[[Study, Path, str], list[Path]]:
    def make(study: Study, folder: Path, name: str) -> list[Path]:
        from revbis.analysis import plots

        return plots.save(getattr(plots, kind)(study), folder, name)

    return make


class _Recipe(NamedTuple):
    """The grid an artefact needs, and how it is made from a study."""

    grid: str
    make: Callable[[Study, Path, str], list[Path]]


_RECIPES: dict[str, _Recipe] = {
    "table1": _Recipe("table1", _table),
    "figure-dmc": _Recipe("table1", _figure("learning_curves")),
    "figure-metaworld": _Recipe("metaworld", _figure("learning_curves")),
    "figure-ablation": _Recipe("ablation", _figure("ablation")),
    "figure-c": _Recipe("c-curves", _figure("coefficients")),
}
