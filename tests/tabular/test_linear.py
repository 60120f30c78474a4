import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import FiniteMDP, ToleranceWarning, examples, linear, mico, revised, solve
from revbis.tabular.linear import LinearProblem
from revbis.tabular.mdp import as_policy
from revbis.tabular.operators import state_chain
from revbis.tabular.solver import make_problem
from tabular.reference import LONG, chain, kronecker, long_double
from tabular.strategies import GAMMAS, few, mdps

SOLVERS = ("doubling", "jacobi", "low_rank", "in_place")
ALL_SOLVERS = (*SOLVERS, "pointer_doubling")
METRICS = (("revised", "state"), ("mico", "state"), ("revised", "state_action"))


def run(metric, level, mdp, policy, gamma, solver, tol=1e-6, c=None):
    """The result, with or without a warning that the tolerance was not met."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = solve(metric, mdp, policy, gamma, tol, c, level, solver)
    assert all(w.category is ToleranceWarning for w in caught)
    assert bool(caught) == (result.error_bound > tol)
    return result


def error(result, exact):
    return float(abs(result.matrix() - exact).max())


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("solver", SOLVERS)
@few(12)
@given(case=mdps(), which=st.sampled_from(METRICS), c=st.sampled_from([None, None, 0.5, 0.9]))
def test_solvers_against_a_kronecker_solve(solver, gamma, case, which, c):
    metric, level = which
    P, gap = chain(*case, metric, level)
    weight, discount = (1.0, gamma) if c is None else (1 - c, c)
    result = run(metric, level, *case, gamma, solver, c=c)
    assert result.solver == solver
    assert result.error_bound <= 1e-6
    noise = 1e-12 / (1 - discount)
    assert error(result, kronecker(P, weight * gap, discount)) <= result.error_bound + noise


@pytest.mark.parametrize("gamma", GAMMAS)
@few(12)
@given(case=mdps(kinds=("deterministic",)), which=st.sampled_from(METRICS))
def test_pointer_doubling_against_a_kronecker_solve(gamma, case, which):
    mdp, _ = case
    metric, level = which
    policy = as_policy(mdp, mdp.available.argmax(axis=1))
    P, gap = chain(mdp, policy, metric, level)
    result = run(metric, level, mdp, policy, gamma, "pointer_doubling")
    assert error(result, kronecker(P, gap, gamma)) <= result.error_bound + 1e-12 / (1 - gamma)


@pytest.mark.parametrize("tol", [1e-3, 1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize("solver", ALL_SOLVERS)
@few(12)
@given(
    case=mdps(),
    which=st.sampled_from(METRICS),
    gamma=st.sampled_from(GAMMAS),
    scale=st.integers(0, 2),
)
def test_the_error_is_never_above_the_bound(solver, tol, case, which, gamma, scale):
    mdp, policy = case
    P = [mdp.transitions[np.arange(mdp.n_states) * mdp.n_actions + a] for a in range(mdp.n_actions)]
    mdp = FiniteMDP(P, mdp.rewards * 1000.0**scale, mask=mdp.available)
    if solver == "pointer_doubling":
        successors = mdp.transitions.toarray().argmax(axis=1)
        mdp = FiniteMDP(successors.reshape(mdp.rewards.shape), mdp.rewards, mask=mdp.available)
        policy = as_policy(mdp, mdp.available.argmax(axis=1))
    result = run(*which, mdp, policy, gamma, solver, tol)
    # The chain as it is in doubles counts as exact: forming it is not the solver's business.
    exact = make_problem(result).chain
    P, x, p = (a.astype(LONG) for a in (exact.P.toarray(), exact.values, exact.weights))
    gap = np.einsum("si,tj,sitj->st", p, p, abs(x[:, :, None, None] - x))
    assert error(result, long_double(P, gap, gamma)) <= result.error_bound


def test_the_bound_allows_for_rounding_of_mean_rewards():
    rng = np.random.default_rng(0)
    P, policy = rng.dirichlet(np.ones(5), size=(5, 3)), rng.dirichlet(np.ones(3), size=5)
    with pytest.warns(ToleranceWarning, match="double precision"):
        result = mico(FiniteMDP(P, np.full((5, 3), 1e6)), policy, 0.99, tol=1e-9)
    assert error(result, 0.0) <= result.error_bound


@pytest.mark.parametrize("which", METRICS)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_solvers_agree_with_each_other(which, gamma):
    mdp, policy = examples.garnet(40, 2, 4, reward_levels=4, seed=3)
    results = [run(*which, mdp, policy, gamma, solver) for solver in SOLVERS]
    for a, b in combinations(results, 2):
        assert error(a, b.matrix()) <= a.error_bound + b.error_bound


def test_solvers_agree_on_a_deterministic_chain():
    mdp, _ = examples.grid_world(6, slip=0.0)
    policy = np.full(36, 1)
    results = [run("revised", "state", mdp, policy, 0.99, s) for s in ALL_SOLVERS]
    for a, b in combinations(results, 2):
        assert error(a, b.matrix()) <= a.error_bound + b.error_bound


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_tolerance_beyond_double_precision_warns(solver):
    mdp, policy = examples.garnet(10, seed=1)
    with pytest.warns(ToleranceWarning, match=f"tolerance 1.0e-15 not met, .* is what {solver} re"):
        result = revised(mdp, policy, 0.9, tol=1e-15, solver=solver)
    assert 1e-15 < result.error_bound < 1e-9


@few(10)
@given(mdps(), st.sampled_from([0.3, 0.9]), st.sampled_from(["revised", "mico"]))
def test_weighted_form_is_the_plain_one_at_discount_c(case, c, metric):
    weighted = solve(metric, *case, 0.5, 1e-10, c).matrix()
    plain = solve(metric, *case, c, 1e-10).matrix()
    assert np.allclose(weighted, (1 - c) * plain, rtol=0, atol=2e-10)


@few(10)
@given(mdps(max_states=4), st.integers(0, 99))
def test_apply_is_the_operator(case, seed):
    problem = LinearProblem(state_chain(*case), 0.3, 0.7)
    U = np.random.default_rng(seed).normal(size=(problem.n, problem.n))
    P, gap = chain(*case)
    applied, lost = problem.apply(U)
    assert abs(applied - (0.3 * gap + 0.7 * P @ U @ P.T)).max() <= lost + 1e-14
    assert 0 <= lost < 1e-13


def test_low_rank_gives_up_beyond_its_rank():
    problem = LinearProblem(state_chain(*examples.garnet(200, reward_levels=9, seed=0)), 1.0, 0.9)
    assert linear.low_rank(problem, 1e-6, lambda *_: None, max_rank=3) is None


def test_low_rank_compresses_many_blocks():
    mdp, policy = examples.grid_world(12, slip=0.3)
    result = mico(mdp, policy, 0.99, solver="low_rank")
    exact = mico(mdp, policy, 0.99, tol=1e-10)
    assert result.rank < 60
    assert result.iterations > 200
    assert error(result, exact.matrix()) <= result.error_bound + exact.error_bound


def test_what_compression_drops_is_in_the_bound(monkeypatch):
    case = examples.garnet(40, 2, 4, reward_levels=4, seed=3)
    exact = revised(*case, 0.9, tol=1e-10).matrix()
    monkeypatch.setattr(linear, "_drop_budget", lambda *_: 0.05)
    result = run("revised", "state", *case, 0.9, "low_rank")
    assert result.rank < 20
    assert 1e-3 < error(result, exact) <= result.error_bound


def test_sweeps_in_blocks_of_rows_are_the_same(monkeypatch):
    case = examples.garnet(30, reward_levels=3, seed=5)
    whole = [revised(*case, 0.9, solver=s).matrix() for s in ("jacobi", "in_place")]
    monkeypatch.setattr(linear, "_ROWS_PER_CALL", 100)
    parts = [revised(*case, 0.9, solver=s).matrix() for s in ("jacobi", "in_place")]
    for a, b in zip(whole, parts, strict=True):
        assert np.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("solver", ALL_SOLVERS)
def test_progress_is_reported_and_ends_at_the_bound(solver):
    seen = []
    mdp, _ = examples.garnet(10, 2, 1, seed=1)
    policy = np.zeros(10, dtype=int)
    result = revised(mdp, policy, 0.9, solver=solver, progress=lambda *x: seen.append(x))
    assert len(seen) >= result.iterations > 0
    assert seen[-1][0] == result.iterations
    assert seen[-1][1] <= result.error_bound
