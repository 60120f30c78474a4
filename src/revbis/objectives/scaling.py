"""The running scale of reward gaps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_SLOWEST = 0.002  # weight of a new batch in the running means, at least


class RunningScale(nn.Module):
    """Divides reward gaps so that the mean distance of the exact metric is about ½.

    With weights that add up to 1 the mean distance is the mean gap; with (1, γ) it is the mean gap
    over 1 − γ. Running means of gap and discount are part of the state; they begin with the first
    batch whose rewards differ. Multiplying all rewards by a constant leaves the scaled gaps as they
    were.
    """

    gap: Tensor
    discount: Tensor
    batches: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gap", torch.zeros(()))
        self.register_buffer("discount", torch.zeros(()))
        self.register_buffer("batches", torch.zeros(()))

    @property
    def value(self) -> Tensor:
        """What gaps are divided by: 1 while all of them were 0."""
        scale = 2 * self.gap / (1 - self.discount).clamp_min(1e-3)
        return torch.where(scale > 0, scale, 1.0)

    @torch.no_grad()
    def forward(self, gap: Tensor, discount: Tensor | None) -> Tensor:
        """The gaps divided by the scale, which takes them into account first.

        Args:
            gap: Reward gaps of a batch.
            discount: Weights of the next-state term where those of the gaps are 1; else None.
        """
        mean = gap.mean().to(self.gap.dtype)
        self.batches += (mean + self.batches) > 0  # counted from the first reward on
        rate = (1 / self.batches.clamp_min(1)).clamp_min(_SLOWEST)
        self.gap.lerp_(mean, rate)
        if discount is not None:
            self.discount.lerp_(discount.mean().to(self.discount.dtype), rate)
        return gap / self.value
