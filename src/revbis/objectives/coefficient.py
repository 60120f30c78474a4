"""The adaptive coefficient c: two weights that add up to 1 and are learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AdaptiveCoefficient(nn.Module):
    """(1−c, c) = softmax(raw_c), starting at (½, ½)."""

    def __init__(self) -> None:
        super().__init__()
        self.raw_c = nn.Parameter(torch.zeros(2))

    def forward(self) -> tuple[Tensor, Tensor]:
        """The weights of the reward gap and of the next-state distance."""
        reward_weight, next_weight = torch.softmax(self.raw_c, dim=0)
        return reward_weight, next_weight
