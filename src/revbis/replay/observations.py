"""Observations made from single frames."""

import numpy as np
import torch
from torch import Tensor

from revbis.replay.kernels import Ints, gather_shifted
from revbis.replay.storage import Ring


def observe(ring: Ring, index: Ints, stack: int, shifts: Ints, *, pinned: bool = False) -> Tensor:
    """Observations whose newest frames are the records.

    Args:
        ring: Where the frames are.
        index: The records, [B]. A stack that would begin before its episode repeats the first
            frame.
        stack: Frames in an observation.
        shifts: (dy, dx) of each image, the same for its whole stack, [B, 2]; vectors ignore it.
        pinned: Whether images go to pinned memory, which copies to a GPU need not wait for.

    Returns:
        uint8 [B, stack·C, H, W], the oldest frame first; float32 [B, stack·D] for vectors.
    """
    ages = ring.columns["age"]
    back = np.minimum(np.arange(stack)[::-1], ages[index % len(ages)][:, None])
    slots = (index[:, None] - back) % len(ages)
    first, *others = ring.layout.observation_shape
    if ring.layout.pixels:
        frames = _empty((len(index), stack, first, *others), pinned)
        gather_shifted(ring.frames, slots, shifts, frames.numpy())
    else:
        frames = torch.from_numpy(ring.frames[slots])
    return frames.reshape(len(index), stack * first, *others)


def _empty(shape: tuple[int, ...], pinned: bool) -> Tensor:
    if pinned:
        return torch.empty(shape, dtype=torch.uint8, pin_memory=True)
    return torch.from_numpy(np.empty(shape, np.uint8))  # NumPy asks for huge pages
