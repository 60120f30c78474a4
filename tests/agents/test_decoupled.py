"""DrQ-v2's decoupled mode: critic and actor read φ, and the objective alone trains the encoder."""

import copy

import numpy as np
import pytest
import torch
from tests.agents.conftest import ACTION, PIXELS, VECTOR

from revbis.agents import TacoSettings
from revbis.agents.drqv2 import noisy_action

SHAPES = pytest.mark.parametrize("shape", [VECTOR, PIXELS])


def changed(agent, call):
    """The networks, and the parts of readouts, that a call changes."""
    before = copy.deepcopy(agent.state_dict()["networks"])
    call()
    after = agent.state_dict()["networks"]
    return {
        f"readouts.{key.rpartition('.')[2]}" if name == "readouts" else name
        for name in after
        for key in after[name]
        if not torch.equal(before[name][key], after[name][key])
    }


@SHAPES
@pytest.mark.parametrize("method", ["simsr-rev-full", "mico", "zp"])
def test_each_loss_trains_its_own_networks_only(make_agent, make_batch, shape, method):
    options = {"transition": "one_step"} if method == "zp" else {}
    agent = make_agent(method, "decoupled", shape, encoder_norm=True, **options)
    batch = make_batch(shape=shape)
    critics = {"policy", "critic", "readouts.critic", "readouts.actor"}
    assert changed(agent, lambda: agent.critic_and_actor(batch, 0.2)) == critics
    objective = agent.parts.objective
    of_objective = changed(agent, lambda: agent.objective_step(batch, objective, 0.2))
    assert {"encoder", "norm"} <= of_objective <= {"encoder", "norm", "objective"}


@SHAPES
def test_critic_and_actor_read_phi(make_agent, make_batch, shape):
    agent, batch = make_agent("simsr-rev", "decoupled", shape), make_batch(shape=shape)
    parts = agent.parts
    phi = agent.embed(batch.obs)
    assert torch.allclose(phi.norm(dim=1), torch.ones(len(phi)), atol=1e-5)
    with torch.no_grad():
        features = parts.encoder.body(batch.obs)
        projected = torch.nn.functional.linear(
            features, parts.encoder.projection.weight, parts.encoder.projection.bias
        )
        assert torch.allclose(phi, projected / projected.norm(dim=1, keepdim=True), atol=1e-5)
        assert parts.readouts.weights["critic"].shape == (8, 6)
        trunk = parts.critic.trunk(parts.readouts(phi, "critic")[0])
        mean = parts.policy(parts.readouts(phi, "actor")[0])
    found = agent.embeddings(batch.obs)
    assert torch.allclose(found["trunk"], trunk, atol=1e-6) and torch.equal(found["phi"], phi)
    acted = agent.act(batch.obs[0].numpy(), 0, explore=False)
    np.testing.assert_allclose(acted, mean[0], atol=1e-5)


def test_the_critics_target_is_of_phi(make_agent, make_batch):
    agent, batch = make_agent("simsr-rev", "decoupled", VECTOR), make_batch(shape=VECTOR)
    parts = agent.parts
    generator = torch.Generator().manual_seed(0)
    generator.set_state(agent._update_generator.get_state())
    with torch.no_grad():
        phi = agent.embed(batch.next_obs)
        mean = parts.policy(parts.readouts(phi, "actor")[0])
        action = noisy_action(mean, agent.deviation(7), generator, 0.3)
        values = parts.target(parts.readouts(phi, "target")[0], action)
        wanted = (batch.reward + batch.discount * torch.minimum(*values)).mean()
    metrics = agent.learn(batch, 7, with_metrics=True)
    assert torch.allclose(metrics["critic_target_q"], wanted)
    assert metrics["objective/representation_loss"].isfinite()
    assert "objective/gradient_share" not in metrics


def test_a_restored_agent_goes_on_as_the_first(make_agent, make_batch):
    first, again = (make_agent("simsr-rev-full", "decoupled", VECTOR, seed) for seed in (1, 2))
    first.learn(make_batch(shape=VECTOR), 0)
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    for agent in (first, again):
        agent.learn(make_batch(1, shape=VECTOR), 1)
    for name, network in first.state_dict()["networks"].items():
        for key, tensor in network.items():
            assert torch.equal(tensor, again.state_dict()["networks"][name][key])
    with pytest.raises(ValueError, match="the state's mode must be 'alternating', got 'decoupled'"):
        make_agent("simsr-rev-full", "alternating", VECTOR).load_state_dict(first.state_dict())


def test_without_objective_there_is_nothing_to_decouple(make_agent):
    plain, other = make_agent("drqv2", "joint", VECTOR), make_agent("drqv2", "decoupled", VECTOR)
    acted = [agent.act(np.ones(5, np.float32), 0, explore=False) for agent in (plain, other)]
    np.testing.assert_array_equal(*acted)
    assert acted[0].shape == (ACTION,)


def test_taco_has_no_such_mode():
    with pytest.raises(ValueError, match="mode decoupled is DrQ-v2's"):
        TacoSettings(mode="decoupled")
