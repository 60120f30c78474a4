"""The exact metrics: for each a function for users and its record.

`revised` documents the arguments that all of them share.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from revbis.tabular.families import (
    CHAIN_DOUBLING,
    GATHER,
    LINEAR_REMEDY,
    LINEAR_SOLVERS,
    POLICY_ITERATION,
    TRANSPORT_REMEDY,
    linear_candidates,
    transport_candidates,
)
from revbis.tabular.linear import LinearProblem, reward_range
from revbis.tabular.operators import mean_state_chain, state_action_chain, state_chain
from revbis.tabular.registry import Metric, OnIteration
from revbis.tabular.solver import solve
from revbis.tabular.wasserstein import chain_problem, mdp_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.operators import Array, Chain
    from revbis.tabular.result import MetricResult, Query


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


def _of_chain(
    query: Query, of_states: Callable[[FiniteMDP, Array], Chain]
) -> tuple[Chain, float, float]:
    """The chain of a metric of a policy, and the weights of its two terms."""
    assert query.policy is not None
    make_chain = of_states if query.level == "state" else state_action_chain
    return make_chain(query.mdp, query.policy), query.reward_weight, query.discount


REVISED = Metric(
    "revised",
    lambda query: LinearProblem(*_of_chain(query, state_chain)),
    LINEAR_SOLVERS,
    linear_candidates,
    reward_range=reward_range,
    remedy=LINEAR_REMEDY,
)


def mico(
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
    r"""The MICo distance (Castro et al. 2021); arguments as for `revised`.

    .. math:: U(s,t) = |r_π(s) − r_π(t)| + γ E\,U(s',t'), \quad s' \sim P_π(s), t' \sim P_π(t)

    Between state-action pairs it is the revised metric's G.
    """
    return solve("mico", mdp, policy, gamma, tol, c, level, solver, progress)


MICO = replace(
    REVISED, name="mico", problem=lambda query: LinearProblem(*_of_chain(query, mean_state_chain))
)


def pi_bisimulation(
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
    r"""The π-bisimulation metric (Castro 2020, Eq. 1); arguments as for `revised`.

    .. math:: d(s,t) = |r_π(s) − r_π(t)| + γ W_1(d)(P_π(s), P_π(t))

    Solvers: policy_iteration, and pointer_doubling where everything is deterministic.
    """
    return solve("pi_bisimulation", mdp, policy, gamma, tol, c, level, solver, progress)


PI_BISIMULATION = Metric(
    "pi_bisimulation",
    lambda query: chain_problem(*_of_chain(query, mean_state_chain)),
    (POLICY_ITERATION, CHAIN_DOUBLING),
    transport_candidates,
    remedy=TRANSPORT_REMEDY,
)


def bisimulation(
    mdp: FiniteMDP,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    solver: str = "auto",
    progress: OnIteration | None = None,
) -> MetricResult:
    r"""The bisimulation metric (Ferns et al. 2004); other arguments as for `revised`.

    .. math:: d(s,t) = \max_a [\,|r(s,a) − r(t,a)| + γ W_1(d)(P(s,a), P(t,a))]

    States with different available actions are at the largest distance there can be:
    range(R)/(1−γ). Solvers: policy_iteration, and gather for deterministic transitions.
    """
    return solve("bisimulation", mdp, None, gamma, tol, c, "state", solver, progress)


BISIMULATION = Metric(
    "bisimulation",
    lambda query: mdp_problem(query.mdp, True, query.reward_weight, query.discount),
    (POLICY_ITERATION, GATHER),
    transport_candidates,
    levels=("state",),
    needs_policy=False,
    # Pairs of states with different available actions stay at the largest distance.
    pinned=lambda mdp: not mdp.available.all(),
    remedy=TRANSPORT_REMEDY,
)


def lax_bisimulation(
    mdp: FiniteMDP,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    solver: str = "auto",
    progress: OnIteration | None = None,
) -> MetricResult:
    r"""The lax bisimulation metric (Taylor et al. 2008): an action may be matched to any other.

    .. math:: d(s,t) = \max\{\max_a \min_b δ((s,a),(t,b)), \max_b \min_a δ((s,a),(t,b))\}, \quad
              δ((s,a),(t,b)) = |r(s,a) − r(t,b)| + γ W_1(d)(P(s,a), P(t,b))

    Other arguments as for `bisimulation`.
    """
    return solve("lax_bisimulation", mdp, None, gamma, tol, c, "state", solver, progress)


LAX_BISIMULATION = Metric(
    "lax_bisimulation",
    lambda query: mdp_problem(query.mdp, False, query.reward_weight, query.discount),
    (POLICY_ITERATION, GATHER),
    transport_candidates,
    levels=("state",),
    needs_policy=False,
    unmergeable=(
        "lax bisimulation matches different actions to each other, so its classes have no common "
        "actions; use bisimulation, or a metric of a policy"
    ),
    remedy=TRANSPORT_REMEDY,
)
