"""Validates what TD-MPC learns from, and moves it to its device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from revbis.agents.tdmpc.settings import TDMPCSettings
from revbis.replay import PrioritisedReplay, Sequences

if TYPE_CHECKING:
    Shape = tuple[int, ...]


def as_settings(value: object) -> TDMPCSettings:
    """The settings, if they are this agent's."""
    if not isinstance(value, TDMPCSettings):
        raise ValueError(f"settings must be TDMPCSettings, got {value!r:.80}")
    return value


def check_replay(replay: object) -> PrioritisedReplay:
    """The replay buffer, if it has priorities."""
    if not isinstance(replay, PrioritisedReplay):
        raise ValueError(
            f"tdmpc draws by priority and needs a PrioritisedReplay, got {type(replay).__name__}"
        )
    return replay


def check_probability(probability: object, size: int, device: torch.device) -> Tensor:
    """The probabilities of sequences on the device, if there is one above 0 for each."""
    if (
        not isinstance(probability, Tensor)
        or probability.shape != (size,)
        or not probability.is_floating_point()
        or not bool((probability > 0).all())
    ):
        raise ValueError(
            f"probability must have {size} numbers above 0, as sample_prioritised returns, got "
            f"{probability!r:.80}"
        )
    return probability.to(device, torch.float32)


def check_sequences(
    sequences: Sequences, shape: Shape, action_size: int, length: int, device: torch.device
) -> Sequences:
    """The sequences on the device, if their shapes and types are the agent's."""
    if not isinstance(sequences, Sequences):
        raise ValueError(
            "sequences must be Sequences, as Replay.sample_sequences returns, got "
            f"{sequences!r:.80}"
        )
    if not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in sequences):
        raise ValueError("every part of sequences must be a tensor with one entry per sequence")
    size = len(sequences.obs)
    pixels = len(shape) == 3
    expected = {
        "obs": ((size, length + 1, *shape), torch.uint8 if pixels else torch.float32),
        "action": ((size, length, action_size), torch.float32),
        "reward": ((size, length), torch.float32),
        "discount": ((size, length), torch.float32),
    }
    for name, (sizes, dtype) in expected.items():
        tensor: Tensor = getattr(sequences, name)
        if tensor.shape != sizes or tensor.dtype != dtype:
            raise ValueError(
                f"{name} must be {dtype} {list(sizes)}, got {tensor.dtype} {list(tensor.shape)}"
            )
    if device.type == "cpu":
        return sequences
    return Sequences(*(tensor.to(device, non_blocking=True) for tensor in sequences))
