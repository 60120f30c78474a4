"""The π-bisimulation metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from revbis.tabular.families import (
    CHAIN_DOUBLING,
    POLICY_ITERATION,
    TRANSPORT_REMEDY,
    transport_candidates,
)
from revbis.tabular.operators import mean_state_chain, state_action_chain
from revbis.tabular.registry import Metric, OnIteration
from revbis.tabular.solver import solve
from revbis.tabular.wasserstein import TransportProblem, chain_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.result import MetricResult


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


def _problem(result: MetricResult) -> TransportProblem:
    assert result.policy is not None
    make_chain = mean_state_chain if result.level == "state" else state_action_chain
    chain = make_chain(result.mdp, result.policy)
    return chain_problem(chain, result.reward_weight, result.discount)


METRIC = Metric(
    "pi_bisimulation",
    _problem,
    (POLICY_ITERATION, CHAIN_DOUBLING),
    transport_candidates,
    remedy=TRANSPORT_REMEDY,
)
