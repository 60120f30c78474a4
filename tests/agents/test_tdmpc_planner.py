"""The planner, on problems whose best plans are known."""

import pytest
import torch

from revbis.agents.tdmpc_planner import Search, following_mean, plan, predicted_return

SEARCH = Search(
    iterations=6,
    samples=512,
    policy_samples=25,
    elites=64,
    temperature=20.0,  # returns below are of the order of 1
    momentum=0.1,
    discount=0.9,
    least_deviation=0.05,
    policy_deviation=0.05,
)


class Line:
    """A place that actions move; rewards and values are functions of the new place."""

    def __init__(self, reward, value=lambda z: 0 * z[:, 0], policy=lambda z: 0 * z):
        self._reward, self._value, self.policy = reward, value, policy

    def next(self, z, action):
        return z + action, self._reward(z + action, action)

    def value(self, z, action):
        return self._value(z)


def search(model, horizon, size=1, seed=0, start=0.0, **options):
    generator = torch.Generator().manual_seed(seed)
    z, mean = torch.full((1, size), start), torch.zeros(horizon, size)
    return plan(model, z, mean, SEARCH._replace(**options), generator)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_way_to_a_goal(seed):
    """From 0 to 2.5 with steps of at most 1, and a cost for each moment away: 1, 1 and 0.5."""
    model = Line(lambda z, _: -(z[:, 0] - 2.5).square())
    found = search(model, 3, seed=seed)
    assert found.mean.shape == found.deviation.shape == found.actions.shape == (3, 1)
    assert found.mean[:, 0].tolist() == pytest.approx([1.0, 1.0, 0.5], abs=0.06)
    assert found.actions[:, 0].tolist() == pytest.approx([1.0, 1.0, 0.5], abs=0.2)
    assert found.deviation.min() >= 0.05 - 1e-6


def test_what_follows_the_plan_counts_discounted():
    """0.5 a is gained at once, and what follows is worth −(a + ½)² times γ.

    The sum is largest where 0.5 = 2 γ (a + ½), so at a = 1/(4γ) − ½.
    """
    model = Line(lambda _, a: 0.5 * a[:, 0], lambda z: -(z[:, 0] + 0.5).square())
    for discount in (0.9, 0.3):
        found = search(model, 1, discount=discount, temperature=100.0)
        assert found.mean.item() == pytest.approx(1 / (4 * discount) - 0.5, abs=0.05)


def test_every_dimension_of_an_action_is_planned():
    best = torch.tensor([0.7, -0.3, 0.0])
    model = Line(lambda _, a: -(a - best).square().sum(dim=1))
    found = search(model, 2, size=3, policy_samples=0, temperature=2.0, iterations=12)
    assert torch.allclose(found.mean, best.expand(2, 3), atol=0.1)


def test_the_policy_proposes_what_chance_does_not_find():
    """Only eight numbers that all are near 0.3 are rewarded: two draws in a billion."""
    target = 0.3

    def reward(_, action):
        return ((action - target).abs().amax(dim=1) < 0.2).float()

    model = Line(reward, policy=lambda z: torch.full_like(z, target))
    with_policy = search(model, 1, size=8)
    assert (with_policy.mean - target).abs().max() < 0.1
    alone = search(model, 1, size=8, policy_samples=0)
    assert (alone.mean - target).abs().max() > 0.2


def test_returns_by_hand():
    """Rewards are the places, values ten times the place: 1·0.5 + γ·(0.5 + 1) + γ²·10·1.5."""
    model = Line(lambda z, _: z[:, 0], lambda z: 10 * z[:, 0])
    actions = torch.tensor([[[0.5], [0.0]], [[1.0], [0.0]]])
    value = predicted_return(model, torch.zeros(2, 1), actions, SEARCH, torch.Generator())
    assert value.tolist() == pytest.approx([0.5 + 0.9 * 1.5 + 0.81 * 15, 0.0])


def test_a_plan_starts_where_the_last_one_would_go_on():
    mean = torch.tensor([[1.0], [2.0], [3.0]])
    assert following_mean(mean, 3)[:, 0].tolist() == [2, 3, 0]
    assert following_mean(mean[:1], 3)[:, 0].tolist() == [0, 0, 0]
    assert following_mean(mean[:2], 3)[:, 0].tolist() == [2, 0, 0]
    assert following_mean(mean[:1], 1)[:, 0].tolist() == [0]


def test_warm_start_is_used():
    """Without any iteration that could move it far, the mean stays near its start."""
    model = Line(lambda _, a: 0 * a[:, 0])
    options = {"iterations": 1, "momentum": 1.0}
    generator = torch.Generator().manual_seed(0)
    start = torch.tensor([[0.3], [-0.2]])
    found = plan(model, torch.zeros(1, 1), start, SEARCH._replace(**options), generator)
    assert torch.equal(found.mean, start)


def test_plans_depend_on_the_generator_alone():
    model = Line(lambda z, _: -(z[:, 0] - 2.5).square())
    first, again, other = (search(model, 3, seed=seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first.mean, other.mean)


def test_returns_that_are_no_numbers_do_not_spoil_a_plan():
    model = Line(lambda z, _: torch.where(z[:, 0] > 0, torch.nan, z[:, 0] + 2))
    found = search(model, 1)
    assert torch.isfinite(found.mean).all() and found.mean.item() < 0.1
