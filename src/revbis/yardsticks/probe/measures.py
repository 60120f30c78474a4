"""How much of an exact metric a learned distance has: pure functions of arrays.

A sample with itself is no independent pair, so the diagonal is left out of every measure but the
self-distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from revbis import checks
from revbis.tabular.comparison import neighbour_overlap

Array = NDArray[np.float64]
_NEIGHBOURS = 5


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
    learned = checks.finite_matrix(learned, exact.shape, "the learned distances")
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


def denoising_factor(anchors: Tensor, again: Tensor, generator: torch.Generator) -> float:
    """(Neg − Pos)/(Neg + Pos): 1 if noise does not move embeddings, 0 if it moves them like states.

    Pos is the mean L2 distance of an anchor to observations of its own state, Neg to observations
    of other states, 16 of each.

    Args:
        anchors: Embeddings of an observation of each state, [S, D].
        again: Embeddings of further observations of each state, [16, S, D].
        generator: Draws the negatives.
    """
    draws, states, _ = again.shape
    positive = torch.linalg.vector_norm(again - anchors, dim=2).mean()
    own = torch.arange(states)
    step = torch.randint(1, states, (draws, states), generator=generator)
    others = again[torch.arange(draws)[:, None], (own + step) % states]
    negative = torch.linalg.vector_norm(others - anchors, dim=2).mean()
    total = float(positive + negative)
    return float(negative - positive) / total if total > 0 else 0.0


def _relative(value: float, size: float) -> float:
    return value / size if size > 0 else float(value > 0)
