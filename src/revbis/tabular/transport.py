"""A compiled transportation simplex that starts from the basis it ended with last time.

A basis of an m × k transport problem is a spanning tree of its m + k nodes. Marginals never change
between sweeps, so yesterday's basis stays feasible for today's costs, and most problems need no
pivot at all. Values are read from the duals, which makes them exact to the pricing tolerance even
though supplies are perturbed against degeneracy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from revbis.tabular.compiled import compiled

Array = NDArray[np.float64]
Index = NDArray[np.int64]

PERTURBATION = 1e-12
_PRICING = 1e-12  # reduced costs above −this × the largest cost count as non-negative
_NO_MASS = 1e-15


@compiled
def marginals(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: Array,
    x: int,
    y: int,
    cancel: bool,
    rows: Index,
    supply: Array,
    columns: Index,
    demand: Array,
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Writes the two marginals of couple (x, y) and returns their lengths.

    With `cancel` the mass both rows put on one state is dropped: for a pseudometric it moves for
    nothing. (0, 0) means there is nothing to move.
    """
    i, i_end, j, j_end = indptr[x], indptr[x + 1], indptr[y], indptr[y + 1]
    m = k = 0
    moved = taken = 0.0
    while i < i_end or j < j_end:
        p = q = 0.0
        if j == j_end or (i < i_end and indices[i] < indices[j]):
            state = indices[i]
            p = data[i]
            i += 1
        elif i == i_end or indices[j] < indices[i]:
            state = indices[j]
            q = data[j]
            j += 1
        else:
            state = indices[i]
            p = data[i]
            q = data[j]
            i += 1
            j += 1
            if cancel:
                both = min(p, q)
                p -= both
                q -= both
        if p > _NO_MASS:
            rows[m] = state
            supply[m] = p
            moved += p
            m += 1
        if q > _NO_MASS:
            columns[k] = state
            demand[k] = q
            taken += q
            k += 1
    if m == 0 or k == 0:
        return 0, 0
    for c in range(k):
        demand[c] *= moved / taken
    return m, k


@compiled
def first_basis(
    supply: Array, demand: Array, m: int, k: int, basis_row: Index, basis_column: Index, flow: Array
) -> None:  # pragma: no cover - compiled
    """North-west corner rule on perturbed supplies: m + k − 1 cells, flows positive."""
    i = j = 0
    extra = PERTURBATION / m
    left, wanted = supply[0] + extra, demand[0]
    if k == 1:
        wanted += PERTURBATION
    for cell in range(m + k - 1):
        basis_row[cell] = i
        basis_column[cell] = j
        if (left <= wanted and i < m - 1) or j == k - 1:
            flow[cell] = left
            wanted -= left
            i += 1
            if i < m:
                left = supply[i] + extra
        else:
            flow[cell] = wanted
            left -= wanted
            j += 1
            wanted = demand[j]
            if j == k - 1:
                wanted += PERTURBATION


@compiled
def _hang_tree(
    cost: Array, m: int, k: int, basis_row: Index, basis_column: Index, tree: Index, dual: Array
) -> None:  # pragma: no cover - compiled
    """Hangs the basis from node 0: parents, the arcs to them, depths, and the duals.

    Node v < m is row v; node m + c is column c.
    """
    start, arcs, parent, parent_arc, depth, queue = (
        tree[0],
        tree[1],
        tree[2],
        tree[3],
        tree[4],
        tree[5],
    )
    nodes = m + k
    for v in range(nodes + 1):
        start[v] = 0
    for e in range(nodes - 1):
        start[basis_row[e]] += 1
        start[m + basis_column[e]] += 1
    total = 0
    for v in range(nodes):
        total += start[v]
        start[v] = total
        depth[v] = -1
    start[nodes] = total
    for e in range(nodes - 1):
        row, column = basis_row[e], m + basis_column[e]
        start[row] -= 1
        arcs[start[row]] = e
        start[column] -= 1
        arcs[start[column]] = e
    depth[0] = 0
    dual[0] = 0.0
    queue[0] = 0
    head, tail = 0, 1
    while head < tail:
        v = queue[head]
        head += 1
        for slot in range(start[v], start[v + 1]):
            e = arcs[slot]
            other = m + basis_column[e] if v < m else basis_row[e]
            if depth[other] < 0:
                dual[other] = cost[basis_row[e], basis_column[e]] - dual[v]
                depth[other] = depth[v] + 1
                parent[other] = v
                parent_arc[other] = e
                queue[tail] = other
                tail += 1


@compiled
def _cheapest_cell(
    cost: Array, m: int, k: int, dual: Array, first_row: int, tolerance: float
) -> tuple[int, int]:  # pragma: no cover - compiled
    """A cell with a negative reduced cost: the most negative of the first rows that have one."""
    enough = max(1, 1000 // k)  # rows to look at before settling for what was found
    best, enter_row, enter_column = -tolerance, -1, -1
    for step in range(m):
        row = (first_row + step) % m
        own = dual[row]
        least = 0.0
        for c in range(k):
            least = min(least, cost[row, c] - dual[m + c] - own)
        if least < best:
            best, enter_row = least, row
        if enter_row >= 0 and step >= enough:
            break
    if enter_row >= 0:
        for c in range(k):
            if cost[enter_row, c] - dual[m + c] - dual[enter_row] <= best:
                enter_column = c
                break
    return enter_row, enter_column


@compiled
def _pivot(
    row: int,
    column: int,
    m: int,
    basis_row: Index,
    basis_column: Index,
    flow: Array,
    tree: Index,
) -> None:  # pragma: no cover - compiled
    """Brings a cell into the basis: every other arc of the cycle it closes gives flow."""
    parent, parent_arc, depth = tree[2], tree[3], tree[4]
    step, leave = 1e300, -1
    u, v, u_gives, v_gives = row, m + column, True, True
    while u != v:
        if depth[u] >= depth[v]:
            if u_gives and flow[parent_arc[u]] < step:
                step, leave = flow[parent_arc[u]], parent_arc[u]
            u_gives = not u_gives
            u = parent[u]
        else:
            if v_gives and flow[parent_arc[v]] <= step:
                step, leave = flow[parent_arc[v]], parent_arc[v]
            v_gives = not v_gives
            v = parent[v]
    u, v, u_gives, v_gives = row, m + column, True, True
    while u != v:
        if depth[u] >= depth[v]:
            flow[parent_arc[u]] += -step if u_gives else step
            u_gives = not u_gives
            u = parent[u]
        else:
            flow[parent_arc[v]] += -step if v_gives else step
            v_gives = not v_gives
            v = parent[v]
    basis_row[leave], basis_column[leave], flow[leave] = row, column, step


@compiled
def simplex(
    cost: Array,
    largest: float,
    m: int,
    k: int,
    basis_row: Index,
    basis_column: Index,
    flow: Array,
    tree: Index,
    dual: Array,
) -> float:  # pragma: no cover - compiled
    """Pivots the basis to optimality. Returns by how much the duals may fail to be feasible."""
    tolerance = _PRICING * largest
    row = 0
    for _ in range(1000 * (m + k)):
        _hang_tree(cost, m, k, basis_row, basis_column, tree, dual)
        row, column = _cheapest_cell(cost, m, k, dual, row, tolerance)
        if row < 0:
            return tolerance
        _pivot(row, column, m, basis_row, basis_column, flow, tree)
    _hang_tree(cost, m, k, basis_row, basis_column, tree, dual)
    worst = tolerance
    for r in range(m):
        for c in range(k):
            worst = max(worst, dual[r] + dual[m + c] - cost[r, c])
    return worst


@compiled
def transport_cost(
    distance: Array,
    largest: float,
    m: int,
    k: int,
    space: Any,
) -> tuple[float, float]:  # pragma: no cover - compiled
    """Cheapest way to move supply to demand from a feasible basis, and how far off it may be."""
    rows, supply, columns, demand, basis_row, basis_column, flow, tree, dual, cost = space
    total = 0.0
    if m == 1:
        for c in range(k):
            total += demand[c] * distance[rows[0], columns[c]]
        return total, 0.0
    if k == 1:
        for r in range(m):
            total += supply[r] * distance[rows[r], columns[0]]
        return total, 0.0
    for r in range(m):
        for c in range(k):
            cost[r, c] = distance[rows[r], columns[c]]
    slack = simplex(cost, largest, m, k, basis_row, basis_column, flow, tree, dual)
    steepest = 0.0
    for r in range(m):
        total += supply[r] * dual[r]
        steepest = max(steepest, abs(dual[r]))
    for c in range(k):
        total += demand[c] * dual[m + c]
        steepest = max(steepest, abs(dual[m + c]))
    return total, slack + 4 * PERTURBATION * steepest


def scratch(support: int) -> tuple[Any, ...]:
    """Work space for couples of rows with at most `support` entries each.

    Returns:
        rows, supply, columns, demand, basis_row, basis_column, flow, tree, dual, cost.
    """
    nodes = 2 * support + 2
    return (
        np.zeros(support, dtype=np.int64),
        np.zeros(support),
        np.zeros(support, dtype=np.int64),
        np.zeros(support),
        np.zeros(nodes, dtype=np.int64),
        np.zeros(nodes, dtype=np.int64),
        np.zeros(nodes),
        np.zeros((6, 2 * nodes), dtype=np.int64),
        np.zeros(nodes),
        np.zeros((support, support)),
    )
