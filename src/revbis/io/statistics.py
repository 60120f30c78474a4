"""Bootstrap intervals over seeds, for every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

RESAMPLES = 10_000
_ENDS = (0.025, 0.975)
T = TypeVar("T")


class Interval(NamedTuple, Generic[T]):
    """A statistic and its 95% bootstrap interval.

    Attributes:
        value: The statistic.
        low: Lower end.
        high: Upper end.
    """

    value: T
    low: T
    high: T


def bootstrap(
    statistic: Callable[[Sequence[Array]], Array],
    samples: Sequence[Array],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval[Array]:
    """95% percentile bootstrap, with each sample resampled on its own.

    Args:
        statistic: Of samples, [..., n] each, keeping leading axes.
        samples: [n] each, where n may differ.
        seed: Of the generator.
        resamples: Number of resamples.
    """
    generator = np.random.default_rng(seed)
    drawn = [
        values[generator.integers(len(values), size=(resamples, len(values)))] for values in samples
    ]
    low, high = np.quantile(statistic(drawn), _ENDS, axis=0)
    return Interval(statistic(samples), low, high)


def mean_interval(values: Sequence[float]) -> Interval[float]:
    """The mean over seeds with its bootstrap interval; the ends are NaN for a single seed."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) == 1:
        return Interval(float(array[0]), np.nan, np.nan)
    return Interval(*map(float, bootstrap(lambda samples: samples[0].mean(axis=-1), [array])))
