r"""The revised metric of an agent's own policy on a simulator, where nothing has to be learned.

\(U(x,y) = E \sum_k γ^k |R_k − R'_k|\) is read off the rewards that followed two moments. Without
noise in what the agent sees they are determined: one trajectory from each moment is exact, up to
what follows its end. With noise it is the mean over pairs of independent trajectories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from revbis.tabular import estimate_laws
from revbis.tabular.samples import trajectory_distances

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = NDArray[np.float64]


class TrueDistances(NamedTuple):
    """U between n moments.

    Attributes:
        matrix: The distances, (n, n); between trajectories of one moment itself on the diagonal.
        lags: How many rewards of each trajectory are compared.
        tail: How much of a distance can lie after them: γ^lags · (range of rewards)/(1 − γ), or 0
            where every trajectory ended by itself.
    """

    matrix: Array
    lags: int
    tail: float


def true_distances(
    rewards: Sequence[Sequence[Array]], terminated: Sequence[Sequence[bool]], discount: float
) -> TrueDistances:
    """U between moments, from the rewards that followed each once or several times.

    All are compared over the same number of rewards, as many as the shortest that a time limit cut
    off has: else moments late in an episode would be near to all others. After a termination
    rewards are 0.

    Args:
        rewards: For each moment the rewards of as many trajectories as for the others.
        terminated: Whether each ended by itself.
        discount: γ.
    """
    ends = [
        (len(each), ended)
        for several, flags in zip(rewards, terminated, strict=True)
        for each, ended in zip(several, flags, strict=True)
    ]
    cut_off = [length for length, ended in ends if not ended]
    lags = min(cut_off) if cut_off else max(length for length, _ in ends)
    laws = estimate_laws(
        [[each[:lags] for each in several] for several in rewards],
        terminated=[
            [ended and len(each) <= lags for each, ended in zip(several, flags, strict=True)]
            for several, flags in zip(rewards, terminated, strict=True)
        ],
    )
    low, high = laws.reward_range
    h, _ = trajectory_distances(laws.rewards, laws.known, 1.0, discount, high - low)
    count, times = len(rewards), len(rewards[0])
    matrix = h.reshape(count, times, count, times).mean(axis=(1, 3))
    tail = discount**lags * (high - low) / (1 - discount) if cut_off else 0.0
    return TrueDistances(matrix, lags, tail)
