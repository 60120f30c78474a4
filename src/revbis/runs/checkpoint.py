"""Checkpoints: atomic, checksummed, incremental for the replay buffer, without executable code.

A run's folder `checkpoints` contains a folder for each of the last few checkpoints,

    frame-000000010000/agent.pt        networks, optimisers, generators (read with weights_only)
    frame-000000010000/state.json      settings, counters, replay state, running episode, records
    frame-000000010000/manifest.json   size and checksum of every file the checkpoint needs

and `replay`, with the records of the replay buffer in pieces that are written once and shared.
"""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

import numpy as np
import torch

from revbis.io import schema
from revbis.io.files import (
    Record,
    atomic_write,
    digest,
    digest_of_bytes,
    read_tensors,
    sync_folder,
)
from revbis.io.schema import CountOrZero, FileEntry, Manifest
from revbis.runs.folder import (
    AGENT,
    MANIFEST,
    REPLAY,
    STATE,
    checkpoint_frames,
    checkpoint_name,
    newest_checkpoint,
)
from revbis.runs.records import SavedRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from revbis.replay import Replay

T = TypeVar("T")
_LOG = logging.getLogger("revbis")
_FORMAT = "revbis checkpoint 1"
_REPLACED = ".replaced-"  # before the name of one that another of the same frame replaces
_PIECE = 4096  # records in a file, so that saving never needs much memory
_FILE = re.compile(rf"{re.escape(AGENT)}|{re.escape(STATE)}|{REPLAY}/\d{{12}}-\d{{12}}\.npz")
_TRIES, _PAUSE_SECONDS = 5, 0.1  # of a reader while the run is training


class _Written(TypedDict):
    written: CountOrZero


class DamagedError(ValueError):
    """A checkpoint that is truncated, altered or not from revbis."""


@dataclass(frozen=True)
class Checkpoint:
    """An intact checkpoint.

    Attributes:
        folder: Its folder.
        agent: The agent's state.
        state: The trainer's state.
        pieces: Files with the replay buffer's records, in order.
        written: Number of records ever written to the replay buffer.
    """

    folder: Path
    agent: dict[str, Any]
    state: dict[str, Any]
    pieces: list[Path]
    written: int

    def records(self) -> Iterator[dict[str, Any]]:
        """The replay buffer's records, piece by piece.

        Raises:
            DamagedError: For a piece that cannot be read.
        """
        for path in self.pieces:
            try:
                with np.load(path, allow_pickle=False) as file:
                    piece = dict(file)
            except Exception:  # noqa: BLE001 (NumPy, zipfile and zlib raise different ones)
                raise DamagedError(f"{path} cannot be read as arrays of numbers") from None
            yield piece


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: The run's checkpoint folder.
        keep: Number of checkpoints to keep.
        guard: Called before anything is written; raises if this process may no longer write.
    """

    def __init__(self, folder: Path, keep: int, guard: Callable[[], None] = lambda: None) -> None:
        self.folder, self.keep, self._guard = folder, keep, guard
        self._pieces: dict[str, FileEntry] = {}  # of the newest checkpoint
        self._written = 0  # number of records in them

    def save(
        self, frames: int, agent: dict[str, Any], state: dict[str, Any], replay: Replay
    ) -> Path:
        """Writes a checkpoint, then deletes old ones and the files that only they need.

        Raises:
            OSError: For example if the disk is full; earlier checkpoints are untouched.
        """
        self._guard()
        try:
            return self._save(frames, agent, state, replay)
        except OSError:
            self._guard()  # another process may have taken over and deleted files
            raise

    def _save(
        self, frames: int, agent: dict[str, Any], state: dict[str, Any], replay: Replay
    ) -> Path:
        self._save_records(replay)
        packed = io.BytesIO()
        torch.save(agent, packed)
        files = {AGENT: packed.getvalue(), STATE: json.dumps({"format": _FORMAT, **state}).encode()}
        final = self.folder / checkpoint_name(frames)
        unfinished, replaced = (self.folder / f"{mark}{final.name}" for mark in (".", _REPLACED))
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            for name, content in files.items():
                atomic_write(unfinished / name, content)
            manifest = {name: _entry(content) for name, content in files.items()}
            manifest |= self._pieces  # as they were written: old ones are not read again
            content = json.dumps({"format": _FORMAT, "files": manifest}).encode()
            atomic_write(unfinished / MANIFEST, content)
            self._guard()  # again: writing the pieces may have taken long
            if final.exists():  # as when the last frame is saved twice
                shutil.rmtree(replaced, ignore_errors=True)
                final.rename(replaced)
            unfinished.rename(final)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            self._put_back()
            raise
        sync_folder(self.folder)
        self._tidy()
        return final

    def resume(self) -> Checkpoint | None:
        """The newest intact checkpoint, for the process that will write further ones.

        Newer damaged ones are reported and renamed, so that they do not count towards `keep`. If
        none is intact, nothing is changed.

        Raises:
            DamagedError: If there are checkpoints, but none is intact.
        """
        self._put_back()
        damaged: list[Path] = []
        problems: list[str] = []
        for folder in reversed(_folders(self.folder)):
            try:
                checkpoint = _load(folder, self.folder)
            except DamagedError as problem:
                damaged.append(folder)
                problems.append(str(problem))
                continue
            for each, text in zip(damaged, problems, strict=True):
                _LOG.warning("%s; resuming from an earlier one", text)
                _set_aside(each)
            manifest = _manifest(folder)
            self._pieces = {name: manifest[name] for name in manifest if _is_piece(name)}
            self._written = checkpoint.written
            return checkpoint
        if damaged:
            raise DamagedError(
                f"no checkpoint in {self.folder} is intact ({problems[0]}). Nothing was changed: "
                "revbis eval may still work; to discard the run and train it from frame 0, pass "
                "--restart to revbis train"
            )
        return None

    @property
    def newest_frame(self) -> int | None:
        """The frame of the newest checkpoint, if there is one."""
        return newest_checkpoint(path.name for path in _folders(self.folder))

    def _save_records(self, replay: Replay) -> None:
        """Writes the records added since the last checkpoint."""
        for start in range(self._written, replay.written, _PIECE):
            stop = min(start + _PIECE, replay.written)
            if stop <= replay.oldest:
                continue
            name = f"{REPLAY}/{start:012d}-{stop:012d}.npz"
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **replay.export(start, stop))
            content = buffer.getvalue()
            atomic_write(self.folder / name, content)
            self._pieces[name] = _entry(content)
        self._written = replay.written
        self._pieces = {
            name: entry
            for name, entry in self._pieces.items()
            if int(Path(name).stem.split("-")[1]) > replay.oldest
        }

    def _put_back(self) -> None:
        """Gives a checkpoint its name again that was to be replaced, and was not."""
        for replaced in self.folder.glob(f"{_REPLACED}*"):
            final = self.folder / replaced.name.removeprefix(_REPLACED)
            if not final.exists():
                replaced.rename(final)

    def _tidy(self) -> None:
        """Deletes old checkpoints, unused pieces, and files left by a killed process."""
        files = {}
        for folder in _folders(self.folder):
            try:
                files[folder] = _manifest(folder)
            except DamagedError as problem:
                _LOG.warning("%s; it is set aside", problem)
                _set_aside(folder)
        folders = list(files)
        # that of frame 0 is useless once there is a later one
        if len(folders) > 1 and folders[0].name == checkpoint_name(0):
            shutil.rmtree(folders.pop(0), ignore_errors=True)
        for folder in folders[: -self.keep]:
            shutil.rmtree(folder, ignore_errors=True)
        needed = set(self._pieces)
        for folder in folders[-self.keep :]:
            needed |= set(files[folder])
        for path in (self.folder / REPLAY).glob("*"):  # includes hidden files
            if str(path.relative_to(self.folder)) not in needed:
                path.unlink(missing_ok=True)
        for path in (*self.folder.glob(".frame-*"), *self.folder.glob(f"{_REPLACED}*")):
            shutil.rmtree(path, ignore_errors=True)


def read_agent(root: Path) -> tuple[int, dict[str, Any]] | None:
    """The newest checkpoint with an intact agent.pt: its frame and the agent's state in it.

    For readers: nothing is written or renamed, and the run may be training. If a checkpoint is
    deleted or replaced while it is read, reading starts again. None without checkpoints.

    Raises:
        DamagedError: If there are checkpoints, but no agent.pt is intact.
    """
    return _read_newest(
        root,
        lambda folder: (checkpoint_frames(folder.name) or 0, _agent(folder, _manifest(folder))),
    )


def read_state(root: Path) -> dict[str, Any] | None:
    """The trainer's state in the newest checkpoint with an intact state.json, as `read_agent`.

    Raises:
        DamagedError: If there are checkpoints, but no state.json is intact.
    """
    return _read_newest(root, lambda folder: _state(folder, _manifest(folder)))


def saved_evaluations(root: Path) -> list[Record]:
    """The lines of eval.jsonl as the newest intact state.json has them; none without one."""
    try:
        records = (read_state(root) or {}).get("records")
        schema.convert(records, SavedRecords, "the records")
    except ValueError:
        return []
    return cast("SavedRecords", records)["evaluations"]  # type: ignore[return-value]


def read_checkpoint(root: Path) -> Checkpoint | None:
    """The newest intact checkpoint, replay buffer included; for readers, as `read_agent` is.

    Raises:
        DamagedError: If there are checkpoints, but none is intact.
    """
    return _read_newest(root, lambda folder: _load(folder, root))


def _read_newest(root: Path, read: Callable[[Path], T]) -> T | None:
    problem = None
    for _ in range(_TRIES):
        for folder in reversed(_folders(root)):
            try:
                return read(folder)
            except DamagedError as damage:
                problem = problem or damage
        if problem is None:
            return None
        time.sleep(_PAUSE_SECONDS)
    assert problem is not None
    raise problem


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if checkpoint_frames(path.name) is not None)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _set_aside(folder: Path) -> None:
    """Renames a damaged checkpoint, so that it does not count towards those kept."""
    target = folder.with_name(f"damaged-{folder.name}")
    shutil.rmtree(target, ignore_errors=True)  # that of an earlier time
    folder.rename(target)


def _load(folder: Path, root: Path) -> Checkpoint:
    """Reads a checkpoint after checking every file it needs."""
    manifest = _manifest(folder)
    pieces = [root / name for name in manifest if _is_piece(name)]
    for path in pieces:
        entry = manifest[f"{REPLAY}/{path.name}"]
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            raise DamagedError(f"checkpoint {folder} is damaged: {path} is missing or truncated")
        if digest(path) != entry["digest"]:
            raise DamagedError(f"checkpoint {folder} is damaged: {path} has changed")
    state = _state(folder, manifest)
    try:
        replay: _Written = schema.convert(state.get("replay"), _Written, f"{STATE}'s replay")
    except ValueError as problem:
        raise DamagedError(f"checkpoint {folder} cannot be read: {problem}") from None
    return Checkpoint(folder, _agent(folder, manifest), state, pieces, replay["written"])


def _state(folder: Path, manifest: dict[str, FileEntry]) -> dict[str, Any]:
    content = _content(folder, STATE, manifest)
    try:
        return cast("dict[str, Any]", schema.parse_json(content, dict[str, Any], STATE))
    except ValueError as problem:
        raise DamagedError(f"checkpoint {folder} cannot be read: {problem}") from None


def _agent(folder: Path, manifest: dict[str, FileEntry]) -> dict[str, Any]:
    content = _content(folder, AGENT, manifest)
    try:
        agent = read_tensors(content)
    except ValueError as problem:
        raise DamagedError(f"checkpoint {folder} cannot be read: {AGENT}: {problem}") from None
    if not isinstance(agent, dict):
        raise DamagedError(f"checkpoint {folder} cannot be read: {AGENT} does not contain an agent")
    return agent


def _content(folder: Path, name: str, manifest: dict[str, FileEntry]) -> bytes:
    """The content of a checkpoint's file, after checking its size and checksum."""
    try:
        content = (folder / name).read_bytes()
        entry = manifest[name]
    except (OSError, KeyError):
        raise DamagedError(f"checkpoint {folder} is damaged: {name} is missing") from None
    if len(content) != entry["bytes"]:
        raise DamagedError(f"checkpoint {folder} is damaged: {name} is missing or truncated")
    if digest_of_bytes(content) != entry["digest"]:
        raise DamagedError(f"checkpoint {folder} is damaged: {name} has changed")
    return content


def _manifest(folder: Path) -> dict[str, FileEntry]:
    """The files that a checkpoint lists; other names are refused, so no path leads elsewhere."""
    try:
        text = (folder / MANIFEST).read_bytes()
        manifest: Manifest = schema.parse_json(text, Manifest, MANIFEST)
    except (OSError, ValueError) as problem:
        raise DamagedError(f"checkpoint {folder} is damaged: no manifest ({problem})") from None
    if manifest["format"] != _FORMAT:
        raise DamagedError(f"{folder} is not a checkpoint of this version of revbis")
    foreign = [name for name in manifest["files"] if not _FILE.fullmatch(name)]
    if foreign:
        raise DamagedError(f"checkpoint {folder} is damaged: its manifest lists {foreign[0]!r:.80}")
    return manifest["files"]


def _entry(content: bytes) -> FileEntry:
    return {"bytes": len(content), "digest": digest_of_bytes(content)}


def _is_piece(name: str) -> bool:
    return name.startswith(f"{REPLAY}/")
