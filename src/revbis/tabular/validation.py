"""Checks of the arguments of `FiniteMDP`, and of row indices; errors name the offending row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from revbis import checks

Array = NDArray[np.float64]
ROW_SUM_TOLERANCE = 1e-6
_LARGEST = 1e100  # sums of discounted rewards and their squares stay finite


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
        array = checks.real_array(P, f"P ({expected})")
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
    rewards = np.array(checks.real_array(R, f"R, of shape {available.shape},"), dtype=np.float64)
    if rewards.shape == available.shape:
        rewards[~available] = 0.0
    rewards = checks.finite_matrix(rewards, available.shape, "R")
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
        rows = sp.diags(available.ravel().astype(np.float64), format="csr") @ _zero_hidden(
            rows, available
        )
    rows.sum_duplicates()
    _check_rows(rows, available)
    rows.eliminate_zeros()
    rows.sort_indices()
    total, counts = np.asarray(rows.sum(axis=1)).ravel(), np.diff(rows.indptr)
    # Rows that differ from 1 by rounding only are kept, so that normalising is idempotent.
    off = np.abs(total - 1) > (counts + 1) * np.finfo(np.float64).eps
    rows.data /= np.repeat(np.where(off, total, 1.0), counts)
    return rows


def _zero_hidden(rows: Any, available: NDArray[np.bool_]) -> Any:
    """Zeroes the rows of actions that are not available, so that NaN there cannot spread."""
    hidden = np.repeat(~available.ravel(), np.diff(rows.indptr))
    rows.data[hidden] = 0.0
    return rows


def _check_rows(rows: Any, available: NDArray[np.bool_]) -> None:
    m = available.shape[1]
    for bad, what in (
        (~np.isfinite(rows.data), "is not finite"),
        (rows.data < 0, "is negative"),
    ):
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
    index = checks.real_array(value, name)
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
