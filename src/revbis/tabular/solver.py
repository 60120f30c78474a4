"""From a metric's name to a certified result: checks, the problem, the choice of solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from revbis import checks
from revbis.system.memory import available_bytes, ensure_fits
from revbis.tabular import deterministic, linear, wasserstein
from revbis.tabular.linear import LinearProblem, Progress, Solution
from revbis.tabular.mdp import FiniteMDP, as_mdp, as_policy
from revbis.tabular.operators import Chain, mean_state_chain, state_action_chain, state_chain
from revbis.tabular.result import LINEAR, MetricResult
from revbis.tabular.wasserstein import TransportProblem

Array = NDArray[np.float64]
Problem = LinearProblem | TransportProblem

METRICS = ("revised", "mico", "pi_bisimulation", "bisimulation", "lax_bisimulation")
LEVELS = ("state", "state_action")
_WITHOUT_POLICY = ("bisimulation", "lax_bisimulation")
_LINEAR_SOLVERS = ("doubling", "jacobi", "low_rank", "in_place", "pointer_doubling")
_FEW_REWARDS = 32
_SMALL = 300  # dense doubling beats everything below this many states


class ToleranceWarning(UserWarning):
    """The certified error is larger than the tolerance that was asked for."""


def solve(
    metric: str,
    mdp: FiniteMDP,
    policy: ArrayLike | None,
    gamma: float,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    level: str = "state",
    solver: str = "auto",
    progress: Progress | None = None,
) -> MetricResult:
    """Any of the metrics by name; the arguments are those of `revised`."""
    if progress is not None and not callable(progress):
        raise ValueError(f"progress must be a function or None, got {progress!r:.80}")
    empty = blank_result(metric, mdp, policy, gamma, tol=tol, c=c, level=level)
    report = progress or (lambda iteration, bound: None)
    if isinstance(empty.c, tuple):
        if solver != "auto":
            raise ValueError("a sequence c is applied term by term: leave solver at 'auto'")
        chosen, solution = "sequence", _sequence(empty, empty.c, report)
    else:
        problem = make_problem(empty)
        chosen = checks.choice(solver, ("auto", *_usable(metric, problem)), "solver")
        if chosen == "auto":
            chosen, solution = _auto(problem, tol, report)
        else:
            solution = _run(chosen, problem, tol, report)
    if solution.error_bound > tol:
        warn(_unmet(metric, tol, chosen, solution), ToleranceWarning, stacklevel=3)
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
    """A result with everything checked and nothing solved: what to solve."""
    checks.choice(metric, METRICS, "metric")
    checks.choice(level, LEVELS, "level")
    as_mdp(mdp)
    return MetricResult(
        metric=metric,
        level=level,
        mdp=mdp,
        policy=_checked_policy(metric, mdp, policy),
        gamma=checks.discount(gamma),
        c=_coefficient(c),
        tol=checks.positive(tol, "tol"),
        error_bound=np.inf,
        iterations=0,
        solver="",
    )


def make_problem(result: MetricResult) -> Problem:
    """The fixed-point problem behind a result's metric, level, policy and weights."""
    weights = (result.reward_weight, result.discount)
    if result.metric in _WITHOUT_POLICY:
        matched = result.metric == "bisimulation"
        if result.level != "state":
            raise ValueError(f"{result.metric} is a metric on states: level must be 'state'")
        return wasserstein.mdp_problem(result.mdp, matched, *weights)
    assert result.policy is not None
    if result.level == "state_action":
        chain = state_action_chain(result.mdp, result.policy)
    elif result.metric == "revised":
        chain = state_chain(result.mdp, result.policy)
    else:
        chain = mean_state_chain(result.mdp, result.policy)
    if result.metric in LINEAR:
        return LinearProblem(chain, *weights)
    return wasserstein.chain_problem(chain, *weights)


def _coefficient(c: float | Sequence[float] | None) -> float | tuple[float, ...] | None:
    if c is None:
        return None
    if isinstance(c, float | int | str) or not isinstance(c, Sequence | np.ndarray):
        return checks.discount(c, "c")
    values = tuple(checks.discount(x, f"c[{i}]") for i, x in enumerate(c))
    if not values:
        raise ValueError("c is an empty sequence: at least one coefficient is wanted")
    return values


def _checked_policy(metric: str, mdp: FiniteMDP, policy: ArrayLike | None) -> Array | None:
    if metric in _WITHOUT_POLICY:
        return None
    if policy is None:
        raise ValueError(f"{metric} needs a policy, for instance mdp.uniform_policy()")
    checked = as_policy(mdp, policy)
    checked.setflags(write=False)
    return checked


def _usable(metric: str, problem: Problem) -> tuple[str, ...]:
    """The solvers that apply to this problem."""
    if isinstance(problem, LinearProblem):
        hidden = () if problem.chain.is_deterministic else ("pointer_doubling",)
        return tuple(s for s in _LINEAR_SOLVERS if s not in hidden)
    if not problem.is_deterministic:
        return ("policy_iteration",)
    return ("policy_iteration", "pointer_doubling" if metric == "pi_bisimulation" else "gather")


def _run(solver: str, problem: Problem, tol: float, progress: Progress) -> Solution:
    needed = _memory(solver, problem)
    ensure_fits(needed, f"the {solver} solver on {problem.n} states", _remedy(problem))
    solution: Solution | None
    if isinstance(problem, LinearProblem):
        solution = getattr(linear, solver)(problem, tol, progress)
    elif solver == "pointer_doubling":
        solution = linear.pointer_doubling(_as_linear(problem), tol, progress)
    elif solver == "gather":
        solution = deterministic.gather(problem, tol, progress)
    else:
        solution = wasserstein.policy_iteration(problem, tol, progress)
    assert solution is not None
    return solution


def _auto(problem: Problem, tol: float, progress: Progress) -> tuple[str, Solution]:
    if isinstance(problem, TransportProblem):
        if not problem.is_deterministic:
            chosen = "policy_iteration"
        else:
            chosen = "pointer_doubling" if _one_row_each(problem) else "gather"
        return chosen, _run(chosen, problem, tol, progress)
    if problem.n <= _SMALL:  # another step costs nothing and spares the reader digits of noise
        chosen = "pointer_doubling" if problem.chain.is_deterministic else "doubling"
        return chosen, _run(chosen, problem, tol / 1000, progress)
    free, seconds = available_bytes(), _guess_seconds(problem, tol)
    for solver in sorted(seconds, key=seconds.__getitem__):
        if _memory(solver, problem) > free:
            continue
        if solver != "low_rank":
            return solver, _run(solver, problem, tol, progress)
        found = linear.low_rank(problem, tol, progress, max_rank=max(128, problem.n // 8))
        if found is not None:
            return solver, found
    return "in_place", _run("in_place", problem, tol, progress)


def _sequence(empty: MetricResult, coefficients: tuple[float, ...], progress: Progress) -> Solution:
    """Applies the operator with each coefficient in turn, then certifies the last iterate."""
    ensure_fits(4 * 8 * empty.n**2, f"a sequence on {empty.n} states", "use fewer states")
    d = np.zeros((empty.n, empty.n))
    for step, c in enumerate(coefficients):
        problem = make_problem(replace(empty, c=c))
        d, _ = problem.apply(d)
        progress(step + 1, np.inf)
    applied, lost = problem.apply(d)
    bound = (float(np.abs(applied - d).max()) + lost) / (1 - problem.discount)
    return Solution(bound, len(coefficients), matrix=d)


def _memory(solver: str, problem: Problem) -> int:
    """Bytes a solver keeps at its peak, to be compared with what is free."""
    square = 8 * problem.n**2
    if isinstance(problem, TransportProblem) and solver == "policy_iteration":
        return wasserstein.memory_needed(problem)
    if isinstance(problem, TransportProblem) and solver == "gather":
        return deterministic.memory_needed(problem)
    if isinstance(problem, LinearProblem) and solver == "low_rank":
        columns = len(np.unique(problem.chain.values))
        return 8 * problem.n * (2 * max(96, 2 * columns) + 4 * columns)
    arrays = {"doubling": 4, "jacobi": 3, "in_place": 1, "pointer_doubling": 2}[solver]
    return square * arrays


def _remedy(problem: Problem) -> str:
    if isinstance(problem, LinearProblem):
        return (
            "round the rewards to a few levels, for which the low_rank solver never forms the "
            "matrix, or aggregate states first"
        )
    return "use revised or mico, whose low_rank solver never forms the matrix, or fewer states"


def _unmet(metric: str, tol: float, solver: str, solution: Solution) -> str:
    reached = f"{metric}: tolerance {tol:.1e} not met, certified error {solution.error_bound:.1e}"
    if solver == "sequence":
        return f"{reached} of the fixed point at the last c; append more terms near it"
    return f"{reached} is what {solver} reaches in double precision; ask for a tolerance above that"


def _as_linear(problem: TransportProblem) -> LinearProblem:
    """A deterministic chain has one coupling: the W1 metric is the linear one."""
    values = problem.reward[:, None]
    chain = Chain(problem.laws, values, np.ones_like(values), problem.reward_error)
    return LinearProblem(chain, 1.0, problem.discount)


def _one_row_each(problem: TransportProblem) -> bool:
    """Whether it is a chain: states that offer different single actions are not."""
    return len(problem.reward) == problem.n and bool((problem.offer == problem.offer[0]).all())


def _guess_seconds(problem: LinearProblem, tol: float) -> dict[str, float]:
    """How long each solver may take, roughly: to choose by, not to believe.

    The iterations' error shrinks like λ times the chain's second eigenvalue a step, seen here in
    how the range of a random vector shrinks. Rates are those of one core of a common machine.
    """
    n, P = problem.n, problem.chain.P
    dense, sparse = 30e9, 1e9  # operations a second in matrix products and in gathers
    x, widths = np.random.default_rng(0).random(n), []
    for _ in range(30):
        x = P @ x
        widths.append(float(np.ptp(x)))
    mixing = (widths[-1] / widths[9]) ** (1 / 20) if widths[9] > 0 else 0.0
    factor = min(max(problem.discount * mixing, 1e-3), max(problem.discount, 1e-3))
    steps = max(1.0, float(np.log(max(problem.scale, tol) / tol) / -np.log(factor)))
    seconds = {
        "doubling": 3 * np.log2(steps + 2) * 2 * n**3 / dense,
        "jacobi": steps * 4 * n * P.nnz / sparse,
    }
    if problem.chain.is_deterministic:
        seconds["pointer_doubling"] = np.log2(steps + 2) * 20 * n**2 / sparse
    columns = len(np.unique(problem.chain.values)) - 1
    if columns < _FEW_REWARDS:
        compress = 4 * n * 96**2 / 48 / dense
        seconds["low_rank"] = steps * columns * (2 * P.nnz / sparse + compress)
    return seconds
