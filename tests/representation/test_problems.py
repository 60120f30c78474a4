"""MDPs with images: what they look like, what is collected, refused, and their exact metrics."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from revbis import tabular
from revbis.representation.problems import (
    FACTORS,
    SCENARIOS,
    Problem,
    build,
    collect_dataset,
    draw_factors,
    draw_grid,
    exact_distances,
    exact_value_gaps,
    factored_mdp,
    near_greedy,
    observe_states,
    random_images,
)


@pytest.fixture(scope="module")
def rooms() -> Problem:
    return build("rooms", 5, 0.9)


def test_every_state_has_its_own_picture(rooms) -> None:
    flat = rooms.images.flatten(1)
    assert rooms.images.shape == (rooms.mdp.n_states, 3, 10, 10)
    assert len(flat.unique(dim=0)) == rooms.mdp.n_states
    assert 0 <= flat.min() < flat.max() <= 1


def test_random_images_are_fixed_and_differ() -> None:
    images = random_images(7, seed=3)
    assert torch.equal(images, random_images(7, seed=3))
    assert len(images.flatten(1).unique(dim=0)) == 7


def test_a_state_looks_different_each_time(rooms) -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.zeros(2000, dtype=torch.int64)
    seen = observe_states(rooms.images, states, 0.1, generator)
    assert seen.dtype == torch.uint8
    assert len(seen.flatten(1).unique(dim=0)) == 2000
    middle = rooms.images[0] == 0.5  # the floor, far from both ends: nothing is clipped
    pixels = seen[:, middle] / 255
    assert pixels.mean() == pytest.approx(0.5, abs=0.002)
    assert pixels.std() == pytest.approx(0.1, abs=0.002)
    first, second = pixels[:, 0], pixels[:, 1]
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.1


def test_without_noise_observations_are_the_images(rooms) -> None:
    states = torch.tensor([1, 0])
    seen = observe_states(rooms.images, states, 0.0, torch.Generator())
    assert torch.allclose(seen / 255, rooms.images[states], atol=0.5 / 255 + 1e-6)


def test_collected_transitions_follow_mdp_and_policy(rooms) -> None:
    mdp = rooms.mdp
    policy = np.tile([0.7, 0.3, 0.0, 0.0], (mdp.n_states, 1))
    data = collect_dataset(replace(rooms, behaviour=policy), 20_000, np.random.default_rng(0))
    s, a, s2 = (x.numpy() for x in (data.s, data.a, data.s2))
    assert np.isclose((a == 0).mean(), 0.7, atol=0.02) and a.max() == 1
    assert np.allclose(data.r.numpy(), mdp.rewards[s, a])
    estimate = tabular.FiniteMDP.from_transitions(s, a, data.r.numpy(), s2)
    rows = estimate.transitions.toarray().reshape(-1, 2, mdp.n_states)
    exact = mdp.transitions.toarray().reshape(-1, 4, mdp.n_states)[:, :2]
    assert np.abs(rows - exact).max() < 0.1


def test_random_rewards_take_each_outcome_equally_often() -> None:
    slip = build("slip", 5, 0.9)
    data = collect_dataset(slip, 20_000, np.random.default_rng(0))
    s, a, r = (x.numpy() for x in (data.s, data.a, data.r))
    low, high = np.moveaxis(slip.outcomes[s, a], 1, 0)
    assert np.all(np.isclose(r, low) | np.isclose(r, high))
    apart = ~np.isclose(low, high)
    assert np.isclose(r, high)[apart].mean() == pytest.approx(0.5, abs=0.02)
    column = slip.mdp.grid[:, 1]
    spread = np.ptp(slip.outcomes, axis=2)
    assert np.all(spread[column == 0] == 0) and np.allclose(spread[column == 4], 1.0)


def test_the_near_greedy_policy_is_near_the_optimal_one(rooms) -> None:
    policy = near_greedy(rooms.mdp, 0.9)
    optimal, _ = tabular.optimal_policy(rooms.mdp, 0.9)
    value = tabular.policy_value(rooms.mdp, policy, 0.9)
    uniform = tabular.policy_value(rooms.mdp, rooms.behaviour, 0.9)
    assert np.all(value > optimal - 0.05) and np.all(uniform < optimal - 0.5)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_what_it_says(name: str) -> None:
    problem, scenario = build(name, 5, 0.9), SCENARIOS[name]
    assert problem.off_policy == (scenario.policy == "off-policy")
    assert (problem.outcomes is not None) == (scenario.rewards == "random")
    assert (problem.pixel_noise > 0) == (scenario.pixels == "noisy")
    assert (problem.mdp.grid is None) == (scenario.mdp in ("garnet", "factors"))
    assert bool(problem.factors) == (problem.lumped is not None) == (scenario.mdp == "factors")


def test_a_factored_mdp_by_hand() -> None:
    """Two factors of four values; bits 0 and 0 of an action move the first up, 1 down."""
    mdp, factors = factored_mdp(("controllable_relevant", "exogenous_irrelevant"))
    assert mdp.n_states == 16 and mdp.n_actions == 4
    assert factors["controllable_relevant"].tolist() == [s // 4 for s in range(16)]
    assert factors["exogenous_irrelevant"].tolist() == [s % 4 for s in range(16)]
    up, down = (mdp.transitions[0 * 4 + action].toarray().ravel() for action in (0, 3))
    moved = {4 + 1: 0.64, 4: 0.16, 1: 0.16, 0: 0.04}  # (up, up), (up, stays), ...
    assert up == pytest.approx([moved.get(s, 0.0) for s in range(16)])
    moved = {12 + 1: 0.64, 12: 0.16, 1: 0.16, 0: 0.04}  # the exogenous one still moves up
    assert down == pytest.approx([moved.get(s, 0.0) for s in range(16)])
    assert mdp.rewards[:, 0].tolist() == np.repeat([0.0, 0.3, 0.5, 0.1], 4).tolist()


@pytest.mark.parametrize(
    ("metric", "level"),
    [
        ("revised", "state"),
        ("revised", "state_action"),
        ("mico", "state"),
        ("mico", "state_action"),
        ("pi_bisimulation", "state"),
    ],
)
def test_the_lumped_problem_has_the_metric_of_the_whole(metric: str, level: str) -> None:
    (mdp, factors), (small, _) = (
        factored_mdp(names, values=2) for names in (tuple(FACTORS), tuple(FACTORS)[::2])
    )
    first, second = (factors[name] for name in ("controllable_relevant", "exogenous_relevant"))
    images = draw_factors(factors, mixed=False)
    whole = Problem(mdp, images, mdp.uniform_policy(), mdp.uniform_policy())
    policy = small.uniform_policy()
    lumped = Problem(small, images[:4], policy, policy), 2 * first + second
    found, wanted = (
        exact_distances(each, "target", metric, level, 0.9, None)
        for each in (replace(whole, lumped=lumped), whole)
    )
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_irrelevant_factors_are_at_reduced_distance_0() -> None:
    problem = build("factors", 5, 0.9)
    U = exact_distances(problem, "target", "revised", "state", 0.9, None)
    reduced = U - (np.diag(U)[:, None] + np.diag(U)) / 2
    relevant = [problem.factors[f"{name}_relevant"] for name in ("controllable", "exogenous")]
    same = np.logical_and.reduce([each[:, None] == each for each in relevant])
    assert np.abs(reduced[same]).max() < 1e-9 < 1e-3 < reduced[~same].min()


def test_images_show_every_factor_in_a_part_of_its_own() -> None:
    factors = build("factors", 5, 0.9).factors
    plain, mixed = (draw_factors(factors, mixed=each) for each in (False, True))
    assert plain.shape == mixed.shape == (256, 3, 16, 16)
    table = np.stack(list(factors.values()), axis=1).tolist()
    state = table.index([1, 2, 0, 3])
    wanted = np.zeros((16, 16))
    wanted[0:4, 4:8] = wanted[4:8, 8:12] = wanted[8:12, 0:4] = wanted[12:16, 12:16] = 1.0
    assert np.array_equal(plain[state, 0], wanted)
    assert 0 <= mixed.min() < mixed.max() <= 1
    # A rotation, up to a scale: all distances between images are those of before.
    far = [torch.cdist(*2 * (each[:, 0].flatten(1).double(),)) for each in (plain, mixed)]
    scale = far[1].max() / far[0].max()
    np.testing.assert_allclose(far[1], scale * far[0], atol=1e-5)


def test_only_grids_are_drawn() -> None:
    with pytest.raises(ValueError, match="no grid to draw its states from: give it one, or pass"):
        draw_grid(tabular.examples.toy().mdp)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": None}, "needs an image for each of its 20 states.*, got NoneType"),
        ({"images": torch.zeros(3, 3, 10, 10)}, r"got torch.float32 of \[3, 3, 10, 10\]"),
        ({"images": torch.full((20, 3, 4, 4), torch.nan)}, r"some pixels are not in \[0, 1\]"),
        ({"target": np.full((20, 4), 0.5)}, r"policy\[0\] sums to 2"),
        ({"outcomes": np.zeros((20, 4))}, r"outcomes must have shape \(20, 4, 1\)"),
        ({"outcomes": np.ones((20, 4, 2))}, "means of outcomes .* must be the MDP's rewards"),
        ({"pixel_noise": float("nan")}, "pixel_noise must be a finite number from 0, got nan"),
    ],
)
def test_what_does_not_fit_is_refused(rooms, change: dict, message: str) -> None:
    assert rooms.mdp.n_states == 20
    with pytest.raises(ValueError, match=message):
        replace(rooms, **change)


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
    gaps = exact_value_gaps(problem, "target", "state", 0.9)
    assert gaps[0, 3] == pytest.approx(abs(value[0] - value[3]))
    assert np.all(gaps <= target + 1e-9)  # the metric bounds them
    assert exact_value_gaps(problem, "target", "state_action", 0.9).shape == (80, 80)
