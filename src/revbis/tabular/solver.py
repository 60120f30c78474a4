"""From a metric's name to a certified result: checks, the problem, the choice of solver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from revbis.io import schema
from revbis.io.machine import ensure_fits
from revbis.tabular.mdp import FiniteMDP, as_mdp, as_policy
from revbis.tabular.registry import (
    LEVELS,
    METRICS,
    Metric,
    OnIteration,
    P,
    Problem,
    Solution,
    Solver,
    find_metric,
)
from revbis.tabular.result import MetricResult

Array = NDArray[np.float64]


class ToleranceWarning(UserWarning):
    """The certified error is larger than the requested tolerance."""


def solve(
    metric: str,
    mdp: FiniteMDP,
    policy: ArrayLike | None,
    gamma: float,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    level: str = "state",
    solver: str = "auto",
    progress: OnIteration | None = None,
) -> MetricResult:
    """Any of the metrics by name; the arguments are those of `revised`."""
    if progress is not None and not callable(progress):
        raise ValueError(f"progress must be a function or None, got {progress!r:.80}")
    empty = blank_result(metric, mdp, policy, gamma, tol=tol, c=c, level=level)
    on_iteration = progress or (lambda *_: None)
    if isinstance(empty.c, tuple):
        if solver != "auto":
            raise ValueError("a sequence c is applied term by term: leave solver at 'auto'")
        chosen, solution = "sequence", _sequence(empty, empty.c, on_iteration)
    else:
        record, problem = find_metric(metric), make_problem(empty)
        chosen, solution = _run(record, problem, empty.tol, solver, on_iteration)
    if solution.error_bound > empty.tol:
        warn(_unmet(metric, empty.tol, chosen, solution), ToleranceWarning, stacklevel=3)
    matrix = solution.matrix
    if matrix is not None:
        matrix.setflags(write=False)
    return replace(
        empty,
        error_bound=solution.error_bound,
        iterations=solution.iterations,
        solver=chosen,
        _matrix=matrix,
        _factors=solution.factors,
    )


def blank_result(
    metric: str,
    mdp: FiniteMDP,
    policy: ArrayLike | None,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    level: str = "state",
) -> MetricResult:
    """A result that is checked and not yet solved."""
    record = find_metric(metric)
    schema.choice(level, LEVELS, "level")
    if level not in record.levels:
        rows = "states" if record.levels == ("state",) else "state-action pairs"
        raise ValueError(f"{metric} is a metric on {rows}: level must be {record.levels[0]!r}")
    if c is not None and not record.weighted:
        raise ValueError(f"{metric} has no weighted form: leave out c")
    as_mdp(mdp)
    return MetricResult(
        metric=metric,
        level=level,
        mdp=mdp,
        policy=_checked_policy(record, mdp, policy),
        gamma=schema.discount(gamma),
        c=_coefficient(c),
        tol=schema.positive(tol, "tol"),
        error_bound=np.inf,
        iterations=0,
        solver="",
    )


def make_problem(result: MetricResult) -> Problem:
    """The fixed-point problem behind a result's metric, level, policy and weights."""
    problem: Problem = find_metric(result.metric).problem(result)
    return problem


def _coefficient(c: float | Sequence[float] | None) -> float | tuple[float, ...] | None:
    if c is None:
        return None
    if isinstance(c, float | int | str) or not isinstance(c, Sequence | np.ndarray):
        return schema.discount(c, "c")
    values = tuple(schema.discount(x, f"c[{i}]") for i, x in enumerate(c))
    if not values:
        raise ValueError("c is an empty sequence: give at least one coefficient")
    return values


def _checked_policy(metric: Metric[Any], mdp: FiniteMDP, policy: ArrayLike | None) -> Array | None:
    if not metric.needs_policy:
        return None
    if policy is None:
        raise ValueError(f"{metric.name} needs a policy, for instance mdp.uniform_policy()")
    checked = as_policy(mdp, policy)
    checked.setflags(write=False)
    return checked


def _chosen(metric: Metric[P], problem: P, tol: float, solver: str) -> Iterable[Solver[P]]:
    """The solver of that name, or the candidates for "auto"."""
    usable = {each.name: each for each in metric.usable(problem)}
    schema.choice(solver, ("auto", *usable), "solver")
    if solver != "auto":
        return [usable[solver]]
    return metric.candidates(problem, tol) if metric.candidates else usable.values()


def _run(
    metric: Metric[P], problem: P, tol: float, solver: str, on_iteration: OnIteration
) -> tuple[str, Solution]:
    for each in _chosen(metric, problem, tol, solver):
        what = f"the {each.name} solver on {problem.n} states"
        ensure_fits(each.memory(problem), what, metric.remedy)
        solution = each.run(problem, tol, on_iteration)
        if solution is not None:
            return each.name, solution
    raise ValueError(f"{metric.name} has no solver that can solve this problem")


def _sequence(
    empty: MetricResult, coefficients: tuple[float, ...], on_iteration: OnIteration
) -> Solution:
    """Applies the operator with each coefficient in turn, then certifies the last iterate."""
    ensure_fits(4 * 8 * empty.n**2, f"a sequence on {empty.n} states", "use fewer states")
    d = np.zeros((empty.n, empty.n))
    for step, c in enumerate(coefficients):
        problem = make_problem(replace(empty, c=c))
        d, _ = problem.apply(d)
        on_iteration(step + 1, np.inf)
    applied, roundoff = problem.apply(d)
    bound = (float(np.abs(applied - d).max()) + roundoff) / (1 - problem.discount)
    return Solution(bound, len(coefficients), matrix=d)


def _memory(solver: str, problem: Problem) -> int:
    """Bytes that the solver of that name needs at its peak; a benchmark extrapolates them."""
    solvers = {each.name: each for metric in METRICS.values() for each in metric.solvers}
    return solvers[solver].memory(problem)


def _unmet(metric: str, tol: float, solver: str, solution: Solution) -> str:
    reached = f"{metric}: tolerance {tol:.1e} not met, certified error {solution.error_bound:.1e}"
    if solver == "sequence":
        return f"{reached} of the fixed point at the last c; append more terms near it"
    return f"{reached} is what {solver} reaches in double precision; pass a larger tol"
