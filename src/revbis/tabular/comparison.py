"""How a learned distance compares with an exact metric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from revbis.io import schema
from revbis.tabular.bounds import certify
from revbis.tabular.result import MetricResult, as_result
from revbis.tabular.values import bounded_value

Array = NDArray[np.float64]
_MOST_PAIRS = 1_000_000


@dataclass(frozen=True)
class Comparison:
    """A learned distance beside an exact metric, over pairs of different states.

    Attributes:
        spearman: Rank correlation (Spearman).
        kendall: Rank correlation (Kendall's τ-b).
        neighbour_overlap: Mean fraction of each state's k nearest neighbours that both agree on.
        neighbours: k.
        scale: The factor on the learned distance that fits best in least squares.
        stress: The residual of this fit, relative to the norm of the exact distances; 0 is perfect.
        residual: Bellman residual ‖T d − d‖ of the learned distance, unscaled.
        error_bound: Certified sup-norm distance of the learned from the exact metric, unscaled.
        violations: Fraction of pairs whose value gap exceeds the learned distance.
        worst_violation: The largest such excess; 0 if there is none.
        collapsed: Fraction of pairs that are closer than 1% of the largest distance under the
            learned distance, but not under the exact metric.
        self_distance: Mean learned distance of a state to itself.
        exact_self_distance: The same for the exact metric.
        pairs: Pairs the rank correlations are computed from (a seeded sample when there are many).
    """

    spearman: float
    kendall: float
    neighbour_overlap: float
    neighbours: int
    scale: float
    stress: float
    residual: float
    error_bound: float
    violations: float
    worst_violation: float
    collapsed: float
    self_distance: float
    exact_self_distance: float
    pairs: int


def compare(
    learned: ArrayLike | MetricResult, exact: MetricResult, *, neighbours: int = 5, seed: int = 0
) -> Comparison:
    """Compares a learned distance matrix with an exact metric.

    Rank correlations are NaN when either distance is constant.

    Args:
        learned: Distances, (n, n), or another result.
        exact: The metric to compare with.
        neighbours: k of the nearest-neighbour overlap; at most n − 1 are used.
        seed: Seed of the sample of pairs, when there are more than a million.
    """
    if isinstance(learned, MetricResult):
        learned = learned.matrix()
    n = as_result(exact).n
    if n < 2:
        raise ValueError("comparing distances needs at least two states")
    neighbours, seed = schema.integer(neighbours, "neighbours", 1), schema.integer(seed, "seed", 0)
    d = schema.finite_matrix(learned, (n, n), "learned")
    reference = exact.matrix()
    i, j = np.triu_indices(n, 1)
    value = bounded_value(exact, exact.discount)
    gap = exact.reward_weight * np.abs(value[i] - value[j])  # what the metric bounds
    both = (d[i, j] + d[j, i]) / 2
    truth = reference[i, j]
    spearman, kendall, used = _rank_correlations(both, truth, seed)
    norm = float(both @ both)
    scale = float(both @ truth) / norm if norm > 0 else 0.0
    size = float(np.linalg.norm(truth))
    misfit = float(np.linalg.norm(scale * both - truth))
    k = min(neighbours, n - 1)
    c = None if exact.c is None else exact.discount
    certificate = certify(
        exact.mdp, exact.policy, d, exact.metric, exact.gamma, c=c, level=exact.level
    )
    excess = gap - both
    return Comparison(
        spearman=spearman,
        kendall=kendall,
        neighbour_overlap=neighbour_overlap(d, reference, k),
        neighbours=k,
        scale=scale,
        stress=misfit / size if size > 0 else float(misfit > 0),
        residual=certificate.residual,
        error_bound=certificate.error_bound,
        violations=float((excess > exact.error_bound).mean()),
        worst_violation=max(0.0, float(excess.max())),
        collapsed=float(((both <= 0.01 * both.max()) & (truth > 0.01 * truth.max())).mean()),
        self_distance=float(np.diag(d).mean()),
        exact_self_distance=float(exact.self_distance().mean()),
        pairs=used,
    )


def _rank_correlations(x: Array, y: Array, seed: int) -> tuple[float, float, int]:
    if len(x) > _MOST_PAIRS:
        chosen = np.random.default_rng(seed).choice(len(x), _MOST_PAIRS, replace=False)
        x, y = x[chosen], y[chosen]
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan"), float("nan"), len(x)
    spearman = float(stats.spearmanr(x, y).statistic)
    return spearman, float(stats.kendalltau(x, y).statistic), len(x)


def neighbour_overlap(a: Array, b: Array, k: int) -> float:
    """Mean fraction of each state's k nearest others that two distances, (n, n), agree on."""
    shared = 0
    for s in range(len(a)):
        shared += len(np.intersect1d(_nearest(a[s], s, k), _nearest(b[s], s, k)))
    return shared / (k * len(a))


def _nearest(row: Array, s: int, k: int) -> NDArray[np.int64]:
    others = np.delete(np.arange(len(row)), s)
    return others[np.argsort(row[others], kind="stable")[:k]]
