"""A gate for rewards: a slow process that is seen, and that every reward is multiplied by.

It is exogenous, as nobody can control it, and relevant, as values depend on it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.envs.distractors import VARIANTS, Split, seeded_generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from revbis.envs.suite import Simulation, SimulationStep

NUMBERS = 2  # that are seen of it: cosine and sine of its phase
# Simulator steps in which the gate opens and closes once.
PERIODS: dict[str, tuple[float, float]] = {"train": (200.0, 400.0), "eval": (400.0, 600.0)}

_VARIANTS_V1, _EPISODES_V1 = 6, 1003  # entropy; other files have other numbers


class GatedSimulation:
    """A simulation whose rewards are multiplied by (1 + cos θ)/2, where θ grows evenly.

    Cosine and sine of θ are the last two numbers of its features and of its state. A seed
    determines the variant of an episode, whose period θ has, and where θ starts.

    Args:
        simulation: The task without a gate.
        split: "train" or "eval"; they share no variant, and no period.

    Attributes:
        gate_identity: Kind, version and split.
    """

    def __init__(self, simulation: Simulation, split: Split) -> None:
        self._simulation, self._split = simulation, split
        self.gate_identity = f"gate-v1/{split}"
        self.feature_count = simulation.feature_count + NUMBERS
        self._rng: np.random.Generator | None = None
        self._angle, self._pace = 0.0, 0.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # so that a copy does not look for itself
            raise AttributeError(name)
        return getattr(self._simulation, name)

    def reset(self, seed: int | None) -> None:
        """Starts an episode."""
        self._simulation.reset(seed)
        if seed is not None:
            self._rng = seeded_generator(_EPISODES_V1, seed)
        elif self._rng is None:
            self._rng = np.random.default_rng()
        pool = VARIANTS[self._split]
        self._pace = 2 * math.pi / period(pool[int(len(pool) * self._rng.random())])
        self._angle = 2 * math.pi * self._rng.random()

    def step(self, action: NDArray[np.float64]) -> SimulationStep:
        """One simulator step; its reward is multiplied by the gate as it was seen before."""
        gate = (1.0 + math.cos(self._angle)) / 2.0
        self._angle = (self._angle + self._pace) % (2 * math.pi)
        result = self._simulation.step(action)
        return result._replace(reward=gate * result.reward)

    def state(self) -> NDArray[np.float64]:
        """The simulator's state, then the gate."""
        return np.concatenate([self._simulation.state(), self._seen()])

    def features(self) -> NDArray[np.float32]:
        """The task's own vector, then the gate."""
        return np.concatenate([self._simulation.features(), self._seen()]).astype(np.float32)

    def _seen(self) -> NDArray[np.float64]:
        return np.array([math.cos(self._angle), math.sin(self._angle)])


def period(variant: int) -> float:
    """Simulator steps in which a variant's gate opens and closes once."""
    short, long = PERIODS["train" if variant in VARIANTS["train"] else "eval"]
    return float(short + (long - short) * seeded_generator(_VARIANTS_V1, variant).random())
