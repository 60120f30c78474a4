r"""Solvers of the linear metrics, \(U = w\,D + \lambda\,P U P^\top\) (MICo and revised).

Each returns a `Solution` whose `error_bound` holds in sup norm. Two facts carry the certificates:

- \(T(U + κ) = TU + λκ\) and T is monotone, so \(U^* − U ∈ [\min, \max](TU − U)/(1−λ)\); after a
  doubling with increment E at m terms, \(U^* − U ∈ λ^m/(1−λ^m)\,[\min E, \max E]\). The midpoint is
  returned, half the width is the bound.
- Everything is non-negative, so the rounding of a product of k-term sums is at most k·ε relative;
  each solver adds a bound on its own rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from revbis.io.compiled import compiled
from revbis.tabular.krylov import column_ranges
from revbis.tabular.operators import (
    Chain,
    independent_coupling,
    reward_distribution,
    reward_gap,
    reward_gap_rows,
    target,
)
from revbis.tabular.registry import OnIteration, Solution

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
_ROWS_PER_CALL = 1 << 24  # entries of U a compiled call handles before Python may interrupt it


@dataclass(frozen=True)
class LinearProblem:
    r"""The problem \(U = w D + λ P U P^\top\) on a chain."""

    chain: Chain
    reward_weight: float
    discount: float

    @property
    def n(self) -> int:
        """Number of rows of U."""
        return self.chain.n

    def apply(self, U: Array) -> tuple[Array, float]:
        """T U for any matrix U, and a bound on the rounding error of an entry."""
        gap = reward_gap(self.chain.values, self.chain.weights)
        following = independent_coupling(self.chain.P, U)
        result = target(gap, following, self.reward_weight, self.discount)
        return result, self.rounding(float(np.abs(U).max()))

    @property
    def largest_gap(self) -> float:
        """An upper bound on the weighted reward gap."""
        return self.reward_weight * reward_range(self)

    @property
    def scale(self) -> float:
        """An upper bound on the entries of the fixed point."""
        return self.largest_gap / (1 - self.discount)

    def rounding(self, scale: float) -> float:
        """Bound on the rounding error of an entry of T U when entries of U are at most `scale`."""
        support = int(np.diff(self.chain.P.indptr).max())
        laws = self.chain.values.shape[1] ** 2
        own = 2 * self.reward_weight * self.chain.reward_error
        return own + EPS * float((2 * support + 4) * scale + (laws + 4) * self.largest_gap)


def reward_range(problem: LinearProblem) -> float:
    """Range of the rewards that the chain can give."""
    return float(np.ptp(problem.chain.values))


def doubling(problem: LinearProblem, tol: float, on_iteration: OnIteration) -> Solution:
    """Squares the chain: m terms of the series become 2m in each step. Dense, O(n³) a step."""
    discount, n = problem.discount, problem.n
    A = np.sqrt(discount) * problem.chain.P.toarray()
    U = problem.reward_weight * reward_gap(problem.chain.values, problem.chain.weights)
    roundoff = problem.rounding(0.0)
    left, E = np.empty_like(U), np.empty_like(U)
    a_error, decay, steps = 4 * EPS, discount, 0
    while True:
        np.matmul(A, U, out=left)
        np.matmul(left, A.T, out=E)
        U += E
        steps += 1
        low, high = float(E.min()), float(E.max())
        roundoff += decay * roundoff + (2 * a_error + 2 * n * EPS) * high + EPS * problem.scale
        ratio = decay / (1 - decay)
        bound = (high - low) / 2 * ratio + roundoff * (1 + ratio)
        on_iteration(steps, bound)
        stalled = (high - low) * ratio <= 0.1 * roundoff
        if bound <= tol or stalled or decay == 0.0:
            U += (high + low) / 2 * ratio
            return Solution(bound, steps, matrix=U)
        np.matmul(A, A, out=left)
        A, left = left, A
        a_error, decay = 2 * a_error + n * EPS, decay * decay


def pointer_doubling(problem: LinearProblem, tol: float, on_iteration: OnIteration) -> Solution:
    """Doubling for deterministic chains: the squared chain is `f[f]`, the product a gather."""
    discount = problem.discount
    f = problem.chain.P.indices.astype(np.int64)
    U = problem.reward_weight * reward_gap(problem.chain.values, problem.chain.weights)
    E = np.empty_like(U)
    decay, steps, roundoff = discount, 0, problem.rounding(0.0) / (1 - discount)
    while True:
        for first in range(0, problem.n, 16):  # gathering in U[f, f] at once is slow and large
            E[first : first + 16] = U[f[first : first + 16]].take(f, axis=1)
        E *= decay
        U += E
        steps += 1
        roundoff += 4 * EPS * problem.scale
        bound = float(E.max()) * decay / (1 - decay) + roundoff
        on_iteration(steps, bound)
        if bound <= tol or decay < EPS * EPS:
            return Solution(bound, steps, matrix=U)
        f, decay = f[f], decay * decay


def jacobi(problem: LinearProblem, tol: float, on_iteration: OnIteration) -> Solution:
    """Plain iteration with sparse rows; the interval removes the slow constant mode."""
    chain, discount = problem.chain, problem.discount
    gap = problem.reward_weight * reward_gap(chain.values, chain.weights)
    U, V = gap.copy(), np.empty_like(gap)
    ratio = discount / (1 - discount)
    roundoff = problem.rounding(problem.scale) / (1 - discount)
    steps, narrowest, patience = 0, np.inf, 0
    while True:
        low, high = np.inf, -np.inf
        for first, last in _row_blocks(problem.n):
            a, b = _sweep_rows(*_csr(chain), U, gap[first:last], discount, first, V, True)
            low, high = min(low, a), max(high, b)
        U, V = V, U
        steps += 1
        bound = (high - low) / 2 * ratio + roundoff
        on_iteration(steps, bound)
        patience = 0 if high - low < narrowest else patience + 1
        narrowest = min(narrowest, high - low)
        if bound <= tol or patience == 5 or discount == 0.0:
            U += (high + low) / 2 * ratio
            return Solution(bound, steps, matrix=U)


def in_place(problem: LinearProblem, tol: float, on_iteration: OnIteration) -> Solution:
    """Gauss–Seidel sweeps over one n² array; reward gaps are computed on the fly, block by block.

    Every few sweeps a pass that writes nothing measures the interval, which is the certificate, and
    shifts U to its middle.
    """
    U = np.zeros((problem.n, problem.n))
    roundoff = problem.rounding(problem.scale) / (1 - problem.discount)
    sweeps, best, patience = 0, np.inf, 0
    while True:
        for _ in range(4):
            _in_place_pass(problem, U, write=True)
            sweeps += 1
            on_iteration(sweeps, best)
        low, high = _in_place_pass(problem, U, write=False)
        U += (high + low) / 2 / (1 - problem.discount)
        bound = (high - low) / 2 / (1 - problem.discount) + roundoff
        on_iteration(sweeps, bound)
        patience = 0 if bound < best else patience + 1
        best = min(best, bound)
        if bound <= tol or patience == 3:
            return Solution(bound, sweeps, matrix=U)


def low_rank(
    problem: LinearProblem, tol: float, on_iteration: OnIteration, max_rank: int | None = None
) -> Solution | None:
    r"""Few distinct rewards: \(U = u1^\top + 1u^\top − 2ZZ^\top\) with thin Z; U is never formed.

    Term j of the series is \(λ^j Σ_k w_k (f_s(1−f_t) + f_t(1−f_s))\) with \(f = P^j F_k\). Columns
    of f are centred at their mid-range (which moves constants into u), appended to Z, and Z is
    compressed through its Gram matrix; what compression drops from each row is measured, and is
    part of the bound. The tail is bounded by the range of f, which never grows.

    Returns None once the rank passes `max_rank`.
    """
    P, discount = problem.chain.P, problem.discount
    f, gaps = reward_distribution(problem.chain)
    w = problem.reward_weight * gaps
    u = np.zeros(problem.n)
    factor = _Factor(problem.n, max(96, 2 * len(w)), _drop_budget(tol, w, discount))
    weight, step = 1.0, 0
    while True:
        low, high = column_ranges(f)
        centre, radius = (high + low) / 2, (high - low) / 2
        tail = weight / (1 - discount) * float(w @ (2 * radius * (abs(1 - 2 * centre) + radius)))
        constant = float(w @ (centre * (1 - centre)))
        on_iteration(step, tail + 2 * factor.dropped)
        if tail <= tol / 4:
            u += weight / (1 - discount) * constant
            break
        centred = f - centre
        u += weight * (centred @ (w * (1 - 2 * centre)) + constant)
        factor.append(np.sqrt(weight * w) * centred)
        if max_rank is not None and factor.rank > max_rank:
            return None
        f = P @ f
        weight, step = weight * discount, step + 1
    Z = factor.finish()
    support = int(np.diff(P.indptr).max())
    size = 2 * (float(np.abs(u).max()) + float((Z**2).sum(axis=1).max()))
    roundoff = (
        EPS * size * ((support + 8) / (1 - discount) + factor.compressions * (factor.width + 8))
    )
    roundoff += problem.rounding(0.0) / (1 - discount)
    return Solution(tail + 2 * factor.dropped + roundoff, step, factors=(u, Z))


class _Factor:
    """The columns of Z: appended, and compressed in place whenever the block is full."""

    def __init__(self, n: int, block: int, budget: float) -> None:
        self._buffer = np.empty((n, block), order="F")
        self._block, self._budget, self._used = block, budget, 0
        self.rank = self.width = self.compressions = 0
        self.dropped = 0.0

    def append(self, columns: Array) -> None:
        new = columns.shape[1]
        if self._used + new > self._buffer.shape[1]:
            self._compress()
            if self._used + max(new, self._block // 2) > self._buffer.shape[1]:
                width = self._used + max(new, self._block)
                grown = np.empty((len(self._buffer), width), order="F")
                grown[:, : self._used] = self._buffer[:, : self._used]
                self._buffer = grown
        self._buffer[:, self._used : self._used + new] = columns
        self._used += new
        self.width = max(self.width, self._used)

    def finish(self) -> Array:
        if self._used:
            self._compress()
        return self._buffer[:, : self._used].copy()

    def _compress(self) -> None:
        """Keeps the eigenvectors of the Gram matrix above the budget; measures the rest by row."""
        used = self._used
        gram = np.zeros((used, used))
        for rows in self._row_slices():
            gram += self._buffer[rows, :used].T @ self._buffer[rows, :used]
        values, vectors = np.linalg.eigh(gram)
        noise = EPS * used * float(values[-1])
        keep = int((values > max(self._budget, noise)).sum())
        worst = 0.0
        for rows in self._row_slices():
            before = self._buffer[rows, :used]
            after = before @ vectors[:, used - keep :]
            squares = (before**2).sum(axis=1)
            roundoff = squares - (after**2).sum(axis=1) + used * EPS * squares
            worst = max(worst, float(roundoff.max()))
            self._buffer[rows, :keep] = after
        self._used = self.rank = keep
        self.dropped += worst
        self.compressions += 1

    def _row_slices(self) -> list[slice]:
        size = max(1, (1 << 22) // self._buffer.shape[1])
        return [slice(i, i + size) for i in range(0, len(self._buffer), size)]


def _drop_budget(tol: float, w: Array, discount: float) -> float:
    """How much one compression may drop so that all of them together stay below tol/4."""
    total = max(float(w.sum()), tol)
    terms = np.log(0.25 * tol * (1 - discount) / total) / np.log(max(discount, EPS))
    compressions = max(terms, 1.0) * len(w) / 48 + 2
    return float(tol / 8 / compressions)


def _row_blocks(n: int) -> list[tuple[int, int]]:
    size = max(1, _ROWS_PER_CALL // n)
    return [(first, min(first + size, n)) for first in range(0, n, size)]


def _csr(chain: Chain) -> tuple[NDArray[np.int32], NDArray[np.int32], Array]:
    return chain.P.indptr, chain.P.indices, chain.P.data


def _in_place_pass(problem: LinearProblem, U: Array, write: bool) -> tuple[float, float]:
    chain = problem.chain
    values = np.ascontiguousarray(problem.reward_weight * chain.values.T)
    weights = np.ascontiguousarray(chain.weights.T)
    low, high = np.inf, -np.inf
    for first, last in _row_blocks(problem.n):
        gap = np.empty((last - first, problem.n))
        reward_gap_rows(values, weights, first, last, gap)
        a, b = _sweep_rows(*_csr(chain), U, gap, problem.discount, first, U, write)
        low, high = min(low, a), max(high, b)
    return low, high


@compiled
def _sweep_rows(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: Array,
    U: Array,
    gap: Array,
    discount: float,
    first: int,
    out: Array,
    write: bool,
) -> tuple[float, float]:  # pragma: no cover - compiled
    """Applies the operator to the rows from `first` that `gap` covers; `out` may be U itself.

    Returns the smallest and the largest change.
    """
    n = U.shape[0]
    x = np.empty(n)
    low, high = 1e300, -1e300
    for i in range(gap.shape[0]):
        s = first + i
        x[:] = 0.0
        for j in range(indptr[s], indptr[s + 1]):
            p = data[j]
            row = U[indices[j]]
            for t in range(n):
                x[t] += p * row[t]
        for t in range(n):
            total = 0.0
            for j in range(indptr[t], indptr[t + 1]):
                total += data[j] * x[indices[j]]
            value = gap[i, t] + discount * total
            change = value - U[s, t]
            low = min(low, change)
            high = max(high, change)
            if write:
                out[s, t] = value
    return low, high
