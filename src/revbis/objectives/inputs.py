"""Checks at the door of every objective: shapes, types, non-finite numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

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


_LOOKED_AT = ("cpu",)  # devices whose numbers can be read without waiting
_ACTIONS_AT = {"policy_action": "the states of z", "next_policy_action": "the next states"}


class Transitions(NamedTuple):
    """A batch with checked shapes.

    z and next_z are [B, D], action [B, A], reward and discount [B]; the current policy's actions
    are [B, A] where the objective uses them and None elsewhere.
    """

    z: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_z: Tensor
    policy_action: Tensor | None = None
    next_policy_action: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """By name, without the policy's actions that are None."""
        optional = {name for name in _ACTIONS_AT if getattr(self, name) is None}
        return {name: value for name, value in self._asdict().items() if name not in optional}


def check_transitions(
    batch: Transitions, latent_dim: int, action_dim: int, policy_actions: tuple[str, ...] = ()
) -> Transitions:
    """Checks shapes, flattens [B, 1] to [B], and detaches what must carry no gradient.

    Args:
        batch: As it came.
        latent_dim: D.
        action_dim: A.
        policy_actions: Names of the policy's actions that are needed; others are left out.
    """
    unused: dict[str, Any] = {name: None for name in _ACTIONS_AT if name not in policy_actions}
    batch = batch._replace(**unused)
    for name in policy_actions:
        if getattr(batch, name) is None:
            raise ValueError(
                f"this objective needs {name}=[B, {action_dim}]: actions drawn from the current "
                f"policy at {_ACTIONS_AT[name]}"
            )
    _check_tensors(batch)
    size = batch.z.shape[0] if batch.z.ndim else 0
    for name, tensor in batch.tensors().items():
        if name in ("reward", "discount"):
            continue
        width = latent_dim if name in ("z", "next_z") else action_dim
        if tensor.shape != (size, width):
            raise ValueError(f"{name} must be [{size or 'B'}, {width}], got {list(tensor.shape)}")
    if size < 2:
        raise ValueError(f"the batch must have at least 2 transitions to form pairs, got {size}")
    detached = ("next_z", *policy_actions)
    return batch._replace(
        reward=_column(batch.reward, size, "reward"),
        discount=_column(batch.discount, size, "discount"),
        **{name: getattr(batch, name).detach() for name in detached},
    )


def _check_tensors(batch: Transitions) -> None:
    """Real tensors on one device; embeddings are floats."""
    for name, tensor in batch.tensors().items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
        kind = "floats" if name in ("z", "next_z") else "real numbers"
        if tensor.is_complex() or (kind == "floats" and not tensor.is_floating_point()):
            raise ValueError(f"{name} must hold {kind}, got {tensor.dtype}")
        if tensor.device != batch.z.device:
            raise ValueError(f"{name} is on {tensor.device}, but z is on {batch.z.device}")


def random_partners(
    z: Tensor, generator: torch.Generator | None, *, others: bool = False
) -> Tensor:
    """A random permutation of the batch, on z's device: each element's partner.

    Args:
        z: [B, D].
        generator: Draws it.
        others: No element is its own partner: the permutation is one cycle.
    """
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r:.80}")
    device = z.device if generator is None else generator.device
    order = torch.randperm(len(z), generator=generator, device=device).to(z.device)
    return torch.empty_like(order).scatter_(0, order, order.roll(-1)) if others else order


def refuse_non_finite(tensors: dict[str, Tensor], steps: Tensor) -> None:
    """Raises `NonFiniteError` for the first tensor with a NaN or infinity, on a CPU.

    On other devices every look would make the host wait: there the losses are NaN, and whoever logs
    them sees it. One sum over everything is checked first.
    """
    if steps.device.type not in _LOOKED_AT:
        return
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
