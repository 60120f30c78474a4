"""Checkpoints: atomic, checksummed, incremental for the replay buffer, free of executable code.

A run's folder `checkpoints` holds a folder for each of the last few checkpoints,

    frame-000000010000/agent.pt        networks, optimisers, generators (read with weights_only)
    frame-000000010000/state.json      counters, replay's state, the running episode, records
    frame-000000010000/manifest.json   size and checksum of every file the checkpoint needs

and `replay`, with the records of the replay buffer in pieces that are written once and shared.
"""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.files import digest, sync_folder, write_whole

if TYPE_CHECKING:
    from revbis.replay import Replay

_LOG = logging.getLogger("revbis")
_FORMAT = "revbis checkpoint 1"
_PIECE = 4096  # records in a file, so that saving never needs much memory
_NAME = re.compile(r"frame-(\d{12})")


class DamagedError(ValueError):
    """A checkpoint that is truncated, altered or not ours."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole.

    Attributes:
        folder: Where it lies.
        agent: The agent's state.
        state: The trainer's.
        pieces: Files of the replay buffer's records, in order.
    """

    folder: Path
    agent: dict[str, Any]
    state: dict[str, Any]
    pieces: list[Path]

    def records(self) -> Iterator[dict[str, Any]]:
        """The replay buffer's records, piece by piece."""
        for path in self.pieces:
            with np.load(path, allow_pickle=False) as file:
                yield dict(file)


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: The run's checkpoint folder.
        keep: How many are kept.
        guard: Called before anything is written; raises if this process no longer may.
    """

    def __init__(self, folder: Path, keep: int, guard: Callable[[], None] = lambda: None) -> None:
        self.folder, self.keep, self._guard = folder, keep, guard
        self._pieces: list[str] = []  # of the newest checkpoint
        self._written = 0  # records in them

    def save(
        self, frames: int, agent: dict[str, Any], state: dict[str, Any], replay: Replay
    ) -> Path:
        """Writes a checkpoint, then deletes what no kept one needs.

        Raises:
            OSError: As when the disk is full; earlier checkpoints are untouched.
        """
        self._guard()
        self._save_records(replay)
        files = {
            "agent.pt": _packed(agent),
            "state.json": json.dumps({"format": _FORMAT, **state}).encode(),
        }
        final = self.folder / f"frame-{frames:012d}"
        unfinished = self.folder / f".{final.name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            for name, content in files.items():
                write_whole(unfinished / name, content)
            manifest = {name: _entry(unfinished / name) for name in files}
            manifest |= {name: _entry(self.folder / name) for name in self._pieces}
            content = json.dumps({"format": _FORMAT, "files": manifest}).encode()
            write_whole(unfinished / "manifest.json", content)
            self._guard()  # once more: the pieces may have taken a while
            shutil.rmtree(final, ignore_errors=True)
            unfinished.rename(final)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        sync_folder(self.folder)
        self._tidy()
        return final

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint; damaged ones are reported, set aside and passed over.

        Raises:
            DamagedError: If there are checkpoints, but not one is whole.
        """
        folders = self._folders()
        for folder in reversed(folders):
            try:
                found = _load(folder, self.folder)
            except DamagedError as damage:
                _LOG.warning("%s; it is set aside and an earlier one is tried", damage)
                folder.rename(folder.with_name(f"damaged-{folder.name}"))
                continue
            self._pieces = [str(path.relative_to(self.folder)) for path in found.pieces]
            self._written = int(found.state["replay"]["written"])
            return found
        if folders:
            raise DamagedError(
                f"no checkpoint in {self.folder} is whole; to begin afresh, remove "
                f"{self.folder.parent} or give another --out"
            )
        return None

    def _folders(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))

    def _save_records(self, replay: Replay) -> None:
        """Writes the records that are new since the last checkpoint."""
        for start in range(self._written, replay.written, _PIECE):
            stop = min(start + _PIECE, replay.written)
            if stop <= replay.oldest:
                continue
            name = f"replay/{start:012d}-{stop:012d}.npz"
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **replay.export(start, stop))
            write_whole(self.folder / name, buffer.getvalue())
            self._pieces.append(name)
        self._written = replay.written
        self._pieces = [name for name in self._pieces if _stop_of(name) > replay.oldest]

    def _tidy(self) -> None:
        """Deletes old checkpoints, and pieces that no kept one lists."""
        kept = self._folders()
        for folder in kept[: -self.keep]:
            shutil.rmtree(folder, ignore_errors=True)
        needed = set(self._pieces)
        for folder in kept[-self.keep :]:
            needed |= set(_manifest(folder))
        for path in (self.folder / "replay").glob("*.npz"):
            if str(path.relative_to(self.folder)) not in needed:
                path.unlink(missing_ok=True)


def _load(folder: Path, root: Path) -> Checkpoint:
    """Reads a checkpoint after checking every file it needs."""
    import torch

    manifest = _manifest(folder)
    for name, entry in manifest.items():
        path = _place(folder, root, name)
        if not path.is_file() or path.stat().st_size != entry.get("bytes"):
            raise DamagedError(f"checkpoint {folder} is damaged: {name} is missing or truncated")
        if digest(path) != entry.get("digest"):
            raise DamagedError(f"checkpoint {folder} is damaged: {name} has changed")
    try:
        state = json.loads((folder / "state.json").read_bytes())
        agent = torch.load(folder / "agent.pt", map_location="cpu", weights_only=True)
    except Exception as problem:  # whatever the readers raise, the file is not what we wrote
        raise DamagedError(f"checkpoint {folder} cannot be read: {problem}") from None
    pieces = [root / name for name in manifest if name.startswith("replay/")]
    return Checkpoint(folder, agent, state, pieces)


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        content = json.loads((folder / "manifest.json").read_bytes())
        if content["format"] != _FORMAT:
            raise DamagedError(f"{folder} is not a checkpoint of this version of revbis")
        files: dict[str, dict[str, Any]] = content["files"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        if isinstance(problem, DamagedError):
            raise
        raise DamagedError(f"checkpoint {folder} is damaged: no manifest ({problem})") from None
    return files


def _place(folder: Path, root: Path, name: str) -> Path:
    return (root if name.startswith("replay/") else folder) / name


def _entry(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "digest": digest(path)}


def _packed(agent: dict[str, Any]) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(agent, buffer)
    return buffer.getvalue()


def _stop_of(name: str) -> int:
    return int(Path(name).stem.split("-")[1])
