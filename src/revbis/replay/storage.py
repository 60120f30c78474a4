"""The ring: one preallocated record per frame, in memory or in a file, and where samples start."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from revbis.io import machine, schema
from revbis.io.schema import MOST
from revbis.io.text import format_bytes

if TYPE_CHECKING:
    from revbis.replay.batch import Array, Ints

Storage = Literal["ram", "disk"]
RecordArrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Layout:
    """What one record holds, and what all of them take.

    Attributes:
        capacity: Records in the ring.
        observation_shape: (C, H, W) of a frame of uint8, or (D,) of a vector of float32.
        action_size: Numbers in an action.

    Raises:
        ValueError: If a value is out of range.
    """

    capacity: schema.Count
    observation_shape: tuple[schema.Size, ...]
    action_size: schema.Size

    def __post_init__(self) -> None:
        schema.validate_fields(self)
        if len(self.observation_shape) not in (1, 3):
            raise ValueError(
                "observation_shape must be (C, H, W) for pixels or (D,) for vectors, got "
                f"{self.observation_shape}"
            )

    def check_sampling(self, stack: int, n_step: int, shift: int) -> None:
        """Refuses settings of `Replay` with which nothing can be sampled.

        Raises:
            ValueError: With what to do.
        """
        if self.pixels and shift >= min(self.observation_shape[1:]):
            side = min(self.observation_shape[1:])
            raise ValueError(f"shift must be less than the image's side {side}, got {shift}")
        least = stack + n_step + 1
        if self.capacity < least:
            raise ValueError(
                f"capacity must be at least stack + n_step + 1 = {least} to hold a transition, "
                f"got {self.capacity}; use a larger --replay-capacity"
            )

    @property
    def pixels(self) -> bool:
        """Whether observations are images."""
        return len(self.observation_shape) == 3

    @property
    def columns(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and type of each part of a record."""
        return {
            "frame": (self.observation_shape, np.dtype(np.uint8 if self.pixels else np.float32)),
            "action": ((self.action_size,), np.dtype(np.float32)),
            "reward": ((), np.dtype(np.float32)),
            "discount": ((), np.dtype(np.float32)),
            "age": ((), np.dtype(np.int32)),
        }

    @property
    def frame_bytes(self) -> int:
        """What the frames take."""
        return self._bytes("frame")

    @property
    def other_bytes(self) -> int:
        """What all the rest takes, with the index of the transitions."""
        columns = sum(self._bytes(name) for name in self.columns if name != "frame")
        return columns + self.capacity * np.dtype(np.int64).itemsize

    def checked_frame(self, frame: NDArray[Any]) -> NDArray[Any]:
        """A frame of the right shape and type, and finite, or a ValueError."""
        shape, dtype = self.columns["frame"]
        frame = schema.real_array(frame, "frame")
        if frame.shape != shape or frame.dtype != dtype:
            raise ValueError(
                f"frame must be {dtype} of shape {shape}, got {frame.dtype} of shape {frame.shape}"
            )
        if not self.pixels and not np.isfinite(frame).all():
            raise ValueError(f"frame must be finite, got {frame}")
        return frame

    def checked_records(self, piece: RecordArrays) -> RecordArrays:
        """The records in what was exported, of the right types and equal in number."""
        start = np.asarray(piece.get("start") if isinstance(piece, dict) else None)
        if start.ndim or start.dtype.kind not in "iu":
            raise ValueError("a piece must have its start; give what export returned")
        count = len(np.atleast_1d(piece.get("age", 0)))
        for name, (shape, dtype) in self.columns.items():
            values = piece.get(name)
            if values is None or values.shape != (count, *shape) or values.dtype != dtype:
                came = "none" if values is None else f"{values.dtype} of shape {values.shape}"
                raise ValueError(
                    f"a piece's {name} must be {dtype} of shape {(count, *shape)}, got {came}; "
                    "give what export returned"
                )
        return {name: piece[name] for name in self.columns}

    def _bytes(self, name: str) -> int:
        shape, dtype = self.columns[name]
        return self.capacity * math.prod(shape) * dtype.itemsize


class Ring:
    """Records by their ever-increasing index; record i is in slot i % capacity.

    A record is a frame with the action and what came with it: reward, the environment's discount,
    and the frame's age, its steps since the first frame of its episode. It never changes.

    Args:
        layout: What a record holds.
        storage: "ram", or "disk" for frames in a file that vanishes with the process.
        directory: Where the file goes.
        expected: Records that will ever be written, whose memory is checked; None for all.
    """

    def __init__(
        self,
        layout: Layout,
        storage: Storage,
        directory: Path | None,
        expected: int | None = None,
    ) -> None:
        self.layout = layout
        self._file: int | None = None
        self._folder = str(directory)
        if schema.convert(storage, Storage, "storage") == "disk":
            _ensure_disk_fits(layout, directory)
        else:
            _ensure_memory_fits(replace(layout, capacity=min(expected or MOST, layout.capacity)))
        # Pages come with the first touch: nothing is resident before it is written.
        try:
            self.columns = {
                name: np.empty((layout.capacity, *shape), dtype)
                for name, (shape, dtype) in layout.columns.items()
                if storage == "ram" or name != "frame"
            }
        except MemoryError:
            size = format_bytes(layout.frame_bytes + layout.other_bytes)
            raise MemoryError(
                f"a replay buffer of {layout.capacity:,} frames takes {size} when it is full, more "
                "than this machine can reserve; use --replay-storage disk or a smaller "
                "--replay-capacity"
            ) from None
        if storage == "disk":
            self.columns["frame"] = self._map(Path(directory or "."))
        self.frames = self.columns["frame"].view()
        self.frames.flags.writeable = False  # one type, and one compiled kernel, for both storages

    def write(self, index: int, records: RecordArrays) -> None:
        """Puts consecutive records, the first at the index; what was in their slots is lost."""
        done, count = 0, len(records["age"])
        while done < count:
            slot = (index + done) % self.layout.capacity
            part = slice(done, min(count, done + self.layout.capacity - slot))
            for name, values in records.items():
                if name == "frame" and self._file is not None:
                    frames = np.ascontiguousarray(values[part])
                    self._write_file(slot * (frames.nbytes // len(frames)), frames)
                else:
                    self.columns[name][slot : slot + part.stop - done] = values[part]
            done = part.stop

    def read(self, start: int, stop: int) -> RecordArrays:
        """Copies of the records [start, stop)."""
        slots = np.arange(start, stop) % self.layout.capacity
        return {name: values[slots] for name, values in self.columns.items()}

    def fill(self, pieces: Iterable[RecordArrays], written: int) -> None:
        """Puts what was exported: the records of a ring to which `written` were ever written.

        Raises:
            ValueError: If a piece is no such thing, or records are missing.
        """
        if not isinstance(pieces, Iterable):
            raise ValueError(f"pieces must be what export gave, in order, got {pieces!r:.80}")
        expected = max(0, written - self.layout.capacity)
        for piece in pieces:
            records = self.layout.checked_records(piece)
            start = int(piece["start"])
            stop = min(start + len(records["age"]), written)
            if stop <= expected:
                continue
            if start > expected:
                break
            part = slice(expected - start, stop - start)
            self.write(expected, {name: values[part] for name, values in records.items()})
            expected = stop
        if expected < written:
            raise ValueError(
                f"the replay's records {expected} to {written - 1} are missing from the pieces; "
                "give all pieces in order, or begin with an empty replay"
            )

    def _map(self, directory: Path) -> NDArray[Any]:
        """Opens a file without a name and maps it for reading.

        Frames are written with pwrite and not through the map: on a full disk that is an error
        one can read, where a store to the map would kill the process.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._file, name = tempfile.mkstemp(prefix="replay-", dir=directory)
        weakref.finalize(self, os.close, self._file)
        Path(name).unlink()
        os.ftruncate(self._file, self.layout.frame_bytes)
        mapped = mmap.mmap(self._file, self.layout.frame_bytes, access=mmap.ACCESS_READ)
        shape, dtype = self.layout.columns["frame"]
        return np.frombuffer(mapped, dtype).reshape(self.layout.capacity, *shape)

    def _write_file(self, offset: int, frames: NDArray[Any]) -> None:
        assert self._file is not None
        left = frames.view(np.uint8).reshape(-1).data
        while len(left):
            try:
                count = os.pwrite(self._file, left, offset)
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"a frame of the replay could not be written to disk ({error.strerror}); "
                    "free some space or use a smaller --replay-capacity",
                    self._folder,
                ) from None
            left, offset = left[count:], offset + count


def _ensure_memory_fits(layout: Layout) -> None:
    needed = layout.frame_bytes + layout.other_bytes
    fitting = machine.available_bytes() * layout.capacity // needed
    machine.ensure_fits(
        needed,
        f"a replay buffer of {layout.capacity:,} frames",
        "use --replay-storage disk or a smaller --replay-capacity "
        f"(up to {fitting:,} fits in memory)",
    )


def _ensure_disk_fits(layout: Layout, directory: Path | None) -> None:
    if directory is None:
        raise ValueError("directory must be given with storage 'disk': where the frames are kept")
    nearest = Path(directory).absolute()
    while not nearest.exists():
        nearest = nearest.parent
    free, needed = shutil.disk_usage(nearest).free, layout.frame_bytes
    if needed > free:
        raise ValueError(
            f"a replay buffer of {layout.capacity:,} frames takes {format_bytes(needed)} on disk, "
            f"but only {format_bytes(free)} is free at {directory}; use another directory or a "
            f"smaller --replay-capacity (up to {free * layout.capacity // needed:,} fits)"
        )
    machine.ensure_fits(
        layout.other_bytes,
        f"what a replay buffer of {layout.capacity:,} frames keeps beside them",
        "use a smaller --replay-capacity",
    )


FORMAT = 1


def check_replay_state(state: dict[str, Any], own: dict[str, Any]) -> None:
    """Refuses what state() of a buffer with these settings did not return.

    Raises:
        ValueError: If the state is of another format, damaged or of other settings.
    """
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        came = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"the replay's state must be of format {FORMAT}, got {came!r}")
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


class StartQueue:
    """Indices of the records where transitions or sequences start, with access by position.

    They enter and leave in the order of their records: position 0 is the oldest.

    Args:
        capacity: The most that are ever in the queue.

    Attributes:
        left: How many have left: the number of the oldest entry.
        entered: How many have ever entered: the next entry's number.
    """

    def __init__(self, capacity: int) -> None:
        self._ring = np.empty(capacity, np.int64)
        self.left = self.entered = 0

    def __len__(self) -> int:
        return self.entered - self.left

    def at(self, positions: Ints) -> Ints:
        """The indices at positions.

        Raises:
            IndexError: If a position is not in the queue.
            ValueError: If positions are no 1-D integers.
        """
        positions = schema.real_array(positions, "positions")
        if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
            raise ValueError(
                f"positions must be 1-D integers, got {positions.dtype} of {positions.shape}"
            )
        positions = positions.astype(np.int64)
        if positions.size and not 0 <= positions.min() <= positions.max() < len(self):
            raise IndexError(f"positions must be in [0, {len(self)})")
        starts: Ints = self._ring[(self.left + positions) % len(self._ring)]
        return starts

    def append(self, start: int) -> None:
        """Puts an index at the end."""
        self._ring[self.entered % len(self._ring)] = start
        self.entered += 1

    def dismiss(self, oldest: int, ages: Array, stack: int) -> None:
        """Takes out the indices whose stacks have lost a frame: see `has_full_stack`."""
        while self.left < self.entered:
            if has_full_stack(self._ring[self.left % len(self._ring)], oldest, ages, stack):
                break
            self.left += 1

    def replace(self, starts: Ints) -> None:
        """Puts these indices in the place of all others."""
        self._ring[: len(starts)] = starts
        self.left, self.entered = 0, len(starts)


def has_full_stack(index: Ints | int, oldest: int, ages: Array, stack: int) -> NDArray[np.bool_]:
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
    full: NDArray[np.bool_] = index - back >= oldest
    return full


def find_starts(oldest: int, written: int, ages: Array, stack: int) -> Ints:
    """The records that are not the last of their episode and have their whole stack.

    Takes what `has_full_stack` does, and how many records were ever written.
    """
    index = np.arange(oldest, written)
    goes_on = np.append(ages[index[1:] % len(ages)] > 0, False)[: len(index)]
    starts: Ints = index[goes_on & has_full_stack(index, oldest, ages, stack)]
    return starts
