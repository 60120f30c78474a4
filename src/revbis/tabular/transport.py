"""A compiled transportation simplex that is warm-started from its previous basis.

A basis of an m × k transport problem is a spanning tree of its m + k nodes. Marginals do not change
between sweeps, so the previous basis stays feasible for the new costs, and most problems need no
pivot. Values are read from the duals, which makes them exact to the pricing tolerance even
though supplies are perturbed against degeneracy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from revbis.io.compiled import compiled
from revbis.tabular.linear import EPS

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
    moved = received = 0.0
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
            received += q
            k += 1
    if m == 0 or k == 0:
        return 0, 0
    for c in range(k):
        demand[c] *= moved / received
    return m, k


@compiled
def first_basis(distance: Array, m: int, k: int, space: Any) -> None:  # pragma: no cover - compiled
    """Each row in turn fills its nearest columns: m + k − 1 cells, flows positive.

    Supplies are perturbed. Every cell closes a row or a column; written from the last to the first,
    each joins one new node to the cells before it, which is the order `_hang_tree` wants.
    """
    rows, supply, columns, demand, basis_row, basis_column, flow = space[:7]
    remaining = space[10]
    for c in range(k):
        remaining[c] = demand[c]
    remaining[k - 1] += PERTURBATION
    cell, still_open = m + k - 1, k
    for r in range(m):
        left = supply[r] + PERTURBATION / m
        while True:
            nearest, column = 1e300, 0
            for c in range(k):
                if remaining[c] >= 0.0 and distance[rows[r], columns[c]] < nearest:
                    nearest, column = distance[rows[r], columns[c]], c
            cell -= 1
            basis_row[cell], basis_column[cell] = r, column
            if still_open == 1 or (left <= remaining[column] and r < m - 1):
                flow[cell] = left
                remaining[column] = max(remaining[column] - left, 0.0)
                break
            flow[cell] = remaining[column]
            left = max(left - remaining[column], 0.0)
            remaining[column] = -1.0
            still_open -= 1


@compiled
def _hang(v: int, under: int, arc: int, tree: Index) -> None:  # pragma: no cover - compiled
    """Makes v the first child of `under`."""
    parent, parent_arc, depth, child, sibling = tree[0], tree[1], tree[2], tree[3], tree[4]
    parent[v], parent_arc[v], depth[v] = under, arc, depth[under] + 1
    sibling[v], child[under] = child[under], v


@compiled
def _hang_tree(
    cost: Array, m: int, k: int, basis_row: Index, basis_column: Index, tree: Index, dual: Array
) -> None:  # pragma: no cover - compiled
    """Hangs the basis from the row of its first cell: parents, depths, children and the duals.

    Node v < m is row v; node m + c is column c. Each cell joins one new node to those before it.
    """
    depth, child = tree[2], tree[3]
    for v in range(m + k):
        depth[v] = -1
        child[v] = -1
    root = basis_row[0]
    depth[root] = 0
    dual[root] = 0.0
    for e in range(m + k - 1):
        row, column = basis_row[e], m + basis_column[e]
        if depth[column] < 0:
            dual[column] = cost[row, column - m] - dual[row]
            _hang(column, row, e, tree)
        else:
            dual[row] = cost[row, column - m] - dual[column]
            _hang(row, column, e, tree)


@compiled
def _order_basis(
    m: int, k: int, basis_row: Index, basis_column: Index, flow: Array, tree: Index, spare: Array
) -> None:  # pragma: no cover - compiled
    """Writes the cells of the tree in the order `_hang_tree` needs, parents before children."""
    parent_arc, depth, child, sibling, stack = tree[1], tree[2], tree[3], tree[4], tree[5]
    for e in range(m + k - 1):
        spare[e] = flow[e]
    root = 0
    while depth[root] != 0:
        root += 1
    stack[0] = root
    size, cell = 1, 0
    parent = tree[0]
    while size > 0:
        size -= 1
        v = stack[size]
        if v != root:
            flow[cell] = spare[parent_arc[v]]
            basis_row[cell] = min(v, parent[v])
            basis_column[cell] = max(v, parent[v]) - m
            cell += 1
        v = child[v]
        while v >= 0:
            stack[size] = v
            size += 1
            v = sibling[v]


@compiled
def _cheapest_cell(
    cost: Array, m: int, k: int, dual: Array, first_row: int, tolerance: float
) -> tuple[int, int]:  # pragma: no cover - compiled
    """A cell with a negative reduced cost: the most negative of the first rows that have one."""
    enough = max(1, 1000 // k)  # rows to scan before accepting the best cell so far
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
    cost: Array,
    basis_row: Index,
    basis_column: Index,
    flow: Array,
    tree: Index,
    dual: Array,
) -> None:  # pragma: no cover - compiled
    """Brings a cell into the basis: every other arc of the cycle it closes loses flow."""
    parent, parent_arc, depth = tree[0], tree[1], tree[2]
    step, leave, below_row = 1e300, -1, True
    u, v, u_gives, v_gives = row, m + column, True, True
    while u != v:
        if depth[u] >= depth[v]:
            if u_gives and flow[parent_arc[u]] < step:
                step, leave, below_row = flow[parent_arc[u]], parent_arc[u], True
            u_gives = not u_gives
            u = parent[u]
        else:
            if v_gives and flow[parent_arc[v]] <= step:
                step, leave, below_row = flow[parent_arc[v]], parent_arc[v], False
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
    change = cost[row, column] - dual[row] - dual[m + column]
    if below_row:
        _rehang(row, m + column, leave, change, m, tree, dual)
    else:
        _rehang(m + column, row, leave, change, m, tree, dual)


@compiled
def _rehang(
    top: int, under: int, leave: int, change: float, m: int, tree: Index, dual: Array
) -> None:  # pragma: no cover - compiled
    """Re-roots the cut subtree at `top`, and hangs it under another node.

    The arc that enters has taken the number of the one that left.
    """
    parent, parent_arc, depth, child, sibling, stack = (
        tree[0],
        tree[1],
        tree[2],
        tree[3],
        tree[4],
        tree[5],
    )
    v, above, arc = top, under, leave
    while True:
        old, old_arc = parent[v], parent_arc[v]
        if child[old] == v:
            child[old] = sibling[v]
        else:
            other = child[old]
            while sibling[other] != v:
                other = sibling[other]
            sibling[other] = sibling[v]
        _hang(v, above, arc, tree)
        if old_arc == leave:
            break
        v, above, arc = old, v, old_arc
    stack[0] = top
    size = 1
    while size > 0:
        size -= 1
        v = stack[size]
        depth[v] = depth[parent[v]] + 1
        dual[v] += change if (v < m) == (top < m) else -change
        v = child[v]
        while v >= 0:
            stack[size] = v
            size += 1
            v = sibling[v]


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
    spare: Array,
) -> float:  # pragma: no cover - compiled
    """Pivots the basis to optimality. Returns a bound on the infeasibility of the duals."""
    tolerance = _PRICING * largest
    _hang_tree(cost, m, k, basis_row, basis_column, tree, dual)
    pivots = row = 0
    while pivots < 1000 * (m + k):
        row, column = _cheapest_cell(cost, m, k, dual, row, tolerance)
        if row < 0:
            break
        _pivot(row, column, m, cost, basis_row, basis_column, flow, tree, dual)
        pivots += 1
    if pivots == 0:
        return tolerance
    _order_basis(m, k, basis_row, basis_column, flow, tree, spare)
    # Each pivot rounds each dual once, and no dual exceeds the costs along a path.
    drift = 2 * EPS * pivots * (m + k) * largest
    if row < 0:
        return tolerance + drift
    worst = tolerance
    for r in range(m):
        for c in range(k):
            worst = max(worst, dual[r] + dual[m + c] - cost[r, c])
    return worst + drift


@compiled
def transport_cost(
    distance: Array, largest: float, m: int, k: int, space: Any
) -> tuple[float, float]:  # pragma: no cover - compiled
    """Cheapest way to move supply to demand from a feasible basis, and a bound on its error."""
    rows, supply, columns, demand, basis_row, basis_column, flow, tree, dual, cost, spare = space
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
    slack = simplex(cost, largest, m, k, basis_row, basis_column, flow, tree, dual, spare)
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
        rows, supply, columns, demand, basis_row, basis_column, flow, tree, dual, cost, spare.
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
        np.zeros((6, nodes), dtype=np.int64),
        np.zeros(nodes),
        np.zeros((support, support)),
        np.zeros(nodes),
    )
