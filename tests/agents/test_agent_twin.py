"""The fast update against the textbook's: channels first, one layer at a time, plain formulas."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)


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
    ("method", "mode"),
    [("drqv2", "joint"), ("simsr-rev", "joint"), ("simsr-rev", "alternating")],
)
def test_fast_update_is_the_textbooks(make_agent, make_batch, method, mode):
    agent = make_agent(
        method, mode, learning_rate=1e-3, objective_learning_rate=1e-3,
        coefficient_learning_rate=1e-3, objective_weight=0.7, target_rate=0.2, noise_steps=10,
    )  # fmt: skip
    twin = Twin(agent)
    for step in range(6):
        batch = make_batch(step)
        metrics = agent.learn(batch, step)
        expected = twin.update(batch, agent.deviation(step))
        for name, value in expected.items():
            assert metrics[name].item() == pytest.approx(value, rel=1e-4, abs=1e-5), (step, name)
    compare(agent.parts, twin)


def compare(parts, twin):
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
