"""Certificates for any matrix, and bounds on value gaps beside the true gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from revbis.io import schema
from revbis.tabular.registry import find_metric
from revbis.tabular.result import MetricResult, as_result
from revbis.tabular.solver import make_problem, make_query
from revbis.tabular.values import bounded_value

if TYPE_CHECKING:
    from revbis.tabular.mdp import FiniteMDP

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_MOST_PAIRS = 100_000
_ROUNDING = 1e-13  # of values, relative to the largest


@dataclass(frozen=True)
class Certificate:
    """How far a matrix d is from the exact metric d*, without knowing d*.

    Attributes:
        error_bound: ‖d − d*‖ in sup norm is at most this.
        lower: d* − d is nowhere below this.
        upper: d* − d is nowhere above this.
        residual: ‖T d − d‖, the Bellman residual.
    """

    error_bound: float
    lower: float
    upper: float
    residual: float


def certify(
    mdp: FiniteMDP,
    policy: ArrayLike | None,
    d: ArrayLike,
    metric: str,
    gamma: float,
    *,
    c: float | None = None,
    level: str = "state",
) -> Certificate:
    r"""Certifies any matrix, for instance a learned one, against an exact metric.

    The operator T is monotone and \(T(d + κ) = Td + λκ\), so
    \(d^* − d ∈ [\min, \max](Td − d)/(1−λ)\). It takes a single application of T, and the bounds
    account for rounding. The matrix d, (n, n), need not be symmetric or zero on the diagonal; the
    policy is None for metrics without one; the other arguments are those of `solve`.
    """
    query = make_query(metric, mdp, policy, gamma, c=c, level=level)
    d = schema.finite_matrix(d, (query.n, query.n), "d")
    problem = make_problem(query)
    applied, roundoff = problem.apply(d)
    change = applied - d
    low, high = float(change.min()) - roundoff, float(change.max()) + roundoff
    if find_metric(metric).pinned(mdp):
        # Some pairs do not move with κ: an interval that contains 0 is valid for them too.
        low, high = min(low, 0.0), max(high, 0.0)
    scale = 1 - query.discount
    return Certificate(
        error_bound=max(abs(low), abs(high)) / scale,
        lower=low / scale,
        upper=high / scale,
        residual=float(np.abs(change).max()),
    )


@dataclass(frozen=True, eq=False)
class ValueGapBound:
    """A valid bound on value gaps, derived from a metric.

    Attributes:
        result: The metric.
        target_gamma: The discount of the values.
        value: What is bounded: "V", "Q" (of the policy) or "V*".
        repair: The term that is added where the metric has a shorter horizon than the values; else
            0.
        reward_range: Range of the rewards, for the bound by ρ; infinite for metrics that do not
            have this bound.
        explanation: The formula and why it is valid.
    """

    result: MetricResult
    target_gamma: float
    value: str
    repair: float
    reward_range: float
    explanation: str

    def matrix(self) -> Array:
        """The bound for all pairs, (n, n), zero on the diagonal."""
        bound = self._combine(self.result.matrix(), self.result.reduced(), self.result.error_bound)
        np.fill_diagonal(bound, 0.0)
        return bound

    def pairs(self, i: ArrayLike, j: ArrayLike) -> Array:
        """The bound for the pairs (i, j)."""
        return self._pairs(i, j, self.result.error_bound)

    def estimate(self, i: ArrayLike, j: ArrayLike) -> Array:
        """The bound without the solver's error: not certified."""
        return self._pairs(i, j, 0.0)

    @property
    def resolution(self) -> float:
        """The largest bound that the solver's error can produce between equal states."""
        error = self.result.error_bound
        if np.isfinite(self.reward_range):  # equal states have ρ = 0, but U may not be
            return float(self._cramer(np.zeros(()), error))
        return error / self.result.reward_weight

    def _pairs(self, i: ArrayLike, j: ArrayLike, error: float) -> Array:
        bound = self._combine(self.result.pairs(i, j), self.result.reduced_pairs(i, j), error)
        return np.where(np.equal(i, j), 0.0, bound)

    def _combine(self, distance: Array, reduced: Array, error: float) -> Array:
        """The smallest of the valid bounds, with the metric's own error added."""
        bound = (distance + error) / self.result.reward_weight
        if np.isfinite(self.reward_range):
            bound = np.minimum(bound, self._cramer(reduced, error))
        return np.asarray(bound + self.repair)

    def _cramer(self, reduced: Array, error: float) -> Array:
        horizon = 1 - min(self.target_gamma, self.result.discount)
        spread = self.reward_range / self.result.reward_weight / horizon
        return np.asarray(np.sqrt(spread * (reduced + 2 * error)))


def value_gap_bound(result: MetricResult, target_gamma: float | None = None) -> ValueGapBound:
    r"""The valid bound on |ΔV| (|ΔQ| between state-action pairs) that a metric gives.

    With λ the metric's own discount (γ, or c in the weighted form) and \(\bar U = U/(1−c)\) or U:

    - target ≤ λ: \(|ΔV| ≤ \bar U\); for MICo and revised also
      \(|ΔV| ≤ \sqrt{range(R)\,ρ/(1−γ)}\), and the smaller one is used.
    - target > λ: that does not hold in general; instead
      \(|ΔV| ≤ \bar U + (γ−λ)/(1−λ)\,span(V)\), with the span of the values.

    Metrics without a policy bound the gap of optimal values, not of a policy's values.

    Args:
        result: Any metric.
        target_gamma: The discount of the values; the `gamma` of the result when None.
    """
    as_result(result)
    target = result.gamma if target_gamma is None else schema.discount(target_gamma, "target_gamma")
    value = "V*" if result.policy is None else ("V" if result.level == "state" else "Q")
    own, record = result.discount, find_metric(result.metric)
    spread = record.reward_range(make_problem(result)) if record.reward_range else np.inf
    base = f"|Δ{value}| ≤ {'U/(1−c)' if result.c is not None else 'd'}"
    if record.is_euclidean:
        base += " and |Δ" + value + "| ≤ √(range(R)·ρ/(1−γ)), whichever is smaller"
    if target <= own:
        text = f"{base}: the metric discounts by {own:g}, no faster than the values' {target:g}"
        return ValueGapBound(result, target, value, 0.0, spread, text)
    repair = (target - own) / (1 - own) * float(np.ptp(bounded_value(result, target)))
    text = (
        f"{base}, plus (γ−λ)/(1−λ)·span({value}) = {repair:.4g}: the metric discounts by "
        f"λ = {own:g}, faster than the values' γ = {target:g}, so it misses what lies further "
        "ahead, and alone it is not a bound"
    )
    return ValueGapBound(result, target, value, repair, spread, text)


@dataclass(frozen=True, eq=False)
class ValueGaps:
    """Value gaps and their bounds, over pairs i < j.

    Attributes:
        rule: The bound: what it bounds, and why it is valid.
        i: First members of the pairs.
        j: Second members.
        distance: The metric of each pair.
        bound: The certified bound on the gap of each pair.
        gap: The true gap of each pair; 0 where it is not larger than the values' rounding error.
        complete: Whether these are all pairs; else they are a seeded sample.
    """

    rule: ValueGapBound
    i: Index
    j: Index
    distance: Array
    bound: Array
    gap: Array
    complete: bool

    @property
    def holds(self) -> bool:
        """Whether every gap is within its bound, with some room for the values' own errors."""
        return bool((self.gap <= self.bound + 1e-9 * (1 + self.gap.max())).all())

    @property
    def tightness(self) -> float:
        """Mean of gap divided by bound, over pairs whose bound is not 0; 1 if there are none."""
        positive = self.bound > 0
        ratios = self.gap[positive] / self.bound[positive]
        return float(ratios.mean()) if len(ratios) else 1.0

    def largest(self, count: int) -> Index:
        """The pairs with the largest true gaps, largest first."""
        return np.argsort(-self.gap, kind="stable")[:count]


def value_gaps(
    result: MetricResult, target_gamma: float | None = None, *, seed: int = 0
) -> ValueGaps:
    """Sets the bounds of `value_gap_bound` beside the true gaps.

    Args:
        result: A metric on at least two states or state-action pairs.
        target_gamma: The discount of the values; that of the metric when None.
        seed: Of the sample of pairs, when there are more than 100,000.
    """
    rule = value_gap_bound(result, target_gamma)
    if result.n < 2:
        raise ValueError("value gaps need at least two states, and there is only one")
    complete = result.n * (result.n - 1) // 2 <= _MOST_PAIRS
    if complete:
        i, j = np.triu_indices(result.n, 1)
    else:
        i, j = _sample(result.n, schema.integer(seed, "seed", 0))
    value = bounded_value(result, rule.target_gamma)
    gap = np.abs(value[i] - value[j])
    gap[gap <= _ROUNDING * np.abs(value).max()] = 0.0
    return ValueGaps(rule, i, j, result.pairs(i, j), rule.pairs(i, j), gap, complete)


def _sample(n: int, seed: int) -> tuple[Index, Index]:
    """Pairs i < j, in order and without repetition."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(n, size=_MOST_PAIRS), rng.integers(n - 1, size=_MOST_PAIRS)
    second += second >= first
    pairs = np.unique(np.sort(np.stack([first, second], axis=1), axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]
