"""Replay buffers that draw sequences or transitions by priorities, which the agent renews."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from revbis.io import schema
from revbis.replay.batch import steps_left
from revbis.replay.buffer import Replay
from revbis.replay.sequences import SequenceStarts, ShiftUnit, Views, gather_windows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from revbis.replay.batch import Batch, Ints, Sequences, Windows
    from revbis.replay.storage import RecordArrays, StartQueue

_NUMBER = np.dtype("<f4")  # of a saved priority


class Priorities:
    """A priority for each entry of a queue, by the number of the entry.

    A new entry gets the largest priority that any has at the next draw, or 1 if there is none.

    A draw sums all priorities in order: a few microseconds per thousand entries. A sum tree takes
    about as long for hundreds of thousands, and longer for fewer. Sums in double precision from the
    oldest to the newest are the same after a restore, and so are the draws.

    Args:
        capacity: The most entries that are ever in the queue.
    """

    def __init__(self, capacity: int) -> None:
        self._values = np.empty(capacity, np.float32)
        self._known = 0  # entries before this one have a priority

    def clear(self) -> None:
        """No entry has a priority any more."""
        self._known = 0

    def draw(
        self, queue: StartQueue, size: int, generator: np.random.Generator
    ) -> tuple[Ints, NDArray[np.float64]]:
        """Positions in the queue, with replacement, and the probability of each, [size]."""
        live = self._live(queue)
        sums = np.cumsum(live, dtype=np.float64)
        draws = generator.random(size) * sums[-1]
        positions = np.minimum(np.searchsorted(sums, draws, side="right"), len(live) - 1)
        return positions, live[positions] / sums[-1]

    def set(self, queue: StartQueue, entry: Ints, priority: ArrayLike, source: str) -> None:
        """Gives entries new priorities; those that have left the queue are passed over.

        Args:
            queue: Their queue.
            entry: Their numbers, [B]. Of equal ones the last counts.
            priority: Finite and above 0, [B].
            source: The method that the entries are from, for messages.

        Raises:
            ValueError: If shapes or values are wrong.
        """
        entry = schema.real_array(entry, "entry")
        values = schema.real_array(priority, "priority")
        if entry.ndim != 1 or entry.dtype.kind not in "iu":
            raise ValueError(f"entry must be what {source} returned")
        if values.shape != entry.shape:
            raise ValueError(f"priority must have shape {entry.shape}, got {values.shape}")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            values = values.astype(np.float32)
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError("priority must be finite and above 0 in 32 bits")
        if entry.size and not 0 <= entry.min() <= entry.max() < self._known:
            raise ValueError(f"entry must be what {source} returned")
        here = entry >= queue.left
        self._values[entry[here] % len(self._values)] = values[here]

    def saved(self, queue: StartQueue) -> str:
        """The known priorities, oldest first, as text."""
        known = self._range(queue.left, self._known).astype(_NUMBER).tobytes()
        return base64.b64encode(known).decode()

    def restore(self, queue: StartQueue, text: str) -> None:
        """Gives the first entries of a new queue what `saved` returned.

        Raises:
            ValueError, TypeError: If it is no such text.
        """
        values = np.frombuffer(base64.b64decode(text, validate=True), _NUMBER)
        if not (len(values) <= len(queue) and (np.isfinite(values) & (values > 0)).all()):
            raise ValueError(f"{len(values)} priorities for {len(queue)} entries")
        self._values[: len(values)] = values
        self._known = len(values)

    def _live(self, queue: StartQueue) -> NDArray[np.float32]:
        """The priorities of all entries, oldest first; new ones get theirs."""
        known = self._range(queue.left, self._known)
        if self._known < queue.entered:
            new = np.arange(max(self._known, queue.left), queue.entered)
            self._values[new % len(self._values)] = known.max() if len(known) else 1.0
            self._known = queue.entered
            known = self._range(queue.left, queue.entered)
        return known

    def _range(self, start: int, stop: int) -> NDArray[np.float32]:
        """The priorities of the entries [start, stop), in one piece."""
        if stop <= start:
            return self._values[:0]
        size = len(self._values)
        first, last = start % size, (stop - 1) % size
        if first <= last:
            return self._values[first : last + 1]
        return np.concatenate([self._values[first:], self._values[: last + 1]])


_NONE = "the replay's state has no priorities: it is of another agent"
_DAMAGED = "the replay's priorities are damaged: give what state() returned, unchanged"
_BROKEN = (KeyError, TypeError, ValueError, binascii.Error)


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

    A sequence is drawn with a probability proportional to its priority; see `Priorities`.

    Takes the arguments of `Replay`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._priorities = Priorities(self._layout.capacity)
        self._own = SequenceStarts(self._ring, self.stack)
        self._length: int | None = None

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
            positions, probability = self._priorities.draw(queue, batch_size, self._generator)
            sequences = self.gather_sequences(positions, length, shift=shift)
        return PrioritisedSequences(
            sequences, queue.left + positions, torch.from_numpy(probability)
        )

    def set_priorities(self, entry: Ints, priority: ArrayLike) -> None:
        """Gives sequences new priorities; those that have left the buffer are passed over.

        Args:
            entry: What `sample_prioritised` returned, [B].
            priority: Finite and above 0, [B]. Of equal entries the last one counts.

        Raises:
            ValueError: If shapes or values are wrong.
        """
        source = "sample_prioritised"
        if self._length is None:
            raise ValueError(f"entry must be what {source} returned")
        queue = self._own.queue(self._length, self.written)
        self._priorities.set(queue, entry, priority, source)

    def state(self) -> dict[str, Any]:
        """All that is not in the records, fit for JSON: also the priorities."""
        if self._length is None:
            return super().state() | {"priorities": None}
        queue = self._own.queue(self._length, self.written)
        saved = {"length": self._length, "values": self._priorities.saved(queue)}
        return super().state() | {"priorities": saved}

    def restore(self, pieces: Iterable[RecordArrays], state: dict[str, Any]) -> None:
        """Restores what was exported, as `Replay.restore` does, and the priorities.

        Raises:
            ValueError: If settings differ, or records or priorities are missing.
        """
        super().restore(pieces, state)
        self._own.clear()
        self._priorities.clear()
        self._length = None
        if "priorities" not in state:
            raise ValueError(_NONE)
        saved = state["priorities"]
        if saved is None:
            return
        try:
            length = schema.integer(saved["length"], "length", 1)
            self._priorities.restore(self._own.queue(length, self.written), saved["values"])
        except _BROKEN:
            raise ValueError(_DAMAGED) from None
        self._length = length

    def _append(
        self, frame: NDArray[Any], action: NDArray[Any], reward: float, discount: float, age: int
    ) -> None:
        oldest = self.written + 1 - self._layout.capacity
        self._own.dismiss(oldest)
        super()._append(frame, action, reward, discount, age)
        self._own.admit(self.written - 1, oldest)


class PrioritisedTransitions(NamedTuple):
    """Transitions, and how they were drawn.

    Attributes:
        batch: The transitions.
        entry: The number of each for `set_priorities`, int64 [B].
    """

    batch: Batch
    entry: Ints


class TransitionReplay(Replay):
    """A replay buffer whose transitions have priorities.

    A transition, or a window that starts with it, is drawn with a probability proportional to its
    priority; see `Priorities`. Unlike a sequence, a window may reach beyond its episode's end, and
    says so: what ends an episode is drawn as often as anything else.

    Takes the arguments of `Replay`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._priorities = Priorities(self._layout.capacity)

    def sample_transitions(self, batch_size: int) -> PrioritisedTransitions:
        """Transitions of up to n steps, drawn by priority, with replacement.

        Raises:
            ValueError: If no transition can be sampled yet.
        """
        size: int = schema.convert(batch_size, schema.Batch, "batch_size")
        with self._timed():
            positions = self._draw(size)
            return PrioritisedTransitions(self.gather(positions), self._starts.left + positions)

    def sample_windows(self, batch_size: int, length: int) -> Windows:
        """Windows of up to `length` steps, drawn by the priority of their first, with replacement.

        Each image gets a random shift of its own.

        Args:
            batch_size: Windows.
            length: Most steps in each.

        Raises:
            ValueError: If an argument is out of range, or no transition can be sampled yet.
        """
        size: int = schema.convert(batch_size, schema.Batch, "batch_size")
        steps = schema.integer(length, "length", 1)
        schema.convert(size * (steps + 1), schema.Batch, "batch_size · (length + 1)")
        views = Views.checked("image", None, steps)
        with self._timed():
            index = self._starts.at(self._draw(size))
            count = steps_left(index, self.written, length, self._ring.columns["age"])
            shifts = self._draw_shifts(size * views.shifts)
            return gather_windows(self._ring, index, count, length, self.stack, shifts)

    def set_priorities(self, entry: Ints, priority: ArrayLike) -> None:
        """Gives transitions new priorities; those that have left the buffer are passed over.

        Args:
            entry: What `sample_transitions` returned, [B].
            priority: Finite and above 0, [B]. Of equal entries the last one counts.

        Raises:
            ValueError: If shapes or values are wrong.
        """
        self._priorities.set(self._starts, entry, priority, "sample_transitions")

    def mean_reward_size(self) -> float:
        """Mean absolute reward of the steps in the buffer; 0 if there are none."""
        rewards, ages = self._stored("reward"), self._stored("age")
        taken = np.abs(rewards[ages > 0], dtype=np.float64)
        return float(taken.mean()) if len(taken) else 0.0

    def has_terminations(self) -> bool:
        """Whether an episode in the buffer has terminated."""
        return bool((self._stored("discount") == 0).any())

    def state(self) -> dict[str, Any]:
        """All that is not in the records, fit for JSON: also the priorities."""
        return super().state() | {"priorities": self._priorities.saved(self._starts)}

    def restore(self, pieces: Iterable[RecordArrays], state: dict[str, Any]) -> None:
        """Restores what was exported, as `Replay.restore` does, and the priorities.

        Raises:
            ValueError: If settings differ, or records or priorities are missing.
        """
        super().restore(pieces, state)
        self._priorities.clear()
        if "priorities" not in state:
            raise ValueError(_NONE)
        try:
            self._priorities.restore(self._starts, state["priorities"])
        except _BROKEN:
            raise ValueError(_DAMAGED) from None

    def _draw(self, size: int) -> Ints:
        self.ensure_some()
        return self._priorities.draw(self._starts, size, self._generator)[0]

    def _stored(self, name: str) -> NDArray[Any]:
        """A part of the records in the ring, in no particular order."""
        return self._ring.columns[name][: min(self.written, self._layout.capacity)]
