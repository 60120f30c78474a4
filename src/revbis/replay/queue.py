"""The records from which something can be sampled, in order."""

import numpy as np
from numpy.typing import NDArray

from revbis import checks
from revbis.replay.kernels import Array, Ints


class StartQueue:
    """Indices of the records where transitions or sequences start, with access by position.

    They enter and leave in the order of their records: position 0 is the oldest.

    Args:
        capacity: The most that are ever in the queue.
    """

    def __init__(self, capacity: int) -> None:
        self._ring = np.empty(capacity, np.int64)
        self._left = 0
        self._entered = 0

    def __len__(self) -> int:
        return self._entered - self._left

    @property
    def left(self) -> int:
        """How many have left: the number of the oldest entry."""
        return self._left

    @property
    def entered(self) -> int:
        """How many have ever entered: the next entry's number."""
        return self._entered

    def at(self, positions: Ints) -> Ints:
        """The indices at positions.

        Raises:
            IndexError: If a position is not in the queue.
            ValueError: If positions are no 1-D integers.
        """
        positions = checks.real_array(positions, "positions")
        if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
            raise ValueError(
                f"positions must be 1-D integers, got {positions.dtype} of {positions.shape}"
            )
        positions = positions.astype(np.int64)
        if positions.size and not 0 <= positions.min() <= positions.max() < len(self):
            raise IndexError(f"positions must be in [0, {len(self)})")
        return self.numbered(self._left + positions)

    def numbered(self, entries: Ints) -> Ints:
        """The indices that are the entries of these numbers, from `left` to `entered` − 1."""
        starts: Ints = self._ring[entries % len(self._ring)]
        return starts

    def append(self, start: int) -> None:
        """Puts an index at the end."""
        self._ring[self._entered % len(self._ring)] = start
        self._entered += 1

    def dismiss(self, oldest: int, ages: Array, stack: int) -> None:
        """Takes out the indices whose stacks have lost a frame: see `has_whole_stack`."""
        self._left = self.first_whole(oldest, ages, stack)

    def first_whole(self, oldest: int, ages: Array, stack: int) -> int:
        """The number of the first entry whose stack has all its frames, or `entered`."""
        number = self._left
        while number < self._entered:
            if has_whole_stack(self._ring[number % len(self._ring)], oldest, ages, stack):
                break
            number += 1
        return number

    def replace(self, starts: Ints) -> None:
        """Puts these indices in the place of all others."""
        self._ring[: len(starts)] = starts
        self._left, self._entered = 0, len(starts)


def has_whole_stack(index: Ints | int, oldest: int, ages: Array, stack: int) -> NDArray[np.bool_]:
    """Whether all frames of a record's stack are still there.

    A stack begins with its episode or `stack` − 1 records back, so that of two records the later
    one never has the earlier beginning: stacks are lost in the order of their records.

    Args:
        index: One record, or several.
        oldest: The oldest record whose frame is there.
        ages: Steps since the episode's first frame, by slot of the ring.
        stack: Frames in an observation.
    """
    back = np.minimum(ages[index % len(ages)], stack - 1)
    whole: NDArray[np.bool_] = index - back >= oldest
    return whole


def find_starts(oldest: int, written: int, ages: Array, stack: int) -> Ints:
    """The records that are not the last of their episode and have their whole stack.

    Args:
        oldest: The oldest record whose frame is there.
        written: How many records were ever written.
        ages: Steps since the episode's first frame, by slot of the ring.
        stack: Frames in an observation.
    """
    index = np.arange(oldest, written)
    goes_on = np.append(ages[index[1:] % len(ages)] > 0, False)[: len(index)]
    starts: Ints = index[goes_on & has_whole_stack(index, oldest, ages, stack)]
    return starts
