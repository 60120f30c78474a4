"""Irrelevant numbers in a state vector, mixed into it by a fixed rotation.

An observation is Q · (state, offset + scale · ξ). Q is orthogonal and part of the task: the same
for every seed, method, kind of noise and split. ξ has mean 0 and deviation 1. Offset and scale
belong to a variant: 60 are for training and 30 others, of disjoint ranges, for evaluation. The
names carry a version, as those of `distractors` do: its numbers never change.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from revbis.envs.distractors import VARIANTS, Split, seeded_generator

Kind = Literal["gaussian", "walk"]
Floats = NDArray[np.float64]

CORRELATION_STEPS = 20.0  # agent steps in which a walk's correlation falls to 1/e

# Entropy of the generators; those of `distractors` have other numbers.
_VARIANTS_V1, _PROJECTION_V1, _EPISODES_V1 = 3, 4, 1001


class Ranges(NamedTuple):
    """Where the variants of a split are.

    Attributes:
        scale: Of an episode's scale, one for all numbers.
        offset: Of the absolute offset of each number, whose sign is random.
    """

    scale: tuple[float, float]
    offset: tuple[float, float]


RANGES: dict[str, Ranges] = {
    "train": Ranges(scale=(0.8, 1.2), offset=(0.0, 0.5)),
    "eval": Ranges(scale=(1.4, 1.8), offset=(0.5, 1.0)),
}


class StateNoise:
    """The irrelevant numbers and the rotation of one environment.

    A seed determines the variant of an episode and every number in it.

    Args:
        count: How many numbers are added.
        kind: "gaussian" draws them anew for every observation; "walk" is an Ornstein-Uhlenbeck
            process, stationary from the first observation on.
        features: Length of the state vector.
        task: Name of the task, which determines the rotation together with the lengths.
        split: "train" or "eval"; they share no variant.

    Attributes:
        identity: Kind, version, count and split.
        variant: The variant of this episode; -1 before the first reset.
    """

    def __init__(
        self, count: int, kind: Kind, features: int, *, task: str, split: Split = "train"
    ) -> None:
        self.count, self.kind, self.features = count, kind, features
        self.identity = f"{kind}-v1({count})/{split}"
        self.variant = -1
        self._pool = VARIANTS[split]
        self._projection = projection(task, features, count)
        self._rng: np.random.Generator | None = None
        self._offset, self._scale = np.zeros(count), 1.0
        self._walk: Floats | None = None

    def reset(self, seed: int | None) -> None:
        """Chooses an episode's variant; a seed restarts the sequence of episodes."""
        if seed is not None:
            self._rng = seeded_generator(_EPISODES_V1, seed)
        elif self._rng is None:
            self._rng = np.random.default_rng()
        self.variant = self._pool[int(len(self._pool) * self._rng.random())]
        self._offset, self._scale = offset_and_scale(self.variant, self.count)
        self._walk = None

    def observe(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """The observation of a state, [features + count]; time advances by an agent step."""
        if features.shape != (self.features,):
            raise ValueError(f"features must have shape ({self.features},), got {features.shape}")
        if self._rng is None:
            raise ValueError("observe needs an episode, and none has started: call reset(seed)")
        noise = self._offset + self._scale * self._unit_noise(self._rng)
        # float64: a last bit that differs between machines practically never reaches a float32.
        together = np.concatenate([features, noise], dtype=np.float64)
        return (self._projection @ together).astype(np.float32)

    def skip(self, steps: int) -> None:
        """Advances time as so many observations would."""
        assert self._rng is not None, "reset starts an episode"
        for _ in range(steps):
            self._unit_noise(self._rng)

    def _unit_noise(self, rng: np.random.Generator) -> Floats:
        fresh = normals(rng, (self.count,))
        if self.kind == "gaussian":
            return fresh
        if self._walk is None:
            self._walk = fresh
        else:  # the exact transition of the process, so its deviation stays 1
            kept = np.exp(-1.0 / CORRELATION_STEPS)
            self._walk = kept * self._walk + np.sqrt(1.0 - kept * kept) * fresh
        return self._walk


def offset_and_scale(variant: int, count: int) -> tuple[Floats, float]:
    """The offset, [count], and the scale of a variant: a pure function of its arguments."""
    split = "train" if variant in VARIANTS["train"] else "eval"
    (small, large), (near, far) = RANGES[split]
    rng = seeded_generator(_VARIANTS_V1, variant)
    scale = small + (large - small) * rng.random()
    size, side = rng.random((2, count))
    return np.where(side < 0.5, -1.0, 1.0) * (near + (far - near) * size), scale


@lru_cache(maxsize=1)  # the training and evaluation environments of a run share theirs
def projection(task: str, features: int, count: int) -> Floats:
    """The orthogonal matrix of a task, [features + count, features + count], read-only.

    It is drawn uniformly (by the Haar measure) from a generator that only the arguments seed.
    """
    name = int.from_bytes(sha256(task.encode()).digest()[:8], "big")
    rng = seeded_generator(_PROJECTION_V1, name, features, count)
    basis, triangle = np.linalg.qr(normals(rng, (features + count, features + count)))
    # LAPACK chooses the signs of the columns; with R's diagonal positive Q is unique, and uniform.
    matrix: Floats = basis * np.where(np.diag(triangle) < 0, -1.0, 1.0)
    matrix.flags.writeable = False
    return matrix


def normals(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Independent standard Gaussian numbers, by the Box-Muller transform.

    Only random() is used: of NumPy's streams it is the least likely to change.
    """
    radius = np.sqrt(-2.0 * np.log1p(-rng.random(shape)))
    gaussian: Floats = radius * np.cos(2.0 * np.pi * rng.random(shape))
    return gaussian
