"""What an environment needs from a simulator; each suite implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from revbis.envs.rendering import Pixels


class SimulationStep(NamedTuple):
    """The result of one simulator step.

    Attributes:
        reward: Its reward.
        discount: 0 if the episode terminated, else 1.
        last: Whether the episode ended, by termination or by its time limit.
        success: Whether the task's goal is met now; None if the task does not define success.
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
        success_at_start: False, or None if the task does not define success.
        versions: Versions of the packages that determine the simulation.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    horizon: int | None
    feature_count: int
    success_at_start: bool | None
    versions: dict[str, str]

    def reset(self, seed: int | None) -> None:
        """Starts an episode; a seed determines it and those after it."""

    def step(self, action: NDArray[np.float64]) -> SimulationStep:
        """One simulator step with an action within the bounds."""

    def draw(self, out: Pixels) -> None:
        """Draws the current state into `out`, [3, size, size]."""

    def behind(self) -> NDArray[np.bool_]:
        """[size, size]: the pixels that show only sky or ground."""

    def state(self) -> NDArray[np.float64]:
        """The simulator's state vector."""

    def features(self) -> NDArray[np.float32]:
        """The task's own vector observation."""

    def close(self) -> None:
        """Releases the simulator's resources."""


@runtime_checkable
class MujocoSimulation(Simulation, Protocol):
    """One task that revbis draws with MuJoCo, where the simulator has a renderer of its own."""

    def native_renderer(self, size: int) -> Callable[[], Any]:
        """The simulator's own renderer of the same camera, to compare with.

        Args:
            size: Side of the images in pixels.

        Returns:
            A function that draws the current state, as a user of the simulator alone would.
        """
