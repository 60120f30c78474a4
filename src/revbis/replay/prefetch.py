"""A replay buffer that gathers the images of the next batch in a background thread."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from revbis.io import schema
from revbis.replay.batch import Batch, OneStep, observe
from revbis.replay.buffer import Replay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from revbis.replay.batch import Ints
    from revbis.replay.storage import RecordArrays


class _Guess(NamedTuple):
    """Observations that are expected next: their records [B], shifts [B, 2] and images."""

    records: Ints
    shifts: Ints
    images: Future[Tensor]


class PrefetchingReplay(Replay):
    """A replay buffer whose `sample` is the same to the last bit, but mostly waits for nothing.

    After each batch the next draw is guessed: from a copy of the generator, and the transitions
    that there will be if `steps` steps follow and no episode ends. A thread gathers these images
    meanwhile. The next draw is then made as in `Replay`. Its record and its shift determine an
    image, and records never change: an image for which both were guessed is used, and the others
    are gathered then. So a wrong guess, as at the end of an episode, costs only time.

    Rewards and discounts are never computed ahead: that is arithmetic, and whether denormal numbers
    count as 0 is a setting of each thread. Nor are sequences gathered ahead.

    The thread starts with the first `sample`. Nothing of it is saved.

    Takes the arguments of `Replay`, and:

    Args:
        steps: Calls of `add` from one `sample` to the next.
        pinned: Whether batches are in pinned memory, from which copies to a GPU run on their own.
            PyTorch reuses such memory only after the copies from it are done.
    """

    def __init__(self, *args: Any, steps: int, pinned: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._steps = schema.integer(steps, "steps", 1)
        self._pinned = schema.flag(pinned, "pinned")
        self._worker: ThreadPoolExecutor | None = None
        self._guesses: deque[_Guess] = deque()  # in the order in which a batch is made
        self.images = 0  # in all batches
        self.images_ahead = 0  # of them, those that were gathered ahead

    def sample(self, batch_size: int) -> Batch:
        """Transitions drawn uniformly, with replacement; then guesses the next ones.

        Raises:
            ValueError: If no transition can be sampled yet.
        """
        batch = super().sample(batch_size)
        self._guess(batch_size)
        return _pinned(batch) if self._pinned else batch

    def restore(self, pieces: Iterable[RecordArrays], state: dict[str, Any]) -> None:
        """Makes this buffer the one that was exported: see `Replay.restore`."""
        self.close()  # the guesses are of other records
        super().restore(pieces, state)

    def close(self) -> None:
        """Ends the thread; the next `sample` would start another."""
        self._guesses.clear()
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)
            self._worker = None

    def _guess(self, batch_size: int) -> None:
        """Has the thread gather what the next draw is expected to be."""
        generator, entered = deepcopy(self._generator), self._starts.entered
        left, count = self._expected()
        self._guesses.clear()
        if count < 1:
            return
        entries = left + generator.integers(count, size=batch_size)
        # An entry that is still to come is replaced by one that is there: a wrong guess.
        index = self._starts.numbered(np.minimum(entries, entered - 1))
        lengths = (self.n_step, 1) if self.one_step else (self.n_step,)
        for records in (index, *(self._returns(index, length)[2] for length in lengths)):
            shifts = self._draw_shifts(batch_size, generator)
            self._guesses.append(_Guess(records, shifts, self._submit(records, shifts)))

    def _expected(self) -> tuple[int, int]:
        """The first entry of the queue at the next draw and its length, if no episode ends."""
        written = self._written + self._steps + (not self._running)
        waiting = self._waiting if self._running else self._written
        entering = max(0, written - self.n_step - waiting)
        oldest, ages = written - self._layout.capacity, self._ring.columns["age"]
        left = self._starts.first_whole(oldest, ages, self.stack)
        return left, self._starts.entered + entering - left

    def _submit(self, records: Ints, shifts: Ints) -> Future[Tensor]:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="revbis-prefetch")
        return self._worker.submit(
            observe, self._ring, records, self.stack, shifts, pinned=self._pinned
        )

    def _observe(self, index: Ints) -> Tensor:
        shifts = self._draw_shifts(len(index))
        guess = self._guesses.popleft() if self._guesses else None
        self.images += len(index)
        if guess is None or len(guess.records) != len(index):
            return observe(self._ring, index, self.stack, shifts, pinned=self._pinned)
        images = guess.images.result()
        differs = (guess.records != index) | (guess.shifts != shifts).any(axis=1)
        wrong = np.flatnonzero(differs)
        self.images_ahead += len(index) - len(wrong)
        if len(wrong):
            right = observe(self._ring, index[wrong], self.stack, shifts[wrong])
            images[torch.from_numpy(wrong)] = right
        return images


def _pinned(batch: Batch) -> Batch:
    """The same batch with all tensors in pinned memory; those that are there are not copied."""
    one_step = batch.one_step
    if one_step is not None:
        one_step = OneStep(*(tensor.pin_memory() for tensor in one_step))
    named = zip(Batch._fields[:5], batch[:5], strict=True)
    tensors: dict[str, Any] = {name: tensor.pin_memory() for name, tensor in named}
    return batch._replace(one_step=one_step, **tensors)
