"""Self-prediction, DeepMDP and LayerNorm on φ in the agent, against the textbook's twin."""

import copy
import io

import pytest
import torch
from tests.agents.test_agent_twin import Twin, compare
from torch.nn import functional

from revbis.agents import DrQV2Settings, resolve
from revbis.objectives import OBJECTIVES
from revbis.runs.config import Config
from revbis.runs.presets import PRESETS, preset_config

torch.set_num_threads(1)
BASELINES = ["zp", "deepmdp"]
MODES = ["joint", "alternating", "balanced"]


class BaselineTwin(Twin):
    """Predicts the embedding one step on, and the reward; LayerNorm by its formula."""

    raw_c = None

    def take_heads(self, parts):
        self.norm = copy.deepcopy(parts.norm)
        self.dynamics = copy.deepcopy(parts.objective.dynamics)
        self.reward = copy.deepcopy(parts.objective.reward)
        heads = {parts.norm: self.norm, parts.objective.dynamics: self.dynamics}
        return heads if self.reward is None else heads | {parts.objective.reward: self.reward}

    def phi(self, images):
        x = self.read["projection"](self.encode(images))
        if self.s.encoder_norm:
            centred = x - x.mean(dim=1, keepdim=True)
            deviation = (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
            x = centred / deviation * self.norm.weight + self.norm.bias
        return functional.normalize(x, dim=1) if self.s.normalisation else x

    def objective(self, batch):
        inputs = torch.cat([self.phi(batch.obs), batch.action], dim=1)
        with torch.no_grad():
            wanted = self.phi(batch.one_step.next_obs)
        guess = self.dynamics(inputs)
        if self.s.normalisation:
            guess = functional.normalize(guess, dim=1)
        loss = ((guess - wanted) ** 2).sum(dim=1).mean()
        if self.reward is not None:
            loss = loss + ((self.reward(inputs)[:, 0] - batch.one_step.reward) ** 2).mean()
        return loss, None


@pytest.mark.parametrize("encoder_norm", [False, True])
@pytest.mark.parametrize(
    ("method", "mode", "normalisation"),
    [("zp", "joint", True), ("deepmdp", "joint", False), ("deepmdp", "alternating", True)],
)
def test_fast_update_is_the_textbooks(
    make_agent, make_batch, method, mode, normalisation, encoder_norm
):
    agent = make_agent(
        method, mode, learning_rate=1e-3, objective_learning_rate=1e-3, objective_weight=0.7,
        target_rate=0.2, noise_steps=10, normalisation=normalisation, encoder_norm=encoder_norm,
    )  # fmt: skip
    twin = BaselineTwin(agent)
    for step in range(6):
        batch = make_batch(step)
        metrics = agent.learn(batch, step)
        expected = twin.update(batch, agent.deviation(step))
        for name, value in expected.items():
            assert metrics[name].item() == pytest.approx(value, rel=1e-4, abs=1e-5), (step, name)
    compare(agent.parts, twin)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", OBJECTIVES)
def test_every_objective_sees_a_normed_phi(make_agent, make_batch, changed, method, mode):
    """The norm is the objective's alone, like the projection; fresh, it has mean 0, variance 1."""
    agent = make_agent(method, mode, encoder_norm=True)
    seen, forward = {}, agent.parts.objective.forward

    def spy(z, action, reward, discount, next_z, *args, **actions):
        seen.update(z=z.detach(), next_z=next_z)
        return forward(z, action, reward, discount, next_z, *args, **actions)

    agent.parts.objective.forward = spy
    moved = changed(agent, lambda: agent.learn(make_batch(), 0))
    assert {"norm", "projection"} <= moved
    for z in seen.values():
        torch.testing.assert_close(z.mean(dim=1), torch.zeros(12), atol=1e-5, rtol=0)
        torch.testing.assert_close(z.var(dim=1, correction=0), torch.ones(12), atol=1e-2, rtol=0)
    assert not seen["next_z"].requires_grad
    inside = [
        p for adam in agent.optimisers.values() for g in adam.param_groups for p in g["params"]
    ]
    for parameter in agent.parts.norm.parameters():
        assert sum(parameter is each for each in inside) == 1


def test_embed_is_what_the_objective_compares(make_agent, make_batch):
    agent = make_agent("energy", encoder_norm=True)
    with torch.no_grad():
        agent.parts.norm.weight.copy_(torch.arange(6.0))
        agent.parts.norm.bias.fill_(0.5)
    parts, images = agent.parts, make_batch().obs
    (read,) = parts.readouts(parts.encoder(images), "projection")
    expected = functional.layer_norm(read, (6,)) * torch.arange(6.0) + 0.5
    torch.testing.assert_close(agent.embed(images), expected.detach())
    unit = make_agent("simsr", encoder_norm=True).embed(images)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(12))


def test_the_norm_is_saved_and_resumed(make_agent, make_batch):
    agent = make_agent("simsr-rev", encoder_norm=True)
    for step in range(3):
        agent.learn(make_batch(step), step)
    file = io.BytesIO()
    torch.save(agent.state_dict(), file)
    file.seek(0)
    resumed = make_agent("simsr-rev", encoder_norm=True, seed=5)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for step in range(3, 5):
        for each in (agent, resumed):
            each.learn(make_batch(step), step)
    assert not torch.equal(agent.parts.norm.weight, torch.ones(6))
    for mine, other in zip(
        agent.parts.norm.parameters(), resumed.parts.norm.parameters(), strict=True
    ):
        assert torch.equal(mine, other)
    assert torch.equal(agent.embed(make_batch().obs), resumed.embed(make_batch().obs))


def test_states_with_and_without_a_norm_do_not_mix(make_agent):
    states = [make_agent("simsr", encoder_norm=norm) for norm in (False, True)]
    for one, other in (states, states[::-1]):
        with pytest.raises(ValueError, match="the state does not fit this agent: KeyError: 'norm'"):
            one.load_state_dict(other.state_dict())


def test_the_switch_changes_nothing_of_drqv2_alone_nor_of_how_others_begin(make_agent, make_batch):
    plain, switched = make_agent(), make_agent(encoder_norm=True)
    assert list(plain.state_dict()["networks"]) == list(switched.state_dict()["networks"])
    for agent in (plain, switched):
        agent.learn(make_batch(), 0)
    assert torch.equal(plain.embed(make_batch().obs), switched.embed(make_batch().obs))
    one, two = make_agent("simsr-rev"), make_agent("simsr-rev", encoder_norm=True)
    for name in ("encoder", "readouts", "policy", "critic", "objective"):
        states = [agent.parts.modules()[name].state_dict().values() for agent in (one, two)]
        assert all(map(torch.equal, *states))


@pytest.mark.parametrize("method", BASELINES)
def test_they_have_one_step_transitions_by_default(method):
    for preset in PRESETS:
        config = preset_config(preset, "dmc:cartpole_balance", method)
        assert config.agent.transition == "one_step" and config.agent.one_step
        assert preset_config(preset, "dmc:cartpole_balance", "simsr").agent.transition == "n_step"
        with pytest.raises(ValueError, match=f"{method} predicts what follows one action"):
            config.with_settings(transition="n_step")
        other = config.with_settings(method="simsr")
        assert other.agent.transition == "n_step"
        assert other.with_settings(method=method) == config
    assert resolve(method).settings().one_step
    assert Config.from_dict({"task": "dmc:cartpole_balance", "method": method}).agent.one_step
    assert not DrQV2Settings(transition="one_step").one_step  # there is no objective
