"""The exact side of the benchmark."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from revbis import tabular
from revbis.representation.problems import Problem, build, exact_distances, value_gaps


@pytest.fixture(scope="module")
def random_rewards() -> Problem:
    """Four states, two actions, three equally likely rewards."""
    base = tabular.examples.garnet(4, 2, 2, seed=1)
    outcomes = np.random.default_rng(0).normal(size=(4, 2, 3))
    P = base.mdp.transitions.toarray().reshape(4, 2, 4)
    mdp = tabular.FiniteMDP(P, outcomes.mean(axis=2))
    images = torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    return Problem(mdp, images, mdp.uniform_policy(), base.policy, outcomes)


def rollouts(problem: Problem, count: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Rewards of trajectories under the target policy, (S, count, length), by brute force."""
    n, m, k = problem.outcomes.shape
    P = problem.mdp.transitions.toarray().reshape(n, m, n)
    states = np.repeat(np.arange(n)[:, None], count, axis=1)
    rewards = np.empty((n, count, length))
    for step in range(length):
        a = (rng.random(states.shape) >= problem.target[states, 0]).astype(int)  # two actions
        rewards[:, :, step] = problem.outcomes[states, a, rng.integers(k, size=states.shape)]
        edges = P[states, a].cumsum(axis=2)
        edges[:, :, -1] = 1.0
        states = (rng.random((*states.shape, 1)) >= edges).sum(axis=2)
    return rewards


def test_random_rewards_by_monte_carlo(random_rewards) -> None:
    """U(s, t) is the expected discounted sum of |r − r'| along two independent trajectories."""
    gamma, length, count = 0.7, 40, 20_000
    rng = np.random.default_rng(1)
    left, right = (rollouts(random_rewards, count, length, rng) for _ in range(2))
    discounts = gamma ** np.arange(length)
    gaps = np.abs(left[:, None] - right[None]) @ discounts
    U = exact_distances(random_rewards, "target", "revised", "state", gamma, None)
    error = gaps.std(axis=2).max() / np.sqrt(count)
    assert np.abs(gaps.mean(axis=2) - U).max() < 5 * error
    means = tabular.revised(random_rewards.mdp, random_rewards.target, gamma).matrix()
    assert np.abs(means - U).min() > 20 * error  # mean rewards give another metric


@pytest.mark.parametrize("c", [None, 0.4])
def test_the_mean_of_pairs_is_the_metric_of_states(random_rewards, c) -> None:
    """Eq. 2, at the fixed point: U is the mean of G over both states' actions."""
    U, G = (
        exact_distances(random_rewards, "target", "revised", level, 0.9, c)
        for level in ("state", "state_action")
    )
    pi = random_rewards.target
    blocks = G.reshape(4, 2, 4, 2)  # every action is available
    assert np.allclose(np.einsum("sa,satb,tb->st", pi, blocks, pi), U, atol=1e-5)


def test_one_outcome_is_no_random_reward(random_rewards) -> None:
    fixed = replace(random_rewards, outcomes=random_rewards.mdp.rewards[:, :, None])
    for level in ("state", "state_action"):
        expected = tabular.revised(fixed.mdp, fixed.target, 0.9, level=level).matrix()
        found = exact_distances(fixed, "target", "revised", level, 0.9, None)
        assert np.allclose(found, expected, atol=1e-5)
        plain = exact_distances(
            replace(fixed, outcomes=None), "target", "revised", level, 0.9, None
        )
        assert np.allclose(plain, expected, atol=1e-5)


def test_the_other_metrics_see_mean_rewards(random_rewards) -> None:
    mdp, policy = random_rewards.mdp, random_rewards.target
    for metric in ("mico", "pi_bisimulation"):
        found = exact_distances(random_rewards, "target", metric, "state", 0.9, None)
        assert np.allclose(found, tabular.solve(metric, mdp, policy, 0.9).matrix())


def test_each_policy_has_its_own_metric_and_values() -> None:
    problem = build("rooms-off-policy", 5, 0.9)
    target, behaviour = (
        exact_distances(problem, whose, "revised", "state", 0.9, None)
        for whose in ("target", "behaviour")
    )
    expected = tabular.revised(problem.mdp, problem.behaviour, 0.9).matrix()
    assert np.allclose(behaviour, expected) and np.abs(target - behaviour).max() > 0.5
    value = tabular.policy_value(problem.mdp, problem.target, 0.9)
    gaps = value_gaps(problem, "target", "state", 0.9)
    assert gaps[0, 3] == pytest.approx(abs(value[0] - value[3]))
    assert np.all(gaps <= target + 1e-9)  # the metric bounds them
    assert value_gaps(problem, "target", "state_action", 0.9).shape == (80, 80)
