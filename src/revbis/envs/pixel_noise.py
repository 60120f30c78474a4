"""Independent Gaussian noise on every pixel of a finished frame, new in every frame.

Unlike the backgrounds of `distractors` it covers the task itself and needs no segmentation, so
every task with images can have it. The name carries a version, as theirs do: its numbers never
change.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from revbis import checks
from revbis.envs.distractors import GAUSSIAN, VARIANTS, Split, check_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from revbis.envs.rendering import Pixels

WEAKEST, STRONGEST = 0.001, 1.0  # weaker noise would round to no noise

# Entropy of the generators; those of `distractors` and `state_noise` have other numbers.
_EPISODES_V1 = 1002
_INTERVALS = 2**16


class PixelNoise:
    """The pixel noise of one environment.

    A seed determines every number of an episode. The splits have the same distribution and
    different random numbers.

    Args:
        strength: Standard deviation as a share of the full range, 255; before clipping.
        size: Side of the image.
        split: "train" or "eval".

    Attributes:
        identity: Kind, version, strength and split.

    Raises:
        ValueError: For a strength that is not from 0.001 to 1, or an unknown split.
    """

    def __init__(self, strength: float, size: int, *, split: Split = "train") -> None:
        self.strength = _check_range(strength)
        self.size = checks.whole(size, "size", 1)
        self._stream = list(VARIANTS).index(checks.choice(split, VARIANTS, "split"))
        self.identity = f"{GAUSSIAN}-v1({self.strength:g})/{split}"
        self._quantiles = quantiles(self.strength)
        self._draws = -(-3 * self.size**2 // 4)  # of each frame
        self._bits: np.random.PCG64 | None = None

    def reset(self, seed: int | None) -> None:
        """Starts an episode.

        Args:
            seed: Restarts the sequence of episodes; None continues it.
        """
        if seed is not None:
            entropy = (_EPISODES_V1, self._stream, checks.whole(seed, "seed", 0))
            self._bits = np.random.PCG64(np.random.SeedSequence(entropy))
        elif self._bits is None:
            self._bits = np.random.PCG64()

    def add(self, frame: Pixels) -> None:
        """Adds the noise of one more frame to `frame`, in place, and clips to 0 to 255.

        Args:
            frame: [3, size, size], uint8.
        """
        check_array(frame, (3, self.size, self.size), np.uint8, "frame")
        if self._bits is None:
            raise ValueError("add needs an episode, and none has started: call reset(seed) first")
        # Four numbers of 16 bits from each draw; every machine takes them in the same order.
        draws = np.asarray(self._bits.random_raw(self._draws))
        index = draws.astype("<u8", copy=False).view("<u2")[: frame.size]
        noisy = self._quantiles.take(index).reshape(frame.shape)
        noisy += frame
        frame[...] = noisy.clip(0, 255, out=noisy)

    def skip(self, frames: int) -> None:
        """Passes over the noise of so many frames."""
        if self._bits is None:
            raise ValueError("skip needs an episode, and none has started: call reset(seed) first")
        self._bits.advance(frames * self._draws)


def check_strength(distractor: str | None, strength: float | None) -> None:
    """Refuses pixel noise without a strength, and a strength without pixel noise.

    Raises:
        ValueError: With what to do.
    """
    if strength is not None:
        _check_range(strength)
    if distractor == GAUSSIAN and strength is None:
        raise ValueError(
            "the distractor gaussian needs a distractor_strength: its standard deviation as a "
            "share of the full range, such as 0.2"
        )
    if distractor != GAUSSIAN and strength is not None:
        raise ValueError(
            f"distractor_strength is for the distractor gaussian, but the distractor is "
            f"{distractor}; drop distractor_strength or set distractor to gaussian"
        )


@lru_cache(maxsize=8)
def quantiles(strength: float) -> NDArray[np.int16]:
    """The noise as a table, [65536], read-only: a uniform index gives a Gaussian number.

    Entry i is the quantile at the middle of the i-th of 65,536 equally likely intervals, rounded to
    a whole pixel value. The largest is 4.33 standard deviations; the mean is exactly 0.

    Args:
        strength: Standard deviation as a share of 255.
    """
    normal = NormalDist(0.0, 255.0 * strength)
    middles = (np.arange(_INTERVALS // 2, _INTERVALS) + 0.5) / _INTERVALS
    upper = np.rint([normal.inv_cdf(middle) for middle in middles.tolist()]).astype(np.int16)
    table = np.concatenate([-upper[::-1], upper])
    table.flags.writeable = False
    return table


def _check_range(strength: float) -> float:
    value = checks.number(strength, "distractor_strength")
    if not WEAKEST <= value <= STRONGEST:
        raise ValueError(
            f"distractor_strength must be from {WEAKEST:g} to {STRONGEST:g}, got {value:g}"
        )
    return value
