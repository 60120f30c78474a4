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
    tasks: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    out: Path = Path("runs"),
    backend: Annotated[Backend, tyro.conf.arg(name="")] = HERE,
    sweep: bool = True,
    dry_run: bool = False,
) -> None:
    """Trains missing runs, then makes a table or a figure of the paper from all of them.

    revbis reproduce table1 --scale cpu

    Repeating the command resumes it. At scale cpu, tasks, networks and budgets are smaller, and the
    results say so; scale paper requires GPUs. The runs are those of revbis sweep GRID; the grids
    are table1 (also for figure-dmc; at scale cpu that is cheetah-cpu), metaworld, ablation and
    c-curves, with -cpu for cpu.

    Args:
        artefact: Table or figure to make.
        scale: paper for the paper's sizes, cpu for smaller ones.
        tasks: Tasks, if not all of the grid's.
        methods: Methods, if not all of the grid's.
        seeds: Seeds, if not those of the grid.
        out: Folder for the runs; tables and figures go to `reproduced` in it.
        backend: Where runs train.
        sweep: Train missing runs first; otherwise use those that exist.
        dry_run: Print the runs, their folders, and the projected time, memory and disk space.
    """
    from revbis.analysis.paper import grid_name, make_artefact
    from revbis.cli.sweep import print_plan, run_and_show
    from revbis.sweep.grid import choose_grid
    from revbis.sweep.plan import make_plan

    name, code = grid_name(artefact, scale), 0
    grid = choose_grid(name, tasks=tasks, methods=methods, seeds=seeds)
    if dry_run:
        print_plan(make_plan(grid, str(out), backend), measure=None)
        return
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
