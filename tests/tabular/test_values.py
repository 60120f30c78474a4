import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import FiniteMDP, action_value, examples, optimal_policy, policy_value, values
from tabular import reference
from tabular.strategies import GAMMAS, few, mdps


@few(20)
@given(mdps(), st.sampled_from(GAMMAS))
def test_policy_value_against_a_dense_solve(case, gamma):
    assert np.allclose(policy_value(*case, gamma), reference.values(*case, gamma), atol=1e-10)


@few(15)
@given(mdps(), st.sampled_from([0.0, 0.5, 0.9]))
def test_optimal_policy_against_value_iteration(case, gamma):
    mdp, _ = case
    value, policy = optimal_policy(mdp, gamma)
    assert np.allclose(value, reference.optimal_values(mdp, gamma), rtol=0, atol=1e-7)
    assert np.allclose(policy_value(mdp, policy, gamma), value, rtol=0, atol=1e-12)
    assert ((policy == 0) | (policy == 1)).all()
    assert (policy.sum(axis=1) == 1).all()
    assert not policy[~mdp.available].any()


@few(10)
@given(mdps())
def test_action_value_is_one_step_of_lookahead(case):
    mdp, _ = case
    V = np.arange(mdp.n_states, dtype=float)
    Q = action_value(mdp, V, 0.7)
    expected = mdp.rewards + 0.7 * reference.dense(mdp) @ V
    assert np.allclose(Q[mdp.available], expected[mdp.available])
    assert (Q[~mdp.available] == -np.inf).all()


@few(10)
@given(mdps(), st.sampled_from([0.0, 0.9, 0.99]))
def test_value_is_the_mean_action_value(case, gamma):
    mdp, policy = case
    V = policy_value(mdp, policy, gamma)
    Q = np.where(mdp.available, action_value(mdp, V, gamma), 0.0)
    assert np.allclose((policy * Q).sum(axis=1), V, rtol=0, atol=1e-10)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(
    "case", [examples.garnet(40), examples.grid_world(5), examples.delay_chain(9)]
)
def test_iteration_for_large_chains_agrees_with_the_direct_solve(monkeypatch, case, gamma):
    direct = policy_value(*case, gamma)
    monkeypatch.setattr(values, "_DIRECT_UP_TO", 0)
    largest = 1 / (1 - gamma)
    assert np.allclose(policy_value(*case, gamma), direct, rtol=0, atol=1e-11 * largest)


def test_values_of_actions_named_by_integers():
    mdp = FiniteMDP(np.array([[0, 1], [1, 1]]), [[1.0, 0.0], [2.0, 2.0]])
    assert policy_value(mdp, [0, 0], 0.5).tolist() == [2.0, 4.0]
    assert policy_value(mdp, [1, 0], 0.5).tolist() == [2.0, 4.0]
    assert policy_value(mdp, [1, 0], 0.75) == pytest.approx([6.0, 8.0])


def test_small_rewards_have_the_same_optimal_policy():
    mdp = examples.garnet(20, seed=3).mdp
    P = [mdp.transitions[np.arange(20) * 3 + a] for a in range(3)]
    large, _ = optimal_policy(mdp, 0.99)
    small, _ = optimal_policy(FiniteMDP(P, mdp.rewards * 1e-9), 0.99)
    assert np.allclose(small * 1e9, large, rtol=1e-9)
