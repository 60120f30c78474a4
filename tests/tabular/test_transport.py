import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from revbis.tabular.transport import first_basis, marginals, scratch, transport_cost
from tabular.reference import w1
from tabular.strategies import few

MASSES = ("random", "equal", "tiny", "few levels")
COSTS = ("random", "zeros", "equal", "few levels", "negative", "metric")


def masses(rng, k, kind):
    if kind == "equal":
        return np.full(k, 1 / k)
    if kind == "tiny":
        p = np.where(rng.random(k) < 0.5, 1e-9, 1.0)
    else:
        p = rng.integers(1, 4, k) if kind == "few levels" else rng.gamma(1.0, size=k)
    return p / p.sum()


def costs(rng, m, k, kind):
    if kind == "zeros":
        return np.zeros((m, k))
    if kind == "equal":
        return np.full((m, k), 0.7)
    if kind == "few levels":
        return rng.integers(0, 3, (m, k)).astype(float)
    if kind == "metric":
        return abs(rng.random(m)[:, None] - rng.random(k))
    return rng.normal(size=(m, k)) if kind == "negative" else rng.random((m, k))


def solve(p, q, cost):
    """The compiled simplex on its own, from the first basis."""
    m, k = cost.shape
    square = np.zeros((m + k, m + k))
    square[:m, m:] = cost
    space = scratch(max(m, k))
    rows, supply, columns, demand = space[:4]
    rows[:m], supply[:m], columns[:k], demand[:k] = np.arange(m), p, m + np.arange(k), q
    first_basis(square, m, k, space)
    return *transport_cost(square, float(abs(cost).max()), m, k, space), space


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("cost", COSTS)
@few(15)
@given(m=st.integers(1, 9), k=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_simplex_against_pot(mass, cost, m, k, seed):
    rng = np.random.default_rng(seed)
    p, q, C = masses(rng, m, mass), masses(rng, k, mass), costs(rng, m, k, cost)
    value, slack, _ = solve(p, q, C)
    assert 0 <= slack <= 1e-10
    assert abs(value - w1(p, q, C)) <= slack + 1e-12


@few(10)
@given(st.sampled_from(MASSES), st.sampled_from(COSTS), st.integers(0, 99))
def test_simplex_against_a_linear_program(mass, cost, seed):
    rng = np.random.default_rng(seed)
    p, q, C = masses(rng, 4, mass), masses(rng, 5, mass), costs(rng, 4, 5, cost)
    to_rows, to_columns = np.kron(np.eye(4), np.ones(5)), np.kron(np.ones(4), np.eye(5))
    plan = linprog(C.ravel(), A_eq=np.vstack([to_rows, to_columns]), b_eq=np.concatenate([p, q]))
    assert solve(p, q, C)[0] == pytest.approx(plan.fun, abs=1e-7)


@few(10)
@given(st.integers(2, 12), st.integers(2, 12), st.integers(0, 999))
def test_large_degenerate_assignment(m, k, seed):
    C = np.random.default_rng(seed).integers(0, 2, (m, k)).astype(float)
    p, q = np.full(m, 1 / m), np.full(k, 1 / k)
    value, slack, _ = solve(p, q, C)
    assert abs(value - w1(p, q, C)) <= slack + 1e-12


def test_dense_problem():
    rng = np.random.default_rng(0)
    p, q, C = rng.dirichlet(np.ones(60)), rng.dirichlet(np.ones(50)), rng.random((60, 50))
    value, slack, _ = solve(p, q, C)
    assert abs(value - w1(p, q, C)) <= slack + 1e-12


@few(15)
@given(st.integers(2, 8), st.integers(2, 8), st.integers(0, 999))
def test_the_last_basis_serves_new_costs(m, k, seed):
    rng = np.random.default_rng(seed)
    p, q = masses(rng, m, "few levels"), masses(rng, k, "few levels")
    _, _, space = solve(p, q, rng.random((m, k)))
    for _ in range(3):
        C = rng.integers(0, 4, (m, k)).astype(float)
        square = np.zeros((m + k, m + k))
        square[:m, m:] = C
        value, slack = transport_cost(square, 4.0, m, k, space)
        assert abs(value - w1(p, q, C)) <= slack + 1e-12
        flow = space[6][: m + k - 1]
        assert flow.min() >= -1e-15
        assert flow.sum() == pytest.approx(1)


def rows_of(*rows):
    """CSR arrays of dense rows."""
    indices = [np.flatnonzero(row) for row in rows]
    data = np.concatenate([row[i] for row, i in zip(np.array(rows), indices, strict=True)])
    indptr = np.cumsum([0, *map(len, indices)]).astype(np.int32)
    return indptr, np.concatenate(indices).astype(np.int32), data


def read(rows, cancel):
    left, supply, right, demand = scratch(len(rows[0]))[:4]
    m, k = marginals(*rows_of(*rows), 0, 1, cancel, left, supply, right, demand)
    return left[:m].tolist(), supply[:m].tolist(), right[:k].tolist(), demand[:k].tolist()


def test_marginals_of_two_rows():
    rows = [[0.5, 0.25, 0.0, 0.25], [0.25, 0.25, 0.5, 0.0]]
    assert read(rows, False) == ([0, 1, 3], [0.5, 0.25, 0.25], [0, 1, 2], [0.25, 0.25, 0.5])
    assert read(rows, True) == ([0, 3], [0.25, 0.25], [2], [0.5])


def test_equal_rows_have_nothing_to_move():
    rows = [[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]]
    assert read(rows, True) == ([], [], [], [])
    assert read(rows, False)[0] == [0, 1, 2]


def test_marginals_are_balanced():
    rows = [[0.1, 0.2, 0.7, 0.0], [0.3, 0.3, 0.1, 0.3]]
    _, supply, _, demand = read(rows, True)
    assert sum(supply) == pytest.approx(sum(demand), abs=1e-15)
