"""What a sample is, and the compiled loops that gather it."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revbis.io.compiled import compiled
from revbis.replay.storage import Ring


class OneStep(NamedTuple):
    """The one-step part of the same transitions.

    Attributes:
        reward: Of the first step, float32 [B].
        discount: γ times the environment's discount of that step, float32 [B].
        next_obs: The observation one step on, with a shift of its own.
    """

    reward: Tensor
    discount: Tensor
    next_obs: Tensor


class Window(NamedTuple):
    """The first K steps of the same transitions.

    Attributes:
        action: The actions taken at obs and after it, float32 [B, K, A].
        obs: The batch's obs with another random shift.
        next_obs: The observation K steps on; None where that is the batch's next_obs.
    """

    action: Tensor
    obs: Tensor
    next_obs: Tensor | None


class Batch(NamedTuple):
    """Transitions of up to n steps, on the CPU, in memory of their own.

    Attributes:
        obs: uint8 [B, stack·C, H, W], the oldest frame first; float32 [B, stack·D] for vectors.
        action: The action taken at obs, float32 [B, A].
        reward: Sum of the next m rewards, each discounted by γ and by the environment's discounts
            before it, float32 [B]; m is n, or less where the episode ends sooner.
        discount: γᵐ times the environment's m discounts: 0 if a termination is among them, float32
            [B].
        next_obs: The observation m steps on, shaped like obs.
        one_step: The first step alone, if the buffer was asked for it.
        window: The first K steps, if the agent has taken the batch from sequences.
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Tensor
    one_step: OneStep | None = None
    window: Window | None = None


class Sequences(NamedTuple):
    """Consecutive steps, each T of them of one episode, on the CPU, in memory of their own.

    The action at obs[:, t] gives reward[:, t] and discount[:, t], and leads to obs[:, t + 1].

    Attributes:
        obs: uint8 [B, T + 1, stack·C, H, W], the oldest frame of a stack first; float32
            [B, T + 1, stack·D] for vectors. Fewer or more than T + 1 where steps were named.
        action: float32 [B, T, A].
        reward: Of single steps, float32 [B, T].
        discount: The environment's, without γ: 0 at a termination, float32 [B, T].
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor


class Windows(NamedTuple):
    """The steps that follow transitions, up to T of them, on the CPU, in memory of their own.

    The action at obs[:, t] gives reward[:, t] and discount[:, t], and leads to obs[:, t + 1].
    Steps beyond an episode's end repeat its last one and are not `valid`.

    Attributes:
        obs: uint8 [B, T + 1, stack·C, H, W], the oldest frame of a stack first; float32
            [B, T + 1, stack·D] for vectors.
        action: float32 [B, T, A].
        reward: Of single steps, float32 [B, T].
        discount: The environment's, without γ: 0 at a termination, float32 [B, T].
        valid: 1 for the episode's own steps, 0 beyond its end, float32 [B, T].
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    valid: Tensor


Ints = NDArray[np.int64]
Array = NDArray[Any]


@compiled
def n_step_returns(
    index: Ints, written: int, n_step: int, gamma: float, age: Array, reward: Array, discount: Array
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
def steps_left(index: Ints, written: int, most: int, age: Array) -> Ints:
    """Steps from each record to its episode's end or newest frame, `most` at most, [B].

    Args:
        index: Records that are not the last of their episode, [B].
        written: How many records were ever written.
        most: Where counting stops.
        age: Steps since the episode's first frame, by slot of the ring.
    """
    count = np.ones(len(index), dtype=np.int64)
    for b in range(len(index)):
        following = index[b] + 2
        while count[b] < most and following < written and age[following % len(age)] > 0:
            count[b] += 1
            following += 1
    return count


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


def observe(ring: Ring, index: Ints, stack: int, shifts: Ints) -> Tensor:
    """Observations whose newest frames are the records.

    Args:
        ring: Where the frames are.
        index: The records, [B]. A stack that would begin before its episode repeats the first
            frame.
        stack: Frames in an observation.
        shifts: (dy, dx) of each image, the same for its whole stack, [B, 2]; vectors ignore it.

    Returns:
        uint8 [B, stack·C, H, W], the oldest frame first; float32 [B, stack·D] for vectors.
    """
    ages = ring.columns["age"]
    back = np.minimum(np.arange(stack)[::-1], ages[index % len(ages)][:, None])
    slots = (index[:, None] - back) % len(ages)
    first, *others = ring.layout.observation_shape
    if ring.layout.pixels:
        # Of NumPy, which asks for huge pages.
        frames = torch.from_numpy(np.empty((len(index), stack, first, *others), np.uint8))
        gather_shifted(ring.frames, slots, shifts, frames.numpy())
    else:
        frames = torch.from_numpy(ring.frames[slots])
    return frames.reshape(len(index), stack * first, *others)
