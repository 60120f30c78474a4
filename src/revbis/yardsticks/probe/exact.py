"""The exact side: distances and values of a problem, solved once and kept."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from revbis.tabular import FiniteMDP, action_value, policy_value, solve
from revbis.tabular.operators import (
    independent_coupling,
    reward_gap,
    state_action_distance,
    target,
)

if TYPE_CHECKING:
    from revbis.yardsticks.probe.problem import Array, Problem

Whose = Literal["target", "behaviour"]


@lru_cache(maxsize=8)  # the methods of a scenario share theirs, unless c is learned
def exact_distances(
    problem: Problem, whose: Whose, metric: str, level: str, gamma: float, c: float | None
) -> Array:
    """The exact metric of one of the problem's policies, (n, n).

    Only the revised metric sees the laws of random rewards, by E|r − r'|; the others are defined
    on mean rewards.

    Args:
        problem: The MDP and its policies.
        whose: The policy.
        metric: One of `revbis.tabular.METRICS`.
        level: "state", or "state_action" for the available pairs.
        gamma: Discount factor.
        c: Weights (1−c, c) instead of (1, γ), unless None.
    """
    policy = getattr(problem, whose)
    if level == "state_action" and metric in ("revised", "mico"):  # MICo's G is the revised one
        U = exact_distances(problem, whose, "revised", "state", gamma, c)
        return _between_pairs(problem, U, *((1.0, gamma) if c is None else (1 - c, c)))
    mdp = problem.mdp
    if metric == "revised" and problem.outcomes is not None:
        count = problem.outcomes.shape[2]
        mdp = _outcomes_as_actions(mdp, problem.outcomes)
        policy = np.repeat(policy, count, axis=1) / count
    return solve(metric, mdp, policy, gamma, c=c, level=level).matrix()


@cache
def value_gaps(problem: Problem, whose: Whose, level: str, gamma: float) -> Array:
    """|V(s) − V(t)| of a policy, or |Q(x) − Q(y)| between state-action pairs, (n, n)."""
    value = policy_value(problem.mdp, getattr(problem, whose), gamma)
    if level == "state_action":
        value = action_value(problem.mdp, value, gamma)[problem.mdp.available]
    return np.abs(value[:, None] - value)


def _between_pairs(problem: Problem, U: Array, reward_weight: float, discount: float) -> Array:
    """G from U: Eq. 3, with the laws of random rewards."""
    if problem.outcomes is None:
        return state_action_distance(problem.mdp, U, reward_weight, discount)
    mdp = problem.mdp
    states, actions = mdp.state_actions.T
    laws = problem.outcomes[states, actions]
    gap = reward_gap(laws, np.full_like(laws, 1 / laws.shape[1]))
    following = independent_coupling(mdp.transitions[states * mdp.n_actions + actions], U)
    return target(gap, following, reward_weight, discount)


def _outcomes_as_actions(mdp: FiniteMDP, outcomes: Array) -> FiniteMDP:
    """The same MDP where each outcome of an action is an action of its own: rewards are fixed."""
    n, m, k = outcomes.shape
    rows = [mdp.transitions[np.arange(n) * m + a] for a in range(m)]
    mask = np.repeat(mdp.available, k, axis=1)
    return FiniteMDP([row for row in rows for _ in range(k)], outcomes.reshape(n, m * k), mask=mask)
