"""TD-MPC's losses: pure functions of predictions and targets, one number per sequence."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_LARGEST = 1e4  # a sequence's losses and priorities are cut there


class Predictions(NamedTuple):
    """What the model predicts along T steps of B sequences.

    Attributes:
        z: Latent states after each step, unrolled from the first observation, [T, B, D].
        reward: Rewards, [T, B].
        q1: Values of the state before each step and its action, [T, B].
        q2: The other ones, [T, B].
    """

    z: Tensor
    reward: Tensor
    q1: Tensor
    q2: Tensor


class Targets(NamedTuple):
    """What the predictions should be, without gradient.

    Attributes:
        z: The target encoder's latent states of the next observations, [T, B, D].
        reward: Rewards received, [T, B].
        q: One-step targets of the values, [T, B].
    """

    z: Tensor
    reward: Tensor
    q: Tensor


class SequenceLosses(NamedTuple):
    """Sums over the horizon, step t weighted by decayᵗ, [B] each.

    Attributes:
        consistency: Mean squared error of the latent states.
        reward: Squared error of the reward.
        value: Squared errors of both values.
        priority: Absolute errors of both values.
    """

    consistency: Tensor
    reward: Tensor
    value: Tensor
    priority: Tensor


def step_weights(count: int, decay: float, device: torch.device) -> Tensor:
    """Weights decayᵗ of the steps, [count, 1]."""
    return (decay ** torch.arange(count, device=device, dtype=torch.float32))[:, None]


def sequence_losses(predicted: Predictions, target: Targets, decay: float) -> SequenceLosses:
    """The four losses of each sequence (Hansen et al. 2022).

    Args:
        predicted: Of T steps of B sequences.
        target: The same, without gradient.
        decay: ρ, the factor of each further step.
    """
    weight = step_weights(len(target.reward), decay, target.reward.device)
    errors = torch.stack([predicted.q1, predicted.q2]) - target.q
    losses = (
        (predicted.z - target.z).square().mean(dim=2),
        (predicted.reward - target.reward).square(),
        errors.square().sum(dim=0),
        errors.detach().abs().sum(dim=0),
    )
    sums = ((weight * loss).sum(dim=0).clamp(max=_LARGEST) for loss in losses)
    return SequenceLosses(*sums)


def policy_loss(value: Tensor, decay: float) -> Tensor:
    """Minus the mean value of the policy's actions, summed over steps with weights decayᵗ.

    Args:
        value: The smaller value at each latent state, [T + 1, B].
        decay: ρ, the factor of each further step.
    """
    return -(step_weights(len(value), decay, value.device) * value).sum(dim=0).mean()


def importance_weights(probability: Tensor, exponent: float) -> Tensor:
    """Weights probability⁻ᵝ, scaled so that the largest is 1, [B] (Schaul et al. 2016).

    Args:
        probability: With which each sequence was drawn, [B].
        exponent: β; 0 weights all alike.
    """
    return (probability / probability.min()) ** -exponent
