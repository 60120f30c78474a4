"""Reading what comes from outside: .npz and .npy files, Gymnasium's transition tables."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order

from revbis.io.machine import available_bytes

Array = NDArray[np.float64]
Header = tuple[tuple[int, ...], np.dtype[Any]]
Outcomes = Sequence[tuple[int, int, float, int, float, bool]]
"""State, action, probability, next state, reward, end of the episode."""

_EXPECTED = (
    "P[state][action] must list (probability, next_state, reward, terminated), with states and "
    "actions numbered from 0"
)
_UNREADABLE = (  # what NumPy, zipfile and zlib raise for damaged files
    ValueError,
    TypeError,
    KeyError,
    OSError,
    EOFError,
    RuntimeError,  # with RecursionError and NotImplementedError
    OverflowError,
    MemoryError,
    SyntaxError,
    TokenError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(path: str | os.PathLike[str] | zipfile.Path) -> dict[str, Any]:
    """The arrays of a .npz file; nothing is unpickled, nothing is read that does not fit in memory.

    Raises:
        ValueError: If the file is missing or not readable.
    """
    try:
        file_path = path if isinstance(path, zipfile.Path) else Path(path)
        with file_path.open("rb") as handle, zipfile.ZipFile(handle) as archive:
            size, free = sum(entry.file_size for entry in archive.infolist()), available_bytes()
            if size > free:
                raise ValueError(
                    f"it unpacks to {size / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free"
                )
            for entry in archive.infolist():
                with archive.open(entry) as member:
                    header = _header(member)
                if header is not None:
                    _refuse_too_short(header, entry.file_size, entry.filename)
            handle.seek(0)
            with np.load(handle, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except _UNREADABLE as error:
        raise ValueError(f"{path} is not a readable .npz of plain arrays: {error}") from None


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a .npy file; nothing is unpickled.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not readable.
    """
    try:
        with Path(path).open("rb") as handle:
            header = _header(handle)
            if header is None:
                raise ValueError("it is not one, or it is an archive of several arrays")
            _refuse_too_short(header, os.fstat(handle.fileno()).st_size, "it")
            handle.seek(0)
            return np.asarray(np.load(handle, allow_pickle=False))
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        raise ValueError(f"{path} is not a .npy file of plain numbers: {error}") from None


def _refuse_too_short(header: Header, size: int, name: str) -> None:
    """An array whose header declares more than its file holds would be allocated first."""
    shape, dtype = header
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects; expected arrays of numbers")
    if prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{name} should hold {shape} of {dtype}, but is shorter")


def _header(member: IO[bytes]) -> Header | None:
    """Shape and type of an array; None for what is not an array."""
    if member.read(6) != b"\x93NUMPY":
        return None
    major, minor = member.read(2)
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if (major, minor) not in readers:
        raise ValueError(f"version {major}.{minor} of the format is not supported")
    shape, _, dtype = readers[major, minor](member)
    return shape, dtype


def make_toy_text(name: str) -> Any:
    """The Gymnasium environment with that id."""
    try:
        import gymnasium
    except ImportError:
        raise ValueError(
            f"reading {name!r} needs Gymnasium: pip install 'revbis[gym]' -c constraints.txt"
        ) from None
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"Gymnasium cannot make {name!r}: {error}") from None


def read_table(env: object) -> tuple[list[Any], Array]:
    """Gymnasium's transition table as one sparse matrix per action, and the rewards (S, A)."""
    table = getattr(env, "P", None)
    if not isinstance(table, Mapping):
        raise ValueError(
            f"{type(env).__name__} has no transition table env.unwrapped.P; from_gymnasium reads "
            "toy-text environments such as FrozenLake-v1 and CliffWalking-v1"
        )
    try:
        n, m = len(table), max(len(actions) for actions in table.values())
        entries = [
            (int(s), int(a), float(p), int(t), float(r), bool(done))
            for s, actions in table.items()
            for a, outcomes in actions.items()
            for p, t, r, done in outcomes
            if p > 0
        ]
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{_EXPECTED}: {error}") from None
    for s, a, _, t, _, _ in entries:
        if not (0 <= s < n and 0 <= t < n and 0 <= a < m):
            raise ValueError(
                f"{_EXPECTED}; there are {n} states and at most {m} actions, but action {a} leads "
                f"from state {s} to state {t}"
            )
    terminal = np.zeros(n, dtype=bool)
    terminal[[t for _, _, _, t, _, done in entries if done]] = True
    _refuse_ambiguous_ends(entries, terminal, getattr(env, "initial_state_distrib", None))
    live = [entry for entry in entries if not terminal[entry[0]]]
    ends = np.flatnonzero(terminal)
    rewards = np.zeros((n, m))
    for s, a, p, _, r, _ in live:
        rewards[s, a] += p * r
    matrices = []
    for a in range(m):
        moves = [(s, t, p) for s, b, p, t, _, _ in live if b == a]
        rows, columns, weights = np.array(moves).reshape(-1, 3).T
        matrices.append(
            sp.csr_matrix(
                (
                    np.concatenate([weights, np.ones(len(ends))]),
                    (np.concatenate([rows, ends]), np.concatenate([columns, ends])),
                ),
                shape=(n, n),
            )
        )
    return matrices, rewards


def _refuse_ambiguous_ends(entries: Outcomes, terminal: NDArray[np.bool_], start: Any) -> None:
    """A reachable state must end the episode always or never: else it cannot be made absorbing."""
    n = len(terminal)
    moves = [(s, t) for s, _, _, t, _, done in entries if not done and not terminal[s]]
    if not moves:
        return
    first = np.flatnonzero(~terminal if start is None else start)
    # Node n leads to every first state: what is reached from it is what an episode can reach.
    edges = np.array(moves + [(n, s) for s in first])
    graph = sp.csr_matrix((np.ones(len(edges)), edges.T), shape=(n + 1, n + 1))
    reached = breadth_first_order(graph, n, return_predecessors=False)[1:]
    both = reached[terminal[reached]]
    if len(both):
        raise ValueError(
            f"state {both.min()} ends the episode on some transitions and not on "
            "others, so it cannot be made absorbing"
        )


def grid_of(env: object, n: int) -> NDArray[np.int64] | None:
    """Row and column of each state where the environment is a grid, (S, 2)."""
    shape = getattr(env, "shape", None) or getattr(getattr(env, "desc", None), "shape", None)
    if shape is None or len(shape) != 2 or shape[0] * shape[1] != n:
        return None
    return np.stack(np.divmod(np.arange(n), shape[1]), axis=1)
