"""Cells of a benchmark: one training each, whose result is kept under all that it depends on.

A result is a small file in the folder `cells`, or in the archive `cells.zip` beside it. Its key has
the version of the benchmark and of the objective; whoever changes their numbers raises them.
"""

from __future__ import annotations

import json
import zipfile
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from revbis.io.files import atomic_write, digest_of_bytes
from revbis.io.plugins import described, search_working_folder
from revbis.objectives import NonFiniteError
from revbis.objectives.registry import OBJECTIVES
from revbis.representation.workers import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Record = dict[str, Any]
_FOLDER, _ARCHIVE = "cells", "cells.zip"


class Cell(Work, Protocol):
    """One training, and the measures of what it learned."""

    @property
    def label(self) -> str:
        """What its files are named after."""

    @property
    def key(self) -> Record:
        """Everything that the result depends on."""


def code_key(method: str, benchmark: int) -> Record:
    """The part of a key that says which code gave a result.

    Args:
        method: An objective's name, or package.module:factory.
        benchmark: Version of the benchmark.
    """
    entry = OBJECTIVES.get(method)
    version = _file_checksum(method) if entry is None else entry.version
    return {"benchmark": benchmark, "objective": version, "torch": torch.__version__}


@contextmanager
def calling_objective() -> Iterator[None]:
    """Turns whatever a user's objective raises into one line.

    Raises:
        ValueError: With the error, unless it is one already.
        NonFiniteError: If training diverged.
    """
    try:
        yield
    except (ValueError, NonFiniteError):
        raise
    except Exception as error:
        raise ValueError(f"calling the objective raised {described(error)}") from error


def cell_path(cell: Cell, out: Path) -> Path:
    """Where a result goes."""
    checksum = digest_of_bytes(json.dumps(cell.key, sort_keys=True).encode())[:12]
    return out / _FOLDER / f"{cell.label.replace(':', '.')}.{checksum}.json"


def write_cell(cell: Cell, out: Path, result: Record) -> None:
    """Writes a result.

    Raises:
        OSError: If it cannot be written.
    """
    content = {"key": cell.key, "result": result}
    atomic_write(cell_path(cell, out), (json.dumps(content, indent=1) + "\n").encode())


def read_cell(cell: Cell, out: Path) -> Record | None:
    """The result of a cell, None if there is none; one that cannot be read counts as none."""
    content = _content(stored(cell_path(cell, out)))
    return content["result"] if content["key"] == json.loads(json.dumps(cell.key)) else None


def stored_keys(out: Path) -> Iterator[Record]:
    """The keys of all results of a folder."""
    for folder, name in _stored_names(out):
        if key := _content(folder / name)["key"]:
            yield key


class Kept(NamedTuple):
    """A result of an earlier command, and where files are that belong to it."""

    folder: Path | zipfile.Path
    name: str
    result: Record


def kept_results(cells: Sequence[Cell], out: Path) -> list[Kept]:
    """What a folder has of other methods under the conditions of these cells.

    Nothing of a user's own objective is imported: of one that has changed since, whose results are
    of two versions, none is kept.
    """
    conditions = [_conditions(cell.key) for cell in cells[:1]]
    methods = {cell.key["method"] for cell in cells}
    found: dict[str, list[Kept]] = {}
    for folder, name in _stored_names(out):
        content = _content(folder / name)
        key = content["key"]
        if not key or key.get("method") in methods or _conditions(key) not in conditions:
            continue
        entry = OBJECTIVES.get(key["method"])
        if entry is None or entry.version == key["objective"]:
            kept = Kept(folder, name.removesuffix(".json"), content["result"])
            found.setdefault(kept.name.rpartition(".")[0], []).append(kept)
    return [one for several in found.values() if len(several) == 1 for one in several]


def count_others(cells: Sequence[Cell], out: Path) -> int:
    """How many results a folder has that are of other conditions than these cells."""
    conditions = [_conditions(cell.key) for cell in cells[:1]]
    keys = (_content(folder / name)["key"] for folder, name in _stored_names(out))
    return sum(bool(key) and _conditions(key) not in conditions for key in keys)


def _conditions(key: Record) -> Record:
    """The part of a key that results must share to be in one table."""
    own = ("method", "seed", "scenario", "objective")
    shared: Record = json.loads(json.dumps({k: v for k, v in key.items() if k not in own}))
    return shared


def _stored_names(out: Path) -> list[tuple[Path | zipfile.Path, str]]:
    """Folder and name of every result: those of the folder, and those of the archive."""
    folder, archive = out / _FOLDER, out / _ARCHIVE
    own = sorted(path.name for path in folder.glob("*.json"))
    names: list[tuple[Path | zipfile.Path, str]] = [(folder, name) for name in own]
    if archive.exists():
        packed = _members(archive)
        others = sorted({path.name for path in packed.iterdir()} - set(own))
        names += [(packed, name) for name in others if name.endswith(".json")]
    return names


def stored(path: Path) -> Path | zipfile.Path:
    """Where a file of a cell is: in its folder, or else in the archive beside that."""
    archive = path.parent.with_name(_ARCHIVE)
    return path if path.exists() or not archive.exists() else _members(archive) / path.name


def _members(archive: Path) -> zipfile.Path:
    try:
        return _opened(archive, archive.stat().st_mtime_ns)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive} is not an archive of cells: {error}") from None


@lru_cache(maxsize=1)  # until it changes
def _opened(archive: Path, _changed: int) -> zipfile.Path:
    return zipfile.Path(archive)


def _content(path: Path | zipfile.Path) -> Record:
    """The key and the result in a file; both None if it is no such file."""
    try:
        content = json.loads(path.read_bytes())
        return {"key": content["key"], "result": content["result"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {"key": None, "result": None}


@cache
def _file_checksum(method: str) -> str | None:
    """A checksum of the file that a user's factory is in; what it imports is not part of it."""
    search_working_folder()
    file = getattr(import_module(method.partition(":")[0]), "__file__", None)
    return None if file is None else digest_of_bytes(Path(file).read_bytes())
