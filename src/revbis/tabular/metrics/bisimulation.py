"""The bisimulation metric."""

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


def _problem(result: MetricResult) -> TransportProblem:
    return mdp_problem(result.mdp, True, result.reward_weight, result.discount)


def _pinned(mdp: FiniteMDP) -> bool:
    """Pairs of states with different available actions stay at the largest distance."""
    return not mdp.available.all()


METRIC = Metric(
    "bisimulation",
    _problem,
    (POLICY_ITERATION, GATHER),
    transport_candidates,
    levels=("state",),
    needs_policy=False,
    pinned=_pinned,
    remedy=TRANSPORT_REMEDY,
)
