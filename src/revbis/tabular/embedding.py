r"""Metrics as points: \(U(x,y) = (n_x + n_y)/2 + ‖e_x − e_y‖^2\), exactly for MICo and revised.

A matrix d is of negative type if \(Σ c_x c_y d(x,y) ≤ 0\) whenever \(Σ c_x = 0\); its diagonal
need not be 0. With the centring \(J = I − 11^\top/n\) this says that the Gram matrix
\(B = −½ J d J\) is positive semidefinite. Then \(B = E E^\top\), and the rows of E have the squared
distances \(d(x,y) − ½d(x,x) − ½d(y,y)\). `docs/exact-metrics.md` proves that MICo and the revised
metric are of negative type on every MDP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from revbis.io import schema
from revbis.io.machine import ensure_fits
from revbis.tabular.mdp import row_pairs
from revbis.tabular.registry import METRICS, find_metric

if TYPE_CHECKING:
    from revbis.tabular.result import MetricResult

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
_FEW = 1000  # more coordinates than rows may be requested: they are 0
_ALL_AXES_UP_TO = 500  # rows; above, Lanczos iterations find a few axes faster
_FEW_AXES = 50
_BLOCK = 1 << 22  # entries of the matrix that are compared at once


@dataclass(frozen=True, eq=False)
class Embedding:
    """Points and self-distances whose energy distance is a metric.

    Attributes:
        coordinates: e, (n, k), centred, principal axes first.
        self_distances: n, (n,), those of the metric.
        error_bound: No distance is further than this from the exact metric: the error of the solved
            metric, plus what the axes that were left out account for.
    """

    coordinates: Array
    self_distances: Array
    error_bound: float

    def __repr__(self) -> str:
        n, k = self.coordinates.shape
        return f"Embedding(n={n}, dimension={k}, error_bound={self.error_bound:.1e})"

    def pairs(self, i: ArrayLike, j: ArrayLike) -> Array:
        """(n_i + n_j)/2 + ‖e_i − e_j‖² of the pairs (i, j); index arrays broadcast."""
        i, j = row_pairs(i, j, len(self.coordinates))
        step = self.coordinates[i] - self.coordinates[j]
        own = self.self_distances[i] / 2 + self.self_distances[j] / 2
        return np.asarray(own + np.einsum("...k,...k->...", step, step))

    def matrix(self) -> Array:
        """(n_x + n_y)/2 + ‖e_x − e_y‖² of all pairs, (n, n).

        Raises:
            MemoryError: If it does not fit.
        """
        n = len(self.coordinates)
        ensure_fits(2 * 8 * n**2, f"a {n} × {n} matrix", "use .pairs()")
        return _energy(self.coordinates, self.self_distances, slice(None))


@dataclass(frozen=True)
class NegativeType:
    """Whether d(x,y) − ½d(x,x) − ½d(y,y) is a squared Euclidean distance.

    Attributes:
        smallest: The smallest eigenvalue of the centred Gram matrix −½JdJ; negative means no.
        largest: The largest.
        allowance: How far below 0 the error of d and rounding can push an eigenvalue.
    """

    smallest: float
    largest: float
    allowance: float

    @property
    def holds(self) -> bool:
        """Whether no eigenvalue is negative, up to the allowance."""
        return self.smallest >= -self.allowance


def negative_type(d: ArrayLike, error_bound: float = 0.0) -> NegativeType:
    """Tests whether a matrix, for instance a learned one, is of negative type.

    If it is, an energy distance (n(x) + n(y))/2 + ‖e(x) − e(y)‖² can represent it.

    Args:
        d: The distances, (n, n). The diagonal need not be 0. If d is not symmetric, its symmetric
            part is tested.
        error_bound: How far an entry may be from the matrix of interest.
    """
    n = len(schema.real_array(d, "d")) if np.ndim(d) else 0
    if not n:
        raise ValueError("d must be an (n, n) array with at least one row")
    distances = schema.finite_matrix(d, (n, n), "d")
    error = schema.number(error_bound, "error_bound")
    if not error >= 0:
        raise ValueError(f"error_bound must be at least 0, got {error:g}")
    ensure_fits(2 * 8 * n**2, f"the spectrum of a {n} × {n} matrix", "use fewer rows")
    values = scipy.linalg.eigvalsh(_centred_gram(distances).T, overwrite_a=True)
    return _verdict(distances, float(values[0]), float(values[-1]), error)


def embed(result: MetricResult, factor: Array | None, dimension: int | None) -> Embedding:
    """What `MetricResult.embedding` returns; the factor is Z of a low-rank result."""
    if dimension is not None:
        dimension = schema.integer(dimension, "dimension", 1, max(result.n, _FEW))
    if not find_metric(result.metric).is_euclidean:
        exact = " or ".join(name for name in METRICS if METRICS[name].is_euclidean)
        raise ValueError(
            f"{result.metric} has no exact embedding: it need not be of negative type, as d(x,y) = "
            f"(n(x) + n(y))/2 + ‖e(x) − e(y)‖² is; use {exact}"
        )
    if factor is not None:
        return _from_factor(result, factor, dimension)
    d = result.matrix()
    axes, verdict = _axes(d, dimension, result.error_bound)
    if not verdict.holds:
        raise ValueError(
            f"{result.metric} should be of negative type, but its centred Gram matrix has the "
            f"eigenvalue {verdict.smallest:.3g}, and its error bound of {result.error_bound:.1e} "
            f"accounts for {-verdict.allowance:.3g} at most: the solver or its error bound is wrong"
        )
    own, worst = result.self_distance(), 0.0
    size = max(1, _BLOCK // result.n)
    for first in range(0, result.n, size):
        rows = slice(first, first + size)
        symmetric = (d[rows] + d[:, rows].T) / 2  # as near to the exact metric as d is
        worst = max(worst, float(np.abs(_energy(axes, own, rows) - symmetric).max()))
    rounding = _rounding(axes, own, float(_norms(axes).max()))
    return Embedding(axes, own, result.error_bound + worst + rounding)


def principal_axes(result: MetricResult, dimension: int) -> Array:
    """Points for a picture of any metric, (n, dimension).

    For metrics without an exact embedding this is classical scaling: distances of the points, not
    their squares, approximate the metric.
    """
    if find_metric(result.metric).is_euclidean:
        return result.embedding(dimension).coordinates
    return _axes(result.matrix() ** 2, dimension, result.error_bound)[0]


def _from_factor(result: MetricResult, Z: Array, dimension: int | None) -> Embedding:
    """Rotates U = u1ᵀ + 1uᵀ − 2ZZᵀ to its principal axes: −½JUJ = JZ(JZ)ᵀ, without forming U."""
    ensure_fits(3 * Z.nbytes, f"an embedding of {result.n} rows", "use .pairs() of the result")
    Z = Z - Z.mean(axis=0)
    _, vectors = np.linalg.eigh(Z.T @ Z)
    axes = Z @ vectors[:, ::-1]
    axes *= _signs(axes)
    left_out = axes[:, axes.shape[1] if dimension is None else dimension :]
    longest = np.sort(_norms(left_out))[-2:]
    shortfall = float(longest.sum()) ** 2  # ‖r_x − r_y‖² ≤ (‖r_x‖ + ‖r_y‖)²
    own = result.self_distance()
    rounding = _rounding(axes, own, float(_norms(Z).max()))
    return Embedding(_with_width(axes, dimension), own, result.error_bound + shortfall + rounding)


def _energy(x: Array, own: Array, rows: slice) -> Array:
    """Rows of (n_x + n_y)/2 + ‖e_x − e_y‖²."""
    squares = np.einsum("ik,ik->i", x, x)
    energy = x[rows] @ x.T
    energy *= -2.0
    energy += squares[rows, None]
    energy += squares
    np.maximum(energy, 0.0, out=energy)
    energy += own[rows, None] / 2
    energy += own / 2
    return np.asarray(energy)


def _rounding(axes: Array, own: Array, radius: float) -> float:
    """A bound on the rounding error of a distance; no point is further from 0 than the radius."""
    scale = 4 * radius**2 + float(np.abs(own).max())
    return EPS * float((axes.shape[1] + 8) * scale)


def _norms(x: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ik,ik->i", x, x)))


def _axes(d: Array, dimension: int | None, error: float) -> tuple[Array, NegativeType]:
    """The principal axes of the centred Gram matrix of d, and whether any is imaginary."""
    n = len(d)
    if n > _ALL_AXES_UP_TO and dimension is not None and dimension <= _FEW_AXES and d.any():
        values, vectors, smallest = _few_axes(d, dimension)
    else:
        values, vectors = _all_axes(d)
        smallest = float(values[0])
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = float(values[0])
    keep = int((values > n * EPS * max(largest, 0.0)).sum())
    axes = vectors[:, :keep] * (_signs(vectors[:, :keep]) * np.sqrt(values[:keep]))
    return _with_width(axes, dimension), _verdict(d, smallest, largest, error)


def _all_axes(d: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors of the centred Gram matrix."""
    what = f"an embedding of {len(d)} rows in all dimensions"
    ensure_fits(3 * 8 * d.size, what, f"use at most {_FEW_AXES} dimensions")
    # The transpose of a C array is a Fortran array, which LAPACK overwrites instead of copying it.
    values, vectors = scipy.linalg.eigh(_centred_gram(d).T, overwrite_a=True)
    return values, vectors


def _few_axes(d: Array, count: int) -> tuple[Array, Array, float]:
    """The largest eigenvalues, ascending, and their vectors; the smallest, to 1e-4 of the largest.

    Lanczos iterations: d is multiplied by vectors, and no other matrix is formed.
    """
    n, scale = len(d), _size(d)
    start = np.random.default_rng(0).normal(size=n)

    def shifted(shift: float) -> LinearOperator:
        def product(v: Array) -> Array:
            centred = v.ravel() - v.mean()
            moved = (d @ centred + centred @ d) / -4
            return np.asarray(moved - moved.mean() + shift * v.ravel())

        return LinearOperator((n, n), matvec=product, dtype=np.float64)

    try:
        values, vectors = eigsh(shifted(scale), count, which="LA", v0=start)
        values -= scale
        # Shifted by the largest eigenvalue, the tolerance is relative to it.
        shift = max(float(values[-1]), scale)
        ends = eigsh(shifted(shift), 1, which="SA", v0=start, tol=1e-4, return_eigenvectors=False)
    except ArpackNoConvergence:
        values, vectors = _all_axes(d)
        return values[-count:], vectors[:, -count:], float(values[0])
    return values, vectors, float(ends[0]) - shift


def _centred_gram(d: Array) -> Array:
    """−½JdJ, of the symmetric part of d."""
    gram = d + d.T
    gram *= -0.25
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1, keepdims=True)
    return np.asarray(gram)


def _verdict(d: Array, smallest: float, largest: float, error: float) -> NegativeType:
    """Errors of at most ε in each entry of d move an eigenvalue by at most nε/2; then rounding."""
    n, scale = len(d), max(abs(smallest), abs(largest)) + 8 * _size(d)
    return NegativeType(smallest, largest, n * error / 2 + n * EPS * scale)


def _size(d: Array) -> float:
    """The largest absolute value, without an array of them."""
    return max(float(d.max()), -float(d.min()))


def _signs(vectors: Array) -> Array:
    """Signs that make the largest entry of each column positive, so that pictures do not flip."""
    return np.where(-vectors.min(axis=0) > vectors.max(axis=0), -1.0, 1.0)


def _with_width(axes: Array, dimension: int | None) -> Array:
    if dimension is None or axes.shape[1] == dimension:
        return axes
    return np.pad(axes, ((0, 0), (0, max(dimension - axes.shape[1], 0))))[:, :dimension]
