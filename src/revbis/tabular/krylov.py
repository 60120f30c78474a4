r"""The reward laws of every lag, \(F_k = P^k F_0\): as they are, or in a few columns.

Few columns: B spans what \(1, F_0, PF_0, P^2F_0, …\) span first (block Arnoldi); then
\(F_k ≈ m_k + B c_k\) with \(c_{k+1} = H c_k\) and \(H = B^\top P B\), a small matrix. The error is
measured, not assumed: P does not expand the sup norm, so the error at lag k is at most that at lag
0 plus the sum of \(‖P B c_i − B c_{i+1}‖_∞\) over i < k, whatever B, H and their rounding are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
# Columns at which a basis is first tried, and the factor to the next try.
_FIRST_TRY, _NEXT_TRY = 24, 1.25
_DEFLATE = 1e-13  # what projection leaves of a column counts as rounding below this
_BLOCK = 32  # columns whose error is measured at once
_LARGEST = 1e6  # coordinates above are of no use: the recursion is unstable


@dataclass(frozen=True, eq=False)
class Lags:
    """The laws of lags 0 to L − 1: F_k = centres[k] + basis @ coordinates[:, k], up to errors.

    Attributes:
        basis: (n, r); None stands for the identity.
        coordinates: (r, L, K).
        centres: (L + 1, K).
        radii: No entry of F_k or of a later law is further than this from centres[k], (L + 1, K).
        errors: No entry of F_k is further than this from what is stored, (L, K).
    """

    basis: Array | None
    coordinates: Array
    centres: Array
    radii: Array
    errors: Array


@dataclass(frozen=True, eq=False)
class Demand:
    """How accurate laws must be: for distances within `tol` at every discount up to `discount`.

    Attributes:
        gaps: Gaps between the thresholds, (K,).
        discount: The largest discount.
        tol: The tolerance of a distance.
        lags: So many lags whatever the tolerance; as many as it takes when None.
    """

    gaps: Array
    discount: float
    tol: float
    lags: int | None = None

    @property
    def most_lags(self) -> int:
        """So many lags suffice whatever the laws are."""
        if self.lags is not None:
            return self.lags
        total = float(self.gaps.sum()) / (1 - self.discount)
        if total * self.discount <= self.tol / 4:
            return 1
        return int(np.ceil(np.log(self.tol / 4 / total) / np.log(self.discount))) + 1

    def first_end(self, centres: Array, radii: Array, lag: int = 0) -> int | None:
        """The first of these lags, counted from `lag`, from which on laws may be left out."""
        if self.lags is not None:
            left_out = np.arange(lag, lag + len(radii)) == self.lags
        else:
            factor = self.discount ** np.arange(lag, lag + len(radii)) / (1 - self.discount)
            left_out = factor * tail_bound(self.gaps, centres, radii) <= self.tol / 4
            left_out[: max(1 - lag, 0)] = False  # one lag at least
        return int(left_out.argmax()) + lag if left_out.any() else None

    def allows(self, errors: Array) -> bool:
        """Whether errors (L, K) of the laws are small enough."""
        weights = self.discount ** np.arange(len(errors))
        return bool(weights @ distance_error(self.gaps, errors) <= self.tol / 4)


def tail_interval(centres: Array, radii: Array) -> tuple[Array, Array]:
    """The middle and half the width of what is within the radii and between 0 and 1."""
    low, high = np.maximum(centres - radii, 0.0), np.minimum(centres + radii, 1.0)
    return (high + low) / 2, (high - low) / 2


def tail_bound(gaps: Array, centres: Array, radii: Array) -> Array:
    """How far Σ w (f(1−g) + g(1−f)) is from Σ w 2m(1−m) for f, g near m; (L, K) → (L,)."""
    m, half = tail_interval(centres, radii)
    return np.asarray(2 * half * (abs(1 - 2 * m) + half) @ gaps)


def distance_error(gaps: Array, errors: Array) -> Array:
    """How far Σ w (f(1−g) + g(1−f)) moves when f and g move by the errors; (L, K) → (L,)."""
    return np.asarray(2 * (errors * (1 + errors)) @ gaps)


def plain_lags(P: Any, F: Array, demand: Demand, reserve: Callable[[int], None]) -> Lags:
    """The laws as they are, lag by lag; `reserve` is called with the number of lags to hold."""
    rounding = (int(np.diff(P.indptr).max()) + 2) * EPS
    most, room = demand.most_lags, min(demand.most_lags, 16)
    reserve(room)
    kept = np.empty((room, *F.shape))
    centres, radii = [], []
    f, lag = F, 0
    while True:
        low, high = column_ranges(f)
        centres.append((high + low) / 2)
        radii.append((high - low) / 2 + (lag + 1) * rounding)
        if demand.first_end(centres[-1][None], radii[-1][None], lag) is not None or lag == most:
            break
        if lag == room:
            room = min(2 * room, most)
            reserve(room)
            kept = np.concatenate([kept, np.empty((room - lag, *F.shape))])
        kept[lag] = f - centres[-1]
        f, lag = P @ f, lag + 1
    errors = np.outer(np.arange(1, lag + 1) * rounding, np.ones(F.shape[1]))
    return Lags(None, kept[:lag].transpose(1, 0, 2), np.array(centres), np.array(radii), errors)


def krylov_lags(
    P: Any, F: Array, demand: Demand, max_rank: int, reserve: Callable[[int], None]
) -> Lags | None:
    """The laws in a basis of at most `max_rank` columns; None if they need more.

    `reserve` is called with the number of columns to hold.
    """
    n, width = F.shape
    H = np.zeros((max_rank + width, max_rank))
    H[0, 0] = 1.0
    B = np.full((n, 1), n**-0.5, order="F")
    centre = F.mean(axis=0)
    F = F - centre
    block = _orthonormal(_project(B, F)[1], _DEFLATE * n**0.5)
    used, try_at = 1, _FIRST_TRY
    while used + block.shape[1] <= max_rank:
        first, used = used, used + block.shape[1]
        if used > B.shape[1]:
            room = max(2 * used, _FIRST_TRY)
            reserve(room)
            B = np.concatenate([B[:, :first].T, np.empty((room - first, n))]).T
        B[:, first:used] = block
        H[:used, first:used], rest = _project(B[:, :used], P @ block)
        block = _orthonormal(rest, _DEFLATE)
        H[used : used + block.shape[1], first:used] = block.T @ rest
        if used >= try_at or not block.shape[1]:
            try_at = int(_NEXT_TRY * used) + 1
            lags = _try(P, F, centre, B[:, :used], H[:used, :used], rest, demand)
            if lags is not None or not block.shape[1]:
                return lags
    return None


def column_ranges(f: Array) -> tuple[Array, Array]:
    """Least and largest entry of each column: NumPy reduces thin arrays slowly over axis 0."""
    columns = list(f.T)
    return np.array([x.min() for x in columns]), np.array([x.max() for x in columns])


def _try(
    P: Any, F: Array, centre: Array, B: Array, H: Array, rest: Array, demand: Demand
) -> Lags | None:
    """The laws F + centre in this basis if they are accurate enough.

    `rest` is what the last columns of P B have outside the basis.
    """
    reach = np.zeros(B.shape[1])
    reach[B.shape[1] - rest.shape[1] :] = np.abs(rest).max(axis=0, initial=0.0)
    longest = float(np.sqrt(np.einsum("ij,ij->i", B[:, 1:], B[:, 1:]).max(initial=0.0)))
    C = _recursion(H, B.T @ F, centre, len(F), longest, demand)
    if C is None or not demand.allows(_accumulate(np.einsum("r,rlk->lk", reach, np.abs(C)))[:-1]):
        return None
    errors = _measure(P, F, B, H, C, longest)
    if not demand.allows(errors[:-1]):
        return None
    centres, radii = _centres(C, len(F), longest)
    coordinates = np.ascontiguousarray(C[1:, :-1])
    return Lags(B[:, 1:], coordinates, centre + centres, radii + errors, errors[:-1])


def _recursion(
    H: Array, start: Array, centre: Array, n: int, longest: float, demand: Demand
) -> Array | None:
    """c_0 to c_L, (r, L + 1, K), where the lags from L on may be left out; None if they grow."""
    C, power, most = start[:, None], H, demand.most_lags
    while True:
        C = np.concatenate([C, _times(power, C)], axis=1)[:, : most + 1]
        if not np.abs(C).max(initial=0.0) <= _LARGEST * n**0.5:
            return None
        if C.shape[1] > most:
            return C
        centres, radii = _centres(C, n, longest)
        end = demand.first_end(centre + centres, radii)
        if end is not None:
            return C[:, : end + 1]
        power = power @ power


def _centres(C: Array, n: int, longest: float) -> tuple[Array, Array]:
    """Centres and radii from coordinates, the first of which is that of the constant vector."""
    return C[0] / n**0.5, longest * np.linalg.norm(C[1:], axis=0)


def _measure(P: Any, F: Array, B: Array, H: Array, C: Array, longest: float) -> Array:
    """Bounds on |F_k − B c_k|, (L + 1, K), by P B c_k − B c_{k+1} in every coordinate."""
    n, r = B.shape
    support = int(np.diff(P.indptr).max())
    norm = np.hypot(longest, n**-0.5)  # of the longest row of B
    largest = np.abs(B).max(axis=0)
    blocks = [slice(i, i + _BLOCK) for i in range(0, r, _BLOCK)]
    lost = np.concatenate([np.abs(P @ B[:, b] - B @ H[:, b]).max(axis=0) for b in blocks])
    lost += EPS * ((support + 4) * largest + (r + 4) * norm * np.linalg.norm(H, axis=0))
    slip = C[:, 1:] - _times(H, C[:, :-1])
    sizes = np.linalg.norm(C, axis=0)  # (L + 1, K)
    slip_norm = np.linalg.norm(slip, axis=0) + (r + 4) * EPS * np.linalg.norm(H) * sizes[:-1]
    steps = np.einsum("r,rlk->lk", lost, np.abs(C[:, :-1])) + norm * slip_norm + (support + 2) * EPS
    start = np.abs(F - B @ C[:, 0]).max(axis=0) + (r + 4) * EPS * norm * sizes[0]
    return np.asarray(start + _accumulate(steps))


def _times(H: Array, C: Array) -> Array:
    """H c for each of the columns c, (r, L, K)."""
    return np.asarray(np.tensordot(H, C, axes=1))


def _accumulate(steps: Array) -> Array:
    """Sums of the steps before each lag, (L + 1, K)."""
    return np.concatenate([np.zeros((1, steps.shape[1])), np.cumsum(steps, axis=0)])


def _project(B: Array, columns: Array) -> tuple[Array, Array]:
    """Coordinates in the orthonormal columns of B, and the rest; twice, against cancellation."""
    coordinates = B.T @ columns
    rest = columns - B @ coordinates
    again = B.T @ rest
    rest -= B @ again
    return coordinates + again, rest


def _orthonormal(columns: Array, least: float) -> Array:
    """Orthonormal columns that span these, without those of which less than `least` is left."""
    if not columns.shape[1]:
        return columns
    Q, R, _ = scipy.linalg.qr(columns, mode="economic", pivoting=True)
    return np.asarray(Q[:, : int((np.abs(np.diag(R)) > least).sum())])
