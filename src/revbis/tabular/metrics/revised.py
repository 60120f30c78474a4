"""The revised bisimulation metric. Its function documents the arguments that all metrics share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from revbis.tabular.families import LINEAR_REMEDY, LINEAR_SOLVERS, linear_candidates
from revbis.tabular.linear import LinearProblem, reward_range
from revbis.tabular.operators import state_action_chain, state_chain
from revbis.tabular.registry import Metric, OnIteration
from revbis.tabular.solver import solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.result import MetricResult


def revised(
    mdp: FiniteMDP,
    policy: ArrayLike,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    level: str = "state",
    solver: str = "auto",
    progress: OnIteration | None = None,
) -> MetricResult:
    r"""The revised bisimulation metric (Eq. 2–3; Eq. 9 with `c`).

    .. math:: U(s,t) = E_{a \sim π(s), b \sim π(t)}\, G((s,a),(t,b)), \quad
              G((s,a),(t,b)) = |r(s,a) − r(t,b)| + γ E\,U(s',t')

    Args:
        mdp: The MDP.
        policy: (S, A) probabilities, or (S,) integers: one action for each state.
        gamma: Discount in [0, 1).
        tol: Target error in sup norm.
        c: Weighted form: weights (1−c) on the reward gap and c on the next-state term instead of
            (1, γ). A sequence c_1, …, c_N applies the operator with each coefficient in turn,
            starting from 0; `error_bound` is then the certified distance of the last iterate from
            the fixed point at c_N. It tends to 0 if c_n converges below 1. Steps that shrink do
            not suffice: a sequence that keeps wandering has no limit, only a bounded distance.
        level: "state" for U, "state_action" for G on the available pairs (`mdp.state_actions`).
        solver: "auto", or one of doubling, jacobi, low_rank, in_place, pointer_doubling.
        progress: Called as progress(iteration, error_bound) while the solver runs.

    Returns:
        A `MetricResult` with a certified `error_bound`.

    Raises:
        ValueError: For invalid arguments.
        MemoryError: When no solver fits into memory; raised before anything is allocated.

    Warns:
        ToleranceWarning: When `tol` cannot be met; states the bound reached and a remedy.

    Example:
        >>> from revbis.tabular import examples
        >>> mdp, policy = examples.toy()
        >>> result = revised(mdp, policy, gamma=0.5)
        >>> result.matrix().round(4)
        array([[0.7619, 0.7619, 0.6667],
               [0.7619, 0.7619, 0.6667],
               [0.6667, 0.6667, 0.    ]])
    """
    return solve("revised", mdp, policy, gamma, tol, c, level, solver, progress)


def _problem(result: MetricResult) -> LinearProblem:
    assert result.policy is not None
    make_chain = state_chain if result.level == "state" else state_action_chain
    chain = make_chain(result.mdp, result.policy)
    return LinearProblem(chain, result.reward_weight, result.discount)


METRIC = Metric(
    "revised",
    _problem,
    LINEAR_SOLVERS,
    linear_candidates,
    reward_range=reward_range,
    remedy=LINEAR_REMEDY,
)
