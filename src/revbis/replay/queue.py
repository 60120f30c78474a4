"""The transitions that can be sampled, in the order of their records."""

import numpy as np

from revbis.replay.kernels import Ints


class TransitionQueue:
    """Indices of the records where transitions start, oldest first, with access by position.

    Args:
        capacity: The most that are ever in the queue.
    """

    def __init__(self, capacity: int) -> None:
        self._ring = np.empty(capacity, np.int64)
        self._left = 0
        self._entered = 0

    def __len__(self) -> int:
        return self._entered - self._left

    def at(self, positions: Ints) -> Ints:
        """The indices at positions; 0 is the oldest."""
        starts: Ints = self._ring[(self._left + positions) % len(self._ring)]
        return starts

    def oldest(self) -> int:
        """The index at position 0."""
        return int(self._ring[self._left % len(self._ring)])

    def drop_oldest(self) -> None:
        """Takes the index at position 0 out."""
        self._left += 1

    def append(self, start: int) -> None:
        """Puts an index at the end."""
        self._ring[self._entered % len(self._ring)] = start
        self._entered += 1

    def replace(self, starts: Ints) -> None:
        """Puts these indices in the place of all others."""
        self._ring[: len(starts)] = starts
        self._left, self._entered = 0, len(starts)
