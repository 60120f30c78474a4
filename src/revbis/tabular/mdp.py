"""Finite Markov decision processes: validated, immutable, sparse inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from warnings import warn

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from revbis.io import schema
from revbis.io.files import atomic_file
from revbis.io.machine import ensure_fits
from revbis.tabular.readers import grid_of, make_toy_text, read_npz, read_table

if TYPE_CHECKING:
    import os

Array = NDArray[np.float64]
ROW_SUM_TOLERANCE = 1e-6
_LARGEST = 1e100  # sums of discounted rewards and their squares stay finite
_FORMAT = 1  # of the files that `FiniteMDP.save` writes
_BYTES_A_PAIR = 100  # of state and action, at the peak of making an MDP from transitions


def sizes(P: object) -> tuple[int, int]:
    """(S, A) from any accepted form of P."""
    expected = (
        "an (S, A, S) array, A sparse (S, S) matrices or an integer (S, A) array of successors"
    )
    if isinstance(P, Sequence) and len(P) and all(sp.issparse(p) for p in P):
        n = P[0].shape[0]
        for a, p in enumerate(P):
            if p.dtype.kind not in "iuf":
                raise ValueError(f"P[{a}] must hold real numbers, got dtype {p.dtype}")
            if p.shape != (n, n):
                raise ValueError(f"P[{a}] must have shape ({n}, {n}), got {p.shape}")
        shape = (n, len(P))
    else:
        array = schema.real_array(P, f"P ({expected})")
        successors = array.ndim == 2 and np.issubdtype(array.dtype, np.integer)
        if not successors and (array.ndim != 3 or array.shape[0] != array.shape[2]):
            raise ValueError(f"P must be {expected}; got shape {array.shape}, dtype {array.dtype}")
        shape = (array.shape[0], array.shape[1])
    if 0 in shape:
        raise ValueError(f"P is empty (S={shape[0]}, A={shape[1]}): at least one of each is needed")
    return shape


def available_actions(mask: ArrayLike | None, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of available actions, (S, A)."""
    if mask is None:
        return np.ones(shape, dtype=bool)
    available = _plain_array(mask, f"mask must be booleans of shape {shape}")
    if available.shape != shape or available.dtype != bool:
        raise ValueError(
            f"mask must be booleans of shape {shape}, got {available.dtype} of {available.shape}"
        )
    stuck = np.flatnonzero(~available.any(axis=1))
    if len(stuck):
        raise ValueError(f"mask[{stuck[0]}] has no available action: each state needs at least one")
    return available


def expected_rewards(R: ArrayLike, available: NDArray[np.bool_]) -> Array:
    """Rewards (S, A), zero where the action is not available."""
    rewards = np.array(schema.real_array(R, f"R, of shape {available.shape},"), dtype=np.float64)
    if rewards.shape == available.shape:
        rewards[~available] = 0.0
    rewards = schema.finite_matrix(rewards, available.shape, "R")
    refuse(np.abs(rewards) > _LARGEST, rewards, "R", f"is larger than {_LARGEST:g}")
    return rewards


def transition_rows(P: object, shape: tuple[int, int], available: NDArray[np.bool_]) -> Any:
    """CSR (S·A, S) with checked, normalised rows."""
    n, m = shape
    if isinstance(P, Sequence) and sp.issparse(P[0]):
        blocks = sp.vstack([sp.csr_matrix(p) for p in P], format="csr")
        rows = blocks[(np.arange(n)[:, None] + np.arange(m) * n).ravel()]
    else:
        array = np.asarray(P)
        if array.ndim == 2:
            refuse(
                ((array < 0) | (array >= n)) & available,
                array,
                "P",
                f"is not a state; successors must be in 0..{n - 1}",
            )
            index = np.where(available, array, 0).ravel()
            rows = sp.csr_matrix((np.ones(n * m), index, np.arange(n * m + 1)), shape=(n * m, n))
        else:
            rows = sp.csr_matrix(array.reshape(n * m, n).astype(np.float64))
    rows = sp.csr_matrix(rows, dtype=np.float64)
    if not available.all():
        # Whatever is given for actions that are not available, NaN included, is ignored.
        rows.data[np.repeat(~available.ravel(), np.diff(rows.indptr))] = 0.0
    rows.sum_duplicates()
    _check_rows(rows, available)
    rows.eliminate_zeros()
    rows.sort_indices()
    total, counts = np.asarray(rows.sum(axis=1)).ravel(), np.diff(rows.indptr)
    # Rows that differ from 1 by rounding only are kept, so that normalising is idempotent.
    off = np.abs(total - 1) > (counts + 1) * np.finfo(np.float64).eps
    rows.data /= np.repeat(np.where(off, total, 1.0), counts)
    return rows


def _check_rows(rows: Any, available: NDArray[np.bool_]) -> None:
    m = available.shape[1]
    for bad, what in ((~np.isfinite(rows.data), "is not finite"), (rows.data < 0, "is negative")):
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            row = int(np.searchsorted(rows.indptr, first, side="right")) - 1
            raise ValueError(
                f"P[s={row // m}, a={row % m}, s'={rows.indices[first]}] = {rows.data[first]} "
                f"{what}; expected a probability"
            )
    total = np.asarray(rows.sum(axis=1)).ravel()
    wrong = np.flatnonzero(available.ravel() & (np.abs(total - 1) > ROW_SUM_TOLERANCE))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"P[s={row // m}, a={row % m}, :] sums to {total[row]:.6g}, expected 1 "
            f"({len(wrong)} of {int(available.sum())} rows are off)"
        )


def _plain_array(value: ArrayLike, expected: str) -> NDArray[Any]:
    try:
        return np.array(value)
    except (TypeError, ValueError):
        raise ValueError(f"{expected}, got rows of different lengths") from None


def refuse(bad: NDArray[np.bool_], array: NDArray[Any], name: str, why: str) -> None:
    """Raises for the first entry of `array` that is bad."""
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name}{list(where)} = {array[where]} {why}")


def grid_positions(grid: ArrayLike | None, n: int) -> NDArray[np.int64] | None:
    """Rows and columns of the states, (S, 2)."""
    if grid is None:
        return None
    array = _plain_array(grid, f"grid must be ({n}, 2) integers")
    if array.shape != (n, 2) or not np.issubdtype(array.dtype, np.integer) or array.min() < 0:
        raise ValueError(
            f"grid must be ({n}, 2) integers from 0 (row and column of each state), got "
            f"{array.dtype} of {array.shape}"
        )
    array = array.astype(np.int64)
    array.setflags(write=False)
    return array


def row_indices(value: ArrayLike, name: str, n: int) -> NDArray[np.int64]:
    """Indices of rows, integers from 0 to n − 1."""
    index = schema.real_array(value, name)
    if not np.issubdtype(index.dtype, np.integer):
        raise ValueError(f"{name} must hold integers, got {index.dtype}")
    if index.size and (index.min() < 0 or index.max() >= n):
        raise ValueError(f"{name} must be in 0..{n - 1}, got {index.min()}..{index.max()}")
    return index.astype(np.int64)


def row_pairs(i: ArrayLike, j: ArrayLike, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of pairs of rows, broadcast against each other."""
    first, second = row_indices(i, "i", n), row_indices(j, "j", n)
    try:
        first, second = np.broadcast_arrays(first, second)
    except ValueError:
        raise ValueError(
            f"i and j must broadcast against each other, got shapes {first.shape} and "
            f"{second.shape}"
        ) from None
    return first, second


class FiniteMDP:
    """A Markov decision process with S states and A actions.

    Args:
        P: Transition probabilities: an array (S, A, S), a list of A sparse matrices (S, S), or an
            integer array (S, A) of successors when transitions are deterministic.
        R: Expected rewards, (S, A).
        mask: Available actions, (S, A) booleans; all of them when None. Rows of P and R for actions
            that are not available are ignored.
        grid: Row and column of each state, (S, 2) integers, when the states lie on a grid. Only
            pictures use it.

    Attributes:
        transitions: CSR matrix (S·A, S); row s·A + a is the law of the next state. Rows of actions
            that are not available are empty.
        rewards: (S, A), zero where the action is not available.
        available: (S, A) booleans.
        grid: (S, 2) integers or None.

    Raises:
        ValueError: For wrong shapes, NaN, negative entries or rows that do not sum to 1; the
            message names the row.

    Example:
        >>> mdp = FiniteMDP(P=np.array([[1], [1]]), R=[[0.0], [1.0]])
        >>> mdp
        FiniteMDP(n_states=2, n_actions=1, deterministic)
    """

    transitions: Any
    rewards: Array
    available: NDArray[np.bool_]
    grid: NDArray[np.int64] | None

    def __init__(
        self, P: object, R: ArrayLike, mask: ArrayLike | None = None, grid: ArrayLike | None = None
    ) -> None:
        shape = sizes(P)
        available = available_actions(mask, shape)
        rewards = expected_rewards(R, available)
        transitions = transition_rows(P, shape, available)
        parts = (transitions.data, transitions.indices, transitions.indptr)
        for array in (available, rewards, *parts):
            array.setflags(write=False)
        positions = grid_positions(grid, shape[0])
        self.__dict__.update(
            transitions=transitions, rewards=rewards, available=available, grid=positions
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"FiniteMDP is immutable: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"FiniteMDP is immutable: {name!r} cannot be deleted")

    def __repr__(self) -> str:
        kind = ", deterministic" if self.successors is not None else ""
        return f"FiniteMDP(n_states={self.n_states}, n_actions={self.n_actions}{kind})"

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return int(self.rewards.shape[0])

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return int(self.rewards.shape[1])

    @cached_property
    def state_actions(self) -> NDArray[np.int64]:
        """The available state-action pairs, (X, 2): the rows of state-action results."""
        pairs = np.argwhere(self.available)
        pairs.setflags(write=False)
        return pairs

    @cached_property
    def successors(self) -> NDArray[np.int64] | None:
        """The next state of each pair, (S, A), −1 where not available; None if any is random."""
        counts = np.diff(self.transitions.indptr)
        if counts.max() > 1:
            return None
        successors = np.full(self.rewards.size, -1, dtype=np.int64)
        successors[counts == 1] = self.transitions.indices
        successors.setflags(write=False)
        return successors.reshape(self.rewards.shape)

    def uniform_policy(self) -> Array:
        """The policy that draws uniformly among the available actions, (S, A)."""
        return np.asarray(self.available / self.available.sum(axis=1, keepdims=True))

    @classmethod
    def from_gymnasium(cls, env: object) -> FiniteMDP:
        """Reads a toy-text environment (FrozenLake, Taxi, CliffWalking) or a Gymnasium id.

        Terminal states become absorbing, with reward 0.

        Args:
            env: An environment whose `unwrapped.P[state][action]` is Gymnasium's list of
                (probability, next_state, reward, terminated), or its id.
        """
        if isinstance(env, str):
            env = make_toy_text(env)
        env = getattr(env, "unwrapped", env)
        P, R = read_table(env)
        return cls(P, R, grid=grid_of(env, len(R)))

    @classmethod
    def from_transitions(
        cls,
        s: ArrayLike,
        a: ArrayLike,
        r: ArrayLike,
        s2: ArrayLike,
        *,
        n_states: int | None = None,
        n_actions: int | None = None,
    ) -> FiniteMDP:
        """Estimates an MDP from logged transitions: frequencies and mean rewards.

        Actions never tried in a state are not available there. A state that was never left becomes
        absorbing with reward 0, like a terminal state; a warning gives their number.

        Args:
            s: States, (N,) integers.
            a: Actions, (N,) integers.
            r: Rewards, (N,).
            s2: Next states, (N,) integers.
            n_states: S; the largest index seen plus one when None.
            n_actions: A; likewise.
        """
        states, actions, following = (
            _indices(x, name) for x, name in ((s, "s"), (a, "a"), (s2, "s2"))
        )
        rewards = schema.finite_matrix(r, states.shape, "r")
        if actions.shape != states.shape or following.shape != states.shape:
            raise ValueError(
                f"s, a, r and s2 must have one length, got {len(states)}, {len(actions)}, "
                f"{len(rewards)} and {len(following)}"
            )
        if not len(states):
            raise ValueError("s, a, r and s2 are empty: at least one transition is needed")
        n = _count(n_states, int(max(states.max(), following.max())) + 1, "n_states")
        m = _count(n_actions, int(actions.max()) + 1, "n_actions")
        ensure_fits(
            _BYTES_A_PAIR * n * m, f"{n} states × {m} actions", "number them consecutively from 0"
        )
        row = states * m + actions
        visits = np.bincount(row, minlength=n * m).astype(np.float64)
        total = np.bincount(row, weights=rewards, minlength=n * m)
        counts = sp.csr_matrix((np.ones(len(row)), (row, following)), shape=(n * m, n))
        never_left = np.flatnonzero(visits.reshape(n, m).sum(axis=1) == 0)
        if len(never_left):
            warn(
                f"{len(never_left)} of {n} states were never left in the data (the first is state "
                f"{never_left[0]}): they are treated as terminal, absorbing with reward 0",
                stacklevel=2,
            )
        loops = (never_left[:, None] * m + np.arange(m)).ravel()
        stay = sp.csr_matrix(
            (np.ones(len(loops)), (loops, np.repeat(never_left, m))), shape=(n * m, n)
        )
        visits[loops] = 1.0
        visited = visits > 0
        mean = np.divide(total, visits, out=np.zeros(n * m), where=visited)
        rows = sp.diags(np.divide(1.0, visits, out=np.zeros(n * m), where=visited)) @ (
            counts + stay
        )
        return cls(_split_actions(rows, n, m), mean.reshape(n, m), mask=visited.reshape(n, m))

    def save(self, path: str | os.PathLike[str], policy: Array | None = None) -> None:
        """Writes the MDP as `.npz` (plain arrays, no pickle), atomically.

        Args:
            path: The file.
            policy: A policy to keep beside it, as the array `policy`; `revbis tabular` uses it.
        """
        path = Path(path)
        arrays = {
            "format": np.int64(_FORMAT),
            "indptr": self.transitions.indptr,
            "indices": self.transitions.indices,
            "probabilities": self.transitions.data,
            "rewards": self.rewards,
            "available": self.available,
        }
        if self.grid is not None:
            arrays["grid"] = self.grid
        if policy is not None:
            arrays["policy"] = as_policy(self, policy)
        with atomic_file(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FiniteMDP:
        """Reads what `save` wrote, or any `.npz` with arrays P, R and optionally mask and grid."""
        arrays = read_npz(path)
        if "format" in arrays:
            return cls._from_arrays(arrays, path)
        if "P" not in arrays or "R" not in arrays:
            raise ValueError(
                f"{path} holds {sorted(arrays) or 'nothing'}; expected the output of "
                "FiniteMDP.save, or arrays named P and R"
            )
        return cls(arrays["P"], arrays["R"], mask=arrays.get("mask"), grid=arrays.get("grid"))

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any], path: object) -> FiniteMDP:
        if arrays["format"].tolist() != _FORMAT:
            raise ValueError(
                f"{path} has MDP format {arrays['format']}; this version reads format {_FORMAT}"
            )
        try:
            n, m = arrays["rewards"].shape
            rows = sp.csr_matrix(
                (arrays["probabilities"], arrays["indices"], arrays["indptr"]), shape=(n * m, n)
            )
            rows.check_format()
            available = arrays["available"]
        except (KeyError, ValueError, TypeError) as error:
            raise ValueError(f"{path} is a damaged MDP file: {error}") from None
        return cls(_split_actions(rows, n, m), arrays["rewards"], available, arrays.get("grid"))


def as_mdp(value: object) -> FiniteMDP:
    """The value, which must be an MDP."""
    if not isinstance(value, FiniteMDP):
        raise ValueError(f"mdp must be a FiniteMDP, got {type(value).__name__}")
    return value


def as_policy(mdp: FiniteMDP, policy: ArrayLike) -> Array:
    """A checked policy (S, A): probabilities, or (S,) integers, one action for each state."""
    as_mdp(mdp)
    array = schema.real_array(policy, "policy")
    if array.shape == (mdp.n_states,) and np.issubdtype(array.dtype, np.integer):
        if array.min() < 0 or array.max() >= mdp.n_actions:
            raise ValueError(f"policy must name actions 0 to {mdp.n_actions - 1}, got {array}")
        array = np.eye(mdp.n_actions)[array]
    pi = schema.finite_matrix(array, mdp.rewards.shape, "policy")
    refuse(pi < 0, pi, "policy", "is negative; expected a probability")
    refuse((pi > 0) & ~mdp.available, pi, "policy", "is above 0, but that action is not available")
    total = pi.sum(axis=1)
    wrong = np.flatnonzero(np.abs(total - 1) > ROW_SUM_TOLERANCE)
    if len(wrong):
        raise ValueError(
            f"policy[{wrong[0]}] sums to {total[wrong[0]]:.6g}, expected 1 "
            f"({len(wrong)} of {mdp.n_states} rows are off)"
        )
    return np.asarray(pi / total[:, None], dtype=np.float64)


def _split_actions(rows: Any, n: int, m: int) -> list[Any]:
    return [rows[np.arange(n) * m + a] for a in range(m)]


def _indices(value: ArrayLike, name: str) -> NDArray[np.int64]:
    array = schema.real_array(value, name)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must be 1-D integers, got {array.dtype} of shape {array.shape}")
    if array.size and array.min() < 0:
        raise ValueError(f"{name} must hold indices from 0, got {array.min()}")
    return array.astype(np.int64)


def _count(requested: int | None, least: int, name: str) -> int:
    if requested is None:
        return least
    requested = schema.integer(requested, name, 1)
    if requested < least:
        raise ValueError(f"{name} is {requested}, but the data goes up to index {least - 1}")
    return requested
