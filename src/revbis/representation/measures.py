"""What an embedding is worth: pure functions of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.signal import lfilter
from torch import Tensor

from revbis.io import schema
from revbis.io.statistics import LEAST, Interval
from revbis.tabular.comparison import neighbour_overlap

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_FOLDS = 5
_READINGS = 8  # of each state, by a linear map
_RIDGE = 1e-3  # relative to the variance of a feature
_CONSTANT = 1e-9  # a deviation below this, relative to the mean, is rounding
_TAIL = 0.1  # share of a return that a time limit may cut off


def denoising_factor(
    anchors: Tensor, positives: Tensor, negatives: Tensor, dtype: torch.dtype = torch.float64
) -> float:
    """(Neg − Pos)/(Neg + Pos): 1 if noise does not move embeddings, 0 if it moves them like states.

    Pos is the mean L2 distance of anchors to their positives, Neg to their negatives. 0 where both
    are 0, as for a constant embedding.

    Args:
        anchors: Embeddings of N observations, [N, D].
        positives: Embeddings of the same moments or states with other noise, [P, N, D].
        negatives: Embeddings of others, [P, N, D].
        dtype: Precision of the distances.
    """
    pos, neg = (
        torch.linalg.vector_norm(each - anchors, dim=2, dtype=dtype).mean()
        for each in (positives, negatives)
    )
    total = float(neg + pos)
    return float(neg - pos) / total if total > 0 else 0.0


def draw_others(draws: int, count: int, generator: torch.Generator) -> Tensor:
    """Indices of other elements for each of `count`, at least 2: [draws, count]."""
    step = torch.randint(1, count, (draws, count), generator=generator)
    return (torch.arange(count) + step) % count


def state_probe(z: Array, states: Array, episode: Ints) -> float | None:
    """How much of the state a linear map finds in an embedding: mean R² over the state's numbers.

    Ridge regression; each episode is predicted by a fit to other episodes. R² is relative to the
    mean of the episodes of the fit. A number that is predicted worse than by that mean counts as 0,
    and numbers that never change are left out; None if there are no others.

    Args:
        z: Embeddings, (N, D).
        states: The simulator's state vectors, (N, S).
        episode: The episode that each is of, (N,); at least 2.
    """
    numbers = np.unique(episode)
    states = states[:, _varies(states)]
    if states.shape[1] == 0:
        return None
    folds = min(_FOLDS, len(numbers))
    fold = np.searchsorted(numbers, episode) % folds
    error, total = np.zeros(states.shape[1]), np.zeros(states.shape[1])
    for held_out in range(folds):
        test = fold == held_out
        mean = states[~test].mean(axis=0)
        predicted = mean + _ridge(z[~test], states[~test] - mean, z[test])
        error += ((states[test] - predicted) ** 2).sum(axis=0)
        total += ((states[test] - mean) ** 2).sum(axis=0)
    return float(np.maximum(1 - error / total, 0.0).mean())


def factor_probes(
    z: Array, factors: Mapping[str, Ints], generator: np.random.Generator
) -> dict[str, float]:
    """How well a linear map reads each factor from embeddings of states it was not fitted to.

    R² of `state_probe` for the indicators of the factor's values, over five random folds of states.
    Of a finite number of states an embedding tells everything that is left of a factor, however
    small: so each is read eight times with Gaussian noise, as large as the embeddings' own spread,
    and even in all directions. Four factors of equal share in 50 dimensions then have about .8.

    Args:
        z: An embedding of each state, (S, D).
        factors: The value of each factor in each state, (S,).
        generator: Draws the folds and the noise.
    """
    fold = np.tile(generator.permutation(len(z)) % _FOLDS, _READINGS)
    deviation = float(np.sqrt(((z - z.mean(axis=0)) ** 2).mean()))
    seen = np.tile(z, (_READINGS, 1))
    seen = seen + deviation * generator.normal(size=seen.shape)
    read = {}
    for name, values in factors.items():
        indicators = (values[:, None] == np.unique(values)).astype(np.float64)
        read[name] = state_probe(seen, np.tile(indicators, (_READINGS, 1)), fold) or 0.0
    return read


def factor_shares(z: Array, factors: Mapping[str, Ints]) -> dict[str, float]:
    """The share of the variance of embeddings that lies between the values of each factor.

    Args:
        z: An embedding of each state, (S, D).
        factors: The value of each factor in each state, (S,).
    """
    total = float(((z - z.mean(axis=0)) ** 2).sum())
    shares = {}
    for name, values in factors.items():
        between = 0.0
        for value in np.unique(values):
            own = values == value
            between += own.sum() * float(((z[own].mean(axis=0) - z.mean(axis=0)) ** 2).sum())
        shares[name] = between / total if total > 0 else 0.0
    return shares


def returns_to_go(rewards: Array, discount: float) -> Array:
    """The discounted sum of each reward and those after it, (T,)."""
    return np.asarray(lfilter([1.0], [1.0, -discount], rewards[::-1])[::-1])


def complete_returns(length: int, discount: float, terminated: bool) -> int:
    """How many returns of an episode, from its start on, its time limit hardly cuts off.

    At most 10% of a constant reward's return is missing, but the first half of an episode counts in
    any case.

    Args:
        length: Steps of the episode.
        discount: Discount factor.
        terminated: Whether the episode ended by itself: then every return is complete.
    """
    if terminated or discount == 0.0:
        return length
    rewards = math.ceil(math.log(_TAIL) / math.log(discount))  # that a complete return has
    return length - min(rewards - 1, length // 2)


def _ridge(x: Array, y: Array, x_test: Array) -> Array:
    """Predictions for x_test of a ridge regression of centred y on standardised x."""
    used = _varies(x)
    mean, deviation = x[:, used].mean(axis=0), x[:, used].std(axis=0)
    scaled, scaled_test = ((each[:, used] - mean) / deviation for each in (x, x_test))
    wide = scaled.shape[1] > len(x)
    gram = (scaled @ scaled.T if wide else scaled.T @ scaled) / len(x)
    gram[np.diag_indices_from(gram)] += _RIDGE
    if wide:  # the same by way of the samples: D can be that of an image
        dual: Array = scaled_test @ (scaled.T @ np.linalg.solve(gram, y / len(x)))
        return dual
    predicted: Array = scaled_test @ np.linalg.solve(gram, scaled.T @ y / len(x))
    return predicted


def _varies(x: Array) -> NDArray[np.bool_]:
    """Which columns are not constant, (D,)."""
    varies: NDArray[np.bool_] = x.std(axis=0) > _CONSTANT * (1 + np.abs(x.mean(axis=0)))
    return varies


_NEIGHBOURS = 5
_MOST_GROUPS = 20
_NEARLY_1 = 1 - 1e-12  # 1 has no finite transform


@dataclass(frozen=True)
class Agreement:
    """A learned distance beside an exact one, over pairs i < j.

    Attributes:
        spearman: Rank correlation; 0 where a distance is constant.
        overlap: Mean share of each element's 5 nearest neighbours that both agree on.
        stress: Error after the best scale, relative to the norm of the exact distances.
        error: Error as it is, in the unit of rewards, relative to the norm of the exact distances.
        spread: Standard deviation of the learned distances relative to that of the exact ones: 1 is
            right, 0 means that all distances have collapsed into one.
        value: Rank correlation with the gaps of values.
        self_distance: Mean learned distance of an element to itself.
        exact_self_distance: The same for the exact metric.
    """

    spearman: float
    overlap: float
    stress: float
    error: float
    spread: float
    value: float
    self_distance: float
    exact_self_distance: float


def agreement(learned: Array, exact: Array, gaps: Array) -> Agreement:
    """Compares a learned with an exact distance and with gaps of values, (n, n) each.

    Raises:
        ValueError: If a learned distance is not finite.
    """
    learned = schema.finite_matrix(learned, exact.shape, "the learned distances")
    learned = (learned + learned.T) / 2
    i, j = np.triu_indices(len(exact), 1)
    d, truth = learned[i, j], exact[i, j]
    square, size = float(d @ d), float(np.linalg.norm(truth))
    scale = float(d @ truth) / square if square > 0 else 0.0
    deviation = float(truth.std())
    return Agreement(
        spearman=rank_correlation(d, truth),
        overlap=neighbour_overlap(learned, exact, min(_NEIGHBOURS, len(exact) - 1)),
        stress=_relative(float(np.linalg.norm(scale * d - truth)), size),
        error=_relative(float(np.linalg.norm(d - truth)), size),
        spread=_relative(float(d.std()), deviation),
        value=rank_correlation(d, gaps[i, j]),
        self_distance=float(np.diag(learned).mean()),
        exact_self_distance=float(np.diag(exact).mean()),
    )


def rank_correlation(x: Array, y: Array) -> float:
    """Spearman's rank correlation; 0 where either is constant, as that orders nothing."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(stats.spearmanr(x, y).statistic)


def clustered_correlation(x: Array, y: Array, cluster: Ints) -> Interval[float] | None:
    """Rank correlation of two distances over pairs of different clusters, with its 95% interval.

    Pairs that share an element, or elements of one cluster, are not independent. So the interval is
    that of the jackknife over clusters: all pairs with one of them are left out in turn, and
    Student's t is applied to Fisher's transform of the correlations. It covered 96 to 99% in
    simulations with 3 to 20 clusters of correlated elements. More than 20 clusters are left out in
    20 groups.

    Args:
        x: Distances, (n, n).
        y: Others, (n, n).
        cluster: What each element is part of, (n,), such as its episode.

    Returns:
        None if there is no pair of different clusters. The ends are NaN for fewer than 4 clusters.
    """
    i, j = np.triu_indices(len(cluster), 1)
    apart = cluster[i] != cluster[j]
    i, j = i[apart], j[apart]
    if not len(i):
        return None
    names, member = np.unique(cluster, return_inverse=True)
    value = rank_correlation(x[i, j], y[i, j])
    groups = min(len(names), _MOST_GROUPS)
    if groups < LEAST:
        return Interval(value, math.nan, math.nan)
    group = member % groups
    others = []
    for left_out in range(groups):
        kept = (group[i] != left_out) & (group[j] != left_out)
        others.append(rank_correlation(x[i[kept], j[kept]], y[i[kept], j[kept]]))
    middle, z = (np.arctanh(np.clip(each, -_NEARLY_1, _NEARLY_1)) for each in (value, others))
    variance = (groups - 1) / groups * float(((z - z.mean()) ** 2).sum())
    half = float(stats.t.ppf(0.975, groups - 1)) * math.sqrt(variance)
    return Interval(value, float(np.tanh(middle - half)), float(np.tanh(middle + half)))


def _relative(value: float, size: float) -> float:
    return value / size if size > 0 else float(value > 0)
