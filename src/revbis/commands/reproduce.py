"""The paper's tables and figures from runs of this project."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import tyro

from revbis.analysis.artefacts import ArtefactName, Scale
from revbis.sweep.where import HERE, Where

_LOG = logging.getLogger("revbis")


def command(
    artefact: Annotated[ArtefactName, tyro.conf.Positional],
    *,
    scale: Scale = "cpu",
    out: Path = Path("runs"),
    where: Annotated[Where, tyro.conf.arg(name="")] = HERE,
    sweep: bool = True,
) -> None:
    """Trains the runs that are missing, then makes a table or a figure of the paper from them.

    revbis reproduce table1 --scale cpu

    Repeating the command resumes it. At scale cpu tasks, networks and budgets are smaller, and the
    results are labelled so; scale paper needs GPUs. revbis sweep GRID --dry-run projects the time:
    the grids are table1 (also figure-dmc), metaworld, ablation and c-curves, for cpu with -cpu.

    Args:
        artefact: What to make.
        scale: The paper's sizes, or those for a few cores.
        out: Folder for the runs; tables and figures go to `reproduced` in it.
        where: Where runs train.
        sweep: Train missing runs first; otherwise use those that exist.
    """
    from revbis.analysis.artefacts import grid_name, make_artefact
    from revbis.commands.sweep import run_and_show
    from revbis.sweep.grid import read_grid
    from revbis.sweep.plan import make_plan

    grid, code = read_grid(grid_name(artefact, scale)), 0
    if sweep:
        code = run_and_show(make_plan(grid, str(out), where))
    if code > 1:  # stopped by a signal
        sys.exit(code)
    runs = [config.directory for config in grid.configs(out)]
    made = make_artefact(artefact, scale, runs, out / "reproduced")
    for text in made.problems:
        _LOG.warning("%s", text)
    if made.text:
        print(made.text)
    for path in made.paths:
        print(path)
    sys.exit(code)
