"""TACO's losses (Zheng et al. 2023), as functions of embeddings; one number per element."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def bilinear_logits(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """How well each y matches each x: xᵢᵀ W yⱼ.

    Args:
        x: [B, D].
        y: [B, D].
        weight: W, [D, D].

    Returns:
        [B, B], a row for each x.
    """
    return x @ weight @ y.T


def contrastive_loss(logits: Tensor) -> Tensor:
    """InfoNCE: cross-entropy of choosing, for each row, the match in the same column.

    Args:
        logits: [B, B]; the matches are on the diagonal, the rest of a row are the negatives.

    Returns:
        [B].
    """
    return functional.cross_entropy(logits, _own(logits), reduction="none")


def contrastive_accuracy(logits: Tensor) -> Tensor:
    """1 where the match has the largest logit of its row, else 0; [B, B] → [B]."""
    return (logits.argmax(dim=1) == _own(logits)).to(logits.dtype)


def reward_loss(prediction: Tensor, reward: Tensor) -> Tensor:
    """Squared error of predicted rewards, [B] and [B] → [B]."""
    return (prediction - reward).square()


def _own(logits: Tensor) -> Tensor:
    return torch.arange(len(logits), device=logits.device)
