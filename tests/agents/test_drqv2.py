"""DrQ-v2: its update against the textbook's, what each step trains, its modes, its states."""

import copy
import io
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.agents.conftest import VECTOR, tensors
from torch.nn import functional

from revbis.agents.common import scaled_pixels
from revbis.agents.drqv2 import (
    PixelEncoder,
    Policy,
    StepSizes,
    TwinQ,
    VectorEncoder,
    balance,
    feature_norm,
    linear_schedule,
    noisy_action,
)
from revbis.io import machine
from revbis.objectives import DESIGNS, OBJECTIVES
from revbis.replay import Batch

CASES = [
    ("drqv2", "joint"),
    ("mico-rev", "joint"),
    ("simsr-rev", "alternating"),
    ("mico-rev-released", "joint"),
    ("dbc", "alternating"),
    ("simsr-rev-full", "balanced"),
    ("energy-rev-full-no-c", "alternating"),
    ("mico-rev-pairs", "balanced"),
    ("zp", "joint"),
    ("deepmdp", "alternating"),
    ("taco", "joint"),
    ("taco", "alternating"),
    ("taco", "balanced"),
]


def same(one, two):
    mine, other = tensors(one.state_dict()), tensors(two.state_dict())
    return len(mine) == len(other) > 10 and all(map(torch.equal, mine, other))


@pytest.mark.parametrize(("method", "mode"), CASES)
def test_same_seed_gives_the_same_bits(make_agent, make_batch, method, mode):
    one = make_agent(method, mode)
    torch.manual_seed(99)  # the global generator has no part in it
    two = make_agent(method, mode)
    for step in range(4):
        torch.rand(3)
        mine = one.learn(make_batch(step), step)
        other = two.learn(make_batch(step), step)
        assert all(torch.equal(mine[name], other[name]) for name in mine)
    assert same(one, two)
    assert not same(one, make_agent(method, mode, seed=1))


def test_making_an_agent_leaves_the_global_generator_alone(make_agent):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make_agent("mico-rev")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("method", "mode", "options"),
    [*((*case, {}) for case in CASES), ("simsr-rev", "joint", {"encoder_norm": True})],
)
def test_training_goes_on_from_a_file_as_if_never_stopped(
    make_agent, make_batch, method, mode, options
):
    agent = make_agent(method, mode, **options)
    observation = make_batch().obs[0].numpy()
    for step in range(3):
        agent.learn(make_batch(step), step)
        agent.act(observation, 10, explore=True)
    file = io.BytesIO()
    torch.save(agent.state_dict(), file)
    file.seek(0)
    resumed = make_agent(method, mode, seed=7, **options)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for step in range(3, 6):
        mine = agent.learn(make_batch(step), step, with_metrics=True)
        other = resumed.learn(make_batch(step), step, with_metrics=True)
        assert all(torch.equal(mine[name], other[name]) for name in mine)
        for when in (0, 10):
            actions = [a.act(observation, when, explore=True) for a in (agent, resumed)]
            assert np.array_equal(*actions)
    assert same(agent, resumed)


@pytest.mark.parametrize("method", ["drqv2", "simsr-rev", "taco"])
def test_a_state_of_a_gpu_goes_on_alike_on_the_cpu(make_agent, make_batch, method):
    """There the update's generator has a state of 16 bytes, its seed and its offset."""
    resumed = []
    for offset in (0, 0, 1):
        state = copy.deepcopy(make_agent(method).state_dict())
        state["update_generator"] = torch.tensor([0] * 15 + [offset], dtype=torch.uint8)
        resumed.append(make_agent(method, seed=7))
        resumed[-1].load_state_dict(state)
        resumed[-1].learn(make_batch(), 0)
    assert same(resumed[0], resumed[1])
    assert not same(resumed[0], resumed[2])


def test_a_loaded_state_is_not_changed_by_training(make_agent, make_batch):
    agent = make_agent("simsr-rev")
    agent.learn(make_batch(), 0)
    state = copy.deepcopy(agent.state_dict())
    kept = [t.clone() for t in tensors(state)]
    other = make_agent("simsr-rev", seed=3)
    other.load_state_dict(state)
    other.learn(make_batch(), 0)
    assert all(map(torch.equal, tensors(state), kept))


def test_state_of_another_method_or_mode_is_refused(make_agent):
    state = make_agent("mico-rev").state_dict()
    with pytest.raises(ValueError, match="the state's method must be 'simsr', got 'mico-rev'"):
        make_agent("simsr").load_state_dict(state)
    with pytest.raises(ValueError, match="the state's mode must be 'alternating', got 'joint'"):
        make_agent("mico-rev", "alternating").load_state_dict(state)


@pytest.mark.parametrize("mode", ["joint", "alternating", "balanced"])
@pytest.mark.parametrize("method", ["drqv2", *OBJECTIVES])
def test_losses_always_and_metrics_when_asked(make_agent, make_batch, method, mode):
    agent = make_agent(method, mode)
    few = agent.learn(make_batch(), 0)
    many = agent.learn(make_batch(), 0, with_metrics=True)
    base = {"critic_loss", "critic_q1", "critic_q2", "critic_target_q"}
    base |= {"actor_loss", "actor_std", "batch_reward"}
    assert base <= set(few) <= set(many)
    for value in many.values():
        assert isinstance(value, torch.Tensor) and value.shape == () and not value.requires_grad
        assert torch.isfinite(value)
    assert ("objective/representation_loss" in few) == (method != "drqv2")
    assert ("objective/gradient_share" in many) == (method != "drqv2")
    metric = method in DESIGNS or method == "dbc"  # others have no loss on distances
    assert ("objective/c" in many) == metric and "objective/c" not in few
    assert ("objective/distance_q50" in many) == metric


def test_metrics_are_of_this_batch(make_agent, make_batch):
    agent = make_agent(noise_steps=100)
    batch = make_batch()
    metrics = agent.learn(batch, 50)
    assert metrics["batch_reward"] == batch.reward.mean()
    assert metrics["actor_std"].item() == pytest.approx(0.55)
    assert agent.deviation(100) == pytest.approx(0.1)


def test_target_is_the_reward_where_the_episode_ends(make_agent, make_batch):
    batch = make_batch()
    ended = batch._replace(discount=torch.zeros(12))
    metrics = make_agent().learn(ended, 0)
    assert metrics["critic_target_q"].item() == pytest.approx(batch.reward.mean().item())


@pytest.mark.parametrize("transition", ["n_step", "one_step"])
@pytest.mark.parametrize("mode", ["joint", "alternating"])
def test_objective_sees_the_transition_asked_for(
    make_agent, make_batch, monkeypatch, mode, transition
):
    batch = make_batch(one_step=True)
    wanted = batch if transition == "n_step" else batch.one_step
    agent = make_agent("mico", mode, transition=transition)
    phi, forward, seen = agent.parts, agent.parts.objective.forward, {}

    def spy(z, action, reward, discount, next_z, generator):
        seen.update(z=z, action=action, reward=reward, discount=discount, next_z=next_z)
        for name, images in (("phi", batch.obs), ("next_phi", wanted.next_obs)):
            (seen[name],) = phi.readouts(phi.encoder(images), "projection")
        return forward(z, action, reward, discount, next_z, generator)

    monkeypatch.setattr(agent.parts.objective, "forward", spy)
    metrics = agent.learn(batch, 0)
    assert seen["reward"] is wanted.reward and seen["discount"] is wanted.discount
    assert seen["action"] is batch.action and seen["z"].requires_grad
    torch.testing.assert_close(seen["z"], seen["phi"])
    torch.testing.assert_close(seen["next_z"], seen["next_phi"].detach())
    assert not seen["next_z"].requires_grad
    assert metrics["batch_reward"] == batch.reward.mean()  # the critic's stays n-step


def test_first_steps_are_uniform_and_later_ones_noisy(make_agent, make_batch):
    agent = make_agent(explore_steps=500, noise_steps=1000, noise_end=0.0)
    observation = make_batch().obs[0].numpy()
    uniform = np.stack([agent.act(observation, step, explore=True) for step in range(500)])
    assert uniform.shape == (500, 2) and uniform.dtype == np.float32
    assert -1 <= uniform.min() < -0.98 and 0.98 < uniform.max() <= 1
    assert np.abs(np.quantile(uniform, [0.25, 0.5, 0.75]) - [-0.5, 0, 0.5]).max() < 0.1
    mean = agent.act(observation, 500, explore=False)
    noisy = np.stack([agent.act(observation, 900, explore=True) for _ in range(500)])
    assert np.std(noisy, axis=0) == pytest.approx([0.1, 0.1], rel=0.15)
    assert noisy.mean(axis=0) == pytest.approx(mean, abs=0.03)
    assert np.array_equal(agent.act(observation, 1000, explore=True), mean)


def test_as_many_random_steps_as_asked_for(make_agent, make_batch):
    agent = make_agent(explore_steps=3, noise_start=0.0, noise_end=0.0)
    observation = make_batch().obs[0].numpy()
    mean = agent.act(observation, 0, explore=False)
    taken = [agent.act(observation, step, explore=True) for step in range(5)]
    assert [np.array_equal(action, mean) for action in taken] == [False] * 3 + [True] * 2


def test_exploration_noise_is_not_clipped(make_agent, make_batch):
    agent = make_agent(noise_start=0.5, noise_end=0.5, explore_steps=0)
    observation = make_batch().obs[0].numpy()
    mean = agent.act(observation, 0, explore=False)
    noisy = np.stack([agent.act(observation, 0, explore=True) for _ in range(50)])
    assert np.abs(noisy - mean).max() > 0.6


def test_mean_action_draws_no_random_number(make_agent, make_batch):
    agent = make_agent()
    observation = make_batch().obs[0].numpy()
    before = agent.state_dict()
    actions = [agent.act(observation, step, explore=False) for step in (0, 0, 10**6)]
    assert np.array_equal(actions[0], actions[1]) and np.array_equal(actions[0], actions[2])
    after = agent.state_dict()
    for name in ("explore_generator", "update_generator"):
        assert torch.equal(before[name], after[name])
    agent.act(observation, 0, explore=True)
    after = agent.state_dict()
    assert not torch.equal(before["explore_generator"], after["explore_generator"])
    assert torch.equal(before["update_generator"], after["update_generator"])


def test_embeddings(make_agent, make_batch):
    batch = make_batch()
    phi = make_agent("mico-rev").embed(batch.obs)
    assert phi.shape == (12, 6) and not phi.requires_grad
    torch.testing.assert_close(phi.norm(dim=1), torch.ones(12))
    raw = make_agent("mico-rev", normalisation=False).embed(batch.obs)
    torch.testing.assert_close(raw / raw.norm(dim=1, keepdim=True), phi)
    assert not torch.allclose(raw.norm(dim=1), torch.ones(12))
    trunk = make_agent().embed(batch.obs)
    assert trunk.shape == (12, 8) and trunk.abs().max() < 1


def test_compile_is_asked_of_the_networks(make_agent, monkeypatch):
    """It is not run: the compiler takes a minute."""
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda network: compiled.append(network))  # noqa: PLW0108
    make_agent()
    assert compiled == []
    parts = make_agent(compile=True).parts
    assert compiled == [parts.encoder, parts.policy, parts.critic, parts.target]
    parts = make_agent("simsr-rev", compile=True).parts
    assert compiled[-1] is parts.objective


def test_options_reach_the_objective(make_agent):
    objective = make_agent("mico-rev", beta=0.3, objective_hidden=9, normalisation=False)
    objective = objective.parts.objective
    assert (objective.beta, objective.normalisation) == (0.3, False)
    assert objective.psi.layers[0].out_features == 9


def test_target_starts_as_the_critic_and_follows_at_its_rate(make_agent, make_batch):
    agent = make_agent(target_rate=0.25)
    parts = agent.parts
    slow = [*parts.readouts.of("target"), *parts.target.parameters()]
    fast = [*parts.readouts.of("critic"), *parts.critic.parameters()]
    assert all(map(torch.equal, slow, fast))
    before = [p.detach().clone() for p in slow]
    agent.learn(make_batch(), 0)
    for old, new, critic in zip(before, slow, fast, strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * critic.detach())


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (None, {"obs": torch.zeros(12, 6, 20, 21)}, "obs must be torch.uint8 .* torch.float32"),
        (None, {"next_obs": torch.zeros(12, 6, 20, 20, dtype=torch.uint8)}, "next_obs must be"),
        (None, {"action": torch.zeros(12, 3)}, r"action must be floats \[12, 2\], got"),
        (None, {"reward": torch.zeros(12, 1)}, r"reward must be floats \[12\], got"),
        (None, {"discount": torch.zeros(11)}, r"discount must be floats \[12\], got"),
        (None, {"one_step": None}, "the batch has no one_step"),
        ("one_step", {"next_obs": torch.zeros(12, 6)}, "one_step.next_obs must be torch.uint8"),
        ("one_step", {"reward": torch.zeros(12, 1)}, r"one_step.reward must be floats \[12\]"),
        ("window", {"obs": torch.zeros(5, 6)}, r"window.obs must be torch.uint8 \[12, 6, 20, 21"),
        ("window", {"next_obs": torch.zeros(12, 6)}, "window.next_obs must be torch.uint8"),
        ("window", {"action": torch.zeros(12, 3, 1)}, "window.action must be floats"),
    ],
)
def test_batches_of_other_shapes_are_refused(make_agent, make_batch, part, change, message):
    batch = make_batch()
    change = {part: getattr(batch, part)._replace(**change)} if part else change
    with pytest.raises(ValueError, match=message):
        make_agent("mico", transition="one_step").learn(batch._replace(**change), 0)


@pytest.mark.parametrize("mode", ["joint", "alternating", "balanced"])
@pytest.mark.parametrize(
    "method", ["drqv2", "simsr-rev", "energy-rev-full", "dbc", "deepmdp", "taco"]
)
def test_half_precision_of_the_networks_keeps_losses_close(
    make_agent, make_batch, monkeypatch, method, mode
):
    """Networks in bfloat16, which processors without such units emulate; the rest in float32."""
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "avx512_bf16")
    plain, mixed = make_agent(method, mode), make_agent(method, mode, precision="bfloat16")
    exact = plain.learn(make_batch(), 0)
    rough = mixed.learn(make_batch(), 0)
    kept = mixed.state_dict()
    tensors = [t for part in kept["networks"].values() for t in part.values()]
    moments = [m for adam in kept["optimisers"].values() for m in adam["state"].values()]
    assert all(t.dtype == torch.float32 for t in tensors if t.is_floating_point())
    assert all(m["exp_avg"].dtype == torch.float32 for m in moments)
    for name, value in rough.items():
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(exact[name].item(), rel=0.1, abs=0.05), name
    assert rough["critic_loss"] != exact["critic_loss"]
    observation = make_batch().obs[0].numpy()
    assert mixed.act(observation, 5, explore=True).dtype == np.float32
    assert mixed.embed(make_batch().obs).dtype == torch.float32


@pytest.mark.parametrize("method", ["simsr-rev", "taco"])
@pytest.mark.parametrize("mode", ["joint", "alternating"])
def test_half_precision_keeps_no_casts(make_agent, make_batch, monkeypatch, method, mode):
    """Older PyTorch would reuse those made without gradient, and never train the encoder."""
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "avx512_bf16")
    agent = make_agent(method, mode, precision="bfloat16")
    kept, encoder = [], agent.parts.encoder
    encoder.register_forward_hook(lambda *_: kept.append(torch.is_autocast_cache_enabled()))
    agent.learn(make_batch(), 0)
    assert len(kept) > 1 and not any(kept)


def test_bfloat16_is_refused_where_the_processor_lacks_it(make_agent, monkeypatch):
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "")
    with pytest.raises(ValueError, match="this processor has no instructions"):
        make_agent(precision="bfloat16")


def test_learns_which_action_is_right_for_a_vector(make_agent):
    """One-step problem: the reward is −|a − x|², so the best action is x."""
    agent = make_agent(
        shape=VECTOR, learning_rate=1e-3, hidden=64, noise_start=0.3, noise_end=0.3, seed=2
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(400):
        x = 1.6 * torch.rand(128, 5, generator=generator) - 0.8
        action = 2 * torch.rand(128, 2, generator=generator) - 1
        reward = -(action - x[:, :2]).square().sum(dim=1)
        agent.learn(Batch(x, action, reward, torch.zeros(128), x), 0)
    x = 1.6 * torch.rand(100, 5, generator=generator) - 0.8
    chosen = np.stack([agent.act(row.numpy(), 0, explore=False) for row in x])
    assert np.abs(chosen - x[:, :2].numpy()).mean() < 0.12


@pytest.mark.parametrize("mode", ["joint", "alternating"])
def test_learns_from_pixels_with_an_objective(make_agent, mode):
    """Bright images want the action (1, −1), dark ones (−1, 1)."""
    options = {"learning_rate": 1e-3, "noise_start": 0.3, "noise_end": 0.3}
    agent = make_agent("simsr-rev", mode, shape=(3, 17, 17), seed=1, **options)
    generator = torch.Generator().manual_seed(0)

    def images(count):
        bright = torch.rand(count, generator=generator) < 0.5
        noise = torch.randint(0, 128, (count, 3, 17, 17), generator=generator)
        return bright, (noise + 128 * bright[:, None, None, None]).to(torch.uint8)

    for _ in range(150):
        bright, obs = images(64)
        action = 2 * torch.rand(64, 2, generator=generator) - 1
        sign = torch.where(bright, 1.0, -1.0)
        reward = sign * (action[:, 0] - action[:, 1])
        agent.learn(Batch(obs, action, reward, torch.zeros(64), obs), 0)
    bright, obs = images(40)
    chosen = np.stack([agent.act(image.numpy(), 0, explore=False) for image in obs])
    sign = np.where(bright.numpy(), 1, -1)
    assert (chosen[:, 0] * sign > 0.5).all() and (chosen[:, 1] * sign < -0.5).all()


@pytest.mark.parametrize("shape", [(6, 20, 21), VECTOR])
def test_an_objective_leaves_the_other_networks_as_they_begin(make_agent, shape):
    plain, other = make_agent("drqv2", shape=shape), make_agent("simsr-rev", shape=shape)
    for name in ("encoder", "policy", "critic", "target"):
        theirs = plain.parts.modules()[name].state_dict()
        for key, value in other.parts.modules()[name].state_dict().items():
            assert torch.equal(value, theirs[key]), (name, key)
    for name in ("critic", "actor", "target"):
        for mine, his in zip(*(a.parts.readouts.of(name) for a in (plain, other)), strict=True):
            assert torch.equal(mine, his), name


# Which part of an update changes which parameters


MODES = ["joint", "alternating", "balanced"]
WITH_C = [m for m in OBJECTIVES if "-rev" in m and not m.endswith("no-c")]
WITHOUT_HEADS = ["mico", "simsr", "energy", "mico-rev-no-sa", "simsr-rev-no-sa"]


def all_parameters(agent):
    return [p for part in agent.parts.modules().values() for p in part.parameters()]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["drqv2", *OBJECTIVES])
def test_every_parameter_is_in_one_optimiser_and_the_targets_in_none(make_agent, method, mode):
    agent = make_agent(method, mode)
    count = Counter(
        id(parameter)
        for adam in agent.optimisers.values()
        for group in adam.param_groups
        for parameter in group["params"]
    )
    parts = agent.parts
    encoder = {id(p) for p in [*parts.encoder.parameters(), *parts.tokens.parameters()]}
    target = {id(p) for p in [*agent.parts.readouts.of("target"), *agent.parts.target.parameters()]}
    twice = method != "drqv2" and mode == "alternating"
    for parameter in all_parameters(agent):
        wanted = 0 if id(parameter) in target else 1
        if id(parameter) in encoder and twice:
            wanted = 2
        assert count[id(parameter)] == wanted
        assert parameter.requires_grad == (id(parameter) not in target)
    assert len(count) == len(all_parameters(agent)) - len(target)


def test_optimisers_have_their_learning_rates(make_agent):
    rates = {"learning_rate": 1e-3, "objective_learning_rate": 2e-3}
    rates |= {"coefficient_learning_rate": 3e-3}
    joint = make_agent("mico-rev", "joint", **rates).optimisers
    found = {name: [group["lr"] for group in adam.param_groups] for name, adam in joint.items()}
    assert found == {"critic": [1e-3, 2e-3], "actor": [1e-3], "coefficient": [3e-3]}
    apart = make_agent("mico-rev", "alternating", **rates).optimisers
    found = {name: adam.param_groups[0]["lr"] for name, adam in apart.items()}
    assert found == {"critic": 1e-3, "actor": 1e-3, "objective": 2e-3, "coefficient": 3e-3}


def critic_step(agent, batch):
    """The critic's step alone, as alternating mode makes it."""
    with torch.no_grad():
        actor, target = agent.read(agent.encode(batch.next_obs), "actor", "target")
    target_q, _ = agent.targets(batch, actor, target, 0.2)
    return agent.critic_step(batch, agent.encode(batch.obs), target_q)


@pytest.mark.parametrize("method", ["drqv2", "taco", *OBJECTIVES])
def test_critic_step_alone_trains_encoder_and_critic(make_agent, make_batch, changed, method):
    agent = make_agent(method, "alternating")
    wanted = {"encoder", "critic"} | ({"tokens"} if method == "taco" else set())
    assert changed(agent, lambda: critic_step(agent, make_batch())) == wanted


@pytest.mark.parametrize("mode", ["joint", "balanced"])
@pytest.mark.parametrize("method", ["taco", *OBJECTIVES])
def test_shared_critic_step_trains_everything_of_the_objective(
    make_agent, make_batch, changed, monkeypatch, method, mode
):
    agent = make_agent(method, mode)
    monkeypatch.setattr(agent, "actor_step", lambda *_: {})
    monkeypatch.setattr(agent.parts, "move_target", lambda _: None)
    wanted = {"encoder", "critic", "projection"} | ({"tokens"} if method == "taco" else set())
    wanted |= set() if method in WITHOUT_HEADS else {"heads"}
    wanted |= {"raw_c"} if method in WITH_C else set()
    assert changed(agent, lambda: agent.learn(make_batch(), 0)) == wanted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["drqv2", "simsr-rev", "taco"])
def test_actor_step_trains_the_actor_and_leaves_no_gradient_elsewhere(
    make_agent, make_batch, changed, method, mode
):
    agent = make_agent(method, mode)
    handed_over, step = [], agent.actor_step
    agent.actor_step = lambda features, _: handed_over.append(features) or {}
    agent.learn(make_batch(), 0)
    assert not handed_over[0].requires_grad
    for parameter in all_parameters(agent):
        parameter.grad = None
    assert changed(agent, lambda: step(handed_over[0], 0.2)) == {"actor"}
    actor = {id(p) for p in [*agent.parts.readouts.of("actor"), *agent.parts.policy.parameters()]}
    for parameter in all_parameters(agent):
        assert (parameter.grad is not None) == (id(parameter) in actor)
    read = [*agent.parts.critic.parameters(), *agent.parts.tokens.parameters()]
    assert all(p.requires_grad for p in read)


@pytest.mark.parametrize("method", OBJECTIVES)
def test_objective_step_trains_phi_psi_and_c(make_agent, make_batch, changed, method):
    agent = make_agent(method, "alternating")
    wanted = {"encoder", "projection"}
    wanted |= set() if method in WITHOUT_HEADS else {"heads"}
    wanted |= {"raw_c"} if method in WITH_C else set()
    step = agent.objective_step
    assert changed(agent, lambda: step(make_batch(), agent.parts.objective, 0.2)) == wanted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("method", "own"), [("mico-rev", "raw_c"), ("taco", "tokens")])
def test_whole_update_changes_everything(make_agent, make_batch, changed, method, mode, own):
    agent = make_agent(method, mode)
    everything = {"encoder", "actor", "critic", "target", "projection", "heads", own}
    assert changed(agent, lambda: agent.learn(make_batch(), 0)) == everything


def test_acting_and_embedding_change_nothing(make_agent, make_batch, changed):
    agent = make_agent("mico-rev")
    batch = make_batch()

    def use():
        for step in range(6):
            agent.act(batch.obs[0].numpy(), step, explore=True)
            agent.act(batch.obs[0].numpy(), step, explore=False)
        agent.embed(batch.obs)

    assert changed(agent, use) == set()
    assert all(p.grad is None for p in all_parameters(agent))


# Balanced mode, the objective's say, the policy's actions, and the actor's penalty


SHARE = "objective/gradient_share"


def encoder_gradient(agent):
    return torch.cat([p.grad.flatten() for p in agent.parts.encoder.parameters()])


def naive_balanced(agent, batch, weight):
    """The encoder's gradient in balanced mode, from two passes that know nothing of each other."""
    parts, found = agent.parts, {}
    for name in ("critic", "projection"):
        features = parts.encoder(batch.obs)
        leaf = features.detach().requires_grad_()
        (read,) = parts.readouts(leaf, name)
        with torch.no_grad():
            next_features = parts.encoder(batch.next_obs)
            (next_z,) = parts.readouts(next_features, "projection")
            action = parts.policy(parts.readouts(next_features, "actor")[0])
            q = torch.minimum(*parts.target(parts.readouts(next_features, "target")[0], action))
            target = batch.reward + batch.discount * q
        if name == "critic":
            values = parts.critic(read, batch.action)
            loss = sum(((value - target) ** 2).mean() for value in values)
        else:
            out = parts.objective(read, batch.action, batch.reward, batch.discount, next_z)
            loss = out.representation_loss
        found[name] = (features, *torch.autograd.grad(loss, leaf))
    features, critic = found["critic"]
    _, objective = found["projection"]
    mixed = critic + weight * objective * critic.norm() / objective.norm()
    gradients = torch.autograd.grad(features, list(parts.encoder.parameters()), mixed)
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_balanced_is_the_mixture_at_the_features(make_agent, make_batch, weight):
    options = {"objective_weight": weight, "noise_start": 0.0, "noise_end": 0.0}
    agent = make_agent("simsr-rev", "balanced", **options)
    expected = naive_balanced(agent, make_batch(), weight)
    metrics = agent.learn(make_batch(), 0, with_metrics=True)
    torch.testing.assert_close(encoder_gradient(agent), expected, rtol=1e-4, atol=1e-6)
    assert metrics[SHARE].item() == pytest.approx(weight / (1 + weight), rel=1e-5)


@pytest.mark.parametrize("method", ["simsr-rev", "simsr-rev-full", "energy-rev-full"])
def test_the_share_does_not_depend_on_the_rewards_unit(make_agent, make_batch, method):
    """× 100 leaves it where it was in balanced mode; in joint mode the critic takes it all."""
    shares = {}
    for mode in ("balanced", "joint"):
        for factor in (1.0, 100.0):
            batch = make_batch()
            batch = batch._replace(reward=factor * batch.reward)
            metrics = make_agent(method, mode).learn(batch, 0, with_metrics=True)
            shares[mode, factor] = metrics[SHARE].item()
    assert shares["balanced", 1.0] == pytest.approx(0.5, rel=1e-5)
    assert shares["balanced", 100.0] == pytest.approx(0.5, rel=1e-5)
    assert shares["joint", 100.0] < 0.6 * shares["joint", 1.0]


def test_metrics_change_nothing_that_is_learned(make_agent, make_batch):
    for mode in ("joint", "alternating", "balanced"):
        agents = [make_agent("energy-rev-full", mode) for _ in range(2)]
        for agent, wanted in zip(agents, (False, True), strict=True):
            for step in range(3):
                agent.learn(make_batch(step), step, with_metrics=wanted)
        one, two = (torch.cat([p.flatten() for p in a.parts.encoder.parameters()]) for a in agents)
        assert torch.equal(one, two)


def test_alternating_share_is_of_the_two_steps(make_agent, make_batch):
    agent = make_agent("simsr-rev", "alternating")
    places = []

    def place():
        flat = [p.detach().flatten() for p in agent.parts.encoder.parameters()]
        places.append(torch.cat(flat).clone())

    place()
    actor_step, move = agent.actor_step, agent.parts.move_target
    agent.actor_step = lambda *args: (place(), actor_step(*args))[1]
    agent.parts.move_target = lambda rate: (place(), move(rate))[1]
    share = agent.learn(make_batch(), 0, with_metrics=True)[SHARE].item()
    critic, objective = ((b - a).norm().item() for a, b in pairwise(places))
    assert share == pytest.approx(objective / (critic + objective), rel=1e-4)
    assert 0.05 < share < 0.95


def test_the_norm_at_the_features_needs_no_features():
    g = torch.Generator().manual_seed(0)
    gradient = torch.randn(7, 5, generator=g)
    weight = torch.randn(5, 40, generator=g)
    assert feature_norm(gradient, weight).item() == pytest.approx((gradient @ weight).norm().item())
    assert feature_norm(torch.zeros(7, 5), weight) == 0
    assert StepSizes(None).share() == {}


@pytest.mark.parametrize(
    ("critic", "objective", "factor"),
    [(6.0, 2.0, 1.5), (0.0, 2.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1e9, 1e-38, 0.0)],
)
def test_the_factor_is_finite_whatever_the_lengths(critic, objective, factor):
    assert balance(torch.tensor(critic), torch.tensor(objective), 0.5) == factor


def test_an_objective_without_a_gradient_leaves_the_encoder_to_the_critic(make_agent, make_batch):
    """Equal observations and rewards: every distance is right already."""
    batch = make_batch()
    images = batch.obs[:1].expand_as(batch.obs).contiguous()
    batch = batch._replace(obs=images, next_obs=images, reward=0 * batch.reward + 3)
    batch = batch._replace(action=0 * batch.action)
    agent = make_agent("simsr", "balanced")
    metrics = agent.learn(batch, 0, with_metrics=True)
    assert metrics[SHARE] == 0
    assert all(torch.isfinite(p).all() for p in agent.parts.encoder.parameters())


@pytest.mark.parametrize("transition", ["n_step", "one_step"])
@pytest.mark.parametrize("mode", ["joint", "alternating", "balanced"])
@pytest.mark.parametrize("method", ["simsr-rev-full", "mico-rev-pairs"])
def test_the_objective_gets_the_current_policys_actions(
    make_agent, make_batch, monkeypatch, method, mode, transition
):
    """Drawn as the critic's target actions are: mean plus noise clipped at noise_clip."""
    agent = make_agent(method, mode, transition=transition, noise_clip=0.05)
    batch = make_batch(one_step=True)
    parts, forward, seen = agent.parts, agent.parts.objective.forward, {}
    following = batch.one_step.next_obs if transition == "one_step" else batch.next_obs
    images = batch.obs if method == "simsr-rev-full" else following

    def spy(*args, **actions):
        with torch.no_grad():
            (read,) = parts.readouts(parts.encoder(images), "actor")
            seen["mean"] = parts.policy(read)
        seen.update(actions)
        return forward(*args, **actions)

    monkeypatch.setattr(parts.objective, "forward", spy)
    passes = []
    parts.encoder.register_forward_hook(lambda *_: passes.append(1))
    agent.learn(batch, 0)
    (name,) = parts.objective.policy_actions
    gap = (seen[name] - seen["mean"]).abs()
    assert not seen[name].requires_grad
    assert 0 < gap.max() <= 0.05 + 1e-6
    expected = {"n_step": 2, "one_step": 3}[transition] if mode != "alternating" else 4
    assert len(passes) - 1 == expected  # one of them is this test's own


def test_actions_that_no_objective_asks_for_are_not_drawn(make_agent, make_batch):
    """Runs of the other methods keep their random numbers."""
    states = []
    for method in ("drqv2", "simsr-rev", "simsr-rev-full"):
        agent = make_agent(method, "joint")
        agent.learn(make_batch(), 0)
        states.append(agent._update_generator.get_state())
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[1], states[2])


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_the_penalty_is_on_the_actors_output_before_the_tanh(make_agent, make_batch, penalty):
    agent = make_agent(action_penalty=penalty)
    parts, batch = agent.parts, make_batch()
    features = parts.encoder(batch.obs).detach()
    noise = torch.Generator()
    noise.set_state(agent._update_generator.get_state())
    logits = parts.policy.logits(parts.readouts(features, "actor")[0])
    action = noisy_action(torch.tanh(logits), 0.2, noise, agent.settings.noise_clip)
    q = torch.minimum(*parts.critic(parts.readouts(features, "critic")[0], action))
    loss = -q.mean() + penalty * (logits**2).mean()
    expected = torch.autograd.grad(loss, list(parts.policy.parameters()))
    metrics = agent.actor_step(features, 0.2)
    for parameter, gradient in zip(parts.policy.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert metrics["actor_loss"].item() == pytest.approx(-q.mean().item(), rel=1e-5)
    assert ("actor_logits" in metrics) == (penalty > 0)


@pytest.mark.parametrize(
    ("side", "strides", "size"),
    [(84, (2, 1, 1, 1), 32 * 35 * 35), (64, (2, 2, 1, 1), 32 * 11 * 11), (20, (2, 1, 1, 1), 288)],
)
def test_size_of_the_features(side, strides, size):
    assert PixelEncoder((9, side, side), 32, strides).size == size


def test_features_are_the_convolutions_of_scaled_pixels_row_by_row():
    encoder = PixelEncoder((3, 20, 22), 4, (2, 1, 1, 1))
    pixels = torch.randint(0, 256, (5, 3, 20, 22), dtype=torch.uint8)
    kept = pixels.clone()
    x = pixels.double() / 255 - 0.5
    for layer, stride in zip(encoder.convolutions, (2, 1, 1, 1), strict=True):
        weight, bias = layer.weight.double(), layer.bias.double()
        x = functional.conv2d(x, weight, bias, stride=stride).relu()
    expected = torch.stack([x[:, c] for c in range(4)], dim=3).reshape(5, -1)
    torch.testing.assert_close(encoder(pixels), expected.float(), rtol=1e-4, atol=1e-5)
    assert torch.equal(pixels, kept)


@pytest.mark.parametrize("shape", [(5, 3, 20, 22), (1, 9, 7, 7), (0, 3, 4, 4)])
def test_scaled_pixels_are_those_of_plain_arithmetic(shape):
    images = torch.randint(0, 256, shape, dtype=torch.uint8)
    images.view(-1)[:256] = torch.arange(min(256, images.numel()), dtype=torch.uint8)
    for dtype in (torch.float32, torch.bfloat16):
        expected = images.float().div(255).sub(0.5).to(dtype)
        scaled = scaled_pixels(images, dtype)
        assert scaled.dtype == dtype and torch.equal(scaled, expected)
        assert scaled.is_contiguous(memory_format=torch.channels_last)
        transposed = images.transpose(2, 3)
        assert torch.equal(scaled_pixels(transposed, dtype), expected.transpose(2, 3))


def test_flattening_copies_nothing():
    encoder = PixelEncoder((3, 20, 20), 4, (2, 1, 1, 1))
    features = encoder(torch.zeros(5, 3, 20, 20, dtype=torch.uint8))
    assert features._is_view() and features.is_contiguous()


def test_convolutions_start_orthogonal_with_relu_gain():
    for layer in PixelEncoder((9, 20, 20), 32, (2, 1, 1, 1)).convolutions:
        flat = layer.weight.detach().flatten(1)
        torch.testing.assert_close(flat @ flat.T, 2 * torch.eye(32), rtol=1e-4, atol=1e-4)
        assert not layer.bias.any()


def test_too_small_images_are_refused():
    with pytest.raises(ValueError, match=r"images of 12x40 are too small .* \(2, 1, 1, 1\)"):
        PixelEncoder((3, 12, 40), 4, (2, 1, 1, 1))


def test_vector_encoder_has_two_hidden_layers_with_relu():
    encoder = VectorEncoder(3, 7)
    x = torch.randn(5, 3)
    first, second = encoder.layers
    hidden = functional.linear(x, first.weight, first.bias).relu()
    expected = functional.linear(hidden, second.weight, second.bias).relu()
    torch.testing.assert_close(encoder(x), expected)
    assert encoder.size == 7


def test_policy_and_values_by_hand():
    policy, critic = Policy(6, 8, 2), TwinQ(6, 8, 2)
    readout, action = torch.randn(5, 6), torch.randn(5, 2)

    def mlp(layers, x):
        for layer in layers[:2]:
            x = functional.linear(x, layer.weight, layer.bias).relu()
        return functional.linear(x, layers[2].weight, layers[2].bias)

    centred = readout - readout.mean(dim=1, keepdim=True)
    trunk = (centred / (readout.var(dim=1, correction=0, keepdim=True) + 1e-5).sqrt()).tanh()
    torch.testing.assert_close(policy(readout), mlp(policy.layers, trunk).tanh())
    x = torch.cat([trunk, action], dim=1)
    q1, q2 = critic(readout, action)
    torch.testing.assert_close(q1, mlp(critic.q1, x)[:, 0])
    torch.testing.assert_close(q2, mlp(critic.q2, x)[:, 0])
    assert not torch.allclose(q1, q2)


def test_noise_has_the_deviation_and_is_clipped():
    generator = torch.Generator().manual_seed(0)
    mean = torch.zeros(20_000, 1)
    noise = noisy_action(mean, 0.2, generator)
    assert noise.std().item() == pytest.approx(0.2, rel=0.03)
    assert noise.abs().max() > 0.6
    clipped = noisy_action(mean, 0.2, generator, clip=0.3)
    assert clipped.abs().max().item() == pytest.approx(0.3)
    assert (clipped.abs() < 0.29).float().mean().item() == pytest.approx(0.853, abs=0.01)


def test_clamped_actions_pass_their_gradient_through():
    generator = torch.Generator().manual_seed(0)
    mean = torch.full((1000, 1), 0.99, requires_grad=True)
    action = noisy_action(mean, 0.5, generator, clip=0.3)
    assert action.max().item() == pytest.approx(1 - 1e-6, abs=1e-7) and action.max() < 1
    low = noisy_action(-mean, 0.5, generator)
    assert low.min().item() == pytest.approx(-1 + 1e-6, abs=1e-7) and low.min() > -1
    action.sum().backward()
    assert torch.equal(mean.grad, torch.ones_like(mean))


@pytest.mark.parametrize(
    ("step", "value"), [(-5, 1.0), (0, 1.0), (50, 0.55), (100, 0.1), (1000, 0.1)]
)
def test_schedule(step, value):
    assert linear_schedule(1.0, 0.1, 100, step) == pytest.approx(value)
