"""Checks at the door of every objective: shapes, types, non-finite numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class NonFiniteError(ArithmeticError):
    """NaN or infinity in an input or a loss.

    Attributes:
        tensor: Name of the input or loss.
        count: Number of its non-finite values.
        step: The objective's step, counted from 0.
    """

    def __init__(self, tensor: str, count: int, size: int, step: int) -> None:
        self.tensor, self.count, self.step = tensor, count, step
        super().__init__(
            f"{tensor} has {count} non-finite values of {size} at objective step {step}; "
            "lower the learning rate, or check where they come from"
        )


class Transitions(NamedTuple):
    """A batch with checked shapes: z, next_z [B, D]; action [B, A]; reward, discount [B]."""

    z: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_z: Tensor

    def take(self, index: Tensor) -> Transitions:
        """The transitions at these indices."""
        return Transitions(*(tensor[index] for tensor in self))


def check_transitions(batch: Transitions, latent_dim: int, action_dim: int) -> Transitions:
    """Checks shapes, flattens [B, 1] to [B], and detaches next_z."""
    _check_tensors(batch)
    z, action, reward, discount, next_z = batch
    size = z.shape[0] if z.ndim else 0
    for name, tensor, width in (
        ("z", z, latent_dim),
        ("action", action, action_dim),
        ("next_z", next_z, latent_dim),
    ):
        if tensor.shape != (size, width):
            raise ValueError(f"{name} must be [{size or 'B'}, {width}], got {list(tensor.shape)}")
    if size < 2:
        raise ValueError(f"the batch must have at least 2 transitions to form pairs, got {size}")
    return Transitions(
        z,
        action,
        _column(reward, size, "reward"),
        _column(discount, size, "discount"),
        next_z.detach(),
    )


def _check_tensors(batch: Transitions) -> None:
    """Real tensors on one device; embeddings are floats."""
    for name, tensor in batch._asdict().items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
        kind = "floats" if name in ("z", "next_z") else "real numbers"
        if tensor.is_complex() or (kind == "floats" and not tensor.is_floating_point()):
            raise ValueError(f"{name} must hold {kind}, got {tensor.dtype}")
        if tensor.device != batch.z.device:
            raise ValueError(f"{name} is on {tensor.device}, but z is on {batch.z.device}")


def random_partners(z: Tensor, generator: torch.Generator | None) -> Tensor:
    """A random permutation of the batch, on z's device: each element's partner."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r:.80}")
    device = z.device if generator is None else generator.device
    return torch.randperm(len(z), generator=generator, device=device).to(z.device)


def refuse_non_finite(tensors: dict[str, Tensor], steps: Tensor) -> None:
    """Raises `NonFiniteError` for the first tensor with a NaN or infinity.

    One sum over everything is checked first, so that a healthy step costs one synchronisation.
    """
    with torch.no_grad():
        total = torch.stack([t.detach().float().sum() for t in tensors.values()]).sum()
        if torch.isfinite(total):
            return
        for name, tensor in tensors.items():
            bad = int((~torch.isfinite(tensor)).sum())
            if bad:
                raise NonFiniteError(name, bad, tensor.numel(), int(steps))


def _column(tensor: Tensor, size: int, name: str) -> Tensor:
    if tensor.shape not in ((size,), (size, 1)):
        raise ValueError(f"{name} must be [{size}] or [{size}, 1], got {list(tensor.shape)}")
    return tensor.detach().reshape(size).to(torch.promote_types(tensor.dtype, torch.float32))
