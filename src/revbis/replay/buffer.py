"""The replay buffer of the pixel agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from revbis import checks
from revbis.replay.batch import Batch, OneStep
from revbis.replay.kernels import Ints, gather_shifted, n_step_returns
from revbis.replay.queue import TransitionQueue
from revbis.replay.storage import Layout, Records, Ring, Storage

_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_BATCH = 1_000_000
_FORMAT = 1


class Replay:
    """Keeps the newest frames of all episodes, once each, and samples transitions uniformly.

    A record is one frame, and an episode of T steps takes T + 1 records. Record i, not the last of
    its episode, starts a transition. It can be sampled

    - once n steps follow it or its episode has ended: a running episode is sampled up to n steps
      before its newest frame, so that a transition never changes from one draw to the next;
    - until a frame of its own stack is overwritten. A stack at an episode's start repeats the first
      frame, and only there: lost frames are never replaced.

    So the transitions that can be sampled come and go in the order of their records, and are a
    queue: a draw is one random position in it, at the same cost for every size of the buffer.

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

    Raises:
        ValueError: If an argument is out of range, or the disk has not enough free space.
        MemoryError: If the memory has not.
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
    ) -> None:
        layout = Layout.checked(capacity, observation_shape, action_size)
        self.stack = checks.whole(stack, "stack", 1)
        self.n_step = checks.whole(n_step, "n_step", 1)
        self.discount = checks.discount(discount, "discount")
        self.shift = _checked_shift(shift, layout)
        self.one_step = checks.flag(one_step, "one_step")
        least = self.stack + self.n_step + 1
        if layout.capacity < least:
            raise ValueError(
                f"capacity must be at least stack + n_step + 1 = {least} to hold a transition, "
                f"got {layout.capacity}; use a larger --replay-capacity"
            )
        self._layout = layout
        self._generator = np.random.Generator(np.random.PCG64(checks.whole(seed, "seed", 0)))
        self._ring = Ring(layout, storage, directory)
        self._starts = TransitionQueue(layout.capacity)
        self._written = 0
        self._running = False
        self._waiting = 0  # the running episode's first record that is not yet in the queue

    @staticmethod
    def projected_bytes(capacity: int, observation_shape: Sequence[int], action_size: int) -> int:
        """Bytes that a full buffer takes, on disk and in memory together; allocates nothing."""
        layout = Layout.checked(capacity, observation_shape, action_size)
        return layout.frame_bytes + layout.other_bytes

    @property
    def written(self) -> int:
        """How many records were ever written: the next record's index."""
        return self._written

    @property
    def oldest(self) -> int:
        """Index of the oldest record still in the ring."""
        return max(0, self._written - self._layout.capacity)

    @property
    def running(self) -> bool:
        """Whether an episode has begun and not ended."""
        return self._running

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return len(self._starts)

    def begin(self, frame: NDArray[Any]) -> None:
        """Starts an episode with its first frame.

        Raises:
            ValueError: If an episode is running, or the frame is of the wrong shape or type.
        """
        if self._running:
            raise ValueError(
                "begin needs the running episode to be over; end it with add(..., last=True), or "
                "with cut() if it cannot go on"
            )
        frame = self._layout.checked_frame(frame)
        self._append(frame, np.zeros(self._layout.action_size, np.float32), 0.0, 1.0, age=0)
        self._running = True
        self._waiting = self._written - 1

    def add(
        self,
        action: ArrayLike,
        reward: float,
        discount: float,
        frame: NDArray[Any],
        *,
        last: bool,
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
        if not self._running:
            raise ValueError("add needs a running episode; call begin with its first frame before")
        checks.flag(last, "last")
        action = checks.finite_matrix(action, (self._layout.action_size,), "action")
        if np.abs(action).max() > _LARGEST:
            raise ValueError(f"action must fit in 32 bits, got {action}")
        reward = checks.number(reward, "reward")
        if not abs(reward) <= _LARGEST:
            raise ValueError(f"reward must be a finite 32-bit number, got {reward:g}")
        discount = checks.number(discount, "discount")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"discount must be in [0, 1], got {discount:g}")
        age = int(self._ring.columns["age"][(self._written - 1) % self._layout.capacity]) + 1
        self._append(self._layout.checked_frame(frame), action, reward, discount, age)
        if last:
            self.cut()
        else:
            self._admit(self._written - self.n_step)

    def cut(self) -> None:
        """Ends the running episode at its newest frame, as a time limit would.

        For an episode that cannot go on, as after a resume without the simulator's state. Nothing
        happens if none is running.
        """
        if self._running:
            self._admit(self._written - 1)
            self._running = False

    def sample(self, batch_size: int) -> Batch:
        """Transitions drawn uniformly, with replacement.

        Raises:
            ValueError: If no transition can be sampled yet.
        """
        batch_size = checks.whole(batch_size, "batch_size", 1, _LARGEST_BATCH)
        if not len(self):
            raise ValueError(
                "sample needs at least one transition, but the replay has none; add a whole "
                f"episode or {self.n_step} steps of one before"
            )
        return self.gather(self._generator.integers(len(self), size=batch_size))

    def gather(self, positions: Ints) -> Batch:
        """The transitions at positions of the queue: 0 is the oldest, len(self) − 1 the newest.

        Each observation gets one random shift, the same for its whole stack.

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
        index = self._starts.at(positions)
        obs = self._observe(index)
        reward, discount, next_obs = self._follow(index, self.n_step)
        action = self._ring.columns["action"][(index + 1) % self._layout.capacity]
        one_step = OneStep(*self._follow(index, 1)) if self.one_step else None
        return Batch(obs, torch.from_numpy(action), reward, discount, next_obs, one_step)

    def export(self, start: int, stop: int) -> Records:
        """Copies of those records in [start, stop) that are still in the ring.

        A record never changes: what was exported once need not be exported again.

        Returns:
            Plain arrays: the parts of the records, and "start", the index of the first.
        """
        start, stop = checks.whole(start, "start", 0), checks.whole(stop, "stop", 0)
        if not start <= stop <= self._written:
            raise ValueError(
                f"export needs 0 <= start <= stop <= {self._written} (records written), "
                f"got {start} and {stop}"
            )
        start = max(start, self.oldest)
        stop = max(start, stop)
        return {"start": np.array(start, np.int64), **self._ring.read(start, stop)}

    def state(self) -> dict[str, Any]:
        """All that is not in the records, fit for JSON."""
        return {
            "format": _FORMAT,
            "settings": self._settings(),
            "written": self._written,
            "running": self._running,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, pieces: Iterable[Records], state: dict[str, Any]) -> None:
        """Makes this buffer the one that was exported: all later samples are the same.

        Args:
            pieces: What export gave, in order and without gaps. Records that had left the ring when
                the state was taken, or came after it, are passed over.
            state: What state() gave. The settings must be this buffer's; storage may differ.

        Raises:
            ValueError: If settings differ or records are missing; the buffer is then empty.
        """
        _check_settings(state, self._settings())
        self._written, self._running = 0, False
        self._starts.replace(np.empty(0, np.int64))
        written = checks.whole(state["written"], "state's written", 0)
        expected = max(0, written - self._layout.capacity)
        for piece in _iterable(pieces):
            records = self._layout.checked_records(piece)
            start = int(piece["start"])
            stop = min(start + len(records["age"]), written)
            if stop <= expected:
                continue
            if start > expected:
                break
            part = slice(expected - start, stop - start)
            self._ring.write(expected, {name: v[part] for name, v in records.items()})
            expected = stop
        if expected < written:
            raise ValueError(
                f"the replay's records {expected} to {written - 1} are missing from the pieces; "
                "give all pieces in order, or begin with an empty replay"
            )
        try:
            self._generator.bit_generator.state = state["generator"]
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise ValueError(f"the replay's generator cannot be restored: {error}") from None
        self._written, self._running = written, state["running"]
        self._find_starts()

    def _observe(self, index: Ints) -> Tensor:
        """Observations whose newest frames are the records."""
        capacity = self._layout.capacity
        age = self._ring.columns["age"][index % capacity]
        back = np.minimum(np.arange(self.stack)[::-1], age[:, None])
        slots = (index[:, None] - back) % capacity
        if not self._layout.pixels:
            return torch.from_numpy(self._ring.frames[slots].reshape(len(index), -1))
        channels, height, width = self._layout.observation_shape
        shifts = self._generator.integers(-self.shift, self.shift + 1, size=(len(index), 2))
        out = np.empty((len(index), self.stack, channels, height, width), np.uint8)
        gather_shifted(self._ring.frames, slots, shifts, out)
        return torch.from_numpy(out.reshape(len(index), -1, height, width))

    def _follow(self, index: Ints, n_step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Reward, discount and next observation of transitions of up to n steps."""
        columns = self._ring.columns
        reward, discount, following = n_step_returns(
            index,
            self._written,
            n_step,
            self.discount,
            columns["age"],
            columns["reward"],
            columns["discount"],
        )
        return torch.from_numpy(reward), torch.from_numpy(discount), self._observe(following)

    def _append(
        self, frame: NDArray[Any], action: NDArray[Any], reward: float, discount: float, age: int
    ) -> None:
        """Writes the next record, after dismissing the transitions that lose a frame by it."""
        self._dismiss(self._written + 1 - self._layout.capacity)
        values = {"frame": frame, "action": action, "reward": reward, "discount": discount}
        record = {name: np.asarray(value)[None] for name, value in (values | {"age": age}).items()}
        self._ring.write(self._written, record)
        self._written += 1

    def _dismiss(self, oldest: int) -> None:
        """Takes transitions whose stack begins before the record out of the queue."""
        capacity, ages = self._layout.capacity, self._ring.columns["age"]
        while len(self._starts):
            start = self._starts.oldest()
            if start - min(int(ages[start % capacity]), self.stack - 1) >= oldest:
                break
            self._starts.drop_oldest()

    def _admit(self, stop: int) -> None:
        """Puts the running episode's transitions that start before `stop` in the queue."""
        while self._waiting < stop:
            self._starts.append(self._waiting)
            self._waiting += 1

    def _find_starts(self) -> None:
        """Fills the queue from the records alone."""
        capacity = self._layout.capacity
        index = np.arange(self.oldest, self._written)
        age = self._ring.columns["age"][index % capacity].astype(np.int64)
        goes_on = np.append(age[1:] > 0, False)
        whole_stack = index - np.minimum(age, self.stack - 1) >= self.oldest
        ready = np.ones(len(index), bool)
        if self._running:
            first = self._written - 1 - int(age[-1])
            self._waiting = max(first, self._written - self.n_step)
            ready = index < self._waiting
        self._starts.replace(index[goes_on & whole_stack & ready])

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


def _checked_shift(shift: int, layout: Layout) -> int:
    """The shift that applies: none for vectors, less than the image for pixels."""
    shift = checks.whole(shift, "shift", 0)
    if not layout.pixels:
        return 0
    side = min(layout.observation_shape[1:])
    if shift >= side:
        raise ValueError(f"shift must be less than the image's side {side}, got {shift}")
    return shift


def _iterable(pieces: Iterable[Records]) -> Iterable[Records]:
    if not isinstance(pieces, Iterable):
        raise ValueError(f"pieces must be what export gave, in order, got {pieces!r:.80}")
    return pieces


def _check_settings(state: dict[str, Any], own: dict[str, Any]) -> None:
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        came = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"the replay's state must be of format {_FORMAT}, got {came!r}")
    missing = {"settings", "written", "running", "generator"} - set(state)
    if missing or not (
        isinstance(state["settings"], dict)
        and isinstance(state["running"], bool)
        and isinstance(state["generator"], dict)
    ):
        raise ValueError("the replay's state is damaged: give what state() returned, unchanged")
    saved = state["settings"]
    differing = [
        f"{name} {saved.get(name)!r}, not {value!r}"
        for name, value in own.items()
        if saved.get(name) != value
    ]
    if differing:
        raise ValueError(
            f"the saved replay has {'; '.join(differing)}; use the settings it was saved with"
        )
