"""What an objective returns, and the metrics computed from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAMPLE = 4096  # distances that quantiles are read from


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectiveOutput:
    """Losses of one batch, and detached tensors that describe it.

    The two without a default are needed; metrics that need one that is None are left out.

    Attributes:
        representation_loss: Scalar; its gradient reaches the embeddings z and the objective's own
            heads, never next_z or the coefficient.
        embedding: What was compared, [B, D].
        prediction: Predicted distances, [B, B], or [B] for permuted pairs; None where the loss is
            not on distances.
        coefficient_loss: Scalar whose gradient reaches raw_c alone; None without a coefficient.
        self_distance: Predicted distance of each element to itself, [B].
        gap: Reward gaps, of the prediction's shape (or a scalar).
        following: Next-state distances, of the prediction's shape.
        reward_weight: Weight of the gap.
        next_weight: Weight of the next-state distance: c, or the discount of each pair.
        tie_loss: The part of `representation_loss` that ties φ's distances to ψ's.
        tie_target: What φ's distances are regressed on by it, of the prediction's shape.
        predicted: By name, what a model predicted and what it should have: `next`, embeddings
            [B, D], and `reward`, [B].
    """

    representation_loss: Tensor
    embedding: Tensor
    prediction: Tensor | None = None
    coefficient_loss: Tensor | None = None
    self_distance: Tensor | None = None
    gap: Tensor | None = None
    following: Tensor | None = None
    reward_weight: Tensor | None = None
    next_weight: Tensor | None = None
    tie_loss: Tensor | None = None
    tie_target: Tensor | None = None
    predicted: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def losses(self) -> dict[str, Tensor]:
        """The losses by name, with gradient."""
        losses = {"representation_loss": self.representation_loss}
        if self.coefficient_loss is not None:
            losses["coefficient_loss"] = self.coefficient_loss
        return losses

    @cached_property
    def metrics(self) -> dict[str, Tensor]:
        """Detached scalars by name, computed on first access; docs/metrics.md explains each."""
        metrics = {name: loss.detach() for name, loss in self.losses.items()}
        if self.next_weight is not None:
            metrics["c"] = self.next_weight.mean()
        metrics |= self._shares() | {
            "embedding_norm": torch.linalg.vector_norm(self.embedding, dim=1).mean(),
            "effective_rank": effective_rank(self.embedding),
        }
        if self.prediction is not None:
            metrics |= _distance_metrics(self.prediction)
        for name, (guess, actual) in self.predicted.items():
            metrics[f"{name}_error"] = relative_error(guess, actual)
        if self.tie_loss is not None:
            metrics["tie_loss"] = self.tie_loss
        if self.self_distance is not None:
            metrics["self_distance"] = self.self_distance.mean()
        return metrics

    def _shares(self) -> dict[str, Tensor]:
        """Shares of the two terms in the mean target."""
        if self.gap is None or self.reward_weight is None:
            return {}
        if self.following is None or self.next_weight is None:
            return {}
        reward = (self.reward_weight * self.gap).mean()
        following = (self.next_weight * self.following).mean()
        total = (reward + following).clamp_min(torch.finfo(reward.dtype).tiny)
        return {"reward_share": reward / total, "next_share": following / total}


def _distance_metrics(prediction: Tensor) -> dict[str, Tensor]:
    """Quantiles of the distances, and the share of those near 0."""
    flat = prediction.flatten()
    sample = flat[:: max(1, len(flat) // _SAMPLE)]
    low, middle, high = torch.quantile(sample, sample.new_tensor([0.05, 0.5, 0.95]))
    return {
        "distance_q05": low,
        "distance_q50": middle,
        "distance_q95": high,
        "near_zero_fraction": (sample < 0.01 * sample.max()).to(sample.dtype).mean(),
    }


def relative_error(guess: Tensor, actual: Tensor) -> Tensor:
    """E/(E + V), E the squared error of a prediction and V the variance of what it predicts.

    0 is exact, ½ as good as the mean; it is finite where nothing varies, too.

    Args:
        guess: [B] or [B, D].
        actual: Of the same shape.
    """
    error = (guess - actual).square().sum()
    total = error + (actual - actual.mean(dim=0)).square().sum()
    return error / total.clamp_min(torch.finfo(total.dtype).tiny)


def effective_rank(x: Tensor) -> Tensor:
    """Exp of the entropy of the normalised spectrum of x's covariance: 1 when collapsed, D at most.

    NaN if x is not finite.

    Args:
        x: [B, D].
    """
    centred = x - x.mean(dim=0)
    wide = x.shape[1] > x.shape[0]
    gram = centred @ centred.T if wide else centred.T @ centred  # their spectra differ by zeros
    if gram.device.type == "mps":
        gram = gram.cpu()  # PyTorch has no eigenvalues there
    if not gram.isfinite().all():  # LAPACK would raise
        return x.new_full((), torch.nan)
    spectrum = torch.linalg.eigvalsh(gram).clamp_min(0)
    share = spectrum / spectrum.sum().clamp_min(torch.finfo(x.dtype).tiny)
    rank: Tensor = torch.special.entr(share).sum().exp().to(x.device)
    return rank
