"""The two families of metrics, linear and W1: their solvers, and which of them "auto" tries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from revbis.io.machine import available_bytes
from revbis.tabular import deterministic, linear, wasserstein
from revbis.tabular.linear import LinearProblem
from revbis.tabular.operators import Chain
from revbis.tabular.registry import FixedPointProblem, OnIteration, Solution, Solver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from revbis.tabular.wasserstein import TransportProblem

LINEAR_REMEDY = (
    "round the rewards to a few levels, for which the low_rank solver never forms the matrix, or "
    "aggregate states first"
)
TRANSPORT_REMEDY = (
    "use revised or mico, whose low_rank solver never forms the matrix, or fewer states"
)
_FEW_REWARDS = 32
_SMALL = 300  # dense doubling beats everything below this many states


def _matrices(count: int) -> Callable[[FixedPointProblem], int]:
    """Bytes of so many (n, n) arrays."""
    return lambda problem: count * 8 * problem.n**2


def _low_rank_memory(problem: LinearProblem) -> int:
    columns = len(np.unique(problem.chain.values))
    return 8 * problem.n * (2 * max(96, 2 * columns) + 4 * columns)


_DOUBLING = Solver("doubling", linear.doubling, _matrices(4))
_JACOBI = Solver("jacobi", linear.jacobi, _matrices(3))
_LOW_RANK = Solver("low_rank", linear.low_rank, _low_rank_memory)
_IN_PLACE = Solver("in_place", linear.in_place, _matrices(1))
_POINTER_DOUBLING = Solver(
    "pointer_doubling",
    linear.pointer_doubling,
    _matrices(2),
    lambda problem: problem.chain.is_deterministic,
)
LINEAR_SOLVERS = (_DOUBLING, _JACOBI, _LOW_RANK, _IN_PLACE, _POINTER_DOUBLING)


def linear_candidates(problem: LinearProblem, tol: float) -> Iterator[Solver[LinearProblem]]:
    """The fastest solver that fits into memory first; sweeps in place, which need least, last."""
    if problem.n <= _SMALL:
        yield _finer(_POINTER_DOUBLING if problem.chain.is_deterministic else _DOUBLING)
        return
    free, seconds = available_bytes(), _guess_seconds(problem, tol)
    solvers = {solver.name: solver for solver in LINEAR_SOLVERS}
    for name in sorted(seconds, key=seconds.__getitem__):
        if solvers[name].memory(problem) <= free:
            yield _giving_up() if name == "low_rank" else solvers[name]
    yield _IN_PLACE


def _finer(solver: Solver[LinearProblem]) -> Solver[LinearProblem]:
    """On small problems another step costs nothing and spares the reader digits of noise."""
    return replace(solver, run=lambda problem, tol, report: solver.run(problem, tol / 1000, report))


def _giving_up() -> Solver[LinearProblem]:
    """The low-rank solver that returns None when the rank turns out not to be low."""

    def run(problem: LinearProblem, tol: float, on_iteration: OnIteration) -> Solution | None:
        return linear.low_rank(problem, tol, on_iteration, max_rank=max(128, problem.n // 8))

    return replace(_LOW_RANK, run=run)


def _guess_seconds(problem: LinearProblem, tol: float) -> dict[str, float]:
    """A rough guess of each solver's time: good enough to choose by, not to quote.

    The iterations' error shrinks like λ times the chain's second eigenvalue a step, estimated here
    from how the range of a random vector shrinks. Rates are those of one core of a common machine.
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


def _pointer_doubling(problem: TransportProblem, tol: float, on_iteration: OnIteration) -> Solution:
    """A deterministic chain has one coupling: the W1 metric is the linear one."""
    values = problem.reward[:, None]
    chain = Chain(problem.laws, values, np.ones_like(values), problem.reward_error)
    return linear.pointer_doubling(LinearProblem(chain, 1.0, problem.discount), tol, on_iteration)


POLICY_ITERATION = Solver(
    "policy_iteration", wasserstein.policy_iteration, wasserstein.memory_needed
)
CHAIN_DOUBLING = Solver(
    "pointer_doubling", _pointer_doubling, _matrices(2), lambda problem: problem.is_deterministic
)
GATHER = replace(
    CHAIN_DOUBLING, name="gather", run=deterministic.gather, memory=deterministic.gather_memory
)


def transport_candidates(
    problem: TransportProblem,
    tol: float,  # noqa: ARG001
) -> Iterator[Solver[TransportProblem]]:
    """Transport problems are solved only where a row has more than one successor."""
    # A chain has one row for each state, and no states that offer different single actions.
    is_chain = len(problem.reward) == problem.n and np.ptp(problem.action_set) == 0
    if not problem.is_deterministic:
        yield POLICY_ITERATION
    else:
        yield CHAIN_DOUBLING if is_chain else GATHER
