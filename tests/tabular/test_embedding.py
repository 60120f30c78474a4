"""MICo and the revised metric as points: (n(x) + n(y))/2 + ‖e(x) − e(y)‖²."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import ArpackNoConvergence

from revbis.tabular import (
    FiniteMDP,
    bisimulation,
    embedding,
    examples,
    lax_bisimulation,
    mico,
    negative_type,
    pi_bisimulation,
    revised,
)
from revbis.tabular.embedding import principal_axes
from tabular.strategies import few, mdps

CASE = examples.garnet(25, 2, 3, reward_levels=3, seed=2)
LINEAR = [(revised, "state"), (revised, "state_action"), (mico, "state")]
SOLVERS = ["doubling", "jacobi", "in_place", "low_rank"]
# Path lengths of the graph K_{2,3}. With c = (3, 3, −2, −2, −2), which sums to 0, cᵀdc = 12 > 0:
# not of negative type. c is an eigenvector of −½JdJ, with eigenvalue −½·12/(cᵀc) = −0.2.
PATHS = [[0, 2, 1, 1, 1], [2, 0, 1, 1, 1], [1, 1, 0, 2, 2], [1, 1, 2, 0, 2], [1, 1, 2, 2, 0]]


def squared_distances(x):
    return ((x[:, None] - x) ** 2).sum(axis=2)


def largest_error(points, result):
    return float(np.abs(points.matrix() - result.matrix()).max())


@pytest.fixture(scope="module")
def large():
    """A full matrix of more rows than all axes are computed for, if only a few are asked for."""
    return revised(*examples.garnet(600, 2, 3, seed=1), 0.9, solver="doubling")


@few(25)
@given(
    mdps(),
    st.sampled_from([0.0, 0.9, 0.99]),
    st.sampled_from([None, 0.0, 0.6]),
    st.sampled_from(LINEAR),
)
def test_the_theorem_holds_on_random_mdps(case, gamma, c, metric):
    solve, level = metric
    result = solve(*case, gamma, tol=1e-9, c=c, level=level)
    verdict = negative_type(result.matrix(), result.error_bound)
    assert verdict.holds
    # Far stricter than what the error bound allows: solvers err alike on all entries.
    assert verdict.smallest >= -1e-12 * (1 + result.matrix().max())


@pytest.mark.parametrize("solver", SOLVERS)
@few(8)
@given(mdps(), st.sampled_from(LINEAR))
def test_the_embedding_is_the_metric(solver, case, metric):
    solve, level = metric
    result = solve(*case, 0.9, tol=1e-8, level=level, solver=solver)
    points = result.embedding()
    assert len(points.coordinates) == result.n
    # Sweeps in place are not quite symmetric, nor of negative type, before they have converged.
    room = 1e-11 + (result.n * result.error_bound if solver == "in_place" else 0.0)
    assert np.allclose(points.matrix(), result.matrix(), rtol=0, atol=room)
    assert np.array_equal(points.self_distances, result.self_distance())
    assert result.error_bound <= points.error_bound <= result.error_bound + room
    assert np.allclose(squared_distances(points.coordinates), result.reduced(), rtol=0, atol=room)


def test_the_iterates_with_learned_coefficients_have_one_too():
    result = revised(*CASE, 0.9, tol=9.0, c=[0.2, 0.9, 0.1, 0.7])
    points = result.embedding()
    assert result.solver == "sequence"
    assert largest_error(points, result) <= 1e-11
    assert negative_type(result.matrix()).holds


def test_the_embedding_of_the_toy_example_by_hand():
    # ρ(s1, s2) = 0 and ρ(s1, s3) = ρ(s2, s3) = 1/(4 − γ): two points, centred, on a line.
    points = revised(*examples.toy(), 0.9, tol=1e-12).embedding()
    apart = 1 / np.sqrt(4 - 0.9)
    assert np.allclose(points.coordinates, apart * np.array([[-1], [-1], [2]]) / 3)
    assert np.allclose(points.self_distances, [4 / (1.1 * 3.1), 4 / (1.1 * 3.1), 0])


@pytest.mark.parametrize("solver", ["doubling", "low_rank"])
def test_fewer_dimensions_err_by_no_more_than_stated(solver):
    result = revised(*CASE, 0.9, tol=1e-9, solver=solver)
    everything = result.embedding().coordinates
    errors = []
    for k in (1, 2, 5, 10):
        points = result.embedding(k)
        assert np.allclose(points.coordinates, everything[:, :k], rtol=0, atol=1e-6)
        errors.append(largest_error(points, result))
        assert errors[-1] <= points.error_bound - result.error_bound <= 4 * errors[-1]
        # What is left out of a sum of squares makes distances smaller, never larger.
        assert (points.matrix() <= result.matrix() + 1e-9).all()
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 10 * errors[-1] > 0


def test_a_smaller_dimension_is_the_best_one():
    # No matrix of rank 2 is nearer to the Gram matrix than its two largest axes (Eckart–Young).
    result = revised(*CASE, 0.9, tol=1e-9)
    x = result.embedding().coordinates
    gram, spectrum = x @ x.T, (x**2).sum(axis=0)
    plane = result.embedding(2).coordinates
    assert np.linalg.norm(gram - plane @ plane.T) == pytest.approx(np.linalg.norm(spectrum[2:]))


@pytest.mark.parametrize("solver", ["doubling", "low_rank"])
@pytest.mark.parametrize("dimension", [1, 2, 24, 25, 26, 80])
def test_the_embedding_has_the_width_asked_for(solver, dimension):
    x = revised(*CASE, 0.9, tol=1e-9, solver=solver).embedding(dimension).coordinates
    assert x.shape == (25, dimension)
    assert np.allclose(x.mean(axis=0), 0, atol=1e-8)
    assert (np.diff((x**2).sum(axis=0)) <= 1e-12).all()


@pytest.mark.parametrize("solver", ["doubling", "low_rank"])
def test_equal_states_are_one_point(solver):
    mdp = FiniteMDP(np.array([[1], [0]]), np.ones((2, 1)))
    result = revised(mdp, [0, 0], 0.9, solver=solver)
    assert np.allclose(result.embedding(2).coordinates, np.zeros((2, 2)), atol=1e-6)
    assert np.allclose(squared_distances(result.embedding().coordinates), 0, atol=1e-9)


def test_a_single_state_has_an_embedding():
    mdp = FiniteMDP(np.array([[0, 0]]), [[0.0, 1.0]])
    result = revised(mdp, [[0.5, 0.5]], 0.0)
    assert result.embedding().matrix() == pytest.approx(np.array([[0.5]]))
    assert result.embedding(1).coordinates.tolist() == [[0.0]]


def test_pairs_are_entries_of_the_matrix():
    points = revised(*CASE, 0.9).embedding(3)
    i, j = np.arange(25)[:, None], np.array([3, 4, 4])
    assert np.allclose(points.pairs(i, j), points.matrix()[i, j])
    assert points.pairs(4, 7).shape == ()
    with pytest.raises(ValueError, match=r"j must be in 0\.\.24, got 25\.\.25"):
        points.pairs(0, 25)
    with pytest.raises(ValueError, match=r"must broadcast .* shapes \(2,\) and \(3,\)"):
        points.pairs([0, 1], [0, 1, 2])


def test_an_embedding_is_a_record_of_its_own():
    result = revised(*CASE, 0.9)
    points = result.embedding(2)
    assert repr(points).startswith("Embedding(n=25, dimension=2, error_bound=")
    with pytest.raises(AttributeError):
        points.error_bound = 0.0
    before = points.coordinates.copy()
    points.coordinates[:] = points.self_distances[:] = 7.0
    assert np.array_equal(result.embedding(2).coordinates, before)
    assert result.self_distance().max() < 7.0


def test_w1_metrics_have_no_exact_embedding():
    with pytest.raises(ValueError, match=r"has no exact embedding: .* use revised or mico"):
        pi_bisimulation(*CASE, 0.9).embedding()


def test_w1_metrics_are_not_of_negative_type():
    ends = np.zeros((5, 5), dtype=int)
    strict = bisimulation(FiniteMDP(ends, PATHS), 0.9)
    assert np.array_equal(strict.matrix(), PATHS)
    assert negative_type(strict.matrix()).smallest == pytest.approx(-0.2)
    # Found by a search: two equally likely successors each.
    P = np.zeros((7, 1, 7))
    pairs = [[1, 6], [1, 5], [0, 6], [2, 3], [0, 5], [2, 5], [3, 4]]
    np.put_along_axis(P[:, 0], np.array(pairs), 0.5, axis=1)
    chain = FiniteMDP(P, np.array([[0, 0, 1, 0, 1, 1, 0]]).T)
    of_policy = pi_bisimulation(chain, [0] * 7, 0.9, tol=1e-9)
    verdict = negative_type(of_policy.matrix(), of_policy.error_bound)
    assert verdict.smallest < -0.08 < -1e6 * verdict.allowance
    # Sets of rewards, one step: also found by a search.
    R = [[0, 5, 2], [1, 0, 4], [3, 4, 6], [5, 0, 0], [6, 1, 4], [1, 0, 7]]
    lax = lax_bisimulation(FiniteMDP(np.zeros((6, 3), dtype=int), R), 0.0)
    assert negative_type(lax.matrix()).smallest < -0.1


def test_negative_type_of_a_matrix_that_is_not():
    verdict = negative_type(PATHS)
    assert not verdict.holds
    assert verdict.smallest == pytest.approx(-0.2)
    assert verdict.allowance < 1e-12
    # An error of 0.08 in each of 5 rows may move an eigenvalue by ½·5·0.08 = 0.2.
    assert negative_type(PATHS, 0.081).holds
    assert not negative_type(PATHS, 0.079).holds


def test_negative_type_ignores_the_diagonal_and_additive_terms():
    u = np.arange(5.0)
    verdict = negative_type(np.array(PATHS) + u[:, None] + u)
    assert verdict.smallest == pytest.approx(-0.2)


def test_negative_type_is_that_of_the_symmetric_part():
    skew = np.triu(np.arange(25.0).reshape(5, 5), 1)
    verdict = negative_type(PATHS + skew - skew.T)
    assert verdict.smallest == pytest.approx(-0.2)
    assert verdict.largest == pytest.approx(negative_type(PATHS).largest)


@pytest.mark.parametrize(
    ("d", "error", "message"),
    [
        (1.0, 0.0, "d must be an .n, n. array with at least one row"),
        ([[0.0, 1.0]], 0.0, r"d must have shape \(1, 1\), got \(1, 2\)"),
        ([[0.0]], -1.0, "error_bound must be at least 0, got -1"),
    ],
)
def test_negative_type_refuses(d, error, message):
    with pytest.raises(ValueError, match=message):
        negative_type(d, error)


def test_a_result_that_disproves_the_theorem_is_refused():
    mdp = FiniteMDP(np.zeros((5, 1), dtype=int), np.zeros((5, 1)))
    forged = replace(revised(mdp, [0] * 5, 0.9), _matrix=np.array(PATHS, dtype=float))
    message = "revised should be of negative type, but .* has the eigenvalue -0.2, and its error"
    for dimension in (None, 2):
        with pytest.raises(ValueError, match=message):
            replace(forged, error_bound=0.079).embedding(dimension)
    rough = replace(forged, error_bound=0.081)
    points = rough.embedding()
    # Without that axis the distance of the two groups is larger by 0.2·(3 + 2)²/(cᵀc).
    assert largest_error(points, forged) == pytest.approx(0.2 * 25 / 30)
    assert points.error_bound == pytest.approx(0.081 + 0.2 * 25 / 30)


def test_few_axes_of_many_rows(large):
    exact = large.embedding()
    points = large.embedding(3)
    assert np.allclose(points.coordinates, exact.coordinates[:, :3], rtol=0, atol=1e-6)
    assert largest_error(points, large) == pytest.approx(points.error_bound, abs=1e-6)
    assert np.array_equal(large.embedding(3).coordinates, points.coordinates)


def test_many_rows_that_disprove_the_theorem_are_refused(large):
    bad = large.matrix().copy()
    bad[:300, :300] += 0.5
    for dimension in (None, 2):
        with pytest.raises(ValueError, match="has the eigenvalue -"):
            replace(large, _matrix=bad).embedding(dimension)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_many_equal_rows_are_one_point(large, level):
    points = replace(large, _matrix=np.full((600, 600), level)).embedding(2)
    assert not points.coordinates.any()
    assert np.array_equal(points.matrix(), np.full((600, 600), level))


def test_axes_that_do_not_converge_are_computed_directly(large, monkeypatch):
    def gives_up(*_, **__):
        raise ArpackNoConvergence("no convergence", np.empty(0), np.empty((600, 0)))

    expected = large.embedding(3)
    monkeypatch.setattr(embedding, "eigsh", gives_up)
    points = large.embedding(3)
    assert np.allclose(points.coordinates, expected.coordinates, rtol=0, atol=1e-6)


def test_a_low_rank_embedding_needs_no_matrix(free_memory):
    grid = revised(*examples.grid_world(9), 0.9, solver="low_rank")
    free_memory(8 * grid.n**2 - 1)
    assert 3 * grid.rank < grid.n
    assert largest_pair_error(grid) <= 1e-11
    with pytest.raises(MemoryError, match=r"a 81 × 81 matrix takes .* use \.pairs\(\)"):
        grid.embedding().matrix()


def largest_pair_error(result):
    i, j = np.triu_indices(result.n)
    return float(np.abs(result.embedding().pairs(i, j) - result.pairs(i, j)).max())


def test_memory_that_is_missing_is_stated_first(large, free_memory):
    free_memory(3 * 8 * 600**2 - 1)
    message = "embedding of 600 rows in all dimensions takes .*; use at most 50 dimensions"
    with pytest.raises(MemoryError, match=message):
        large.embedding()
    assert large.embedding(2).coordinates.shape == (600, 2)
    free_memory(2 * 8 * 600**2 - 1)
    with pytest.raises(MemoryError, match="the spectrum of a 600 × 600 matrix takes"):
        negative_type(large.matrix())


def test_pictures_of_a_w1_metric_use_classical_scaling():
    # On a line it is exact: three absorbing states that earn 0, 1 and 3.
    mdp = FiniteMDP(np.arange(3)[:, None], [[0.0], [1.0], [3.0]])
    result = pi_bisimulation(mdp, [0, 0, 0], 0.5, tol=1e-10)
    x = principal_axes(result, 1)
    assert np.allclose(abs(x - x.T), [[0, 2, 6], [2, 0, 4], [6, 4, 0]], atol=1e-6)
    assert principal_axes(result, 7).shape == (3, 7)


def test_classical_scaling_leaves_out_imaginary_axes():
    # Rewards for one step: the largest gap over actions puts 1, 2 and 3 at 2 from each other and at
    # 1 from 0. Three midpoints cannot be one point: an axis with a negative square is left out.
    R = np.array([[0, 0], [1, 1], [-1, 1], [1, -1]])
    result = bisimulation(FiniteMDP(np.zeros((4, 2), dtype=int), R), 0.0)
    assert result.matrix().tolist() == [[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0]]
    centre = np.eye(4) - 0.25
    values, vectors = np.linalg.eigh(-0.5 * centre @ result.matrix() ** 2 @ centre)
    assert values.min() < -0.1
    nearest = (vectors * np.maximum(values, 0)) @ vectors.T
    x = principal_axes(result, 4)
    assert np.allclose(x @ x.T, nearest)
