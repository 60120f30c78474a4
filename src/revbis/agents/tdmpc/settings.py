"""The settings of TD-MPC. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from revbis.agents.settings import AgentSettings, Shape
from revbis.schema import (
    Above,
    AboveOrZero,
    Batch,
    Count,
    CountOrZero,
    Few,
    Share,
    Size,
    SizeOrZero,
    Stride,
)

KERNELS = (7, 5, 3, 3)  # sides of the convolutions' windows
_FLOAT = 4  # bytes
_PASSES = 4  # activations in memory at once: forward, gradients, next batch, temporaries


@dataclass(frozen=True, kw_only=True)
class TDMPCSettings(AgentSettings):
    """TD-MPC; the defaults are its authors' for pixels.

    Raises:
        ValueError: If a value is out of range.
    """

    batch_size: Batch = 256
    """Sequences in an update."""
    explore_steps: CountOrZero = 5000
    """Agent steps with uniformly random actions at the start."""
    latent_dim: Size = 50
    """Width of the latent state z."""
    hidden: Size = 512
    """Width of hidden layers of dynamics, reward, values and policy."""
    encoder_hidden: Size = 256
    """Width of the hidden layer that encodes state vectors."""
    channels: Few = 32
    """Channels of each convolution."""
    strides: tuple[Stride, Stride, Stride, Stride] = (2, 2, 2, 2)
    """Strides of the four convolutions."""
    learning_rate: Above = 3e-4
    """Adam's learning rate."""
    horizon: Few = 5
    """Steps that the model is unrolled and trained over, and that plans have in the end."""
    horizon_steps: Count = 25_000
    """Agent steps over which plans grow from one step to --horizon."""
    loss_decay: Share = 0.5
    """Factor of the losses of each further step of the horizon."""
    consistency_weight: AboveOrZero = 2.0
    """Weight of the latent dynamics' loss."""
    reward_weight: AboveOrZero = 0.5
    """Weight of the reward's loss."""
    value_weight: AboveOrZero = 0.1
    """Weight of the values' loss."""
    gradient_clip: Above = 10.0
    """Largest length of a gradient; longer ones are shortened to it."""
    target_rate: Share = 0.01
    """Rate τ of the targets' moving average."""
    target_every: Count = 2
    """Updates between two steps of the targets."""
    priority_exponent: AboveOrZero = 0.6
    """Exponent of the value errors by which sequences are drawn; 0 draws all alike."""
    importance_exponent: AboveOrZero = 0.4
    """Exponent of the weights that correct for it; 0 corrects nothing."""
    iterations: Few = 8
    """Iterations of the planner."""
    samples: Size = 512
    """Action sequences that the planner draws in each iteration."""
    policy_samples: SizeOrZero = 25
    """Action sequences that the policy proposes to the planner."""
    elites: Size = 64
    """Best action sequences from which the next iteration's distribution is fitted."""
    temperature: Above = 0.5
    """How much an elite's weight depends on its return."""
    momentum: AboveOrZero = 0.1
    """Share of the previous mean in the planner's new one."""
    noise_start: AboveOrZero = 0.5
    """Least standard deviation of planned actions at the start."""
    noise_end: AboveOrZero = 0.05
    """Least standard deviation of planned actions at the end; also that of the policy's noise."""
    noise_steps: Count = 25_000
    """Agent steps over which the noise decays from --noise-start to --noise-end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        candidates = self.samples + self.policy_samples
        if self.elites > candidates:
            raise ValueError(
                f"elites must be at most samples + policy_samples = {candidates}, got {self.elites}"
            )
        if self.momentum > 1:
            raise ValueError(f"momentum must be at most 1, got {self.momentum:g}")

    @property
    def prioritised(self) -> bool:
        """Sequences are drawn by their priority."""
        return True

    @property
    def least_steps(self) -> int:
        """Those of the horizon."""
        return self.horizon

    def check(self, observation_shape: Shape) -> None:
        """Refuses images too small for the convolutions."""
        if len(observation_shape) == 3:
            feature_side(min(observation_shape[1:]), self.strides)

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:
        """Memory of the images and of the convolutions' activations in an update."""
        if len(observation_shape) != 3:
            return 0
        channels, side, _ = observation_shape
        image = channels * side**2
        numbers = image
        for kernel, stride in zip(KERNELS, self.strides, strict=True):
            side = (side - kernel) // stride + 1
            numbers += self.channels * side**2
        return batch * ((self.horizon + 1) * image + _PASSES * numbers * _FLOAT)


def feature_side(side: int, strides: tuple[int, ...]) -> int:
    """Side of the last convolution's output.

    Raises:
        ValueError: If images are too small for the convolutions; with what to do.
    """
    left = side
    for kernel, stride in zip(KERNELS, strides, strict=True):
        left = (left - kernel) // stride + 1
        if left < 1:
            raise ValueError(
                f"images of {side}x{side} are too small for convolutions of {KERNELS} with strides "
                f"{tuple(strides)}: use more pixels or smaller strides"
            )
    return left
