"""The targets of the predicted distances, as pure functions.

Names match `revbis.tabular.operators`: on an enumerable MDP these are the same operators. Each
takes all pairs of two batches, or row i of one with row i of the other.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def reward_gap(reward: Tensor, other: Tensor, *, rowwise: bool = False) -> Tensor:
    """Gaps |r_i − r_j|, [N] and [M] → [N, M], or [N] rowwise."""
    return (reward - other).abs() if rowwise else (reward[:, None] - other).abs()


def mean_reward_gap(reward: Tensor, other: Tensor) -> Tensor:
    """Mean smooth-L1 gap of a batch, a scalar: what the authors' released code regresses on.

    There a gap of shape [B, 1] meets distances of shape [B]; the broadcast averages the gap over
    the batch, and no pair's target contains its own rewards.
    """
    return functional.smooth_l1_loss(reward, other)


def pair_discount(discount: Tensor, other: Tensor, *, rowwise: bool = False) -> Tensor:
    """Discount of a pair, the geometric mean of its two: [N] and [M] → [N, M], or [N] rowwise.

    It is γⁿ where both are, and 0 as soon as one of the two has terminated.
    """
    left, right = discount.sqrt(), other.sqrt()
    return left * right if rowwise else left[:, None] * right


def gaussian_w2(
    mean: Tensor, deviation: Tensor, other: tuple[Tensor, Tensor], *, rowwise: bool = False
) -> Tensor:
    r"""2-Wasserstein distances of diagonal Gaussians, \(\sqrt{‖μ_i−μ_j‖² + ‖σ_i−σ_j‖²}\).

    Args:
        mean: [N, D].
        deviation: [N, D], standard deviations.
        other: Means and deviations of the others, [M, D].
        rowwise: Compare row i with row i only.

    Returns:
        [N, M], or [N] rowwise.
    """
    left, right = torch.cat([mean, deviation], dim=1), torch.cat(other, dim=1)
    if rowwise:
        return (left - right).square().sum(dim=1).sqrt()
    return torch.cdist(left, right)


def target(
    gap: Tensor, following: Tensor, reward_weight: Tensor | float, next_weight: Tensor | float
) -> Tensor:
    """Weighted reward gap plus weighted next-state distance (Eq. 9 with weights 1−c and c)."""
    return reward_weight * gap + next_weight * following
