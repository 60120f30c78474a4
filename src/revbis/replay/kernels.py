"""The inner loops of sampling, compiled: n-step returns, and frames gathered with their shift."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from revbis.system.compiled import compiled

Ints = NDArray[np.int64]
Array = NDArray[Any]


@compiled
def n_step_returns(
    index: Ints,
    written: int,
    n_step: int,
    gamma: float,
    age: Array,
    reward: Array,
    discount: Array,
) -> tuple[Array, Array, Ints]:
    """Adds up to n rewards from each index on, and stops at the episode's end.

    The action of record i is stored with its result, record i + 1. An episode ends at the newest
    record, or where the next record is an episode's first (age 0).

    Args:
        index: The records where the transitions start, [B].
        written: How many records were ever written.
        n_step: The most rewards to add.
        gamma: The agent's discount.
        age: Steps since the episode's first frame, by slot of the ring.
        reward: The reward received with the record, by slot.
        discount: The environment's discount, by slot.

    Returns:
        The discounted sums [B], the discounts of what follows [B], the records that follow [B].
    """
    capacity = len(age)
    total = np.zeros(len(index), dtype=np.float32)
    remaining = np.zeros(len(index), dtype=np.float32)
    following = np.zeros(len(index), dtype=np.int64)
    for b in range(len(index)):
        record, weight, gained = index[b], 1.0, 0.0
        for _ in range(n_step):
            record += 1
            slot = record % capacity
            gained += weight * reward[slot]
            weight *= gamma * discount[slot]
            if record + 1 == written or age[(record + 1) % capacity] == 0:
                break
        total[b], remaining[b], following[b] = gained, weight, record
    return total, remaining, following


@compiled
def gather_shifted(frames: Array, slots: Ints, shifts: Ints, out: Array) -> None:  # noqa: C901
    """Copies stacks of frames, each shifted by whole pixels with its edges repeated.

    Pixel (y, x) of the result is pixel (y + dy, x + dx) of the frame, clipped to the frame. A shift
    of a contiguous plane is one contiguous copy at an offset; what the copy carried over from the
    neighbouring row is then overwritten with the edge. Copying row by row is nine times slower.

    Args:
        frames: The ring, uint8 [capacity, C, H, W].
        slots: The frames of each stack, oldest first, [B, stack].
        shifts: (dy, dx) of each stack, |dy| < H and |dx| < W, [B, 2].
        out: Where the result goes, uint8 [B, stack, C, H, W].
    """
    _, channels, height, width = frames.shape
    size = height * width
    for b in range(slots.shape[0]):
        dy, dx = shifts[b, 0], shifts[b, 1]
        offset = dy * width + dx
        first, length = max(0, -offset), size - abs(offset)
        top, bottom = max(0, -dy), min(height, height - dy)
        for s in range(slots.shape[1]):
            for c in range(channels):
                source = frames[slots[b, s], c].reshape(-1)
                target = out[b, s, c].reshape(-1)
                # Slices, so that both loops count from 0: that is what gets vectorised.
                into = target[first : first + length]
                block = source[first + offset : first + offset + length]
                for k in range(length):
                    into[k] = block[k]
                for x in range(-dx):
                    for y in range(top, bottom):
                        target[y * width + x] = source[(y + dy) * width]
                for x in range(width - dx, width):
                    for y in range(top, bottom):
                        target[y * width + x] = source[(y + dy) * width + width - 1]
                for y in range(top):
                    for x in range(width):
                        target[y * width + x] = target[top * width + x]
                for y in range(bottom, height):
                    for x in range(width):
                        target[y * width + x] = target[(bottom - 1) * width + x]
