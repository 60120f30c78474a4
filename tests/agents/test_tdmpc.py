"""TD-MPC: its losses, acting, learning, states."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.agents.tdmpc import ACTION, TINY, assert_same_state, random_sequences, tiny_agent
from tests.replay import play

from revbis.agents import TDMPCSettings
from revbis.agents.tdmpc import (
    Predictions,
    Targets,
    importance_weights,
    policy_loss,
    sequence_losses,
)
from revbis.agents.tdmpc_planner import plan
from revbis.replay import PrioritisedReplay, Replay, Sequences

# The losses, against loops over single steps, and the gradients of a whole update


def naive_losses(predicted, target, decay):
    """Each sequence on its own, step by step, as the paper writes the sums."""
    steps, batch = target.reward.shape
    rows = []
    for b in range(batch):
        sums = [0.0, 0.0, 0.0, 0.0]
        for t in range(steps):
            errors = [q[t, b] - target.q[t, b] for q in (predicted.q1, predicted.q2)]
            away = predicted.z[t, b] - target.z[t, b]
            terms = (
                sum(x * x for x in away) / len(away),
                (predicted.reward[t, b] - target.reward[t, b]) ** 2,
                errors[0] ** 2 + errors[1] ** 2,
                abs(errors[0]) + abs(errors[1]),
            )
            sums = [total + decay**t * term for total, term in zip(sums, terms, strict=True)]
        rows.append([min(total, torch.tensor(1e4)) for total in sums])
    return torch.tensor(rows).T


@pytest.mark.parametrize("scale", [1.0, 300.0])  # with the second, some are cut at 10,000
def test_losses_are_the_naive_ones(scale):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return scale * torch.randn(4, 3, *shape, generator=generator)

    predicted = Predictions(draw(5), draw(), draw(), draw())
    target = Targets(draw(5), draw(), draw())
    got = torch.stack(sequence_losses(predicted, target, 0.5))
    wanted = naive_losses(predicted, target, 0.5)
    assert torch.allclose(got, wanted, rtol=1e-5)
    assert ((wanted == 1e4).any() and (wanted < 1e4).any()) == (scale == 300)


def test_priorities_have_no_gradient():
    q = torch.ones(1, 1, requires_grad=True)
    one = torch.zeros(1, 1)
    losses = sequence_losses(
        Predictions(one[..., None], one, q, q), Targets(one[..., None], one, one), 0.5
    )
    assert losses.value.requires_grad and not losses.priority.requires_grad


def test_policy_loss_by_hand():
    """Means 2 and 5; −(2 + 0.5 · 5)."""
    assert policy_loss(torch.tensor([[1.0, 3.0], [4.0, 6.0]]), 0.5).item() == -4.5


def test_importance_weights_by_hand():
    """Half as likely, and an exponent of 0.5: √2 times the weight; the largest is 1."""
    weights = importance_weights(torch.tensor([0.2, 0.4, 0.2]), 0.5)
    assert weights.tolist() == pytest.approx([1.0, 1 / math.sqrt(2), 1.0])
    assert importance_weights(torch.tensor([0.2, 0.4]), 0.0).tolist() == [1, 1]


def naive_update(agent, sequences, probability, discount):
    """An update's losses, transcribed: one step after the other, nothing taken together."""
    s, model, target = agent.settings, agent.model, agent.target
    steps, batch = s.horizon, len(sequences.obs)
    noise = 0.05 * torch.randn(steps * batch, agent.action_size, generator=agent._update_generator)
    noise = noise.clamp(-0.3, 0.3).reshape(steps, batch, -1)
    z = model.encoder(sequences.obs[:, 0])
    latents, consistency, reward_loss, value_loss, priority = [z], 0, 0, 0, 0
    for t in range(steps):
        action, reward = sequences.action[:, t], sequences.reward[:, t]
        q1, q2 = model.values(z, action)
        pair = torch.cat([z, action], dim=1)
        z, predicted = model.dynamics(pair), model.reward(pair).squeeze(1)
        latents.append(z)
        with torch.no_grad():
            following = sequences.obs[:, t + 1]
            next_z = model.encoder(following)
            next_action = (torch.tanh(model.actor(next_z)) + noise[t]).clamp(-1 + 1e-6, 1 - 1e-6)
            next_value = torch.min(*target.values(next_z, next_action))
            wanted = reward + discount * sequences.discount[:, t] * next_value
            wanted_z = target.encoder(following)
        rho = s.loss_decay**t
        consistency = consistency + rho * (z - wanted_z).pow(2).mean(dim=1)
        reward_loss = reward_loss + rho * (predicted - reward).pow(2)
        value_loss = value_loss + rho * ((q1 - wanted).pow(2) + (q2 - wanted).pow(2))
        priority = priority + rho * ((q1 - wanted).abs() + (q2 - wanted).abs())
    weight = (batch * probability.float()) ** -s.importance_exponent
    weight = weight / weight.max()
    total = 2 * consistency + 0.5 * reward_loss + 0.1 * value_loss
    return (total * weight).mean(), priority, latents


@pytest.mark.parametrize("shape", [(5,), (6, 31, 31)])
def test_an_update_has_the_gradients_of_the_transcription(shape):
    options = {"gradient_clip": 1e9, "strides": (2, 2, 1, 1)}
    fast, slow = (tiny_agent(shape, **options) for _ in range(2))
    sequences, probability = random_sequences(shape)
    loss, priority, latents = naive_update(slow, sequences, probability, 0.9)
    (loss / TINY["horizon"]).backward()
    metrics, got = fast.learn(sequences, probability, 0.9, step=3)
    assert metrics["model_loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(got, priority, rtol=1e-4, atol=1e-6)
    pairs = zip(fast.model.learned(), slow.model.learned(), strict=True)
    for number, (mine, wanted) in enumerate(pairs):
        assert torch.allclose(mine.grad, wanted.grad, rtol=1e-3, atol=1e-6), number
    norm = torch.stack([p.grad.norm() for p in slow.model.learned()]).norm()
    assert metrics["gradient_norm"].item() == pytest.approx(norm.item(), rel=1e-4)
    # The policy's loss comes after the model's step, at the latent states from before it.
    slow.model.load_state_dict(
        {k: v for k, v in fast.model.state_dict().items() if not k.startswith("actor")}
        | {k: v for k, v in slow.model.state_dict().items() if k.startswith("actor")}
    )
    total, count = 0, len(latents) * len(latents[0])
    noise = 0.05 * torch.randn(count, 2, generator=slow._update_generator)
    noise = noise.clamp(-0.3, 0.3).reshape(len(latents), -1, 2)
    for t, latent in enumerate(latents):
        z = latent.detach()
        action = torch.tanh(slow.model.actor(z)) + noise[t]
        value = torch.min(*slow.model.values(z, action.clamp(-1 + 1e-6, 1 - 1e-6)))
        total = total - 0.5**t * value.mean()
    assert metrics["actor_loss"].item() == pytest.approx(total.item(), rel=1e-3, abs=1e-5)


# TD-MPC as an agent: seeds, resuming, evaluation that leaves training alone, learning


SEEN = np.linspace(-1, 1, 5, dtype=np.float32)


def small_replay(shape=(5,), **options):
    pixels = len(shape) == 3
    settings = {"stack": 2 if pixels else 1, "n_step": 1, "shift": 1, "discount": 0.9} | options
    replay = PrioritisedReplay(60, (3, *shape[1:]) if pixels else shape, ACTION, **settings)
    play([replay], np.random.default_rng(0), 50, (3, *shape[1:]) if pixels else shape, 0.1)
    return replay


@pytest.mark.parametrize("shape", [(5,), (6, 31, 33)])
def test_equal_seeds_learn_and_act_alike(shape):
    agents = [tiny_agent(shape, seed, random=False) for seed in (1, 1, 2)]
    seen = random_sequences(shape)[0].obs[0, 0].numpy()
    results = []
    for agent in agents:
        replay = small_replay(shape)
        losses = [agent.update(replay, step)["model_loss"].item() for step in range(4)]
        results.append((losses, [agent.act(seen, 9, explore=True).tolist() for _ in range(3)]))
    assert results[0] == results[1] != results[2]
    assert_same_state(agents[0].state_dict(), agents[1].state_dict())


def test_first_actions_are_uniform_and_all_are_in_range():
    agent = tiny_agent(explore_steps=500, noise_start=3.0)
    drawn = np.stack([agent.act(SEEN, step, explore=True) for step in range(500)])
    assert drawn.dtype == np.float32 and np.abs(drawn).max() <= 1
    assert np.abs(drawn.mean()) < 0.1 and np.abs(drawn.std() - 1 / np.sqrt(3)) < 0.05
    planned = np.stack([agent.act(SEEN, 500, explore=True) for _ in range(30)])
    assert np.abs(planned).max() <= 1


def test_schedules():
    agent = tiny_agent(horizon=5, horizon_steps=100, noise_steps=100)
    horizons = [agent.horizon(step) for step in (0, 24, 25, 50, 99, 100, 10**6)]
    assert horizons == [1, 1, 2, 3, 4, 5, 5]
    assert [agent.deviation(step) for step in (0, 50, 200)] == pytest.approx([0.5, 0.275, 0.05])


def test_evaluation_leaves_training_alone_in_the_middle_of_an_episode():
    """Actions and state after it are those of an agent that was not evaluated."""
    agents = [tiny_agent() for _ in range(2)]
    for agent in agents:
        agent.update(small_replay(), 10)
        agent.begin_episode()
        for _ in range(3):
            agent.act(SEEN, 30, explore=True)
    for _ in range(2):
        agents[0].begin_episode()
        for _ in range(4):
            agents[0].act(-SEEN, 0, explore=False)
    assert_same_state(agents[0].state_dict(), agents[1].state_dict())
    later = [[agent.act(SEEN, 31, explore=True) for _ in range(3)] for agent in agents]
    np.testing.assert_array_equal(*later)


def test_evaluation_depends_on_networks_and_observations_alone():
    agent = tiny_agent()
    agent.update(small_replay(), 40)

    def episode():
        agent.begin_episode()
        return [agent.act(k * SEEN, 0, explore=False).tolist() for k in range(4)]

    first = episode()
    agent.act(SEEN, 50, explore=True)
    assert episode() == first
    other = tiny_agent()
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    agent, other = other, agent
    assert episode() == first


def test_evaluation_plans_as_far_as_the_last_update(monkeypatch):
    agent = tiny_agent()
    lengths = []

    def spy(model, z, mean, *others):
        lengths.append(len(mean))
        return plan(model, z, mean, *others)

    monkeypatch.setattr("revbis.agents.tdmpc.plan", spy)
    agent.act(SEEN, 0, explore=False)
    agent.update(small_replay(), TINY["horizon_steps"])
    agent.act(SEEN, 0, explore=False)
    assert lengths == [1, TINY["horizon"]]


def test_a_plan_is_kept_within_an_episode_and_forgotten_after_it():
    agent = tiny_agent()
    agent.act(SEEN, 100, explore=True)
    assert agent._plans[True].abs().max() > 0
    kept = agent._plans[True].clone()
    agent.begin_episode()
    assert torch.equal(agent._plans[True], kept)  # nobody has acted yet
    agent.act(SEEN, 0, explore=True)  # at random: nothing is planned
    assert agent._plans[True].abs().max() == 0


@pytest.mark.parametrize("shape", [(5,), (6, 31, 33)])
def test_a_restored_agent_goes_on_as_the_first(shape, tmp_path):
    """Stopped in the middle of an episode, through a file."""
    agent, replay = tiny_agent(shape), small_replay(shape)
    seen = random_sequences(shape)[0].obs[0, 0].numpy()
    agent.begin_episode()
    for step in range(3):
        agent.update(replay, step + 10)
        agent.act(seen, step + 10, explore=True)
    torch.save(agent.state_dict(), tmp_path / "agent.pt")
    other = tiny_agent(shape, seed=5, random=False)
    other.act(seen, 100, explore=True)
    other.load_state_dict(torch.load(tmp_path / "agent.pt", weights_only=True))
    assert_same_state(agent.state_dict(), other.state_dict())
    twin = small_replay(shape)
    twin.restore([replay.export(0, replay.written)], replay.state())
    for step in range(13, 16):
        assert_same_state(agent.update(replay, step), other.update(twin, step))
        actions = [each.act(seen, step, explore=True) for each in (agent, other)]
        np.testing.assert_array_equal(*actions)
    assert replay.state() == twin.state()
    assert_same_state(agent.state_dict(), other.state_dict())


def test_a_state_of_a_gpu_goes_on_alike_on_the_cpu():
    """There both generators have states of 16 bytes, their seed and their offset."""
    sequences, probability = random_sequences()
    resumed = []
    for offset in (0, 0, 1):
        there = torch.tensor([0] * 15 + [offset], dtype=torch.uint8)
        generators = {"explore_generator": there, "update_generator": there}
        agent = tiny_agent(seed=5)
        agent.load_state_dict(copy.deepcopy(tiny_agent().state_dict()) | generators)
        agent.learn(sequences, probability, 0.9, 10)
        resumed.append((agent.act(SEEN, 10, explore=True).tolist(), agent.state_dict()))
    assert_same_state(resumed[0], resumed[1])
    assert resumed[0][0] != resumed[2][0]


def test_priorities_follow_the_errors():
    agent, replay = tiny_agent(), small_replay()
    before = replay.state()["priorities"]
    agent.update(replay, 5)
    assert before is None and replay.state()["priorities"]["length"] == TINY["horizon"]
    chance = replay.sample_prioritised(500, TINY["horizon"], shift="image").probability
    assert len(chance.unique()) > 2


def test_nothing_is_learned_before_an_episode_is_as_long_as_the_horizon():
    agent = tiny_agent()
    replay = PrioritisedReplay(60, (5,), ACTION, stack=1, n_step=1)
    replay.begin(SEEN)
    replay.add(np.zeros(2), 0.0, 1.0, SEEN, last=False)
    before = copy.deepcopy(agent.state_dict())
    assert agent.update(replay, 5) == {}
    assert_same_state(before, agent.state_dict())


def test_metrics_and_targets():
    agent = tiny_agent()
    sequences, probability = random_sequences()
    ended = sequences._replace(discount=torch.zeros(6, 3))
    metrics, priority = agent.learn(ended, probability, 0.9, 20)
    assert metrics["critic_target_q"].item() == pytest.approx(sequences.reward.mean().item())
    assert metrics["batch_reward"] == sequences.reward.mean()
    assert (metrics["plan_horizon"].item(), metrics["actor_std"].item()) == (3, pytest.approx(0.05))
    for value in metrics.values():
        assert value.shape == () and not value.requires_grad and torch.isfinite(value)
    assert priority.shape == (6,)
    assert not any("objective" in name or name == "c" for name in metrics)


def test_every_parameter_is_in_one_optimiser_and_the_targets_move_every_second_update():
    agent = tiny_agent(target_rate=0.5)
    groups = [
        p for adam in agent.optimisers.values() for g in adam.param_groups for p in g["params"]
    ]
    assert sorted(map(id, groups)) == sorted(map(id, agent.model.parameters()))
    sequences, probability = random_sequences()

    def moved():
        before = [p.clone() for p in agent.target.parameters()]
        agent.learn(sequences, probability, 0.9, 7)
        return not all(map(torch.equal, before, agent.target.parameters()))

    assert [moved() for _ in range(4)] == [False, True, False, True]
    wanted = dict(agent.model.named_parameters())
    agent.target.follow(agent.model, 1.0)
    for name, parameter in agent.target.named_parameters():
        assert torch.allclose(parameter, wanted[name], atol=1e-6) and not parameter.requires_grad


def test_rewards_and_values_start_at_zero():
    agent = tiny_agent(random=False)
    z, action = torch.randn(4, 6), torch.randn(4, 2)
    assert agent.model.reward(torch.cat([z, action], dim=1)).abs().max() == 0
    assert agent.model.value(z, action).abs().max() == 0


@pytest.mark.parametrize("shape", [(5,), (6, 31, 33)])
def test_embeddings_are_latent_states(shape):
    agent, obs = tiny_agent(shape), random_sequences(shape)[0].obs[:, 0]
    z = agent.embed(obs)
    assert z.shape == (6, TINY["latent_dim"]) and torch.equal(z, agent.model.encoder(obs))
    distances = agent.distance(z, z[:2])
    wanted = (z[:, None] - z[None, :2]).square().sum(dim=2).sqrt()
    assert torch.allclose(distances, wanted, atol=1e-4) and not distances.requires_grad


def test_learns_which_action_is_right_for_a_vector():
    """One step: the reward is −|a − x|², so the best action is x."""
    agent = tiny_agent(
        seed=1, random=False, horizon=1, hidden=64, latent_dim=16, learning_rate=3e-3,
        samples=128, elites=16, iterations=5, temperature=10.0, noise_start=0.05,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    chance = torch.full((128,), 1 / 128)
    for step in range(300):
        x = 1.6 * torch.rand(128, 1, 5, generator=generator) - 0.8
        action = 2 * torch.rand(128, 1, 2, generator=generator) - 1
        reward = -(action - x[..., :2]).square().sum(dim=2)
        sequences = Sequences(torch.cat([x, x], dim=1), action, reward, torch.zeros(128, 1))
        agent.learn(sequences, chance, 0.9, step)
    x = 1.6 * torch.rand(40, 5, generator=generator) - 0.8
    chosen = np.stack([agent.act(row.numpy(), 0, explore=False) for row in x])
    assert np.abs(chosen - x[:, :2].numpy()).mean() < 0.15


def test_settings_out_of_range_are_refused():
    message = r"elites must be at most samples \+ policy_samples = 19, got 20"
    with pytest.raises(ValueError, match=message):
        TDMPCSettings(**TINY | {"elites": 20})
    with pytest.raises(ValueError, match=r"momentum must be at most 1, got 1\.5"):
        TDMPCSettings(**TINY | {"momentum": 1.5})


def test_images_too_small_are_refused():
    with pytest.raises(ValueError, match="images of 20x20 are too small for four convolutions"):
        TDMPCSettings().check((9, 20, 20))
    with pytest.raises(ValueError, match="use more pixels or smaller strides"):
        tiny_agent((6, 31, 9))
    TDMPCSettings().check((9, 84, 84))
    TDMPCSettings().check((17,))
    assert TDMPCSettings().activation_bytes((17,), 256) == 0
    assert TDMPCSettings().activation_bytes((9, 84, 84), 256) > 256 * 6 * 9 * 84 * 84


def test_what_it_cannot_learn_from_is_refused():
    agent = tiny_agent()
    sequences, probability = random_sequences()
    with pytest.raises(ValueError, match="needs a PrioritisedReplay, got Replay"):
        agent.update(Replay(20, (5,), ACTION), 0)
    with pytest.raises(ValueError, match=r"reward must be floats \[6, 3\], got"):
        agent.learn(sequences._replace(reward=torch.zeros(6, 2)), probability, 0.9, 0)
    for wrong in (probability[:3], probability > 0):
        with pytest.raises(ValueError, match=r"probability must be floats \[6\], got"):
            agent.learn(sequences, wrong, 0.9, 0)
    with pytest.raises(ValueError, match=r"observation must be float32 of shape \(5,\)"):
        agent.act(np.zeros(4, np.float32), 0, explore=False)


def test_states_of_others_are_refused():
    agent = tiny_agent()
    with pytest.raises(ValueError, match="the state's method must be 'tdmpc', got 'drqv2'"):
        agent.load_state_dict({"method": "drqv2"})
    with pytest.raises(ValueError, match="the state does not fit this agent"):
        agent.load_state_dict(tiny_agent(hidden=17).state_dict())
    state = agent.state_dict()
    for name, wrong in (("plan", torch.zeros(2, 7)), ("step", -1), ("discount", 2.0)):
        with pytest.raises(ValueError, match="the state does not fit this agent"):
            tiny_agent().load_state_dict(state | {name: wrong})
