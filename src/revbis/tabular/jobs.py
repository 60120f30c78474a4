"""What `revbis tabular` does, apart from reading flags and printing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from revbis import checks
from revbis.tabular.registry import ALL, METRICS, OnIteration
from revbis.tabular.solver import solve

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.result import MetricResult
    from revbis.tabular.settings import SolveSettings

ShowProgress = Callable[[str, float], AbstractContextManager[OnIteration]]
"""Called as show_progress(metric, tol) around a solver; yields what the solver calls."""


class Solved(NamedTuple):
    """A solved metric and the seconds it took."""

    result: MetricResult
    seconds: float


def chosen_metrics(name: str, level: str = "state", *, mergeable: bool = False) -> list[str]:
    """The metrics that a name stands for: one, or all that have the level.

    Args:
        name: A metric, or "all".
        level: "state" or "state_action".
        mergeable: Whether only those count whose states can be aggregated.

    Raises:
        ValueError: For an unknown name, and for one metric whose states cannot be aggregated.
    """
    checks.choice(name, (*METRICS, ALL), "metric")
    if name != ALL:
        if mergeable and METRICS[name].unmergeable:
            raise ValueError(METRICS[name].unmergeable)
        return [name]
    records = [METRICS[each] for each in METRICS if level in METRICS[each].levels]
    return [each.name for each in records if not (mergeable and each.unmergeable)]


def solve_each(
    names: list[str],
    mdp: FiniteMDP,
    policy: NDArray[np.float64],
    settings: SolveSettings,
    show_progress: ShowProgress,
    level: str = "state",
) -> Iterator[Solved]:
    """Solves metrics one by one, as they are asked for."""
    for name in names:
        start = time.perf_counter()
        with show_progress(name, settings.tol) as on_iteration:
            result = solve(
                *(name, mdp, policy, settings.gamma, settings.tol, settings.c),
                level=level,
                solver=settings.solver,
                progress=on_iteration,
            )
        yield Solved(result, time.perf_counter() - start)


def check_origin(mdp: FiniteMDP, origin: int) -> None:
    """Refuses a state that the MDP does not have."""
    if not 0 <= origin < mdp.n_states:
        raise ValueError(f"--origin must be a state, 0 to {mdp.n_states - 1}, got {origin}")
