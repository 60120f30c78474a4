"""Generators of random numbers, restored on any device."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def restore(generator: torch.Generator, state: Tensor) -> None:
    """Sets a generator to a state that `get_state` returned, of this or another kind of device.

    The state of another kind (CPU, CUDA, ...) has another length and does not fit. Then its digest
    seeds the generator: the random numbers are not those that would have followed, but the same
    ones each time.
    """
    state = state.cpu()
    if state.dtype != torch.uint8 or state.shape == generator.get_state().shape:
        generator.set_state(state)  # refuses what is no state
        return
    digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=8).digest()
    generator.manual_seed(int.from_bytes(digest))
