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


def smooth_gap(reward: Tensor, other: Tensor, *, rowwise: bool = False) -> Tensor:
    """Smooth-L1 gaps, [N] and [M] → [N, M], or [N] rowwise: those of the authors' released code.

    There gaps of shape [B, 1] meet distances of shape [B]. The broadcast sets each distance beside
    every pair's gap, so that φ and ψ see the batch's mean gap alone, and c also its variance.
    """
    gap = reward_gap(reward, other, rowwise=rowwise)
    return functional.smooth_l1_loss(gap, torch.zeros_like(gap), reduction="none")


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
