"""True value gaps beside the bounds that a metric gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from revbis import checks
from revbis.tabular.bounds import ValueGapBound, value_gap_bound
from revbis.tabular.values import bounded_value

if TYPE_CHECKING:
    from revbis.tabular.result import MetricResult

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_MOST_PAIRS = 100_000
_ROUNDING = 1e-13  # of values, relative to the largest


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
        i, j = _sample(result.n, checks.whole(seed, "seed", 0))
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
