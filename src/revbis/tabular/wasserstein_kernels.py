"""Compiled sweeps over the pairs of states of a W1 metric.

Arguments travel in tuples: `rows` (indptr, indices, data, reward), `offers` (first, offer, matched,
far, discount), `basis` (couple, offset, cell, flow), and work space. A couple is two rows, one of
each state of a pair; its basis cells are indices into the flattened distance matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from revbis.system.compiled import compiled
from revbis.tabular.transport import first_basis, marginals, transport_cost

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@compiled
def hausdorff_couple(
    distance: Array, m: int, k: int
) -> tuple[int, int]:  # pragma: no cover - compiled
    """The couple whose distance is the Hausdorff distance of two sets at m × k distances."""
    worst, row, column = -1e300, 0, 0
    for i in range(m):
        nearest = 0
        for j in range(k):
            if distance[i, j] < distance[i, nearest]:
                nearest = j
        if distance[i, nearest] > worst:
            worst, row, column = distance[i, nearest], i, nearest
    for j in range(k):
        nearest = 0
        for i in range(m):
            if distance[i, j] < distance[nearest, j]:
                nearest = i
        if distance[nearest, j] > worst:
            worst, row, column = distance[nearest, j], nearest, j
    return row, column


@compiled
def count_rows(
    rows: Any, offers: Any, couple: Index, offset: Index, span: tuple[int, int], space: Any
) -> float:  # pragma: no cover - compiled
    """Basis sizes of the couples of states in `span`; returns the largest mass that moves."""
    indptr, indices, data, _ = rows
    first, offer, matched, _, _ = offers
    left, supply, right, demand = space[0], space[1], space[2], space[3]
    n = offer.shape[0]
    most = 0.0
    for s in range(span[0], span[1]):
        q = couple[s]
        for t in range(s + 1, n):
            if matched and offer[s] != offer[t]:
                continue
            for x in range(first[s], first[s + 1]):
                begin, end = first[t], first[t + 1]
                if matched:
                    begin = first[t] + x - first[s]
                    end = begin + 1
                for y in range(begin, end):
                    m, k = marginals(indptr, indices, data, x, y, True, left, supply, right, demand)
                    offset[q + 1] = max(0, m + k - 1)
                    q += 1
                    most = max(most, supply[:m].sum())
    return most


@compiled
def _couple_cost(
    rows: Any,
    flags: Any,
    basis: Any,
    d: Array,
    largest: float,
    x: int,
    y: int,
    q: int,
    space: Any,
    position: Index,
) -> tuple[float, float]:  # pragma: no cover - compiled
    """W1(d)(P_x, P_y) and a bound on its error; the basis of couple q is read and written."""
    indptr, indices, data, _ = rows
    cancel, keep, warm, _ = flags
    _, offset, cell, flow = basis
    left, supply, right, demand, basis_row, basis_column, local_flow = space[:7]
    m, k = marginals(indptr, indices, data, x, y, cancel, left, supply, right, demand)
    if m == 0:
        return 0.0, 0.0
    n = d.shape[0]
    if warm:
        for i in range(m):
            position[0, left[i]] = i
        for j in range(k):
            position[1, right[j]] = j
        for e in range(m + k - 1):
            code = cell[offset[q] + e]
            state = code // n
            basis_row[e] = position[0, state]
            basis_column[e] = position[1, code - state * n]
            local_flow[e] = flow[offset[q] + e]
    else:
        first_basis(d, m, k, space)
    cost, slack = transport_cost(d, largest, m, k, space)
    if keep:
        # Frozen sweeps read these flows: their sum must be the mass that moves, unperturbed.
        share = supply[:m].sum() / local_flow[: m + k - 1].sum()
        for e in range(m + k - 1):
            cell[offset[q] + e] = left[basis_row[e]] * n + right[basis_column[e]]
            flow[offset[q] + e] = local_flow[e] * share
    return cost, slack


@compiled
def exact_rows(
    rows: Any,
    offers: Any,
    flags: Any,
    basis: Any,
    d: Array,
    largest: float,
    span: tuple[int, int],
    space: Any,
    work: Any,
    out: Array,
) -> tuple[float, float]:  # pragma: no cover - compiled
    """out[s, t] = (T d)(s, t) for s in `span` and t > s (t ≥ s with the diagonal flag)."""
    reward = rows[3]
    first, offer, matched, far, discount = offers
    keep, diagonal = flags[1], flags[3]
    distance, position = work
    n = offer.shape[0]
    change = slack = 0.0
    for s in range(span[0], span[1]):
        q = basis[0][s] if keep else 0
        for t in range(s if diagonal else s + 1, n):
            value = -1e300
            if matched and offer[s] != offer[t]:
                value = far
            elif matched:
                for i in range(first[s + 1] - first[s]):
                    x, y = first[s] + i, first[t] + i
                    cost, off = _couple_cost(
                        rows, flags, basis, d, largest, x, y, q, space, position
                    )
                    value = max(value, abs(reward[x] - reward[y]) + discount * cost)
                    slack = max(slack, off)
                    q += 1
            else:
                for i in range(first[s + 1] - first[s]):
                    for j in range(first[t + 1] - first[t]):
                        x, y = first[s] + i, first[t] + j
                        cost, off = _couple_cost(
                            rows, flags, basis, d, largest, x, y, q, space, position
                        )
                        distance[i, j] = abs(reward[x] - reward[y]) + discount * cost
                        slack = max(slack, off)
                        q += 1
                i, j = hausdorff_couple(distance, first[s + 1] - first[s], first[t + 1] - first[t])
                value = distance[i, j]
            change = max(change, abs(value - d[s, t]))
            out[s, t] = value
            out[t, s] = value
    return change, slack


@compiled
def _frozen_value(
    reward: Array, x: int, y: int, basis: Any, q: int, discount: float, flat: Array
) -> float:  # pragma: no cover - compiled
    """Weighted reward gap plus the cost of couple q's frozen coupling."""
    _, offset, cell, flow = basis
    total = 0.0
    for e in range(offset[q], offset[q + 1]):
        total += flow[e] * flat[cell[e]]
    return float(abs(reward[x] - reward[y]) + discount * total)


@compiled
def frozen_rows(
    reward: Array,
    offers: Any,
    basis: Any,
    choice: NDArray[np.int32],
    d: Array,
    span: tuple[int, int],
    decide: bool,
    work: Any,
) -> float:  # pragma: no cover - compiled
    """Sweeps the rows in `span` of d in place with frozen couplings; returns the largest change.

    With `decide` all couples of a pair are merged, and the one that decides is noted in `choice`;
    without, that one alone is evaluated.
    """
    first, offer, matched, far, discount = offers
    distance = work[0]
    n = offer.shape[0]
    flat = d.reshape(-1)
    change = 0.0
    for s in range(span[0], span[1]):
        q = basis[0][s]
        m = first[s + 1] - first[s]
        for t in range(s + 1, n):
            k = first[t + 1] - first[t]
            if matched and offer[s] != offer[t]:
                value = far
            elif not decide:
                e = choice[s, t]
                x = first[s] + (e if matched else e // k)
                y = first[t] + (e if matched else e % k)
                value = _frozen_value(reward, x, y, basis, q + e, discount, flat)
                q += m if matched else m * k
            elif matched:
                value = -1.0
                for i in range(m):
                    x, y = first[s] + i, first[t] + i
                    option = _frozen_value(reward, x, y, basis, q, discount, flat)
                    q += 1
                    if option > value:
                        value = option
                        choice[s, t] = i
            else:
                for i in range(m):
                    for j in range(k):
                        x, y = first[s] + i, first[t] + j
                        distance[i, j] = _frozen_value(reward, x, y, basis, q, discount, flat)
                        q += 1
                i, j = hausdorff_couple(distance, m, k)
                value = distance[i, j]
                choice[s, t] = i * k + j
            change = max(change, abs(value - d[s, t]))
            d[s, t] = value
            d[t, s] = value
    return change
