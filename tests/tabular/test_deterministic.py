import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import (
    FiniteMDP,
    bisimulation,
    examples,
    lax_bisimulation,
    mico,
    pi_bisimulation,
    solve,
)
from revbis.tabular.solver import make_problem
from tabular import reference
from tabular.strategies import GAMMAS, few, mdps

METRICS = ("bisimulation", "lax_bisimulation")
worlds = mdps(max_states=8, kinds=("deterministic",))


def same(a, b):
    return abs(a.matrix() - b.matrix()).max() <= a.error_bound + b.error_bound


@pytest.mark.parametrize("metric", METRICS)
@few(30)
@given(case=worlds, gamma=st.sampled_from(GAMMAS), c=st.sampled_from([None, 0.7]))
def test_gather_against_policy_iteration(metric, case, gamma, c):
    gathered, iterated = (
        solve(metric, *case, gamma, 1e-8, c, solver=s) for s in ("gather", "policy_iteration")
    )
    assert same(gathered, iterated)


@pytest.mark.parametrize("metric", METRICS)
@few(10)
@given(case=mdps(max_states=5, kinds=("deterministic",)), gamma=st.sampled_from([0.0, 0.5, 0.8]))
def test_gather_against_pot(metric, case, gamma):
    result = solve(metric, *case, gamma, solver="gather")
    exact = reference.w1_fixed_point(metric, *case, gamma)
    assert abs(result.matrix() - exact).max() <= result.error_bound + 1e-8


@few(20)
@given(worlds, st.sampled_from(GAMMAS))
def test_pointer_doubling_against_others(case, gamma):
    mdp, _ = case
    policy = mdp.available.argmax(axis=1)
    pointers = pi_bisimulation(mdp, policy, gamma, solver="pointer_doubling")
    assert same(pointers, pi_bisimulation(mdp, policy, gamma, solver="policy_iteration"))
    assert same(pointers, mico(mdp, policy, gamma, solver="pointer_doubling"))
    assert same(pointers, mico(mdp, policy, gamma, solver="doubling"))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("gamma", [0.9, 0.99])
@few(10)
@given(case=worlds)
def test_any_tolerance_ends_with_a_valid_bound(metric, gamma, case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tight = solve(metric, *case, gamma, 1e-300, solver="gather")
    applied, off = make_problem(tight).apply(tight.matrix())
    residual = abs(applied - tight.matrix()).max()
    assert residual <= tight.error_bound * (1 + gamma) + off
    assert tight.error_bound <= 1e-12 * (1 + np.ptp(case[0].rewards)) / (1 - gamma) ** 2


def test_howard_finds_the_better_action():
    # From 0 and 1 action 0 shows a gap of 1 now, action 1 a gap of 1 at every later step.
    steps = np.array([[2, 3], [2, 4], [2, 2], [3, 3], [4, 4]])
    rewards = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    result = bisimulation(FiniteMDP(steps, rewards), 0.9, solver="gather")
    assert result.matrix()[0, 1] == pytest.approx(0.9 / 0.1)
    assert bisimulation(FiniteMDP(steps, rewards), 0.4).matrix()[0, 1] == pytest.approx(1.0)


def test_howard_on_a_long_cycle():
    n = 50
    rewards = np.zeros((n, 1))
    rewards[0] = 1.0
    mdp = FiniteMDP(((np.arange(n) + 1) % n)[:, None], rewards)
    d = bisimulation(mdp, 0.9, tol=1e-10, solver="gather").matrix()
    # From s the reward comes at times n−s, 2n−s, …: from 1 and 2 at different ones, all counted.
    expected = (0.9 ** (n - 1) + 0.9 ** (n - 2)) / (1 - 0.9**n)
    assert d[1, 2] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("metric", "solver"),
    [
        (lax_bisimulation, "gather"),
        (bisimulation, "gather"),
        (bisimulation, "policy_iteration"),
    ],
)
def test_grid_world_without_slip(metric, solver):
    mdp, _ = examples.grid_world(5, slip=0.0)
    result = metric(mdp, 0.99, solver=solver)
    applied, off = make_problem(result).apply(result.matrix())
    assert result.solver == solver
    assert abs(applied - result.matrix()).max() <= 1.99 * result.error_bound + off
    assert not np.diag(result.matrix()).any()


def test_masked_actions_in_gather():
    mdp = examples.toy().mdp
    d = bisimulation(mdp, 0.5, solver="gather").matrix()
    assert np.array_equal(d, 2.0 * (1 - np.eye(3)))
    lax = lax_bisimulation(mdp, 0.5, solver="gather", tol=1e-10).matrix()
    exact = reference.w1_fixed_point("lax_bisimulation", mdp, None, 0.5)
    assert np.allclose(lax, exact, rtol=0, atol=2e-8)


@pytest.mark.parametrize("metric", METRICS)
def test_progress_ends_at_the_bound(metric):
    seen = []
    mdp, _ = examples.garnet(10, 2, 1, seed=3)
    result = solve(metric, mdp, None, 0.9, solver="gather", progress=lambda *x: seen.append(x))
    assert seen[-1] == (result.iterations, result.error_bound)
