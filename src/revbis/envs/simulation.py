"""What an environment needs of a simulator; dmc, metaworld and gymnasium each give it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from revbis.envs.rendering import Pixels


class Outcome(NamedTuple):
    """What one simulator step brought.

    Attributes:
        reward: Its reward.
        discount: 0 where the episode terminated, 1 otherwise.
        last: The episode ended, by termination or by its time limit.
        success: Whether the task's goal is met now; None where a task has no such notion.
    """

    reward: float
    discount: float
    last: bool
    success: bool | None


class Simulation(Protocol):
    """One task in one simulator.

    Attributes:
        low: Lower bounds of the simulator's actions.
        high: Upper bounds.
        horizon: Simulator steps to the time limit, or None.
        feature_count: Length of the task's own vector observation.
        success_at_start: False, or None where a task has no notion of success.
        versions: Versions of the packages that decide what is simulated.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    horizon: int | None
    feature_count: int
    success_at_start: bool | None
    versions: dict[str, str]

    def reset(self, seed: int | None) -> None:
        """Begins an episode; a seed makes it and those after it the ones of that seed."""

    def step(self, action: NDArray[np.float64]) -> Outcome:
        """One simulator step with an action within the bounds."""

    def draw(self, out: Pixels) -> None:
        """Draws the present moment into `out`, [3, size, size]."""

    def behind(self) -> NDArray[np.bool_]:
        """[size, size]: where only sky or ground is seen."""

    def state(self) -> NDArray[np.float64]:
        """The simulator's state vector."""

    def features(self) -> NDArray[np.float32]:
        """The task's own vector observation."""

    def close(self) -> None:
        """Gives back what the simulator holds."""
