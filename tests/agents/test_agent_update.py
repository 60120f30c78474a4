import copy
import io

import numpy as np
import pytest
import torch

from revbis.agents import DrQV2, DrQV2Settings
from revbis.io import machine
from revbis.objectives import OBJECTIVES
from revbis.replay import Batch

torch.set_num_threads(1)
VECTOR = (5,)
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


def tensors(state):
    if isinstance(state, torch.Tensor):
        return [state]
    values = state.values() if isinstance(state, dict) else state
    return [t for v in values if isinstance(v, dict | list | torch.Tensor) for t in tensors(v)]


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


@pytest.mark.parametrize(("method", "mode"), CASES)
def test_training_goes_on_from_a_file_as_if_never_stopped(make_agent, make_batch, method, mode):
    agent = make_agent(method, mode)
    observation = make_batch().obs[0].numpy()
    for step in range(3):
        agent.learn(make_batch(step), step)
        agent.act(observation, 10, explore=True)
    file = io.BytesIO()
    torch.save(agent.state_dict(), file)
    file.seek(0)
    resumed = make_agent(method, mode, seed=7)
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
    metric = method not in ("drqv2", "taco", "zp", "deepmdp")
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
    assert np.abs(noisy - mean).max() > 0.3 - 0.05  # not clipped like the updates' noise
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
    ("change", "message"),
    [
        ({"obs": torch.zeros(12, 6, 20, 20, dtype=torch.uint8)}, r"obs must be torch.uint8 \[12"),
        ({"obs": torch.zeros(12, 6, 20, 21)}, "obs must be torch.uint8 .* got torch.float32"),
        ({"next_obs": torch.zeros(3, 6, 20, 21, dtype=torch.uint8)}, "next_obs must be"),
        (
            {"action": torch.zeros(12, 3)},
            r"action must be floats \[12, 2\], got",
        ),
        (
            {"reward": torch.zeros(12, 1)},
            r"reward must be floats \[12\], got",
        ),
        ({"discount": torch.zeros(11)}, r"discount must be floats \[12\], got"),
    ],
)
def test_batches_of_other_shapes_are_refused(make_agent, make_batch, change, message):
    with pytest.raises(ValueError, match=message):
        make_agent().learn(make_batch()._replace(**change), 0)


def test_one_step_parts_of_other_shapes_are_refused(make_agent, make_batch):
    agent = make_agent("mico", transition="one_step")
    with pytest.raises(ValueError, match="the batch has no one_step"):
        agent.learn(make_batch(one_step=False), 0)
    batch = make_batch()
    bad = batch.one_step._replace(reward=torch.zeros(12, 1))
    with pytest.raises(ValueError, match=r"one_step.reward must be floats \[12\]"):
        agent.learn(batch._replace(one_step=bad), 0)


def test_what_an_agent_cannot_be_made_of(make_agent):
    with pytest.raises(ValueError, match=r"observation_shape must be .* got \(3, 4\)"):
        make_agent(shape=(3, 4))
    with pytest.raises(ValueError, match="action_size must be at least 1, got 0"):
        DrQV2((3,), 0, DrQV2Settings(), seed=0)
    with pytest.raises(ValueError, match=r"observation must be uint8 of shape \(6, 20, 21\)"):
        make_agent().act(np.zeros((6, 20, 21)), 0, explore=False)


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
