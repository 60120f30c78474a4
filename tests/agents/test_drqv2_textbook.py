"""The fast update of DrQ-v2 against the textbook's: one layer at a time, plain formulas."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from revbis.agents import DrQV2Settings, resolve
from revbis.objectives import OBJECTIVES
from revbis.runs.config import Config
from revbis.runs.presets import PRESETS, preset_config

# The fast update against the textbook's: channels first, one layer at a time, plain formulas


class Twin:
    """Starts from an agent's parameters, and takes its settings and random numbers."""

    def __init__(self, agent):
        self.s, parts = agent.settings, agent.parts
        self.convolutions = copy.deepcopy(parts.encoder.convolutions)
        self.joint = (self.s.objective is not None) and self.s.mode == "joint"
        x = torch.zeros(1, *agent.observation_shape)
        for layer in self.convolutions:
            x = layer(x)
        self.map_shape = x.shape[1:]
        self.read = {name: self._channels_first(*parts.readouts.of(name)) for name in self._names()}
        self.policy = copy.deepcopy(parts.policy)
        self.critic, self.target = copy.deepcopy(parts.critic), copy.deepcopy(parts.target)
        self.generator = torch.Generator()
        self.generator.set_state(agent._update_generator.get_state())
        encoder = list(self.convolutions.parameters())
        critic = [*self.read["critic"].parameters(), *self.critic.parameters()]
        actor = [*self.read["actor"].parameters(), *self.policy.parameters()]
        groups = {"critic": encoder + critic, "actor": actor}
        if self.s.objective is not None:
            self.heads = self.take_heads(parts)
            heads = [p for head in self.heads.values() for p in head.parameters()]
            heads += self.read["projection"].parameters()
            if self.joint:
                groups["critic"] += heads
            else:
                groups["objective"] = encoder + heads
            if self.raw_c is not None:
                groups["c"] = [self.raw_c]
        rate = self.s.learning_rate
        self.adams = {n: torch.optim.Adam(g, rate, foreach=False) for n, g in groups.items()}

    def take_heads(self, parts):
        """Copies of the objective's heads, by the agent's own."""
        self.psi = copy.deepcopy(parts.objective.psi.layers)
        self.raw_c = nn.Parameter(parts.objective.coefficient.raw_c.detach().clone())
        return {parts.objective.psi.layers: self.psi}

    def _names(self):
        names = ["critic", "actor", "target"]
        return [*names, "projection"] if (self.s.objective is not None) else names

    def _channels_first(self, weight, bias):
        channels, height, width = self.map_shape
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        rows = weight.detach().reshape(-1, height, width, channels)
        layer.weight.data = rows.permute(0, 3, 1, 2).reshape(len(weight), -1).contiguous()
        layer.bias.data = bias.detach().clone()
        return layer

    def rows_first(self, name):
        """A readout's weight in the agent's order of features."""
        channels, height, width = self.map_shape
        maps = self.read[name].weight.detach().reshape(-1, channels, height, width)
        return maps.permute(0, 2, 3, 1).flatten(1)

    def encode(self, pixels):
        x = pixels.float() / 255 - 0.5
        for layer in self.convolutions:
            x = functional.relu(layer(x))
        return x.reshape(len(x), -1)

    def mean(self, features):
        return self.policy(self.read["actor"](features))

    def values(self, network, read, features, action):
        x = torch.cat([torch.tanh(network.norm(read(features))), action], dim=1)
        return [_mlp(layers, x) for layers in (network.q1, network.q2)]

    def noisy(self, mean, deviation):
        noise = torch.randn(mean.shape, generator=self.generator) * deviation
        raw = mean + noise.clamp(-self.s.noise_clip, self.s.noise_clip)
        return raw + (raw.clamp(-1 + 1e-6, 1 - 1e-6) - raw).detach()

    def objective(self, batch):
        """SimSR's revised objective, Eq. 7 to 9 with Huber losses."""
        z = functional.normalize(self.read["projection"](self.encode(batch.obs)), dim=1)
        with torch.no_grad():
            following = self.read["projection"](self.encode(batch.next_obs))
            following = functional.normalize(following, dim=1)
            distance = 1 - following @ following.T
        pair = functional.normalize(self.psi(torch.cat([z, batch.action], dim=1)), dim=1)
        prediction = 1 - pair @ pair.T
        gap = (batch.reward[:, None] - batch.reward[None, :]).abs()
        c1, c2 = torch.softmax(self.raw_c, dim=0)
        wanted = c1 * gap + c2 * distance
        loss = functional.huber_loss(prediction, wanted.detach())
        return loss, functional.huber_loss(prediction.detach(), wanted)

    def update(self, batch, deviation):
        with torch.no_grad():
            next_features = self.encode(batch.next_obs)
            action = self.noisy(self.mean(next_features), deviation)
            q1, q2 = self.values(self.target, self.read["target"], next_features, action)
            wanted = batch.reward + batch.discount * torch.min(q1, q2)
        features = self.encode(batch.obs)
        q1, q2 = self.values(self.critic, self.read["critic"], features, batch.action)
        loss = critic_loss = ((q1 - wanted) ** 2).mean() + ((q2 - wanted) ** 2).mean()
        losses = {"critic_loss": critic_loss.item()}
        if self.joint:
            representation, coefficient = self.objective(batch)
            loss = loss + self.s.objective_weight * representation
        self._step(loss, "critic")

        action = self.noisy(self.mean(features.detach()), deviation)
        q1, q2 = self.values(self.critic, self.read["critic"], features.detach(), action)
        loss = -torch.min(q1, q2).mean()
        losses["actor_loss"] = loss.item()
        self._step(loss, "actor")
        if self.s.objective is not None:
            if not self.joint:
                representation, coefficient = self.objective(batch)
                self._step(representation, "objective")
            losses["objective/representation_loss"] = representation.item()
            if self.raw_c is not None:
                self._step(coefficient, "c")
        self._move_target()
        return losses

    def _step(self, loss, name):
        for adam in self.adams.values():
            adam.zero_grad()
        loss.backward()
        self.adams[name].step()

    @torch.no_grad()
    def _move_target(self):
        target = [*self.read["target"].parameters(), *self.target.parameters()]
        critic = [*self.read["critic"].parameters(), *self.critic.parameters()]
        for slow, fast in zip(target, critic, strict=True):
            slow.copy_((1 - self.s.target_rate) * slow + self.s.target_rate * fast)


def _mlp(layers, x):
    for layer in layers[:2]:
        x = functional.relu(functional.linear(x, layer.weight, layer.bias))
    return functional.linear(x, layers[2].weight, layers[2].bias).squeeze(1)


@pytest.mark.parametrize(
    ("method", "mode"), [("drqv2", "joint"), ("simsr-rev", "joint"), ("simsr-rev", "alternating")]
)
def test_fast_update_is_the_textbooks(make_agent, make_batch, method, mode):
    agent = make_agent(
        method, mode, learning_rate=1e-3, objective_learning_rate=1e-3,
        coefficient_learning_rate=1e-3, objective_weight=0.7, target_rate=0.2, noise_steps=10,
    )  # fmt: skip
    compare(agent, Twin(agent), make_batch)


def compare(agent, twin, make_batch):
    """Six updates of both: the same losses, and in the end the same parameters."""
    for step in range(6):
        batch = make_batch(step)
        metrics = agent.learn(batch, step)
        expected = twin.update(batch, agent.deviation(step))
        for name, value in expected.items():
            assert metrics[name].item() == pytest.approx(value, rel=1e-4, abs=1e-5), (step, name)
    parts = agent.parts
    close = {"rtol": 1e-4, "atol": 2e-5}
    for name, layer in twin.read.items():
        weight, bias = parts.readouts.of(name)
        torch.testing.assert_close(weight.detach(), twin.rows_first(name), **close)
        torch.testing.assert_close(bias.detach(), layer.bias.detach(), **close)
    pairs = [
        (parts.encoder.convolutions, twin.convolutions),
        (parts.policy, twin.policy),
        (parts.critic, twin.critic),
        (parts.target, twin.target),
    ]
    if parts.objective is not None:
        pairs += twin.heads.items()
        if twin.raw_c is not None:
            torch.testing.assert_close(parts.objective.coefficient.raw_c, twin.raw_c, **close)
    for mine, other in pairs:
        for a, b in zip(mine.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b, **close)


# Self-prediction, DeepMDP and LayerNorm on φ in the agent, against the textbook's twin


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
def test_fast_update_of_the_baselines_is_the_textbooks(
    make_agent, make_batch, method, mode, normalisation, encoder_norm
):
    agent = make_agent(
        method, mode, learning_rate=1e-3, objective_learning_rate=1e-3, objective_weight=0.7,
        target_rate=0.2, noise_steps=10, normalisation=normalisation, encoder_norm=encoder_norm,
    )  # fmt: skip
    compare(agent, BaselineTwin(agent), make_batch)


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
