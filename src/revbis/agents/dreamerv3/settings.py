"""The settings of Dreamer-v3. Imports neither torch nor sheeprl."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from revbis.agents.settings import AgentSettings, Shape
from revbis.schema import Above, AboveOrZero, Batch, CountOrZero, Few, Size

_FLOAT = 4  # bytes
_PASSES = 6  # encoder and decoder: activations, their gradients, temporaries
_LEAST_SIDE = 8  # with one convolution; the last one leaves 4×4
Length = Annotated[int, Meta(ge=2, le=4096)]


@dataclass(frozen=True, kw_only=True)
class DreamerV3Settings(AgentSettings):
    """Dreamer-v3; the defaults are those of sheeprl's size S.

    Raises:
        ValueError: If a value is out of range.
    """

    batch_size: Batch = 16
    """Sequences in an update."""
    explore_steps: CountOrZero = 1024
    """Agent steps with uniformly random actions at the start."""
    sequence_length: Length = 64
    """Observations in a sequence; shorter episodes are not learned from."""
    hidden: Size = 512
    """Width of hidden layers."""
    layers: Few = 2
    """Hidden layers of actor, critic and of the heads of the model."""
    channels: Few = 32
    """Channels of the first convolution; each further one has twice as many."""
    recurrent_dim: Size = 512
    """Width of the recurrent state."""
    groups: Few = 32
    """Categorical variables of the stochastic state."""
    classes: Few = 32
    """Classes of each of them."""
    horizon: Few = 15
    """Steps that actor and critic imagine."""
    learning_rate: Above = 1e-4
    """Adam's learning rate for the world model."""
    actor_learning_rate: Above = 3e-5
    """Adam's learning rate for the actor."""
    critic_learning_rate: Above = 3e-5
    """Adam's learning rate for the critic."""
    entropy_weight: AboveOrZero = 3e-4
    """Weight of the actor's entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.explore_steps < self.sequence_length:
            raise ValueError(
                f"explore_steps must be at least sequence_length = {self.sequence_length}, so that "
                f"the first update finds a sequence, got {self.explore_steps}"
            )

    @property
    def least_steps(self) -> int:
        """Those between the observations of a sequence."""
        return self.sequence_length - 1

    def check(self, observation_shape: Shape) -> None:
        """Refuses images whose sides the convolutions cannot halve down to four."""
        side = observation_shape[-1]
        if len(observation_shape) == 3 and (side < _LEAST_SIDE or side & (side - 1)):
            raise ValueError(
                f"dreamerv3 needs a power of 2 from {_LEAST_SIDE} on for pixels, got {side}; "
                "use 32 or 64"
            )

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:
        """Memory of the images and of the convolutions' activations in an update."""
        if len(observation_shape) != 3:
            return 0
        numbers = observation_shape[0] * observation_shape[-1] ** 2
        side, channels = observation_shape[-1] // 2, self.channels
        while side >= _LEAST_SIDE // 2:
            numbers += channels * side**2
            side, channels = side // 2, channels * 2
        return _PASSES * batch * self.sequence_length * numbers * _FLOAT
