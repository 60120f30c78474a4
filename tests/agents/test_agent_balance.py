"""Balanced mode, the objective's say, the policy's actions, and the actor's penalty."""

from itertools import pairwise

import pytest
import torch

from revbis.agents.drqv2 import StepSizes, balance, feature_norm, noisy_action

torch.set_num_threads(1)
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
