"""What every agent's settings have in common. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from revbis import schema
from revbis.schema import Batch, CountOrZero

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of an agent: flags, defaults and checks. Subclasses add their own.

    Raises:
        ValueError: If a value is not of its type or out of range.
    """

    batch_size: Batch = 1024
    """Transitions in an update."""
    explore_steps: CountOrZero = 2000
    """Agent steps with uniformly random actions at the start."""

    def __post_init__(self) -> None:
        schema.settle(self)

    @property
    def one_step(self) -> bool:
        """Whether batches must also include the one-step transition."""
        return False

    @property
    def half_precision(self) -> bool:
        """Whether the networks run in bfloat16, which not every processor can."""
        return False

    @property
    def prioritised(self) -> bool:
        """Whether the replay buffer must draw sequences by priority."""
        return False

    def check(self, observation_shape: Shape) -> None:
        """Refuses settings from which no agent can be built, before anything is built.

        Args:
            observation_shape: (C, H, W) of stacked frames, or (D,) of vectors.

        Raises:
            ValueError: With the requirement, the value and what to do.
        """

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:  # noqa: ARG002
        """Approximate memory of an update, in bytes.

        Args:
            observation_shape: (C, H, W) of stacked frames, or (D,) of vectors.
            batch: Transitions in the update.
        """
        return 0

    def for_reading(self) -> Self:
        """Settings with the same networks, for reading a trained agent on any machine."""
        return self
