"""From a metric's name to a certified result: checks, the problem, the choice of solver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from warnings import warn

import numpy as np

from revbis.io import schema
from revbis.io.machine import ensure_fits
from revbis.tabular.mdp import FiniteMDP, as_mdp, as_policy
from revbis.tabular.registry import (
    LEVELS,
    FixedPointProblem,
    Metric,
    OnIteration,
    P,
    Solution,
    Solver,
    find_metric,
)
from revbis.tabular.result import MetricResult, Query

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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
    query = make_query(metric, mdp, policy, gamma, tol=tol, c=c, level=level)
    on_iteration = progress or (lambda *_: None)
    if isinstance(query.c, tuple):
        if solver != "auto":
            raise ValueError("a sequence c is applied term by term: leave solver at 'auto'")
        chosen, solution = "sequence", _sequence(query, query.c, on_iteration)
    else:
        record, problem = find_metric(metric), make_problem(query)
        chosen, solution = _run(record, problem, query.tol, solver, on_iteration)
    if solution.error_bound > query.tol:
        warn(_unmet(metric, query.tol, chosen, solution), ToleranceWarning, stacklevel=3)
    if solution.matrix is not None:
        solution.matrix.setflags(write=False)
    return MetricResult(
        **vars(query),
        error_bound=solution.error_bound,
        iterations=solution.iterations,
        solver=chosen,
        _matrix=solution.matrix,
        _factors=solution.factors,
    )


def make_query(
    metric: str,
    mdp: FiniteMDP,
    policy: ArrayLike | None,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    level: str = "state",
) -> Query:
    """The metric that these arguments ask for; they are those of `revised`.

    Raises:
        ValueError: For invalid arguments.
    """
    record = find_metric(metric)
    schema.choice(level, LEVELS, "level")
    if level not in record.levels:
        rows = "states" if record.levels == ("state",) else "state-action pairs"
        raise ValueError(f"{metric} is a metric on {rows}: level must be {record.levels[0]!r}")
    if c is not None and not record.weighted:
        raise ValueError(f"{metric} has no weighted form: leave out c")
    as_mdp(mdp)
    checked = None
    if record.needs_policy:
        if policy is None:
            raise ValueError(f"{metric} needs a policy, for instance mdp.uniform_policy()")
        checked = as_policy(mdp, policy)
        checked.setflags(write=False)
    return Query(
        metric=metric,
        level=level,
        mdp=mdp,
        policy=checked,
        gamma=schema.discount(gamma),
        c=_coefficient(c),
        tol=schema.positive(tol, "tol"),
    )


def _coefficient(c: float | Sequence[float] | None) -> float | tuple[float, ...] | None:
    if c is None:
        return None
    if isinstance(c, float | int | str) or not isinstance(c, Sequence | np.ndarray):
        return schema.discount(c, "c")
    values = tuple(schema.discount(x, f"c[{i}]") for i, x in enumerate(c))
    if not values:
        raise ValueError("c is an empty sequence: give at least one coefficient")
    return values


def make_problem(query: Query) -> FixedPointProblem:
    """The fixed-point problem of a metric; a result repeats the query that it answers."""
    problem: FixedPointProblem = find_metric(query.metric).problem(query)
    return problem


def _run(
    metric: Metric[P], problem: P, tol: float, solver: str, on_iteration: OnIteration
) -> tuple[str, Solution]:
    """The solution by the solver of that name, or by the candidates for "auto"."""
    usable = {each.name: each for each in metric.solvers if each.applies(problem)}
    schema.choice(solver, ("auto", *usable), "solver")
    solvers: Iterable[Solver[P]] = usable.values()
    if solver != "auto":
        solvers = [usable[solver]]
    elif metric.candidates:
        solvers = metric.candidates(problem, tol)
    for each in solvers:
        what = f"the {each.name} solver on {problem.n} states"
        ensure_fits(each.memory(problem), what, metric.remedy)
        solution = each.run(problem, tol, on_iteration)
        if solution is not None:
            return each.name, solution
    raise ValueError(f"{metric.name} has no solver that can solve this problem")


def _sequence(query: Query, coefficients: tuple[float, ...], on_iteration: OnIteration) -> Solution:
    """Applies the operator with each coefficient in turn, then certifies the last iterate."""
    ensure_fits(4 * 8 * query.n**2, f"a sequence on {query.n} states", "use fewer states")
    d = np.zeros((query.n, query.n))
    for step, c in enumerate(coefficients):
        problem = make_problem(replace(query, c=c))
        d, _ = problem.apply(d)
        on_iteration(step + 1, np.inf)
    applied, roundoff = problem.apply(d)
    bound = (float(np.abs(applied - d).max()) + roundoff) / (1 - problem.discount)
    return Solution(bound, len(coefficients), matrix=d)


def _unmet(metric: str, tol: float, solver: str, solution: Solution) -> str:
    reached = f"{metric}: tolerance {tol:.1e} not met, certified error {solution.error_bound:.1e}"
    if solver == "sequence":
        return f"{reached} of the fixed point at the last c; append more terms near it"
    return f"{reached} is what {solver} reaches in double precision; pass a larger tol"
