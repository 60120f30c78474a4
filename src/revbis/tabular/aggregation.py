"""Aggregating states that a metric shows to be close, with a certified value loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from revbis.io import schema
from revbis.tabular.bounds import ValueGapBound, value_gap_bound
from revbis.tabular.mdp import FiniteMDP
from revbis.tabular.registry import find_metric
from revbis.tabular.result import MetricResult, as_result
from revbis.tabular.values import bounded_value, optimal_policy, policy_value

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Aggregation:
    """A partition of the states and the MDP on its classes.

    Attributes:
        labels: Class of each state, (S,).
        representatives: The state that each class is built around, (C,).
        mdp: The MDP on the classes; members of a class have equal weight.
        policy: The policy on the classes, (C, A), or None for the optimal one.
        value_loss_bound: |V(s) − V̄(class of s)| is at most this everywhere, where V̄ is the value
            of `policy` in `mdp` (of the optimal policy when there is none).
    """

    labels: Index
    representatives: Index
    mdp: FiniteMDP
    policy: Array | None
    value_loss_bound: float

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return len(self.representatives)


def aggregate(result: MetricResult, eps: float) -> Aggregation:
    r"""Merges states whose values are within eps of a representative's, by the metric's bound.

    Each class is a representative and the remaining states whose value-gap bound b to it is at most
    eps, up to the metric's own error. The loss is certified by
    \(\max_s \frac{1}{|C(s)|} Σ_{t ∈ C(s)} b(s,t) / (1−γ)\).

    Args:
        result: A metric on states, other than lax bisimulation: its classes share no actions.
        eps: Largest value gap to a representative, at least 0.
    """
    as_result(result)
    if result.level != "state":
        raise ValueError("aggregate merges states: solve the metric with level='state'")
    if reason := find_metric(result.metric).unmergeable:
        raise ValueError(reason)
    eps = check_eps(eps)
    bound = value_gap_bound(result)
    action_sets = np.zeros(result.n, dtype=np.int64)
    if result.policy is None:  # only states with the same available actions can share a class
        action_sets = np.unique(result.mdp.available, axis=0, return_inverse=True)[1].ravel()
    labels, representatives = _partition(bound, eps, action_sets)
    mdp, policy = _aggregated(result, labels, len(representatives))
    loss = _largest_mean_gap(bound, labels) / (1 - result.gamma)
    return Aggregation(labels, representatives, mdp, policy, loss)


def check_eps(eps: float) -> float:
    """A number that is not negative."""
    eps = schema.number(eps, "eps")
    if not eps >= 0:
        raise ValueError(f"eps must be at least 0, got {eps:g}")
    return eps


def class_value(merged: Aggregation, gamma: float) -> Array:
    """V̄, the value of each class, (C,): of its policy, or the optimal one if it has none."""
    if merged.policy is None:
        return optimal_policy(merged.mdp, gamma)[0]
    return policy_value(merged.mdp, merged.policy, gamma)


def value_loss(result: MetricResult, merged: Aggregation) -> Array:
    """|V(s) − V̄(class of s)|, (S,): what `value_loss_bound` bounds."""
    value = bounded_value(result, result.gamma)
    return np.abs(value - class_value(merged, result.gamma)[merged.labels])


def _partition(bound: ValueGapBound, eps: float, action_sets: Index) -> tuple[Index, Index]:
    n = len(action_sets)
    labels = np.full(n, -1)
    representatives: list[int] = []
    for state in range(n):
        if labels[state] >= 0:
            continue
        free = np.flatnonzero((labels < 0) & (action_sets == action_sets[state]))
        near = free[bound.estimate(state, free) <= eps + bound.resolution]
        labels[near] = len(representatives)
        labels[state] = len(representatives)
        representatives.append(state)
    return labels, np.array(representatives)


def _aggregated(
    result: MetricResult, labels: Index, n_classes: int
) -> tuple[FiniteMDP, Array | None]:
    """Transitions and rewards averaged over a class, weighted by the policy's probabilities."""
    mdp = result.mdp
    n, m = mdp.rewards.shape
    member = sp.csr_matrix((np.ones(n), (labels, np.arange(n))), shape=(n_classes, n))
    use = mdp.available.astype(np.float64) if result.policy is None else result.policy
    usage = member @ use
    # Actions that the policy never takes in a class are averaged where they are available.
    offering = member @ mdp.available.astype(np.float64)
    weight = np.where((usage > 0)[labels], use, mdp.available)
    total = np.where(usage > 0, usage, offering)
    share = np.divide(weight, total[labels], out=np.zeros((n, m)), where=total[labels] > 0)
    P = []
    for a in range(m):
        rows = sp.diags(share[:, a]) @ mdp.transitions[np.arange(n) * m + a]
        P.append(sp.csr_matrix(member @ rows @ member.T))
    policy = None if result.policy is None else usage / usage.sum(axis=1, keepdims=True)
    return FiniteMDP(P, member @ (share * mdp.rewards), mask=offering > 0), policy


def _largest_mean_gap(bound: ValueGapBound, labels: Index) -> float:
    order = np.argsort(labels, kind="stable")
    worst = 0.0
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        for block in np.array_split(members, max(1, len(members) ** 2 // (1 << 22))):
            gaps = bound.pairs(block[:, None], members[None, :])
            worst = max(worst, float(gaps.mean(axis=1).max(initial=0.0)))
    return worst
