import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import (
    FiniteMDP,
    aggregate,
    bisimulation,
    examples,
    lax_bisimulation,
    pi_bisimulation,
    revised,
    solve,
    value_gap_bound,
)
from tabular import reference
from tabular.strategies import few, mdps
from tabular.test_bounds import solved

METRICS = ("revised", "mico", "pi_bisimulation", "bisimulation")


def true_loss(result, merged):
    if result.policy is None:
        V = reference.optimal_values(result.mdp, result.gamma)
        merged_V = reference.optimal_values(merged.mdp, result.gamma)
    else:
        V = reference.values(result.mdp, result.policy, result.gamma)
        merged_V = reference.values(merged.mdp, merged.policy, result.gamma)
    return abs(V - merged_V[merged.labels]).max()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("c", [None, 0.3, 0.9])
@few(10)
@given(
    case=mdps(max_states=8),
    eps=st.sampled_from([0.0, 0.05, 0.5, 2.0, np.inf]),
    gamma=st.sampled_from([0.0, 0.6, 0.9]),
)
def test_partition_and_certified_loss(metric, c, case, eps, gamma):
    result = solved(metric, "state", *case, gamma, c=c)
    merged = aggregate(result, eps)
    assert merged.labels.shape == (result.n,)
    assert set(merged.labels) == set(range(merged.n_classes))
    assert np.array_equal(merged.labels[merged.representatives], np.arange(merged.n_classes))
    assert merged.mdp.n_states == merged.n_classes
    assert merged.mdp.n_actions == result.mdp.n_actions
    bound = value_gap_bound(result)
    own = bound.estimate(np.arange(result.n), merged.representatives[merged.labels])
    assert (own <= eps + bound.resolution).all()
    assert true_loss(result, merged) <= merged.value_loss_bound + 1e-8


@pytest.mark.parametrize("metric", METRICS)
def test_the_loss_is_certified_on_larger_mdps(metric):
    case = examples.garnet(30, 2, 3, reward_levels=3, seed=1)
    result = solved(metric, "state", *case, 0.9, tol=1e-6)
    gaps = value_gap_bound(result).matrix()
    merged = [aggregate(result, eps) for eps in (*np.quantile(gaps, [0.2, 0.5, 0.9]), np.inf)]
    for one in merged:
        assert true_loss(result, one) <= one.value_loss_bound
    assert 30 > merged[0].n_classes >= merged[1].n_classes > merged[-1].n_classes == 1


def duplicated(n=4, copies=3):
    """A random MDP whose states come in identical copies, and its policy."""
    mdp, policy = examples.garnet(n, 2, 3, seed=0)
    P = np.tile(reference.dense(mdp), (copies, 1, copies)) / copies
    return FiniteMDP(P, np.tile(mdp.rewards, (copies, 1))), np.tile(policy, (copies, 1))


@pytest.mark.parametrize("eps", [1e-3, 0.0])
@pytest.mark.parametrize("metric", METRICS)
def test_exact_duplicates_are_merged(metric, eps):
    mdp, policy = duplicated()
    result = solved(metric, "state", mdp, policy, 0.9)
    merged = aggregate(result, eps)
    assert np.array_equal(merged.labels, np.tile(np.arange(4), 3))
    assert true_loss(result, merged) <= 1e-7
    assert np.allclose(reference.dense(merged.mdp), reference.dense(examples.garnet(4, 2, 3).mdp))


@pytest.mark.parametrize("metric", ["revised", "mico"])
@pytest.mark.parametrize("tol", [1e-6, 1e-9])
def test_exact_duplicates_are_merged_in_spite_of_the_solvers_noise(metric, tol):
    # Sweeps in place leave duplicates with slightly different distances, within the error.
    result = solve(metric, *duplicated(10), 0.9, tol, solver="in_place")
    assert np.array_equal(aggregate(result, 0.0).labels, np.tile(np.arange(10), 3))


def test_everything_far_apart_stays_as_it_is():
    mdp, policy = examples.garnet(6, 2, 2, seed=0)
    merged = aggregate(revised(mdp, policy, 0.9), 1e-9)
    assert merged.n_classes == 6
    assert np.allclose(reference.dense(merged.mdp), reference.dense(mdp))
    assert np.allclose(merged.policy, policy)
    assert merged.value_loss_bound == 0


def test_members_count_equally_and_actions_by_use():
    # 0 and 1 are merged: 0 always takes a0 (reward 1), 1 takes a0 or a1 evenly (rewards 3, 5).
    mdp = FiniteMDP(np.array([[2, 2], [2, 2], [2, 2]]), [[1.0, 9.0], [3.0, 5.0], [20.0, 0.0]])
    result = pi_bisimulation(mdp, [[1, 0], [0.5, 0.5], [1, 0]], 0.5)
    merged = aggregate(result, 3.5)
    assert merged.labels.tolist() == [0, 0, 1]
    assert np.allclose(merged.policy, [[0.75, 0.25], [1.0, 0.0]])
    assert np.allclose(merged.mdp.rewards, [[(1 + 3 * 0.5) / 1.5, 5.0], [20.0, 0.0]])
    assert true_loss(result, merged) == pytest.approx(1.5)  # values 21 and 24 become 22.5
    assert merged.value_loss_bound == pytest.approx(3 / 2 / (1 - 0.5), abs=1e-5)


def test_states_with_different_offers_are_not_merged_without_a_policy():
    mdp = examples.toy().mdp
    merged = aggregate(bisimulation(mdp, 0.5), np.inf)
    assert merged.n_classes == 3
    assert merged.policy is None


def test_states_with_different_offers_can_be_merged_under_a_policy():
    merged = aggregate(pi_bisimulation(*examples.toy(), 0.5), 0.1)
    assert merged.n_classes == 1
    assert np.allclose(merged.policy, [[4 / 6, 1 / 6, 1 / 6]])
    assert merged.mdp.available.all()


@pytest.mark.parametrize(
    ("result", "eps", "message"),
    [
        (None, 0.1, "expected a MetricResult, as returned by solve"),
        (revised(*examples.toy(), 0.9), np.nan, "eps must be at least 0, got nan"),
        (lax_bisimulation(examples.toy().mdp, 0.9), 0.1, "lax bisimulation matches different"),
        (revised(*examples.toy(), 0.9, level="state_action"), 0.1, "solve .* with level='state'"),
    ],
)
def test_what_cannot_be_merged_is_refused(result, eps, message):
    with pytest.raises(ValueError, match=message):
        aggregate(result, eps)
