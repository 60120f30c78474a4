"""MR.Q: its losses, learning, acting, states."""

import copy
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from tests.agents.mrq import (
    ACTION,
    PIXELS,
    TINY,
    VECTOR,
    exact_agent,
    plain,
    random_batch,
    random_windows,
    small_replay,
    tiny_agent,
)
from tests.agents.tdmpc import assert_same_state

from revbis.agents import MRQSettings, make_agent, resolve
from revbis.agents.mrq import (
    Observed,
    Predicted,
    gumbel_softmax,
    model_losses,
    one_hot,
    policy_loss,
    priorities,
    reward_bins,
    two_hot_loss,
    value_loss,
    value_targets,
)
from revbis.io import machine
from revbis.objectives import OBJECTIVES, make_objective
from revbis.replay import Batch, Replay

CPU = torch.device("cpu")
BINS = reward_bins(CPU, torch.float64)

# The losses, by hand


def test_bins_are_the_symexp_of_equally_spaced_numbers():
    assert len(BINS) == 65 and BINS[32] == 0
    assert BINS[-1].item() == pytest.approx(math.exp(10) - 1)
    assert BINS[33].item() == pytest.approx(math.exp(20 / 64) - 1)
    assert torch.allclose(BINS, -BINS.flip(0))


@pytest.mark.parametrize(
    ("reward", "weights"),
    [
        (0.0, {32: 1.0}),
        (float(BINS[40]), {40: 1.0}),
        (float(0.25 * BINS[33] + 0.75 * BINS[34]), {33: 0.25, 34: 0.75}),
        (float(BINS[-1]), {64: 1.0}),
        (1e9, {64: 1.0}),
        (-1e9, {0: 1.0}),
    ],
)
def test_a_reward_is_between_its_two_bins(reward, weights):
    """The cross-entropy is linear in log p: its gradient at the logits is p minus the weights."""
    logits = torch.randn(65, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    loss = two_hot_loss(logits, torch.tensor(reward, dtype=torch.float64), BINS)
    loss.backward()
    wanted = torch.zeros(65, dtype=torch.float64)
    for index, weight in weights.items():
        wanted[index] = weight
    chance = logits.detach().softmax(dim=0)
    assert torch.allclose(chance - logits.grad, wanted, atol=1e-9)
    assert loss.item() == pytest.approx(-(wanted * chance.log()).sum().item())


def test_model_losses_are_sums_of_means_with_what_is_invalid_left_out():
    """Two steps of two windows; of the second window only the first step counts."""
    zs = torch.tensor([[[1.0, 1.0], [2.0, 0.0]], [[0.0, 2.0], [9.0, 9.0]]])
    logits, ending = torch.zeros(2, 2, 65), torch.tensor([[0.5, 0.0], [1.0, 7.0]])
    observed = Observed(
        torch.zeros_like(zs),
        torch.zeros(2, 2),
        torch.tensor([[0.0, 1.0], [1.0, 1.0]]),
        torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
    )
    losses = model_losses(Predicted(zs, logits, ending), observed, reward_bins(CPU))
    assert losses.consistency.item() == (1 + 2 + 2) / 2
    assert losses.reward.item() == pytest.approx(3 * math.log(65) / 2)
    assert losses.termination.item() == (0.25 + 1 + 0) / 2


def test_targets_change_their_unit():
    """(1 + 0.5 · 4 · 3) / 2, and (2 + 0) / 2 after a termination."""
    reward, discount = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0])
    batch = Batch(reward, reward, reward, discount, reward)
    assert value_targets(batch, torch.tensor([4.0, 4.0]), 2.0, 3.0).tolist() == [3.5, 1.0]


def test_value_loss_and_priorities_by_hand():
    """Errors 0.5, 3 and 0, 1: Huber 0.125, 2.5, 0, 0.5; the larger of each, at least 1."""
    q, target = torch.tensor([[0.5, 1.0], [3.0, 2.0]]), torch.tensor([0.0, 1.0])
    assert value_loss(q, target).item() == pytest.approx((0.125 + 2.5 + 0 + 0.5) / 4)
    assert priorities(q, target, 0.5).tolist() == pytest.approx([math.sqrt(3), 1.0])
    assert priorities(q, target, 0.0).tolist() == [1, 1]


def test_policy_loss_by_hand():
    """Minus the mean of 1, 2, 3, 6, and a tenth of the mean square of 3 and 1."""
    q, logits = torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([[3.0], [1.0]])
    assert policy_loss(q, logits, 0.1).item() == pytest.approx(-3 + 0.1 * 5)


# Updates, against the plain agent in double precision


def assert_same_weights(agent, reference, tolerance=1e-9):
    pairs = zip(plain.plain_weights(agent), reference.parameters(), strict=True)
    for number, (mine, wanted) in enumerate(pairs):
        assert torch.allclose(mine, wanted, rtol=0, atol=tolerance), number


@pytest.mark.parametrize("shape", [VECTOR, PIXELS])
@pytest.mark.parametrize("terminates", [True, False])
def test_encoder_updates_are_the_plain_ones(shape, terminates):
    agent = exact_agent(shape)
    reference = plain.PlainMRQ(agent, torch.float64)
    for seed in range(3):
        windows = random_windows(shape, seed=seed)
        metrics = agent.learn_encoders(windows, 0.9, terminates, with_metrics=True)
        loss = reference.learn_encoders(windows, terminates)
        assert metrics["model_loss"].item() == pytest.approx(loss.item(), rel=1e-9)
    assert_same_weights(agent, reference)


@pytest.mark.parametrize("shape", [VECTOR, PIXELS])
def test_updates_of_values_and_policy_are_the_plain_ones(shape):
    """Also across copies of the targets, with another scale of rewards each time."""
    agent = exact_agent(shape, gradient_clip=0.5, action_penalty=0.1)
    reference = plain.PlainMRQ(agent, torch.float64)
    noise = torch.Generator().manual_seed(0)
    noise.set_state(agent._update_generator.get_state())
    for period, size in enumerate((2.0, 0.7)):
        for each in (agent, reference):
            each.begin_period(size)
        for seed in range(2):
            windows = random_windows(shape, seed=10 * period + seed)
            agent.learn_encoders(windows, 0.9, True)
            reference.learn_encoders(windows, True)
        for seed in range(3):
            batch = random_batch(shape, seed=10 * period + seed)
            metrics, priority = agent.learn(batch)
            drawn = torch.randn(6, ACTION, generator=noise)
            loss, of_policy, wanted = reference.learn(batch, drawn)
            assert metrics["critic_loss"].item() == pytest.approx(loss.item(), rel=1e-9)
            penalty = 0.1 * metrics["actor_logits"].item() ** 2
            got = metrics["actor_loss"].item() / size + penalty
            assert got == pytest.approx(of_policy.item(), rel=1e-6, abs=1e-9)
            assert torch.allclose(priority, wanted, rtol=1e-9)
            assert metrics["value_scale"].item() == pytest.approx(size)
    assert_same_weights(agent, reference)


def test_an_update_is_copies_encoder_updates_and_one_of_values_and_policy():
    """Twice as many updates as a period has, with a replay of the same draws."""
    agent, replay, other = exact_agent(), small_replay(), small_replay()
    reference = plain.PlainMRQ(agent, torch.float64)
    noise = torch.Generator().manual_seed(0)
    noise.set_state(agent._update_generator.get_state())
    for update in range(2 * TINY["target_every"]):
        metrics = agent.update(replay, 10 + update)
        begins = update % TINY["target_every"] == 0
        if begins:
            reference.begin_period(other.mean_reward_size())
            for _ in range(TINY["target_every"]):
                loss = reference.learn_encoders(other.sample_windows(6, 3), True)
            assert metrics["model_loss"].item() == pytest.approx(loss.item(), rel=1e-6)
        assert ("model_loss" in metrics) == begins
        drawn = other.sample_transitions(6)
        _, _, priority = reference.learn(drawn.batch, torch.randn(6, ACTION, generator=noise))
        other.set_priorities(drawn.entry, priority.numpy())
    assert_same_weights(agent, reference, 1e-7)
    assert replay.state()["generator"] == other.state()["generator"]


def test_without_any_reward_the_scale_stays():
    agent = tiny_agent()
    agent.begin_period(0.0)
    assert agent.state_dict()["scale"] == 1.0
    agent.begin_period(0.25)
    agent.begin_period(0.0)
    assert (agent.state_dict()["scale"], agent.state_dict()["target_scale"]) == (0.25, 0.25)


def test_each_loss_trains_its_own_networks_only():
    agent = tiny_agent()

    def changed(call):
        before = copy.deepcopy(agent.state_dict()["networks"])
        call()
        after = agent.state_dict()["networks"]
        return {
            f"{part}.{name.partition('.')[0]}"
            for part in after
            for name in after[part]
            if not torch.equal(before[part][name], after[part][name])
        }

    encoders = {f"networks.{name}" for name in ("phi", "psi", "model")}
    assert changed(lambda: agent.learn_encoders(random_windows(), 0.9, True)) == encoders
    assert changed(lambda: agent.learn(random_batch())) == {"networks.values", "networks.policy"}
    targets = {f"target.{name}" for name in ("phi", "psi", "values", "policy")}
    assert changed(lambda: agent.begin_period(1.0)) == targets
    assert all(parameter.requires_grad for parameter in agent.networks.parameters())


# MR.Q as an agent: seeds, resuming, exploration, learning


@pytest.mark.parametrize("shape", [VECTOR, PIXELS])
def test_equal_seeds_learn_and_act_alike(shape):
    agents = [tiny_agent(shape, seed) for seed in (1, 1, 2)]
    seen = random_batch(shape).obs[0].numpy()
    results = []
    for agent in agents:
        replay = small_replay(shape)
        losses = [agent.update(replay, step)["critic_loss"].item() for step in range(6)]
        results.append((losses, [agent.act(seen, 9, explore=True).tolist() for _ in range(3)]))
    assert results[0] == results[1] != results[2]
    assert_same_state(agents[0].state_dict(), agents[1].state_dict())


def test_images_are_centred_once_when_learning_starts():
    agent, replay, other = tiny_agent(PIXELS, centre_images=True), *map(small_replay, 2 * [PIXELS])
    phi, target = agent.networks.phi, agent.target.phi
    assert not phi.mean.any()
    images = other.sample_windows(512, agent.settings.horizon).obs[:, 0].double() / 255 - 0.5
    agent.update(replay, 0)
    mean = phi.mean.clone()
    assert torch.allclose(mean.double(), images.mean(dim=0), atol=1e-6)
    agent.update(replay, 1)
    assert torch.equal(phi.mean, mean) and torch.equal(target.mean, mean)
    seen = random_batch(PIXELS).obs
    plainly = tiny_agent(PIXELS, centre_images=False)
    assert plainly.networks.phi.mean is None
    plainly.networks.phi.load_state_dict(
        {name: each for name, each in phi.state_dict().items() if name != "mean"}
    )
    first = plainly.networks.phi.convolutions[0]
    with torch.no_grad():  # what is subtracted from every image is a constant after a convolution
        away = first(seen / 255 - 0.5) - first(seen / 255 - 0.5 - mean)
    assert torch.allclose(away, away[:1].expand_as(away), atol=1e-5) and away.abs().max() > 0.01
    first.register_forward_hook(lambda module, inputs, output: output - away)
    assert torch.allclose(agent.embed(seen), plainly.embed(seen), atol=1e-4)


@pytest.mark.parametrize("updates", [0, 3])
def test_a_restored_agent_has_the_mean_image(updates):
    first, replay = tiny_agent(PIXELS, centre_images=True), small_replay(PIXELS)
    for step in range(updates):
        first.update(replay, step)
    again, other = tiny_agent(PIXELS, 9, centre_images=True), small_replay(PIXELS, seed=5)
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    other.restore([replay.export(0, replay.written)], replay.state())
    for agent, buffer in ((first, replay), (again, other)):
        agent.update(buffer, updates)
    assert_same_state(first.state_dict(), again.state_dict())


SEEN = np.linspace(-1, 1, 5, dtype=np.float32)


def test_first_actions_are_uniform_and_later_ones_have_noise():
    agent = tiny_agent(explore_steps=500)
    drawn = np.stack([agent.act(SEEN, step, explore=True) for step in range(500)])
    assert drawn.dtype == np.float32 and np.abs(drawn).max() <= 1
    assert np.abs(drawn.mean()) < 0.1 and np.abs(drawn.std() - 1 / np.sqrt(3)) < 0.05
    with torch.no_grad():  # the policy's action is 0, so that nothing is clipped
        agent.networks.policy.last.weight.zero_()
    noisy = np.stack([agent.act(SEEN, 500, explore=True) for _ in range(500)])
    assert np.abs(noisy.mean()) < 0.03 and np.abs(noisy.std() - 0.2) < 0.02


def test_evaluation_draws_nothing():
    agent = tiny_agent()
    before = copy.deepcopy(agent.state_dict())
    actions = [agent.act(SEEN, 0, explore=False) for _ in range(2)]
    np.testing.assert_array_equal(*actions)
    with torch.no_grad():
        mean = torch.tanh(agent.networks.policy(agent.embed(torch.from_numpy(SEEN)[None])))
    np.testing.assert_array_equal(actions[0], mean[0].numpy())
    assert_same_state(before, agent.state_dict())


@pytest.mark.parametrize("updates", [1, 4, 6])
def test_a_restored_agent_goes_on_as_the_first(updates):
    """Before a period's end, at it, and after it."""
    first, replay = tiny_agent(), small_replay()
    for step in range(updates):
        first.update(replay, step)
        first.act(SEEN, 9, explore=True)
    again, other = tiny_agent(seed=9), small_replay(seed=5)
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    other.restore([replay.export(0, replay.written)], replay.state())
    for step in range(6):
        for agent, buffer in ((first, replay), (again, other)):
            agent.update(buffer, step)
            agent.act(SEEN, 9, explore=True)
    assert_same_state(first.state_dict(), again.state_dict())
    assert replay.state() == other.state()


def test_it_learns_which_action_is_rewarded():
    """A reward for the first number of the action, whatever is seen; episodes of one step."""
    settings = {"batch_size": 32, "hidden": 32, "target_every": 20, "learning_rate": 3e-3}
    agent = tiny_agent(encoder_learning_rate=3e-3, **settings)
    replay, rng = small_replay(count=0), np.random.default_rng(0)
    for _ in range(30):
        replay.begin(rng.normal(size=5).astype(np.float32))
        action = rng.uniform(-1, 1, ACTION)
        seen = rng.normal(size=5).astype(np.float32)
        replay.add(action, 1 + float(action[0]), 0.0, seen, last=True)
    for step in range(100):
        agent.update(replay, step)
    acted = [agent.act(rng.normal(size=5).astype(np.float32), 0, explore=False) for _ in range(8)]
    assert np.mean(acted, axis=0)[0] > 0.8


def test_embeddings_are_zs_and_distances_euclidean():
    agent = tiny_agent()
    seen = random_batch().obs
    zs = agent.embed(seen)
    with torch.no_grad():
        assert zs.shape == (6, 6) and torch.equal(zs, agent.networks.phi(seen))
    assert torch.allclose(zs, agent.networks.phi(seen), atol=1e-6)
    assert not zs.requires_grad
    wanted = torch.tensor([[torch.dist(a, b) for b in zs[:2]] for a in zs])
    assert torch.allclose(agent.distance(zs, zs[:2]), wanted, atol=1e-4)
    assert agent.status() == {}


@pytest.mark.parametrize("discrete", [False, True])
def test_psi_is_that_of_the_policys_own_action(discrete):
    agent = tiny_agent(discrete=discrete)
    seen = random_batch().obs
    found = agent.embeddings(seen)
    assert torch.equal(found["phi"], agent.embed(seen))
    actions = [agent.act(each.numpy(), 0, explore=False) for each in seen]
    zsa = agent.networks.psi(found["phi"], torch.from_numpy(np.stack(actions)))
    torch.testing.assert_close(found["psi"], zsa.detach())


# Objectives: zs and zsa are their φ and ψ


def objective_agent(*names, seed=0, **options):
    agent = exact_agent(seed=seed, representation=names, **options)
    for objective in agent.objectives.values():
        objective.double()
    return agent


def gradients_at(agent, windows, gamma, *names):
    """Gradients of single losses at zs and ψ, each of an agent with that loss alone."""
    found = {}
    for name in names:
        alone = objective_agent(name)
        alone.networks.load_state_dict(agent.networks.state_dict())
        alone.target.copy()
        alone._descent = lambda *_: nullcontext()
        for parameter in alone.networks.parameters():
            parameter.grad = None
        zs = []
        handle = alone.networks.phi.register_forward_hook(
            lambda module, given, out, zs=zs: zs.append(out.retain_grad() or out)
        )
        alone.learn_encoders(windows, gamma, True)
        handle.remove()
        psi = [parameter.grad for parameter in alone.networks.psi.parameters()]
        phi = [parameter.grad for parameter in alone.networks.phi.parameters()]
        found[name] = (zs[0].grad, psi, phi)
    return found


@pytest.mark.parametrize("name", ["simsr-rev-full", "energy-rev-full", "zp", "deepmdp", "dbc"])
@pytest.mark.parametrize("order", [0, 1])
def test_a_further_loss_has_a_gradient_of_a_given_length(name, order):
    names = ("model", name) if order == 0 else (name, "model")
    agent = objective_agent(*names, objective_weight=0.3)
    windows = random_windows()
    agent.target.copy()
    alone = gradients_at(agent, windows, 0.9, *names)
    agent._descent = lambda *_: nullcontext()
    metrics = agent.learn_encoders(windows, 0.9, True, with_metrics=True)
    (first_zs, *first), (second_zs, *second) = (alone[each] for each in names)
    factor = 0.3 * first_zs.norm() / second_zs.norm()
    assert metrics["objective/gradient_share"].item() == pytest.approx(0.3 / 1.3)
    for part, one, other in zip(("psi", "phi"), first, second, strict=True):
        parameters = getattr(agent.networks, part).parameters()
        for got, mine, further in zip(parameters, one, other, strict=True):
            zero = torch.zeros_like(got)
            wanted = (zero if mine is None else mine) + factor * (
                zero if further is None else further
            )
            assert torch.allclose(got.grad, wanted, atol=1e-9)


@pytest.mark.parametrize("name", [n for n, entry in OBJECTIVES.items() if entry.psi])
def test_every_objective_with_psi_trains_the_agents(name):
    agent = tiny_agent(representation=(name,))
    objective = agent.objectives[name]
    assert objective.psi is agent.networks.psi
    own = set(objective.parameters())
    assert not own & set(agent.networks.psi.parameters())
    assert not any(key.startswith("psi") for key in objective.state_dict())
    before = copy.deepcopy(agent.networks.state_dict())
    metrics = agent.learn_encoders(random_windows(), 0.9, True, with_metrics=True)
    moved = {key.partition(".")[0] for key, old in before.items() if not torch.equal(
        old, agent.networks.state_dict()[key])}  # fmt: skip
    assert moved == {"phi", "psi"}
    assert metrics["objective/representation_loss"].isfinite()
    assert "model_loss" not in metrics and "objective/gradient_share" not in metrics


@pytest.mark.parametrize("name", [n for n, entry in OBJECTIVES.items() if not entry.psi])
def test_an_objective_without_psi_needs_one_that_has_it(name):
    with pytest.raises(ValueError, match=f"must train the state-action encoder, which {name} does"):
        MRQSettings(representation=(name,))
    agent = tiny_agent(representation=("model", name))
    metrics = agent.learn_encoders(random_windows(), 0.9, True, with_metrics=True)
    assert {"model_loss", "objective/representation_loss"} <= metrics.keys()


def test_a_coefficient_is_learned_and_shown():
    agent = tiny_agent(representation=("model", "simsr-rev"), coefficient_learning_rate=0.1)
    assert agent.status() == {"c": 0.5}
    agent.learn_encoders(random_windows(), 0.9, True)
    assert agent.status()["c"] != 0.5
    scaled = tiny_agent(representation=("energy-rev-full", "simsr-rev"))
    assert scaled.status().keys() == {"c", "reward_scale"}


def test_embeddings_and_distances_are_the_first_objectives():
    agent = tiny_agent(representation=("model", "simsr-rev-full", "energy-rev-full"))
    objective = agent.objectives["simsr-rev-full"]
    seen = random_batch().obs
    zs = agent.embed(seen)
    assert torch.allclose(zs.norm(dim=1), torch.ones(6))
    assert torch.equal(agent.distance(zs, zs[:2]), objective.distance(zs, zs[:2]))


@pytest.mark.parametrize("names", [("simsr-rev-full",), ("model", "simsr-rev-full", "zp")])
def test_an_agent_with_objectives_goes_on_as_the_first(names):
    first, replay = tiny_agent(representation=names), small_replay()
    for step in range(3):
        first.update(replay, step)
    again, other = tiny_agent(representation=names, seed=9), small_replay(seed=5)
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    other.restore([replay.export(0, replay.written)], replay.state())
    for step in range(5):
        first.update(replay, step)
        again.update(other, step)
    assert_same_state(first.state_dict(), again.state_dict())
    with pytest.raises(ValueError, match="the state's representation must be 'model', got"):
        tiny_agent().load_state_dict(first.state_dict())


def test_an_objective_of_ones_own_needs_psi_or_the_model():
    own = "tests.objectives.own_objectives:make"
    with pytest.raises(ValueError, match="nothing trains the state-action encoder"):
        tiny_agent(representation=(own,))
    agent = tiny_agent(representation=("model", own))
    assert "objective/representation_loss" in agent.learn_encoders(
        random_windows(), 0.9, False, with_metrics=True
    )
    with_psi = f"{__name__}:make_with_psi"
    agent = tiny_agent(representation=(with_psi,))
    assert agent.objectives[with_psi].psi is agent.networks.psi
    assert agent.settings.code == (with_psi,)


def test_an_objective_that_would_train_psi_twice_is_refused():
    with pytest.raises(ValueError, match="has the agent's ψ among its own parameters"):
        tiny_agent(representation=(f"{__name__}:make_owning_psi",))


def make_owning_psi(latent_dim, action_dim, psi=None):
    """One that takes ψ as a part of its own."""
    objective = make_objective("zp", latent_dim, action_dim)
    objective.psi = psi
    return objective


def test_large_rewards_can_be_resumed():
    agent = tiny_agent()
    agent.begin_period(1e13)
    tiny_agent().load_state_dict(agent.state_dict())
    with pytest.raises(ValueError, match="scale must be finite and above 0"):
        agent.load_state_dict(agent.state_dict() | {"scale": 0.0})


def make_with_psi(latent_dim, action_dim, psi=None):
    """An objective of a user's own that compares state-action pairs."""
    return make_objective("simsr-rev", latent_dim, action_dim, psi=psi)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "must name at least one loss, and none twice, got"),
        (("model", "model"), "must name at least one loss, and none twice"),
        (("modell",), "representation must be one of .* did you mean 'model'"),
        (("mico", "simsr"), "which mico and simsr does not have: add model"),
    ],
)
def test_other_losses_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        MRQSettings(representation=names)
    with pytest.raises(ValueError, match="batch_size must be at least 2 to form pairs for zp"):
        MRQSettings(representation=("zp",), batch_size=1)
    with pytest.raises(ValueError, match=r"batch_size · \(horizon \+ 1\) must be at most"):
        MRQSettings(batch_size=256, horizon=4096)


# Discrete actions


def test_gumbel_softmax_chooses_as_often_as_the_softmax_of_the_logits():
    """The largest number of a draw is a draw of the softmax; the mean of both is relaxed."""
    logits = torch.tensor([0.0, 1.0, 2.0]).expand(20_000, 3)
    drawn = gumbel_softmax(logits, torch.Generator().manual_seed(0))
    assert torch.allclose(drawn.sum(dim=1), torch.ones(20_000))
    shares = one_hot(drawn).mean(dim=0)
    assert torch.allclose(shares, torch.softmax(logits[0], dim=0), atol=0.015)
    assert drawn.max() < 0.7  # at temperature 10


def test_gumbel_softmax_by_formula():
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    exponential = torch.empty(5, 3).exponential_(generator=torch.Generator().manual_seed(2))
    wanted = torch.softmax((logits - exponential.log()) / 10, dim=1)
    got = gumbel_softmax(logits, torch.Generator().manual_seed(2))
    assert torch.equal(got, wanted) and got.requires_grad


def test_one_hot_is_1_at_the_largest():
    x = torch.tensor([[0.1, 0.4, 0.3], [2.0, -1.0, 0.0]])
    assert one_hot(x).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_discrete_actions_are_one_hot():
    agent = tiny_agent(discrete=True, explore_steps=300)
    first = np.stack([agent.act(SEEN, step, explore=True) for step in range(300)])
    later = np.stack([agent.act(SEEN, 300, explore=True) for _ in range(300)])
    for actions in (first, later):
        assert actions.dtype == np.float32 and set(np.unique(actions)) == {0.0, 1.0}
        assert (actions.sum(axis=1) == 1).all()
    assert np.abs(first.mean(axis=0) - 0.5).max() < 0.1
    greedy = [agent.act(SEEN, 0, explore=False) for _ in range(3)]
    with torch.no_grad():
        logits = agent.networks.policy(agent.embed(torch.from_numpy(SEEN)[None]))
    assert all(each.tolist() == one_hot(logits)[0].tolist() for each in greedy)


def test_targets_of_discrete_actions_are_the_plain_formula():
    """A relaxed choice with noise of half the size, of which the largest is taken."""
    agent, batch = tiny_agent(discrete=True), random_batch()
    generator = torch.Generator().manual_seed(0)
    generator.set_state(agent._update_generator.get_state())
    with torch.no_grad():
        target = agent.target
        zs = target.phi(batch.next_obs)
        relaxed = gumbel_softmax(target.policy(zs), generator)
        noise = 0.5 * (0.2 * torch.randn(6, ACTION, generator=generator)).clamp(-0.3, 0.3)
        action = one_hot(relaxed + noise)
        wanted = batch.reward + batch.discount * target.values(target.psi(zs, action)).amin(dim=0)
        assert torch.allclose(agent._targets(batch), wanted)


def test_it_learns_which_choice_is_rewarded():
    settings = {"batch_size": 32, "hidden": 32, "target_every": 20, "learning_rate": 3e-3}
    agent = tiny_agent(discrete=True, encoder_learning_rate=3e-3, **settings)
    replay, rng = small_replay(count=0), np.random.default_rng(0)
    for _ in range(30):
        replay.begin(rng.normal(size=5).astype(np.float32))
        chosen = int(rng.integers(2))
        seen = rng.normal(size=5).astype(np.float32)
        replay.add(np.eye(2)[chosen], 1.0 + chosen, 0.0, seen, last=True)
    for step in range(60):
        agent.update(replay, step)
    acted = [agent.act(rng.normal(size=5).astype(np.float32), 0, explore=False) for _ in range(8)]
    assert np.mean(acted, axis=0).tolist() == [0, 1]


def test_other_agents_refuse_discrete_actions():
    for method in ("drqv2", "simsr-rev", "taco", "tdmpc", "dreamerv3", "agent:some.module:make"):
        settings = resolve(method).settings()
        message = f"{method} needs continuous actions, .* a choice of 2: use --method mrq"
        with pytest.raises(ValueError, match=message):
            make_agent(method, settings, VECTOR, 2, seed=0, discrete=True)
    agent = make_agent("mrq", MRQSettings(**TINY), VECTOR, 2, seed=0, discrete=True)
    assert agent.discrete


# Half precision


@pytest.mark.parametrize("shape", [VECTOR, PIXELS])
def test_bfloat16_is_near_float32(shape, monkeypatch):
    """Networks in bfloat16, which processors without such units emulate; the rest in float32."""
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "avx512_bf16")
    names = ("model", "simsr-rev-full")
    plain, half = (
        tiny_agent(shape, representation=names, precision=each) for each in ("float32", "bfloat16")
    )
    windows, batch, found = random_windows(shape), random_batch(shape), []
    for agent in (plain, half):
        metrics = agent.learn_encoders(windows, 0.9, True, with_metrics=True)
        learned, priority = agent.learn(batch)
        acted = agent.act(batch.obs[0].numpy(), 9, explore=False)
        assert acted.dtype == np.float32 and agent.embed(batch.obs).dtype == torch.float32
        assert priority.dtype == torch.float32
        assert all(p.dtype == torch.float32 for p in agent.networks.parameters())
        found.append(metrics | learned)
    for name in ("model_loss", "objective/representation_loss", "critic_loss", "critic_target_q"):
        one, other = (each[name].item() for each in found)
        assert other == pytest.approx(one, rel=0.05, abs=0.02) and other != one, name
    assert half.settings.for_inference().precision == "float32"
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "")
    with pytest.raises(ValueError, match="precision is bfloat16, for which this processor has no"):
        tiny_agent(precision="bfloat16")


# What is refused


def test_a_replay_without_priorities_of_transitions_is_refused():
    replay = Replay(60, VECTOR, ACTION, stack=1)
    with pytest.raises(ValueError, match="mrq draws by priority and needs a TransitionReplay"):
        tiny_agent().update(replay, 0)


def test_other_shapes_are_refused():
    agent, windows, batch = tiny_agent(), random_windows(), random_batch()
    with pytest.raises(ValueError, match=r"obs must be torch.float32 \[6, 4, 5\]"):
        agent.learn_encoders(windows._replace(obs=windows.obs[:, :3]), 0.9, False)
    with pytest.raises(ValueError, match=r"valid must be floats \[6, 3\]"):
        agent.learn_encoders(windows._replace(valid=windows.valid > 0), 0.9, False)
    with pytest.raises(ValueError, match=r"action must be floats \[6, 2\]"):
        agent.learn(batch._replace(action=batch.action[:, :1]))
    with pytest.raises(ValueError, match=r"observation must be float32 of shape \(5,\)"):
        agent.act(np.zeros(4, np.float32), 0, explore=False)
    with pytest.raises(ValueError, match="settings must be MRQSettings"):
        type(agent)(VECTOR, ACTION, None, seed=0)
    with pytest.raises(ValueError, match="images of 9x9 are too small"):
        tiny_agent((3, 9, 9))
    with pytest.raises(ValueError, match="images of 9x9 are too small"):
        MRQSettings().check((3, 9, 9))


def test_states_of_others_are_refused():
    agent = tiny_agent()
    with pytest.raises(ValueError, match="the state's method must be 'mrq', got 'drqv2'"):
        agent.load_state_dict({"method": "drqv2"})
    with pytest.raises(ValueError, match="the state does not fit this agent"):
        agent.load_state_dict(tiny_agent(hidden=17).state_dict())
    state = agent.state_dict()
    for name, wrong in (("updates", -1), ("scale", 0.0), ("target_scale", math.inf)):
        with pytest.raises(ValueError, match="the state does not fit this agent"):
            tiny_agent().load_state_dict(state | {name: wrong})


def test_memory_of_images_is_estimated():
    settings = MRQSettings(**TINY)
    assert settings.activation_bytes((5,), 8) == 0
    small, large = (settings.activation_bytes((9, side, side), 8) for side in (40, 80))
    assert 0 < 3 * small < large
