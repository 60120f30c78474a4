r"""The revised metric from recorded rewards, without a model of the MDP.

\(U(x,y) = E \sum_k γ^k |R_k − R'_k|\) over two independent trajectories, one from x and one from y.
So the mean over pairs of recorded trajectories is exact in expectation, as long as no trajectory
meets itself or another part of the same episode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from revbis.io import schema
from revbis.tabular.mdp import row_pairs

Array = NDArray[np.float64]
Index = NDArray[np.int64]
INTERVALS = ("t", "certain")
_FOREVER = np.iinfo(np.int64).max  # rewards after a termination are known: they are 0


@dataclass(frozen=True, eq=False)
class Interval:
    """Estimates with confidence intervals; NaN where no two independent trajectories exist.

    Attributes:
        estimate: The estimates, (n, n) for distances, (n,) for values.
        low: Lower ends of the intervals.
        high: Upper ends.
        tail: How much of a distance can lie after the ends of truncated trajectories; `high`
            includes it, the estimate does not.
    """

    estimate: Array
    low: Array
    high: Array
    tail: Array

    def matrix(self) -> Array:
        """The estimates."""
        return self.estimate

    def pairs(self, i: ArrayLike, j: ArrayLike) -> Array:
        """The estimates of the pairs (i, j); index arrays broadcast against each other."""
        return np.asarray(self.estimate[row_pairs(i, j, len(self.estimate))])


@dataclass(frozen=True, eq=False)
class SampledLaws:
    """Recorded rewards after n moments, from which distances at any horizon are estimated.

    Attributes:
        n: Number of moments.
        rewards: One row for each trajectory, (T, L), 0 where it has ended.
        known: Number of lags at which a trajectory's reward is known, (T,).
        moment: The moment that it starts from, (T,).
        source: The episode that it is part of, (T,).
        reward_range: Smallest and largest possible reward.
    """

    n: int
    rewards: Array
    known: Index
    moment: Index
    source: Index
    reward_range: tuple[float, float]

    def distance(
        self,
        gamma: float | None = None,
        *,
        c: float | None = None,
        confidence: float = 0.95,
        interval: str = "t",
    ) -> Interval:
        """U between all moments, self-distances included.

        Args:
            gamma: Discount, for the weights γ^k.
            c: Coefficient, for the weights (1−c)c^k.
            confidence: Share of intervals, each for itself, that contain the true distance.
            interval: "t" estimates the spread from the trajectories. It needs about ten from each
                moment, and rewards that are not too rare. "certain" assumes only the range of the
                rewards (Hoeffding 1963): it covers for any number, and is wide.
        """
        return self._estimate(gamma, c, confidence, interval, reduced=False)

    def reduced(
        self,
        gamma: float | None = None,
        *,
        c: float | None = None,
        confidence: float = 0.95,
        interval: str = "t",
    ) -> Interval:
        """ρ(x,y) = U(x,y) − ½(U(x,x) + U(y,y)); arguments as for `distance`.

        The estimates are exact in expectation too, so small ones may be negative. Those near 0 are
        skewed, and "t" covers less often than it says (86% for 90%, in the test of this function).
        """
        return self._estimate(gamma, c, confidence, interval, reduced=True)

    def _estimate(
        self,
        gamma: float | None,
        c: float | None,
        confidence: float,
        interval: str,
        *,
        reduced: bool,
    ) -> Interval:
        weight, discount = _weights(gamma, c)
        confidence = schema.number(confidence, "confidence")
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must be above 0 and below 1, got {confidence:g}")
        schema.choice(interval, INTERVALS, "interval")
        low, high = self.reward_range
        most = weight * (high - low) / (1 - discount)
        h, tails = trajectory_distances(self.rewards, self.known, weight, discount, high - low)
        # Parts of one episode that start from one moment count once: as their mean.
        owners, member = np.unique((self.moment, self.source), axis=1, return_inverse=True)
        share = np.zeros((owners.shape[1], len(h)))
        share[member.ravel(), np.arange(len(h))] = 1.0 / np.bincount(member.ravel())[member.ravel()]
        h, tails = share @ h @ share.T, share @ tails @ share.T
        moment, source = owners
        apart = source[:, None] != source
        rows = [np.flatnonzero(moment == x) for x in range(self.n)]
        out = np.full((4, self.n, self.n), np.nan)
        for x in range(self.n):
            for y in range(x, self.n):
                parts = _Pair(h, tails, apart, source, rows[x], rows[y])
                if reduced:
                    found = _reduced(parts, most, confidence, interval)
                else:
                    found = _distance(parts, most, confidence, interval)
                out[:, x, y] = out[:, y, x] = found
        return Interval(*out)


@dataclass(frozen=True, eq=False)
class _Pair:
    """Trajectories from two moments, as rows of the matrices of all trajectories."""

    h: Array
    tails: Array
    apart: NDArray[np.bool_]
    source: Index
    x: Index
    y: Index

    @property
    def same(self) -> bool:
        return self.x is self.y or np.array_equal(self.x, self.y)

    def independent(self) -> int:
        """To how many independent pairs the mean over all pairs of different episodes amounts.

        Hoeffding's bound holds with the number of pairs divided by the number of colours such that
        no two pairs of one colour have an episode in common (Janson 2004). By König it is the
        larger number of episodes where none occurs on both sides; else by Vizing at most the most
        pairs that an episode is in, plus 2.
        """
        first, second = set(self.source[self.x]), set(self.source[self.y])
        a, b, both = len(first), len(second), len(first & second)
        if not both:
            return min(a, b)
        if first == second:
            return a // 2
        return (a * b - both) // (a + b)

    def of(self, x: Index, y: Index) -> _Pair:
        return _Pair(self.h, self.tails, self.apart, self.source, x, y)

    def mean(self, matrix: Array) -> float:
        """The mean over pairs of different episodes; NaN if there is none."""
        at = np.ix_(self.x, self.y)
        use = self.apart[at]
        return float(matrix[at][use].mean()) if use.any() else np.nan

    def means_without(self, matrix: Array, episodes: Index) -> Array:
        """The same without each of these episodes in turn."""
        at = np.ix_(self.x, self.y)
        use = self.apart[at].astype(np.float64)
        found = []
        for sums in (np.where(use > 0, matrix[at], 0.0), use):
            left = np.full(len(episodes), sums.sum())
            for rows, axis in ((self.x, 1), (self.y, 0)):  # no pair has an episode on both sides
                of_row = np.searchsorted(episodes, self.source[rows])
                inside = episodes[np.minimum(of_row, len(episodes) - 1)] == self.source[rows]
                parts = sums.sum(axis=axis)[inside]
                left -= np.bincount(of_row[inside], parts, len(episodes))
            found.append(left)
        total, count = found
        empty = np.full(len(episodes), np.nan)
        return np.asarray(np.divide(total, count, out=empty, where=count > 0.5))


def trajectory_distances(
    rewards: Array, known: Index, weight: float, discount: float, reward_range: float
) -> tuple[Array, Array]:
    """Σ_k w λ^k |R_k − R'_k| over the lags that both trajectories know, (T, T), and what is left.

    The second array bounds the sum over the other lags: 0 if both have terminated.
    """
    count, length = rewards.shape
    weights = weight * discount ** np.arange(length)
    lags = np.arange(length)
    h, tails = np.empty((count, count)), np.empty((count, count))
    for i in range(count):
        both = np.minimum(known, known[i])
        gap = np.abs(rewards - rewards[i])
        gap[lags >= both[:, None]] = 0.0
        h[i] = gap @ weights
        left = weight * discount ** np.minimum(both, length).astype(float) / (1 - discount)
        tails[i] = np.where(both == _FOREVER, 0.0, left * reward_range)
    return h, tails


def estimate_laws(
    episodes: Sequence[Sequence[ArrayLike]],
    *,
    terminated: bool | Sequence[Sequence[bool]] = False,
    source: Sequence[Sequence[int]] | None = None,
    reward_range: tuple[float, float] | None = None,
) -> SampledLaws:
    """Recorded rewards as estimates of the revised metric between the moments they start from.

    Args:
        episodes: For each moment (a state, say) one or more sequences of the rewards that followed
            it, each from its own trajectory under the policy.
        terminated: Whether a sequence ends in a termination, after which rewards are 0; else it is
            truncated, and what follows is bounded by the range of the rewards. One answer for all,
            or one for each sequence, nested like `episodes`.
        source: The number of the episode that each sequence is part of, nested like `episodes`:
            two parts of one episode are not independent and are not compared. Each sequence is an
            episode of its own when None.
        reward_range: The smallest and the largest possible reward; those seen when None.

    Raises:
        ValueError: For sequences that are empty or not finite, or that do not match each other.

    Example:
        >>> laws = estimate_laws([[[1.0, 0.0], [1.0, 1.0]], [[0.0], [0.0]]], terminated=True)
        >>> laws.distance(gamma=0.5).estimate
        array([[0.5 , 1.25],
               [1.25, 0.  ]])
    """
    nested = [_sequences(x, f"episodes[{i}]") for i, x in enumerate(_listed(episodes, "episodes"))]
    if not nested:
        raise ValueError("episodes is empty: give the rewards after at least one moment")
    counts = [len(each) for each in nested]
    flat = [rewards for each in nested for rewards in each]
    ended = (
        np.full(len(flat), bool(terminated))
        if isinstance(terminated, bool | np.bool_)
        else (_flattened(terminated, counts, "terminated").astype(bool))
    )
    numbers = np.arange(len(flat)) if source is None else _flattened(source, counts, "source")
    if not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError("source must hold whole numbers, one for each sequence")
    part_of = numbers.astype(np.int64)
    seen = np.concatenate([*flat, np.zeros(int(ended.any()))])
    low, high = _range(reward_range, float(seen.min()), float(seen.max()))
    rewards = np.zeros((len(flat), max(map(len, flat))))
    for row, each in zip(rewards, flat, strict=True):
        row[: len(each)] = each
    known = np.where(ended, _FOREVER, [len(each) for each in flat])
    moment = np.repeat(np.arange(len(nested)), counts)
    return SampledLaws(len(nested), rewards, known, moment, part_of, (low, high))


def _weights(gamma: float | None, c: float | None) -> tuple[float, float]:
    """The weight of the first reward gap and the factor from one lag to the next."""
    if (gamma is None) == (c is None):
        raise ValueError("give gamma (weights γ^k) or c (weights (1−c)c^k), not both")
    if gamma is not None:
        return 1.0, schema.discount(gamma)
    assert c is not None
    c = schema.discount(c, "c")
    return 1.0 - c, c


def _distance(pair: _Pair, most: float, confidence: float, interval: str) -> tuple[float, ...]:
    estimate, tail = pair.mean(pair.h), pair.mean(pair.tails)
    if interval == "certain":
        half = _hoeffding(pair.independent(), most, confidence)
    else:
        half = _student(pair, lambda left_out: pair.means_without(pair.h, left_out), confidence)
    return _ends(estimate, half, tail, 0.0, most)


def _reduced(pair: _Pair, most: float, confidence: float, interval: str) -> tuple[float, ...]:
    if pair.same:
        return (0.0, 0.0, 0.0, 0.0)
    own = pair.of(pair.x, pair.x), pair.of(pair.y, pair.y)
    estimate = pair.mean(pair.h) - sum(each.mean(pair.h) for each in own) / 2
    tail = max(pair.mean(pair.tails), sum(each.mean(pair.tails) for each in own) / 2)

    def without(episodes: Index) -> Array:
        selves = [each.means_without(pair.h, episodes) for each in own]
        return pair.means_without(pair.h, episodes) - (selves[0] + selves[1]) / 2

    if interval == "certain":
        half = _hoeffding(pair.independent() // 2, 2 * most, confidence)
    else:
        half = _student(pair, without, confidence)
    return _ends(estimate, half, tail, tail, most)


def _ends(
    estimate: float, half: float, tail: float, below: float, most: float
) -> tuple[float, float, float, float]:
    """Estimate, low and high end, tail; without a spread, all that is possible."""
    if np.isnan(estimate):
        return np.nan, 0.0, most, tail
    if np.isnan(half):
        return estimate, 0.0, most, tail
    low, high = max(estimate - half - below, 0.0), min(estimate + half + tail, most)
    return estimate, min(low, high), max(low, high), tail


def _hoeffding(pairs: int, width: float, confidence: float) -> float:
    """Half the width of an interval for a U-statistic of so many independent pairs."""
    return width * float(np.sqrt(np.log(2 / (1 - confidence)) / (2 * pairs))) if pairs else np.nan


def _student(pair: _Pair, without: Callable[[Index], Array], confidence: float) -> float:
    """Half the width of a t-interval by the jackknife: one episode at a time is left out.

    Episodes of x alone, of y alone and of both are samples of their own.
    """
    x, y = np.unique(pair.source[pair.x]), np.unique(pair.source[pair.y])
    both = np.intersect1d(x, y)
    groups = [each for each in (np.setdiff1d(x, both), np.setdiff1d(y, both), both) if len(each)]
    variance, fewest = 0.0, min(len(each) for each in groups)
    for episodes in groups:
        estimates = without(episodes)
        size = len(episodes)
        variance += (size - 1) / size * float(((estimates - estimates.mean()) ** 2).sum())
    if fewest < 2 or np.isnan(variance):
        return np.nan
    return float(scipy.stats.t.ppf((1 + confidence) / 2, fewest - 1) * np.sqrt(variance))


def _listed(value: object, name: str) -> list[object]:
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
        raise ValueError(f"{name} must be a list, got {schema.shown(value)}")
    return list(value)


def _sequences(value: object, name: str) -> list[Array]:
    """The reward sequences of a moment."""
    found = []
    for j, each in enumerate(_listed(value, name)):
        rewards = schema.real_array(each, f"{name}[{j}]")
        if rewards.ndim != 1 or not len(rewards):
            raise ValueError(
                f"{name}[{j}] must be a sequence of rewards, got shape {rewards.shape}: episodes "
                "has a list of sequences for each moment"
            )
        found.append(schema.finite_matrix(rewards, rewards.shape, f"{name}[{j}]"))
    if not found:
        raise ValueError(f"{name} is empty: each moment needs at least one sequence of rewards")
    return found


def _flattened(value: object, counts: list[int], name: str) -> NDArray[np.generic]:
    """One entry for each sequence, nested like the episodes."""
    nested = [_listed(each, f"{name}[{i}]") for i, each in enumerate(_listed(value, name))]
    if [len(each) for each in nested] != counts:
        raise ValueError(f"{name} must have one entry for each sequence, nested like episodes")
    return np.array([entry for each in nested for entry in each])


def _range(given: tuple[float, float] | None, least: float, most: float) -> tuple[float, float]:
    if given is None:
        return least, most
    low, high = (schema.number(each, "reward_range") for each in given)
    if not low <= least <= most <= high:
        raise ValueError(
            f"reward_range is {low:g} to {high:g}, but there are rewards from {least:g} to "
            f"{most:g} (0 after a termination): widen it"
        )
    return low, high
