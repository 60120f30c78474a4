"""Which part of an update changes which parameters."""

from collections import Counter

import pytest
import torch

from revbis.objectives import OBJECTIVES

torch.set_num_threads(1)
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
    rates = {
        "learning_rate": 1e-3,
        "objective_learning_rate": 2e-3,
        "coefficient_learning_rate": 3e-3,
    }
    joint = make_agent("mico-rev", "joint", **rates).optimisers
    found = {name: [group["lr"] for group in adam.param_groups] for name, adam in joint.items()}
    assert found == {"critic": [1e-3, 2e-3], "actor": [1e-3], "coefficient": [3e-3]}
    apart = make_agent("mico-rev", "alternating", **rates).optimisers
    found = {name: [group["lr"] for group in adam.param_groups] for name, adam in apart.items()}
    assert found == {
        "critic": [1e-3],
        "actor": [1e-3],
        "objective": [2e-3],
        "coefficient": [3e-3],
    }


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


def test_every_convolution_gets_the_gradients_of_critic_and_objective(make_agent, make_batch):
    agent = make_agent("simsr-rev", "alternating")
    for step in (
        lambda: critic_step(agent, make_batch()),
        lambda: agent.objective_step(make_batch(), agent.parts.objective, 0.2),
    ):
        before = [p.detach().clone() for p in agent.parts.encoder.parameters()]
        step()
        after = list(agent.parts.encoder.parameters())
        assert not any(map(torch.equal, before, after))


def test_objective_changes_the_encoder_but_not_the_critics_own_step(make_agent, make_batch):
    """In one joint step the weight of the objective moves the encoder; the critic's loss and its
    gradients on the critic are the same."""
    agents = [make_agent("simsr-rev", "joint", objective_weight=w) for w in (0.0, 1.0, 5.0)]
    for agent in agents:
        agent.learn(make_batch(), 0)
    grads = [[p.grad for p in a.parts.encoder.parameters()] for a in agents]
    for none, once, five in zip(*grads, strict=True):
        assert not torch.allclose(none, once, rtol=1e-2, atol=0)
        torch.testing.assert_close(five - none, 5 * (once - none), rtol=1e-3, atol=1e-5)
    own = [[*a.parts.readouts.of("critic"), *a.parts.critic.parameters()] for a in agents[:2]]
    for none, once in zip(*own, strict=True):
        torch.testing.assert_close(none, once)
    c = [[p.grad for p in a.parts.objective.coefficient_parameters()] for a in agents]
    assert torch.equal(c[1][0], c[2][0])  # the weight is not on the coefficient's loss


@pytest.mark.parametrize("mode", MODES)
def test_whole_update_changes_everything(make_agent, make_batch, changed, mode):
    agent = make_agent("mico-rev", mode)
    everything = {"encoder", "actor", "critic", "target", "projection", "heads", "raw_c"}
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
