"""The networks of DrQ-v2, and its noisy actions.

Actions and values are float32, whatever precision the layers before them ran in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.agents.linear import Linear
from revbis.agents.pixels import scaled_pixels

if TYPE_CHECKING:
    from collections.abc import Sequence

_EDGE = 1e-6  # distance of actions from the ends of [−1, 1]


class PixelEncoder(nn.Module):
    """Four 3×3 convolutions with ReLU on pixels/255 − ½.

    Tensors are channels-last, which is faster for convolutions. Features are in the same order
    (row, column, channel), so flattening is a view.

    Args:
        shape: (channels, height, width) of an observation.
        channels: Channels of each convolution.
        strides: Strides of the four convolutions.

    Raises:
        ValueError: If the image is too small for the strides.
    """

    def __init__(self, shape: Sequence[int], channels: int, strides: Sequence[int]) -> None:
        super().__init__()
        inputs = [shape[0], *[channels] * (len(strides) - 1)]
        self.convolutions = nn.ModuleList(
            _convolution(n, channels, stride) for n, stride in zip(inputs, strides, strict=True)
        )
        self.size = self._probe(shape, strides)

    def forward(self, observation: Tensor) -> Tensor:
        """uint8 [B, C, H, W] → float [B, size]."""
        x = scaled_pixels(observation, _activation_type(observation.device.type))
        for convolution in self.convolutions:
            x = functional.relu(convolution(x), inplace=True)
        return x.permute(0, 2, 3, 1).flatten(start_dim=1)

    @torch.no_grad()
    def _probe(self, shape: Sequence[int], strides: Sequence[int]) -> int:
        try:
            return self.forward(torch.zeros(1, *shape, dtype=torch.uint8)).shape[1]
        except RuntimeError:
            raise ValueError(
                f"images of {shape[1]}x{shape[2]} are too small for four convolutions with strides "
                f"{tuple(strides)}: use larger images or smaller strides"
            ) from None


class VectorEncoder(nn.Module):
    """Two hidden layers with ReLU, for observations that are vectors of numbers.

    Args:
        inputs: Length of an observation.
        hidden: Width of both layers.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(Linear(inputs, hidden, "relu"), Linear(hidden, hidden, "relu"))
        self.size = hidden

    def forward(self, observation: Tensor) -> Tensor:
        """float32 [B, inputs] → [B, size]."""
        features: Tensor = self.layers(observation)
        return features


class Policy(nn.Module):
    """Mean action from the actor's readout of the features."""

    def __init__(self, feature_dim: int, hidden: int, action_size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(feature_dim)
        self.layers = _mlp(feature_dim, hidden, action_size)

    def logits(self, readout: Tensor) -> Tensor:
        """What the last tanh makes actions of, [B, feature_dim] → [B, A]."""
        logits: Tensor = self.layers(torch.tanh(self.norm(readout))).float()
        return logits

    def forward(self, readout: Tensor) -> Tensor:
        """[B, feature_dim] → [B, A] in [−1, 1]."""
        return torch.tanh(self.logits(readout))


class TwinQ(nn.Module):
    """Two action values from the critic's readout of the features."""

    def __init__(self, feature_dim: int, hidden: int, action_size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(feature_dim)
        self.q1 = _mlp(feature_dim + action_size, hidden, 1)
        self.q2 = _mlp(feature_dim + action_size, hidden, 1)

    def trunk(self, readout: Tensor) -> Tensor:
        """The representation of the observation that both heads share, [B, feature_dim]."""
        return torch.tanh(self.norm(readout))

    def forward(self, readout: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """[B, feature_dim] and [B, A] → two values, [B] each."""
        x = torch.cat([self.trunk(readout), action], dim=1)
        return self.q1(x).squeeze(1).float(), self.q2(x).squeeze(1).float()


def noisy_action(
    mean: Tensor, deviation: float, generator: torch.Generator, clip: float | None = None
) -> Tensor:
    """Mean plus Gaussian noise, clipped to [−1, 1] with a straight-through gradient.

    Args:
        mean: [B, A].
        deviation: Standard deviation of the noise.
        generator: Draws the noise, on the mean's device.
        clip: Largest absolute value of the noise; None for no limit.
    """
    noise = torch.randn(mean.shape, generator=generator, device=mean.device) * deviation
    if clip is not None:
        noise = noise.clamp(-clip, clip)
    action = mean + noise
    inside = action.detach().clamp(_EDGE - 1, 1 - _EDGE)
    return inside + (action - action.detach())


def linear_schedule(start: float, end: float, steps: int, step: int) -> float:
    """Linear interpolation from start to end over `steps` steps; `end` afterwards."""
    done = min(max(step / steps, 0.0), 1.0)
    return (1 - done) * start + done * end


def _activation_type(device: str) -> torch.dtype:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32


def _convolution(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, bias=True)
    nn.init.orthogonal_(convolution.weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
    return convolution


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        Linear(inputs, hidden, "relu"), Linear(hidden, hidden, "relu"), Linear(hidden, outputs)
    )
