"""The MICo distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from revbis.tabular.families import LINEAR_REMEDY, LINEAR_SOLVERS, linear_candidates
from revbis.tabular.linear import LinearProblem, reward_range
from revbis.tabular.operators import mean_state_chain, state_action_chain
from revbis.tabular.registry import Metric, OnIteration
from revbis.tabular.solver import solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.result import MetricResult


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


def _problem(result: MetricResult) -> LinearProblem:
    assert result.policy is not None
    make_chain = mean_state_chain if result.level == "state" else state_action_chain
    chain = make_chain(result.mdp, result.policy)
    return LinearProblem(chain, result.reward_weight, result.discount)


METRIC = Metric(
    "mico",
    _problem,
    LINEAR_SOLVERS,
    linear_candidates,
    reward_range=reward_range,
    remedy=LINEAR_REMEDY,
)
