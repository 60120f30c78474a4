"""The networks of TD-MPC: encoder, latent dynamics, reward, twin values and policy."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.agents.linear import Linear
from revbis.agents.tdmpc.settings import KERNELS, feature_side

if TYPE_CHECKING:
    from revbis.agents.tdmpc.settings import TDMPCSettings


class PixelEncoder(nn.Module):
    """Four convolutions with ReLU on pixels/255, then a linear layer.

    Tensors are channels-last, which is faster for convolutions.

    Args:
        shape: (channels, height, width) of an observation.
        settings: Sizes.

    Raises:
        ValueError: If the image is too small for the strides.
    """

    def __init__(self, shape: tuple[int, ...], settings: TDMPCSettings) -> None:
        super().__init__()
        channels, strides = settings.channels, settings.strides
        inputs = [shape[0], channels, channels, channels]
        self.convolutions = nn.ModuleList(
            map(_convolution, inputs, [channels] * 4, strides, KERNELS)
        )
        height, width = (feature_side(side, strides) for side in shape[1:])
        self.last = Linear(channels * height * width, settings.latent_dim)

    def forward(self, observation: Tensor) -> Tensor:
        """uint8 [B, C, H, W] → z, [B, latent_dim]."""
        x = observation.to(torch.float32, memory_format=torch.channels_last).div_(255)
        for convolution in self.convolutions:
            x = functional.relu(convolution(x), inplace=True)
        z: Tensor = self.last(x.permute(0, 2, 3, 1).flatten(start_dim=1))
        return z


class VectorEncoder(nn.Module):
    """One hidden layer with ELU, for observations that are vectors of numbers."""

    def __init__(self, inputs: int, settings: TDMPCSettings) -> None:
        super().__init__()
        self.first = Linear(inputs, settings.encoder_hidden)
        self.last = Linear(settings.encoder_hidden, settings.latent_dim)

    def forward(self, observation: Tensor) -> Tensor:
        """float32 [B, inputs] → z, [B, latent_dim]."""
        z: Tensor = self.last(functional.elu(self.first(observation), inplace=True))
        return z


class MLP(nn.Module):
    """Two hidden layers with ELU."""

    def __init__(self, inputs: int, hidden: int, outputs: int, *, zero: bool = False) -> None:
        super().__init__()
        self.first, self.second = Linear(inputs, hidden), Linear(hidden, hidden)
        self.last = Linear(hidden, outputs)
        if zero:
            nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] → [B, outputs]."""
        x = functional.elu(self.first(x), inplace=True)
        y: Tensor = self.last(functional.elu(self.second(x), inplace=True))
        return y


class Q(nn.Module):
    """A value whose first layer is normalised and followed by tanh; it starts as 0."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first, self.norm = Linear(inputs, hidden), nn.LayerNorm(hidden)
        self.second, self.last = Linear(hidden, hidden), Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] → [B]."""
        x = torch.tanh(self.norm(self.first(x)))
        y: Tensor = self.last(functional.elu(self.second(x), inplace=True))
        return y.squeeze(1)


class TwinQ(nn.Module):
    """Two values of a latent state and an action."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.q1, self.q2 = Q(inputs, hidden), Q(inputs, hidden)

    def forward(self, z: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """[B, latent_dim] and [B, A] → two values, [B] each."""
        x = torch.cat([z, action], dim=1)
        return self.q1(x), self.q2(x)


class Model(nn.Module):
    """The task-oriented latent dynamics, and the policy.

    Attributes:
        encoder: h, from observations to z.
        dynamics: d, from z and an action to the next z.
        reward: R, from z and an action to the reward.
        values: Q, from z and an action to two values.
        actor: π, from z to an action before its tanh.
    """

    def __init__(self, shape: tuple[int, ...], action_size: int, settings: TDMPCSettings) -> None:
        super().__init__()
        s = settings
        both = s.latent_dim + action_size
        pixels = len(shape) == 3
        self.encoder: PixelEncoder | VectorEncoder
        self.encoder = PixelEncoder(shape, s) if pixels else VectorEncoder(shape[0], s)
        self.dynamics = MLP(both, s.hidden, s.latent_dim)
        self.reward = MLP(both, s.hidden, 1, zero=True)
        self.values = TwinQ(both, s.hidden)
        self.actor = MLP(s.latent_dim, s.hidden, action_size)

    def next(self, z: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The next latent state, [B, latent_dim], and the reward, [B]."""
        x = torch.cat([z, action], dim=1)
        return self.dynamics(x), self.reward(x).squeeze(1)

    def policy(self, z: Tensor) -> Tensor:
        """The policy's mean action, [B, A]."""
        return torch.tanh(self.actor(z))

    def value(self, z: Tensor, action: Tensor) -> Tensor:
        """The smaller of the two values, [B]."""
        return torch.minimum(*self.values(z, action))

    def learned(self) -> list[nn.Parameter]:
        """What the model's loss trains: everything but the policy."""
        parts = (self.encoder, self.dynamics, self.reward, self.values)
        return [parameter for part in parts for parameter in part.parameters()]


class Target(nn.Module):
    """Slowly moving copies of encoder and values; nothing else of the model needs one."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(model.encoder)
        self.values = copy.deepcopy(model.values)
        self.requires_grad_(False)

    @torch.no_grad()
    def follow(self, model: Model, rate: float) -> None:
        """Moves towards the model: target += rate · (model − target)."""
        sources: list[Tensor] = [*model.encoder.parameters(), *model.values.parameters()]
        torch._foreach_lerp_(list(self.parameters()), sources, rate)


def _convolution(inputs: int, outputs: int, stride: int, kernel: int) -> nn.Conv2d:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=kernel, stride=stride, bias=True)
    nn.init.orthogonal_(convolution.weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
    return convolution
