"""The planner, on problems whose best plans are known, and beside a plain one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.mrq import load_benchmark
from tests.agents.tdmpc import TINY, tiny_agent

from revbis.agents import TDMPC, TDMPCSettings
from revbis.agents.tdmpc_planner import (
    PackedModel,
    Search,
    best_returns,
    follow,
    following_mean,
    largest_minima,
    plan,
)

plain = load_benchmark("_plain_tdmpc")

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

    def dynamics(self, z, action):
        return z + action

    def reward(self, z, action):
        return self._reward(z + action, action)

    def value(self, z, action, which):
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
    paths = follow(model, torch.zeros(1, 1), actions, SEARCH.discount)
    assert paths.rewards.tolist() == pytest.approx([0.5 + 0.9 * 1.5, 0.0])
    value, place = best_returns(model, paths, SEARCH._replace(elites=2), torch.Generator())
    assert value.tolist() == pytest.approx([0.5 + 0.9 * 1.5 + 0.81 * 15, 0.0])
    assert place.tolist() == [0, 1]


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


# Values that are left out do not matter


NUMBERS = st.floats(-5, 5, width=32) | st.sampled_from([float("nan"), float("inf"), 0.0])


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=40), st.integers(1, 6))
def test_largest_minima_are_those_of_all_numbers(pairs, count):
    first, second = torch.tensor(pairs).T
    second = torch.where(first.isnan(), first, second)
    # What is not asked for may be NaN unnoticed, and would count as 0.
    second = torch.where(second.isnan(), first, second)
    count = min(count, len(first))
    best, places = largest_minima(first, lambda at: second[at], count)
    minima = torch.minimum(first, second).nan_to_num(0.0)
    assert torch.equal(best, minima.sort(descending=True).values[:count])
    assert torch.equal(minima[places], best) and len(places.unique()) == count


def test_second_numbers_are_asked_for_where_they_matter():
    asked = []

    def second(places):
        asked.append(len(places))
        return numbers[places]

    first, numbers = torch.arange(100.0), torch.arange(100.0) - 0.5
    assert largest_minima(first, second, 10)[1].tolist() == list(range(99, 89, -1))
    assert asked == [20]
    numbers = -numbers  # unrelated: the largest minima are elsewhere
    assert 0 in largest_minima(first, second, 10)[1]
    assert asked == [20, 20, 100]


# The plain planner, in benchmarks/


def widths(hidden, samples):
    """An agent whose sizes choose how layers are multiplied; its two values are alike or not."""
    options = {"hidden": hidden, "latent_dim": 50, "samples": samples, "elites": 16, "horizon": 5}
    options |= {"temperature": 20.0, "policy_samples": 5}  # elites at the margin hardly count
    return TDMPC((5,), 2, TDMPCSettings(**TINY | options), seed=3)


def randomise(agent, alike):
    generator = torch.Generator().manual_seed(5)
    values = agent.model.values
    with torch.no_grad():
        for network in (agent.model.reward, values.q1, values.q2):
            weight = network.last.weight
            weight.copy_(torch.randn(weight.shape, generator=generator) / 4)
        if alike:
            values.q2.load_state_dict(values.q1.state_dict())
            values.q2.first.bias.add_(0.02)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize(("hidden", "samples"), [(16, 64), (512, 256)])
def test_plans_are_those_of_the_plain_planner(hidden, samples, alike):
    agent = widths(hidden, samples)
    randomise(agent, alike)
    search = agent.search(100)._replace(discount=0.9, iterations=3)
    z, mean = agent.embed(torch.ones(1, 5)), torch.full((5, 2), 0.1)
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    found = plan(PackedModel(agent.model, samples, 5), z, mean, search, generators[0])
    noise = plain.draw_noise(search, 5, 2, generators[1])
    wanted = plain.PlainPlanner(agent).plan(z, mean, search, noise, generators[1])
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=2e-4)
    assert torch.equal(*(generator.get_state() for generator in generators))


@pytest.mark.parametrize("policy_samples", [0, 3])
def test_actions_of_an_agent_are_those_of_the_plain_planner(policy_samples):
    agent = tiny_agent(policy_samples=policy_samples, temperature=20.0)
    seen = torch.linspace(-1, 1, 5)
    for explore in (True, False):
        agent.begin_episode()
        generator = torch.Generator()
        generator.set_state(agent._explore_generator.get_state())
        if not explore:
            generator.manual_seed(agent._evaluate_seed)
        step = 20 if explore else agent._step
        mean = torch.zeros(agent.horizon(step), 2)
        search = agent.search(step)
        noise = plain.draw_noise(search, len(mean), 2, generator)
        planner, z = plain.PlainPlanner(agent), agent.embed(seen[None])
        _, deviation, actions = planner.plan(z, mean, search, noise, generator)
        action = actions[0]
        if explore:
            action = action + deviation[0] * torch.randn(2, generator=generator)
        got = agent.act(seen.numpy(), 20, explore=explore)
        assert got.tolist() == pytest.approx(action.clamp(-1, 1).tolist(), abs=1e-4)


@pytest.mark.parametrize("hidden", [16, 512])
def test_a_packed_model_predicts_as_the_networks_do(hidden):
    agent = widths(hidden, 256)
    randomise(agent, alike=False)
    model, packed = agent.model, PackedModel(agent.model, 256, 5)
    generator = torch.Generator().manual_seed(2)
    z, action = torch.randn(300, 50, generator=generator), torch.rand(300, 2, generator=generator)
    pair = torch.cat([z, action], dim=1)
    with torch.no_grad():
        expected = [
            (packed.dynamics(z, action), model.dynamics(pair)),
            (
                packed.dynamics(z[:1], action),
                model.dynamics(torch.cat([z[:1].expand_as(z), action], 1)),
            ),
            (packed.reward(z, action), model.reward(pair).squeeze(1)),
            (packed.policy(z), model.policy(z)),
            *zip(
                (packed.value(z, action, n) for n in (0, 1)), model.values(z, action), strict=True
            ),
        ]
    for got, wanted in expected:
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
