"""The lax bisimulation metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from revbis.tabular.families import (
    GATHER,
    POLICY_ITERATION,
    TRANSPORT_REMEDY,
    transport_candidates,
)
from revbis.tabular.registry import Metric, OnIteration
from revbis.tabular.solver import solve
from revbis.tabular.wasserstein import TransportProblem, mdp_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.result import MetricResult


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


def _problem(result: MetricResult) -> TransportProblem:
    return mdp_problem(result.mdp, False, result.reward_weight, result.discount)


METRIC = Metric(
    "lax_bisimulation",
    _problem,
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
