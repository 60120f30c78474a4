"""A replay buffer that draws sequences by priorities, which the agent renews."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from revbis.io import schema
from revbis.replay.buffer import Replay
from revbis.replay.sequences import SequenceStarts, ShiftUnit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from revbis.replay.batch import Ints, Sequences
    from revbis.replay.storage import RecordArrays, StartQueue

_NUMBER = np.dtype("<f4")  # of a saved priority


class PrioritisedSequences(NamedTuple):
    """Sequences, and how they were drawn.

    Attributes:
        sequences: The sequences.
        entry: The number of each for `set_priorities`, int64 [B].
        probability: With which each was drawn, float64 [B].
    """

    sequences: Sequences
    entry: Ints
    probability: Tensor


class PrioritisedReplay(Replay):
    """A replay buffer whose sequences of one length have priorities.

    A sequence is drawn with a probability proportional to its priority. A new one gets the largest
    priority that any has at the next draw, or 1 if there is none.

    A draw sums all priorities in order: a few microseconds per thousand sequences. A sum tree takes
    about as long for hundreds of thousands, and longer for fewer. Sums in double precision from the
    oldest to the newest are the same after a restore, and so are the draws.

    Takes the arguments of `Replay`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._priorities = np.empty(self._layout.capacity, np.float32)  # by entry
        self._own = SequenceStarts(self._ring, self.stack)
        self._length: int | None = None
        self._known = 0  # entries before this one have a priority

    def sample_prioritised(
        self, batch_size: int, length: int, *, shift: ShiftUnit
    ) -> PrioritisedSequences:
        """Sequences of consecutive steps within an episode, drawn by priority, with replacement.

        Args:
            batch_size: Sequences.
            length: Steps in each; the same in every call.
            shift: As in `sample_sequences`.

        Raises:
            ValueError: If an argument is out of range, or no episode is long enough yet.
        """
        batch_size = schema.convert(batch_size, schema.Batch, "batch_size")
        schema.convert(shift, ShiftUnit, "shift")
        length = schema.integer(length, "length", 1)
        if self._length not in (None, length):
            raise ValueError(
                f"this replay has priorities of sequences of {self._length} steps, got {length}; "
                "use one length"
            )
        self._own.count(length, self.written)
        schema.convert(batch_size * (length + 1), schema.Batch, "batch_size · (length + 1)")
        queue = self._own.queue(length, self.written)
        self._length = length
        with self._timed():
            live = self._live(queue)
            sums = np.cumsum(live, dtype=np.float64)
            draws = self._generator.random(batch_size) * sums[-1]
            positions = np.minimum(np.searchsorted(sums, draws, side="right"), len(live) - 1)
            sequences = self.gather_sequences(positions, length, shift=shift)
        probability = torch.from_numpy(live[positions] / sums[-1])
        return PrioritisedSequences(sequences, queue.left + positions, probability)

    def set_priorities(self, entry: Ints, priority: ArrayLike) -> None:
        """Gives sequences new priorities; those that have left the buffer are passed over.

        Args:
            entry: What `sample_prioritised` returned, [B].
            priority: Finite and above 0, [B]. Of equal entries the last one counts.

        Raises:
            ValueError: If shapes or values are wrong.
        """
        entry = schema.real_array(entry, "entry")
        values = schema.real_array(priority, "priority")
        if self._length is None or entry.ndim != 1 or entry.dtype.kind not in "iu":
            raise ValueError("entry must be what sample_prioritised returned")
        if values.shape != entry.shape:
            raise ValueError(f"priority must have shape {entry.shape}, got {values.shape}")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            values = values.astype(np.float32)
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError("priority must be finite and above 0 in 32 bits")
        if entry.size and not 0 <= entry.min() <= entry.max() < self._known:
            raise ValueError("entry must be what sample_prioritised returned")
        here = entry >= self._own.queue(self._length, self.written).left
        self._priorities[entry[here] % len(self._priorities)] = values[here]

    def state(self) -> dict[str, Any]:
        """All that is not in the records, fit for JSON: also the priorities."""
        if self._length is None:
            return super().state() | {"priorities": None}
        queue = self._own.queue(self._length, self.written)
        known = self._range(queue.left, self._known).astype(_NUMBER).tobytes()
        saved = {"length": self._length, "values": base64.b64encode(known).decode()}
        return super().state() | {"priorities": saved}

    def restore(self, pieces: Iterable[RecordArrays], state: dict[str, Any]) -> None:
        """Restores what was exported, as `Replay.restore` does, and the priorities.

        Raises:
            ValueError: If settings differ, or records or priorities are missing.
        """
        super().restore(pieces, state)
        self._own.clear()
        self._length, self._known = None, 0
        if "priorities" not in state:
            raise ValueError("the replay's state has no priorities: it is of another agent")
        saved = state["priorities"]
        if saved is None:
            return
        try:
            length = schema.integer(saved["length"], "length", 1)
            values = np.frombuffer(base64.b64decode(saved["values"], validate=True), _NUMBER)
            count = len(self._own.queue(length, self.written))
            if not (len(values) <= count and (np.isfinite(values) & (values > 0)).all()):
                raise ValueError
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise ValueError(
                "the replay's priorities are damaged: give what state() returned, unchanged"
            ) from None
        self._priorities[: len(values)] = values
        self._length, self._known = length, len(values)

    def _append(
        self, frame: NDArray[Any], action: NDArray[Any], reward: float, discount: float, age: int
    ) -> None:
        oldest = self.written + 1 - self._layout.capacity
        self._own.dismiss(oldest)
        super()._append(frame, action, reward, discount, age)
        self._own.admit(self.written - 1, oldest)

    def _live(self, queue: StartQueue) -> NDArray[np.float32]:
        """The priorities of all sequences, oldest first; new ones get theirs."""
        known = self._range(queue.left, self._known)
        largest = known.max() if len(known) else 1.0
        new = np.arange(max(self._known, queue.left), queue.entered)
        self._priorities[new % len(self._priorities)] = largest
        self._known = queue.entered
        return self._range(queue.left, queue.entered)

    def _range(self, start: int, stop: int) -> NDArray[np.float32]:
        """The priorities of the entries [start, stop), in one piece."""
        if stop <= start:
            return self._priorities[:0]
        size = len(self._priorities)
        first, last = start % size, (stop - 1) % size
        if first <= last:
            return self._priorities[first : last + 1]
        return np.concatenate([self._priorities[first:], self._priorities[: last + 1]])
