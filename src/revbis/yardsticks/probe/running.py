"""Which cells there are, and running them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from revbis.yardsticks.probe.cells import Cell, run_cell
from revbis.yardsticks.probe.scenarios import SCENARIOS, build
from revbis.yardsticks.probe.training import ProbeSettings, make
from revbis.yardsticks.workers import run_all, usable_cores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from revbis.yardsticks.workers import Show, Steps

__all__ = ["plan", "run_cells", "usable_cores"]

_NOISY = 1.5  # how much longer a step takes with noisy pixels, and with ψ or a tie
_WITH_PSI = 0.3
_WITH_POLICY = 0.2


def plan(
    scenarios: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    size: int,
    settings: ProbeSettings,
) -> dict[Cell, float]:
    """The cells, seed by seed, the longest of each first, and how much work each is.

    Raises:
        ValueError: For an objective or a grid that cannot be made, before time is spent on others.
    """
    problems = {name: build(name, size, settings.gamma) for name in scenarios}
    cost = {}
    for method in dict.fromkeys(methods):
        for actions in {problem.mdp.n_actions for problem in problems.values()}:
            objective = make(method, actions, settings)
        psi = _WITH_PSI * (objective.compares == "state_action")
        cost[method] = 1 + psi + _WITH_POLICY * len(objective.policy_actions)
    cells = {
        Cell(scenario, method, seed, size, settings): settings.steps
        * cost[method]
        * (_NOISY if SCENARIOS[scenario].pixels == "noisy" else 1.0)
        for scenario in problems
        for method in cost
        for seed in range(seeds)
    }
    return dict(sorted(cells.items(), key=lambda item: (item[0].seed, -item[1])))


def run_cells(cells: Mapping[Cell, float], out: Path, workers: int, show: Show) -> dict[Cell, str]:
    """Runs cells in turn, as `revbis.yardsticks.workers.run_all` does.

    Args:
        cells: The cells that have no result yet, and how much work each is.
        out: Folder for the results.
        workers: Number of processes.
        show: Called now and then with a text and with how much of the work is done.

    Returns:
        The cells that failed, and why.

    Raises:
        ValueError: If a worker ended without a word.
    """
    return run_all(cells, partial(_run, out), workers, show)


def _run(out: Path, cell: Cell, progress: Steps) -> None:
    run_cell(cell, out, progress)
