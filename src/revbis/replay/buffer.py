"""The replay buffer: uniform draws of n-step transitions and of sequences."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from revbis.io import schema
from revbis.replay.batch import Batch, Ints, OneStep, Sequences, n_step_returns, observe
from revbis.replay.sequences import SequenceStarts, ShiftUnit, Steps, Views, gather_sequences
from revbis.replay.storage import (
    FORMAT,
    Layout,
    RecordArrays,
    Ring,
    StartQueue,
    Storage,
    check_replay_state,
    find_starts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

_LARGEST = float(np.finfo(np.float32).max)


class Replay:
    """Keeps the newest frames of all episodes, once each; samples transitions or sequences.

    A record is one frame, and an episode of T steps takes T + 1 records. Record i, not the last of
    its episode, starts a transition. It can be sampled

    - once n steps follow it or its episode has ended: a running episode is sampled up to n steps
      before its newest frame, so that a transition never changes from one draw to the next;
    - until a frame of its own stack is overwritten. A stack at an episode's start repeats the first
      frame, and only there: lost frames are never replaced.

    So the transitions that can be sampled come and go in the order of their records, and are a
    queue: a draw is one random position in it, at the same cost for every size of the buffer.

    A sequence of L steps is L + 1 consecutive records of one episode, and can be sampled once they
    are written, until a frame of its first stack is overwritten. It never reaches into another
    episode, and a running episode is sampled up to its newest frame. These too are a queue, one for
    each L in use.

    An episode ended by a time limit is an episode whose last environment discount is 1: its last
    transitions bootstrap from its true final frame.

    Args:
        capacity: Records in the ring, at least stack + n_step + 1.
        observation_shape: (C, H, W) of a frame (uint8), or (D,) of a vector (float32).
        action_size: Numbers in an action.
        stack: Frames in an observation.
        n_step: Most steps in a transition.
        discount: The agent's γ.
        shift: Most pixels an image is shifted in each direction; vectors are never shifted.
        seed: Of the buffer's own generator.
        storage: "ram", or "disk" for frames in an unnamed file that vanishes with the process.
        directory: Where that file goes.
        one_step: Whether batches also carry the one-step transition.
        expected: Records that will ever be written, if fewer than fit: memory is checked for these.

    Attributes:
        written: How many records were ever written: the next record's index.
        running: Whether an episode has started and not ended.

    Raises:
        ValueError: If an argument is out of range, or there is not enough disk space.
        MemoryError: If there is not enough memory.
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        action_size: int,
        *,
        stack: int = 3,
        n_step: int = 3,
        discount: float = 0.99,
        shift: int = 4,
        seed: int = 0,
        storage: Storage = "ram",
        directory: Path | None = None,
        one_step: bool = False,
        expected: int | None = None,
    ) -> None:
        self._layout = layout = Layout(
            capacity, cast("tuple[int, ...]", observation_shape), action_size
        )
        self.stack: int = schema.convert(stack, schema.FrameStack, "stack")
        self.n_step: int = schema.convert(n_step, schema.UpTo4096, "n_step")
        self.discount = schema.discount(discount, "discount")
        shift = schema.convert(shift, schema.Shift, "shift")
        layout.check_sampling(self.stack, self.n_step, shift)
        self.shift = shift if layout.pixels else 0
        self.one_step = schema.flag(one_step, "one_step")
        self._generator = np.random.Generator(np.random.PCG64(schema.integer(seed, "seed", 0)))
        self._ring = Ring(layout, storage, directory, expected)
        self._starts = StartQueue(layout.capacity)
        self._sequences = SequenceStarts(self._ring, self.stack)
        self.written, self.running = 0, False
        self.sample_seconds = 0.0  # spent on samples
        self._waiting = 0  # the running episode's first record that is not yet in the queue

    @staticmethod
    def projected_bytes(capacity: int, observation_shape: Sequence[int], action_size: int) -> int:
        """Bytes that a full buffer takes, on disk and in memory together; allocates nothing."""
        layout = Layout(capacity, cast("tuple[int, ...]", observation_shape), action_size)
        return layout.frame_bytes + layout.other_bytes

    @property
    def oldest(self) -> int:
        """Index of the oldest record still in the ring."""
        return max(0, self.written - self._layout.capacity)

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return len(self._starts)

    def begin(self, frame: NDArray[Any]) -> None:
        """Starts an episode with its first frame.

        Raises:
            ValueError: If an episode is running, or the frame is of the wrong shape or type.
        """
        if self.running:
            raise ValueError(
                "begin needs the running episode to be over; end it with add(..., last=True), or "
                "with cut() if it cannot continue"
            )
        frame = self._layout.checked_frame(frame)
        self._append(frame, np.zeros(self._layout.action_size, np.float32), 0.0, 1.0, age=0)
        self.running = True
        self._waiting = self.written - 1

    def add(
        self, action: ArrayLike, reward: float, discount: float, frame: NDArray[Any], *, last: bool
    ) -> None:
        """Adds one step of the running episode.

        Args:
            action: What was done at the frame before, [A].
            reward: What it gave.
            discount: The environment's: 0 at a termination, else 1 (or anything between).
            frame: What was seen next; at the episode's end its true final frame.
            last: Whether the episode ends here, by termination or time limit.

        Raises:
            ValueError: If no episode is running or a value is wrong; the buffer is then unchanged.
        """
        if not self.running:
            raise ValueError("add needs a running episode; call begin with its first frame before")
        schema.flag(last, "last")
        action = schema.finite_matrix(action, (self._layout.action_size,), "action")
        if np.abs(action).max() > _LARGEST:
            raise ValueError(f"action must fit in 32 bits, got {action}")
        reward = schema.number(reward, "reward")
        if not abs(reward) <= _LARGEST:
            raise ValueError(f"reward must be a finite 32-bit number, got {reward:g}")
        discount = schema.number(discount, "discount")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"discount must be in [0, 1], got {discount:g}")
        age = int(self._ring.columns["age"][(self.written - 1) % self._layout.capacity]) + 1
        self._append(self._layout.checked_frame(frame), action, reward, discount, age)
        if last:
            self.cut()
        else:
            self._admit(self.written - self.n_step)

    def cut(self) -> None:
        """Ends the running episode at its newest frame, as a time limit would.

        For an episode that cannot continue, as after a resume without simulator state. Nothing
        happens if none is running.
        """
        if self.running:
            self._admit(self.written - 1)
            self.running = False

    def sample(self, batch_size: int) -> Batch:
        """Transitions drawn uniformly, with replacement.

        Raises:
            ValueError: If no transition can be sampled yet.
        """
        size: int = schema.convert(batch_size, schema.Batch, "batch_size")
        self.ensure_some()
        with self._timed():
            return self.gather(self._generator.integers(len(self), size=size))

    def ensure_some(self) -> None:
        """Raises a ValueError if no transition can be sampled yet."""
        if not len(self):
            raise ValueError(
                "sample needs at least one transition, but the replay has none; add a whole "
                f"episode or {self.n_step} steps of one before"
            )

    def gather(self, positions: Ints) -> Batch:
        """The transitions at positions of the queue: 0 is the oldest, len(self) − 1 the newest.

        Each observation gets one random shift, the same for its whole stack.

        Raises:
            IndexError: If a position is not in the queue.
            ValueError: If positions are no 1-D integers.
        """
        index = self._starts.at(positions)
        obs = self._observe(index)
        reward, discount, next_obs = self._follow(index, self.n_step)
        action = self._ring.columns["action"][(index + 1) % self._layout.capacity]
        one_step = OneStep(*self._follow(index, 1)) if self.one_step else None
        return Batch(obs, torch.from_numpy(action), reward, discount, next_obs, one_step)

    def count_sequences(self, length: int) -> int:
        """Sequences of `length` steps that can be sampled.

        Raises:
            ValueError: If the length is below 1, or more than the ring can ever hold.
        """
        return len(self._sequences.queue(length, self.written))

    def sample_sequences(
        self, batch_size: int, length: int, *, shift: ShiftUnit, at: Steps | None = None
    ) -> Sequences:
        """Sequences of consecutive steps within an episode, drawn uniformly, with replacement.

        The first draw of a length looks through all records once; later ones do not.

        Args:
            batch_size: Sequences.
            length: Steps in each.
            shift: What gets a random shift of its own: a "sequence", the same for all its images,
                or each "image".
            at: Steps whose observations are wanted, 0 to length; one that is named twice comes
                twice, each "image" shifted by itself. None for all of them, once each.

        Raises:
            ValueError: If an argument is out of range, or no episode is long enough yet.
        """
        size: int = schema.convert(batch_size, schema.Batch, "batch_size")
        count = self._sequences.count(length, self.written)
        images = size * len(Views.checked(shift, at, length).steps)
        schema.convert(images, schema.Batch, "batch_size · images in a sequence")
        with self._timed():
            positions = self._generator.integers(count, size=size)
            return self.gather_sequences(positions, length, shift=shift, at=at)

    def gather_sequences(
        self, positions: Ints, length: int, *, shift: ShiftUnit, at: Steps | None = None
    ) -> Sequences:
        """The sequences at positions of their queue: 0 is the oldest, count − 1 the newest.

        Raises:
            IndexError: If a position is not below count_sequences(length).
            ValueError: If positions are no 1-D integers, or another argument is out of range.
        """
        index = self._sequences.queue(length, self.written).at(positions)
        views = Views.checked(shift, at, length)
        shifts = self._draw_shifts(len(index) * views.shifts)
        return gather_sequences(self._ring, index, length, views, self.stack, shifts)

    def rewards_before(self, positions: Ints, length: int) -> Tensor:
        """Rewards of the steps that led to sequences' starts, [B]; 0 where an episode begins."""
        index = self._sequences.queue(length, self.written).at(positions)
        return torch.from_numpy(self._ring.columns["reward"][index % self._layout.capacity])

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.sample_seconds += time.perf_counter() - start

    def export(self, start: int, stop: int) -> RecordArrays:
        """Copies of those records in [start, stop) that are still in the ring.

        A record never changes: what was exported once need not be exported again.

        Returns:
            Plain arrays: the parts of the records, and "start", the index of the first.
        """
        start, stop = schema.integer(start, "start", 0), schema.integer(stop, "stop", 0)
        if not start <= stop <= self.written:
            raise ValueError(
                f"export needs 0 <= start <= stop <= {self.written} (records written), "
                f"got {start} and {stop}"
            )
        start = max(start, self.oldest)
        return {"start": np.array(start, np.int64), **self._ring.read(start, max(start, stop))}

    def state(self) -> dict[str, Any]:
        """All that is not in the records, fit for JSON."""
        return {
            "format": FORMAT,
            "settings": self._settings(),
            "written": self.written,
            "running": self.running,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, pieces: Iterable[RecordArrays], state: dict[str, Any]) -> None:
        """Makes this buffer the one that was exported: all later samples are the same.

        Args:
            pieces: What export gave, in order and without gaps. Records that had left the ring when
                the state was taken, or came after it, are passed over.
            state: What state() gave. The settings must be this buffer's; storage may differ.

        Raises:
            ValueError: If settings differ or records are missing; the buffer is then empty.
        """
        check_replay_state(state, self._settings())
        self.written, self.running = 0, False
        self._starts.replace(np.empty(0, np.int64))
        self._sequences.clear()
        written = schema.integer(state["written"], "state's written", 0)
        self._ring.fill(pieces, written)
        try:
            self._generator.bit_generator.state = state["generator"]
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise ValueError(f"the replay's generator cannot be restored: {error}") from None
        self.written, self.running = written, state["running"]
        self._find_starts()

    def _follow(self, index: Ints, n_step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Reward, discount and next observation of transitions of up to n steps."""
        columns = (self._ring.columns[name] for name in ("age", "reward", "discount"))
        reward, discount, following = n_step_returns(
            index, self.written, n_step, self.discount, *columns
        )
        return torch.from_numpy(reward), torch.from_numpy(discount), self._observe(following)

    def _observe(self, index: Ints) -> Tensor:
        """Observations whose newest frames are the records, each with a shift of its own."""
        return observe(self._ring, index, self.stack, self._draw_shifts(len(index)))

    def _draw_shifts(self, count: int) -> Ints:
        """Shifts of as many images, [count, 2]; for vectors nothing is drawn."""
        if not self._layout.pixels:
            return np.zeros((count, 2), np.int64)
        return self._generator.integers(-self.shift, self.shift + 1, size=(count, 2))

    def _append(
        self, frame: NDArray[Any], action: NDArray[Any], reward: float, discount: float, age: int
    ) -> None:
        """Writes the next record, after dismissing what loses a frame by it."""
        oldest = self.written + 1 - self._layout.capacity
        self._starts.dismiss(oldest, self._ring.columns["age"], self.stack)
        self._sequences.dismiss(oldest)
        values = {"frame": frame, "action": action, "reward": reward, "discount": discount}
        record = {name: np.asarray(value)[None] for name, value in (values | {"age": age}).items()}
        self._ring.write(self.written, record)
        self._sequences.admit(self.written, oldest)
        self.written += 1

    def _admit(self, stop: int) -> None:
        """Puts the running episode's transitions that start before `stop` in the queue."""
        while self._waiting < stop:
            self._starts.append(self._waiting)
            self._waiting += 1

    def _find_starts(self) -> None:
        """Fills the queue from the records alone."""
        ages, newest = self._ring.columns["age"], self.written - 1
        starts = find_starts(self.oldest, self.written, ages, self.stack)
        if self.running:
            first = newest - int(ages[newest % len(ages)])
            self._waiting = max(first, self.written - self.n_step)
            starts = starts[starts < self._waiting]
        self._starts.replace(starts)

    def _settings(self) -> dict[str, Any]:
        return {
            "capacity": self._layout.capacity,
            "observation_shape": list(self._layout.observation_shape),
            "action_size": self._layout.action_size,
            "stack": self.stack,
            "n_step": self.n_step,
            "discount": self.discount,
            "shift": self.shift,
            "one_step": self.one_step,
        }
