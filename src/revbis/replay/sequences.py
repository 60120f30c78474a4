"""Sequences of consecutive steps: where they can start, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch

from revbis.io import schema
from revbis.replay.batch import Sequences, Windows, observe
from revbis.replay.storage import StartQueue, has_full_stack

if TYPE_CHECKING:
    from revbis.replay.batch import Ints
    from revbis.replay.storage import Ring

ShiftUnit = Literal["sequence", "image"]
Steps = Sequence[int]
_MOST_LENGTHS = 8


class SequenceStarts:
    """The records where sequences can start: one queue for each length in use.

    A sequence of L steps is L + 1 records of one episode. So its start enters when the record L
    after it is written, and leaves when a frame of its own stack is lost: both in the order of the
    records, as in a queue. It does not matter whether the episode runs on.

    A queue is built from the ages of the records when its length is first asked for, and kept up to
    date from there on. It takes 8 bytes per record, so only the last eight lengths asked for have
    one. All of this follows from the records: none of it need be saved.

    Args:
        ring: The records.
        stack: Frames in an observation.
    """

    def __init__(self, ring: Ring, stack: int) -> None:
        self._ages = ring.columns["age"]
        self._stack = stack
        self._queues: dict[int, StartQueue] = {}

    def queue(self, length: int, written: int) -> StartQueue:
        """The starts of sequences of this length, of as many records as were ever written.

        Raises:
            ValueError: If the length is below 1, or such a sequence can never be in the ring.
        """
        length = schema.integer(length, "length", 1)
        longest = len(self._ages) - 1
        if length > longest:
            raise ValueError(
                f"length must be at most {longest:,}: a sequence has one record more than steps, "
                f"and the replay keeps {longest + 1:,}; got {length:,}; use a smaller length or a "
                "larger --replay-capacity"
            )
        queue = self._queues.pop(length, None)
        if queue is None:
            queue = self._build(length, written)
        self._queues[length] = queue  # the last one asked for is last
        if len(self._queues) > _MOST_LENGTHS:
            del self._queues[next(iter(self._queues))]
        return queue

    def count(self, length: int, written: int) -> int:
        """How many sequences of this length there are to draw from.

        Raises:
            ValueError: If there are none, or the length is out of range.
        """
        count = len(self.queue(length, written))
        if not count:
            raise ValueError(
                f"sampling needs {length} consecutive steps of one episode, but the replay "
                "has no such sequence; use a smaller length (in a run a smaller --n-step or "
                "--action-steps), or longer episodes"
            )
        return count

    def dismiss(self, oldest: int) -> None:
        """Takes out the starts whose stacks begin before the record `oldest`."""
        for queue in self._queues.values():
            queue.dismiss(oldest, self._ages, self._stack)

    def admit(self, newest: int, oldest: int) -> None:
        """Lets in the starts of the sequences that end with the newest record."""
        age = self._ages[newest % len(self._ages)]
        for length, queue in self._queues.items():
            start = newest - length
            if age >= length and has_full_stack(start, oldest, self._ages, self._stack):
                queue.append(start)

    def clear(self) -> None:
        """Drops all queues, as when the records are replaced."""
        self._queues.clear()

    def _build(self, length: int, written: int) -> StartQueue:
        """The queue of a length, from the records alone."""
        capacity = len(self._ages)
        oldest = max(0, written - capacity)
        index = np.arange(oldest, written - length)
        same_episode = self._ages[(index + length) % capacity] >= length
        full_stack = has_full_stack(index, oldest, self._ages, self._stack)
        queue = StartQueue(capacity)
        queue.replace(index[same_episode & full_stack])
        return queue


class Views(NamedTuple):
    """The images of a sequence.

    Attributes:
        steps: The steps whose observations are wanted, [S].
        shifts: Random shifts of a sequence: 1 for all images, or one for each.
    """

    steps: Ints
    shifts: int

    @classmethod
    def checked(cls, shift: ShiftUnit, at: Steps | None, length: int) -> Views:
        """Of a sequence of this length; all length + 1 steps where none are named.

        Raises:
            ValueError: If a step is not in the sequence, or the unit is unknown.
        """
        unit: ShiftUnit = schema.convert(shift, ShiftUnit, "shift")
        steps = np.arange(length + 1)
        if at is not None:
            named = [schema.integer(step, "a step of at", 0, length) for step in at]
            steps = np.array(named, np.int64)
        if not len(steps):
            raise ValueError("at must name at least one step; use None for all of them")
        return cls(steps, 1 if unit == "sequence" else len(steps))


def gather_sequences(
    ring: Ring, starts: Ints, length: int, views: Views, stack: int, shifts: Ints
) -> Sequences:
    """The sequences that start at these records.

    Args:
        ring: The records.
        starts: Where the sequences start, [B].
        length: Steps in each.
        views: Its images, S of them.
        stack: Frames in an observation.
        shifts: (dy, dx), `views.shifts` of each sequence in turn, [B·shifts, 2].
    """
    seen = starts[:, None] + views.steps
    shifts = np.repeat(shifts, len(views.steps) // views.shifts, axis=0)
    obs = observe(ring, seen.reshape(-1), stack, shifts)
    # An action is stored with what came of it.
    slots = (starts[:, None] + np.arange(1, length + 1)) % ring.layout.capacity
    action, reward, discount = (
        torch.from_numpy(ring.columns[name][slots]) for name in ("action", "reward", "discount")
    )
    return Sequences(obs.reshape(*seen.shape, *obs.shape[1:]), action, reward, discount)


def gather_windows(
    ring: Ring, starts: Ints, count: Ints, length: int, stack: int, shifts: Ints
) -> Windows:
    """The windows that start at these records.

    Args:
        ring: The records.
        starts: Where the windows start, [B].
        count: Steps of the episode in each, from 1 to `length`, [B].
        length: Steps in each, T.
        stack: Frames in an observation.
        shifts: (dy, dx) of each image, window by window, [B·(T + 1), 2].
    """
    steps = np.arange(length + 1)
    seen = starts[:, None] + np.minimum(steps, count[:, None])
    obs = observe(ring, seen.reshape(-1), stack, shifts)
    slots = seen[:, 1:] % ring.layout.capacity  # an action is stored with what came of it
    action, reward, discount = (
        torch.from_numpy(ring.columns[name][slots]) for name in ("action", "reward", "discount")
    )
    valid = torch.from_numpy((steps[1:] <= count[:, None]).astype(np.float32))
    return Windows(obs.reshape(*seen.shape, *obs.shape[1:]), action, reward, discount, valid)
