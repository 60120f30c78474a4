import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import (
    FiniteMDP,
    ToleranceWarning,
    bisimulation,
    examples,
    lax_bisimulation,
    pi_bisimulation,
    solve,
)
from revbis.tabular.solver import make_problem, make_query
from revbis.tabular.wasserstein import Couplings
from tabular import reference
from tabular.strategies import few, mdps, transition_array

METRICS = ("pi_bisimulation", "bisimulation", "lax_bisimulation")


@pytest.mark.parametrize("metric", METRICS)
@few(12)
@given(case=mdps(max_states=5), gamma=st.sampled_from([0.0, 0.5, 0.8]))
def test_policy_iteration_against_pot(metric, case, gamma):
    result = solve(metric, *case, gamma, solver="policy_iteration")
    exact = reference.w1_fixed_point(metric, *case, gamma)
    assert result.error_bound <= 1e-6
    assert abs(result.matrix() - exact).max() <= result.error_bound + 1e-8


@pytest.mark.parametrize("metric", METRICS)
@few(4)
@given(case=mdps(max_states=4, max_actions=2), c=st.sampled_from([0.3, 0.7]))
def test_weighted_form_against_pot(metric, case, c):
    result = solve(metric, *case, 0.9, 1e-6, c)
    exact = reference.w1_fixed_point(metric, *case, c, 1 - c)
    assert abs(result.matrix() - exact).max() <= result.error_bound + 1e-8


@few(6)
@given(mdps(max_states=3, max_actions=2))
def test_pairs_are_the_states_of_a_larger_chain(case):
    mdp, policy = case
    P, _ = reference.chain(*case, level="state_action")
    pairs = FiniteMDP(P[:, None], mdp.rewards[mdp.available][:, None])
    result = pi_bisimulation(mdp, policy, 0.6, level="state_action", solver="policy_iteration")
    exact = reference.w1_fixed_point("pi_bisimulation", pairs, np.ones((len(P), 1)), 0.6)
    assert abs(result.matrix() - exact).max() <= result.error_bound + 1e-8


def matrices(n, seed):
    rng = np.random.default_rng(seed)
    yield rng.random((n, n))
    yield rng.normal(size=(n, n))
    yield rng.integers(0, 2, (n, n)).astype(float)
    symmetric = rng.random((n, n))
    yield symmetric + symmetric.T
    yield np.zeros((n, n))


@pytest.mark.parametrize("metric", METRICS)
@few(10)
@given(case=mdps(max_states=5), seed=st.integers(0, 99), c=st.sampled_from([None, 0.4]))
def test_apply_to_any_matrix_against_pot(metric, case, seed, c):
    problem = make_problem(make_query(metric, *case, 0.7, c=c))
    weight, discount = (1.0, 0.7) if c is None else (1 - c, c)
    for d in matrices(problem.n, seed):
        kept = d.copy()
        applied, off = problem.apply(d)
        expected = reference.apply(metric, *case, d, discount, weight)
        assert off <= 1e-10
        assert abs(applied - expected).max() <= off + 1e-12
        assert np.array_equal(d, kept)


@pytest.mark.parametrize("metric", METRICS)
def test_apply_accepts_any_memory_layout(metric):
    case = examples.garnet(6, 2, 3, seed=2)
    problem = make_problem(make_query(metric, *case, 0.7))
    d = np.random.default_rng(0).random((12, 12))
    views = (d[::2, ::2], np.asfortranarray(d[::2, ::2]), d[:6, :6].T)
    for view in views:
        assert np.array_equal(problem.apply(view)[0], problem.apply(view.copy(order="C"))[0])


@few(15)
@given(mdps(max_states=6), st.sampled_from([0.0, 0.5, 0.9]))
def test_different_offers_are_as_far_as_can_be(case, gamma):
    mdp, _ = case
    d = bisimulation(mdp, gamma).matrix()
    far = np.ptp(mdp.rewards[mdp.available]) / (1 - gamma)
    differ = (mdp.available[:, None] != mdp.available).any(axis=2)
    assert np.allclose(d[differ], far, rtol=1e-12)
    assert d.max() <= far * (1 + 1e-12)


ONE_EACH = FiniteMDP(
    np.array([[0, -1], [-1, 1], [2, -1]]),
    [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]],
    mask=[[True, False], [False, True], [True, False]],
)


@pytest.mark.parametrize("solver", ["policy_iteration", "gather", "auto"])
def test_different_single_offers_are_as_far_as_can_be(solver):
    # States 0 and 1 earn the same but offer different actions: range(R)/(1−γ) = 1/(1−½).
    d = bisimulation(ONE_EACH, 0.5, solver=solver).matrix()
    assert np.allclose(d, 2 * (1 - np.eye(3)), rtol=0, atol=1e-6)


def test_lax_matches_different_single_offers():
    d = lax_bisimulation(ONE_EACH, 0.5).matrix()
    assert np.allclose(d, [[0, 0, 2], [0, 0, 2], [2, 2, 0]], rtol=0, atol=1e-6)


def test_lax_matches_actions_with_other_names():
    # State 1 is state 0 with its actions swapped.
    mdp = FiniteMDP(np.array([[2, 3], [3, 2], [2, 2], [3, 3]]), [[0, 1], [1, 0], [0, 0], [1, 1]])
    assert lax_bisimulation(mdp, 0.9).matrix()[0, 1] == 0
    assert bisimulation(mdp, 0.9).matrix()[0, 1] > 1


def slow_chain(n, seed):
    """A deterministic chain, which mixes not at all, and its policy."""
    rng = np.random.default_rng(seed)
    successors, rewards = rng.integers(0, n, n), rng.random(n)
    return FiniteMDP(successors[:, None], rewards[:, None]), np.zeros(n, dtype=int)


@pytest.mark.parametrize(("n", "seed"), [(5, 46), (8, 35), (12, 6)])
def test_relaxation_stays_finite_on_slow_chains(n, seed):
    iterated, exact = (
        pi_bisimulation(*slow_chain(n, seed), 0.999, solver=s)
        for s in ("policy_iteration", "pointer_doubling")
    )
    assert np.isfinite(iterated.matrix()).all()
    error = abs(iterated.matrix() - exact.matrix()).max()
    assert error <= iterated.error_bound + exact.error_bound


@pytest.fixture
def at_most_40_000_sweeps(monkeypatch):
    """Fails in the sweep after those; plain iteration on the chains below takes about 28 000."""
    sweeps, sweep = [], Couplings._frozen_sweep

    def counted(self, d, decide):
        sweeps.append(decide)
        assert len(sweeps) <= 40_000
        return sweep(self, d, decide)

    monkeypatch.setattr(Couplings, "_frozen_sweep", counted)


@pytest.mark.usefixtures("at_most_40_000_sweeps")
def test_relaxation_is_no_slower_than_plain_sweeps():
    result = pi_bisimulation(*slow_chain(12, 1), 0.999, solver="policy_iteration")
    assert result.error_bound <= 1e-6


@pytest.mark.usefixtures("at_most_40_000_sweeps")
def test_relaxation_ends_at_the_rounding_error():
    rng = np.random.default_rng(49)
    mdp = FiniteMDP(transition_array(rng, 6, 1, "equal_masses"), rng.normal(size=(6, 1)))
    with pytest.warns(ToleranceWarning):
        result = pi_bisimulation(mdp, [0] * 6, 0.99, tol=1e-13)
    assert result.error_bound < 1e-8


@pytest.mark.filterwarnings("ignore::revbis.tabular.ToleranceWarning")
def test_an_infinite_iterate_is_not_certified(monkeypatch):
    relax = Couplings.relax

    def poisoned(self, d, enough):
        relax(self, d, enough)
        d[0, 1] = d[1, 0] = np.inf

    monkeypatch.setattr(Couplings, "relax", poisoned)
    mdp = FiniteMDP(np.array([[0], [1], [0]]), [[0.0], [1.0], [0.5]])
    result = pi_bisimulation(mdp, [0, 0, 0], 0.9, solver="policy_iteration")
    assert not result.error_bound < 1.0


@pytest.mark.parametrize("metric", METRICS)
def test_a_tight_tolerance_is_certified_or_warned_about(metric):
    case = examples.garnet(8, 2, 3, seed=4)
    loose = solve(metric, *case, 0.9, 1e-9)
    with pytest.warns(ToleranceWarning, match="is what policy_iteration reaches"):
        tight = solve(metric, *case, 0.9, 1e-15)
    assert tight.error_bound < 1e-9
    assert abs(loose.matrix() - tight.matrix()).max() <= loose.error_bound + tight.error_bound


@pytest.mark.parametrize("metric", METRICS)
def test_results_are_pseudometrics(metric):
    result = solve(metric, *examples.garnet(12, 2, 4, reward_levels=3, seed=0), 0.9)
    d, off = result.matrix(), result.error_bound
    assert not np.diag(d).any()
    assert np.array_equal(d, d.T)
    assert (d[:, None] <= d[:, :, None] + d[None] + 3 * off).all()


@pytest.mark.parametrize("metric", METRICS)
def test_progress_is_reported(metric):
    seen = []
    result = solve(
        metric, *examples.garnet(8, 2, 3, seed=4), 0.9, progress=lambda *x: seen.append(x)
    )
    assert [i for i, _ in seen] == list(range(1, result.iterations + 1))
    assert seen[-1][1] == result.error_bound


@pytest.mark.parametrize("metric", METRICS)
def test_larger_instance_is_a_fixed_point(metric):
    case = examples.garnet(30, 2, 4, seed=9)
    result = solve(metric, *case, 0.95)
    applied, off = make_problem(result).apply(result.matrix())
    assert abs(applied - result.matrix()).max() <= 1.95 * result.error_bound + off
