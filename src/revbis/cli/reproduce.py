"""Reproduces the paper's tables and figures from runs."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import tyro

from revbis.analysis.paper import ArtefactName, Scale
from revbis.sweep.backend import HERE, Backend

_LOG = logging.getLogger("revbis")


def command(
    artefact: Annotated[ArtefactName, tyro.conf.Positional],
    *,
    scale: Scale = "cpu",
    methods: tuple[str, ...] = (),
    out: Path = Path("runs"),
    backend: Annotated[Backend, tyro.conf.arg(name="")] = HERE,
    sweep: bool = True,
) -> None:
    """Trains missing runs, then makes a table or a figure of the paper from all of them.

    revbis reproduce table1 --scale cpu

    Repeating the command resumes it. At scale cpu, tasks, networks and budgets are smaller, and the
    results say so; scale paper requires GPUs. revbis sweep GRID --dry-run projects the time; the
    grids are table1 (also for figure-dmc; at scale cpu that is cheetah-cpu), metaworld, ablation
    and c-curves, with -cpu for cpu.

    Args:
        artefact: Table or figure to make.
        scale: paper for the paper's sizes, cpu for smaller ones.
        methods: Methods, if not all of the grid's.
        out: Folder for the runs; tables and figures go to `reproduced` in it.
        backend: Where runs train.
        sweep: Train missing runs first; otherwise use those that exist.
    """
    from revbis.analysis.paper import grid_name, make_artefact
    from revbis.cli.sweep import run_and_show
    from revbis.sweep.grid import choose_grid
    from revbis.sweep.plan import make_plan

    grid, code = choose_grid(grid_name(artefact, scale), methods=methods), 0
    if sweep:
        code = run_and_show(make_plan(grid, str(out), backend))
    if code > 1:  # stopped by a signal
        sys.exit(code)
    runs = [config.directory for config in grid.configs(out)]
    result = make_artefact(artefact, scale, runs, out / "reproduced")
    for text in result.problems:
        _LOG.warning("%s", text)
    if result.text:
        print(result.text)
    for path in result.paths:
        print(path)
    sys.exit(code)
