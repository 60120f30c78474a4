import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import mico, revised
from revbis.tabular.operators import (
    independent_coupling,
    mean_state_chain,
    reward_distribution,
    reward_gap,
    state_action_chain,
    state_action_distance,
    state_chain,
    state_distance,
)
from tabular.reference import chain, dense
from tabular.strategies import few, mdps


def double_loop(values, weights):
    n, m = values.shape
    gap = np.zeros((n, n))
    for s, t, i, j in np.ndindex(n, n, m, m):
        gap[s, t] += weights[s, i] * weights[t, j] * abs(values[s, i] - values[t, j])
    return gap


@few(20)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_reward_gap_against_a_loop(n, m, seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(n, m)), rng.dirichlet(np.ones(m), size=n)
    weights[rng.random((n, m)) < 0.2] = 0
    assert np.allclose(reward_gap(values, weights), double_loop(values, weights), atol=1e-14)


def test_reward_gap_of_single_rewards():
    rewards = np.array([0.0, 3.0, -1.0])
    expected = [[0, 3, 1], [3, 0, 4], [1, 4, 0]]
    assert reward_gap(rewards).tolist() == expected
    assert reward_gap(rewards[:, None]).tolist() == expected


CHAINS = {
    "revised": (state_chain, "revised", "state"),
    "mico": (mean_state_chain, "mico", "state"),
    "pairs": (state_action_chain, "revised", "state_action"),
}


@pytest.mark.parametrize("kind", CHAINS)
@few(20)
@given(case=mdps())
def test_chains_against_the_definitions(kind, case):
    make, metric, level = CHAINS[kind]
    built = make(*case)
    P, gap = chain(*case, metric, level)
    assert built.n == len(P)
    assert np.allclose(built.P.toarray(), P, atol=1e-15)
    assert np.allclose(built.P.sum(axis=1), 1)
    assert np.allclose(reward_gap(built.values, built.weights), gap, atol=1e-14)
    assert np.allclose(built.weights.sum(axis=1), 1)


def test_equal_and_impossible_rewards_are_packed():
    mdp_policy = mdp_with_rewards([[1.0, 1.0, 5.0], [2.0, 3.0, 4.0]], [[0.5, 0.5, 0], [0, 1, 0]])
    built = state_chain(*mdp_policy)
    assert built.values.shape == (2, 1)
    assert built.values.ravel().tolist() == [1.0, 3.0]
    assert built.weights.ravel().tolist() == [1.0, 1.0]


def mdp_with_rewards(R, policy):
    from revbis.tabular import FiniteMDP

    return FiniteMDP(np.zeros(np.shape(R), dtype=int), R), np.array(policy)


@few(20)
@given(mdps())
def test_distribution_functions_give_the_reward_gap(case):
    built = state_chain(*case)
    F, w = reward_distribution(built)
    assert (np.diff(np.column_stack([np.zeros(len(F)), F]), axis=1) >= 0).all()
    one_way = (F * w) @ (1 - F).T
    assert np.allclose(one_way + one_way.T, reward_gap(built.values, built.weights), atol=1e-14)


@few(10)
@given(mdps(), st.integers(0, 99))
def test_independent_coupling_is_an_expectation(case, seed):
    built = state_chain(*case)
    U = np.random.default_rng(seed).normal(size=(built.n, built.n))
    P = built.P.toarray()
    assert np.allclose(independent_coupling(built.P, U), np.einsum("si,tj,ij", P, P, U))


@few(20)
@given(mdps(), st.sampled_from([None, 0.3, 0.8]))
def test_states_and_pairs_are_consistent(case, c):
    mdp, policy = case
    gamma, tol = 0.8, 1e-11
    weight, discount = (1.0, gamma) if c is None else (1 - c, c)
    U = revised(mdp, policy, gamma, tol=tol, c=c).matrix()
    G = revised(mdp, policy, gamma, tol=tol, c=c, level="state_action").matrix()
    assert np.allclose(state_action_distance(mdp, U, weight, discount), G, rtol=0, atol=1e-10)
    assert np.allclose(state_distance(mdp, policy, G), U, rtol=0, atol=1e-10)
    same = mico(mdp, policy, gamma, tol=tol, c=c, level="state_action").matrix()
    assert np.allclose(same, G, rtol=0, atol=1e-10)


@few(10)
@given(mdps(max_states=4), st.integers(0, 99))
def test_operators_against_loops_over_pairs(case, seed):
    mdp, policy = case
    U = np.random.default_rng(seed).normal(size=(mdp.n_states,) * 2)
    G = state_action_distance(mdp, U, 0.7, 0.6)
    P, pairs = dense(mdp), mdp.state_actions
    back = np.zeros_like(U)
    for (x, (s, a)), (y, (t, b)) in both(pairs):
        expected = 0.7 * abs(mdp.rewards[s, a] - mdp.rewards[t, b])
        expected += 0.6 * P[s, a] @ U @ P[t, b]
        assert G[x, y] == pytest.approx(expected)
        back[s, t] += policy[s, a] * policy[t, b] * G[x, y]
    assert np.allclose(state_distance(mdp, policy, G), back)


def both(pairs):
    numbered = list(enumerate(pairs))
    return [(x, y) for x in numbered for y in numbered]
