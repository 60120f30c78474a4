"""MR.Q without any care for speed: what `mrq.py` is compared with, and the tests' reference.

One network for each value, one layer for each sentence of the paper, PyTorch's own AdamW, losses
step by step, and gradients wherever PyTorch makes them.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.replay import Batch, Windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.agents import MRQ, MRQSettings

BINS, LARGEST = 65, 10.0


def activated(x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """LayerNorm without parameters, then the activation."""
    return activation(functional.layer_norm(x, (x.shape[-1],)))


class MLP(nn.Module):
    """Three layers, normalised and activated after the first two."""

    def __init__(
        self, inputs: int, hidden: int, outputs: int, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.three, self.activation = nn.Linear(hidden, outputs), activation

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] → [B, outputs]."""
        x = activated(self.one(x), self.activation)
        x = activated(self.two(x), self.activation)
        y: Tensor = self.three(x)
        return y


class Encoder(nn.Module):
    """From observations to zs, from zs and an action to zsa, and the model on it."""

    def __init__(self, shape: tuple[int, ...], actions: int, s: MRQSettings) -> None:
        super().__init__()
        self.pixels, elu = len(shape) == 3, functional.elu
        if self.pixels:
            inputs = [shape[0], *[s.channels] * 3]
            pairs = zip(inputs, s.strides, strict=True)
            self.convolutions = nn.ModuleList(nn.Conv2d(n, s.channels, 3, k) for n, k in pairs)
            x = torch.zeros(1, *shape)
            for layer in self.convolutions:
                x = layer(x)
            self.flat = nn.Linear(x.numel(), s.latent_dim)
        else:
            self.vector = MLP(shape[0], s.hidden, s.latent_dim, elu)
        self.action = nn.Linear(actions, s.action_dim)
        self.pair = MLP(s.latent_dim + s.action_dim, s.hidden, s.latent_dim, elu)
        self.model = nn.Linear(s.latent_dim, s.latent_dim + BINS + 1)

    def zs(self, observation: Tensor) -> Tensor:
        """The embedding of observations, [B, D]."""
        dtype = self.action.weight.dtype
        if not self.pixels:
            return activated(self.vector(observation.to(dtype)), functional.elu)
        x = (observation.float() / 255 - 0.5).to(dtype)
        for layer in self.convolutions:
            x = functional.elu(layer(x))
        return activated(self.flat(x.reshape(len(x), -1)), functional.elu)

    def zsa(self, zs: Tensor, action: Tensor) -> Tensor:
        """The embedding of pairs, [B, D]."""
        embedded = functional.elu(self.action(action.to(zs.dtype)))
        zsa: Tensor = self.pair(torch.cat([zs, embedded], dim=1))
        return zsa


class Value(nn.Module):
    """One value of zsa."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.body, self.head = MLP(inputs, hidden, hidden, functional.elu), nn.Linear(hidden, 1)

    def forward(self, zsa: Tensor) -> Tensor:
        """[B, inputs] → [B]."""
        return self.head(activated(self.body(zsa), functional.elu)).squeeze(1)


class Values(nn.Module):
    """Two of them, [B] each, as [B, 2]."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.one, self.other = Value(inputs, hidden), Value(inputs, hidden)

    def forward(self, zsa: Tensor) -> Tensor:
        """[B, inputs] → [B, 2]."""
        return torch.stack([self.one(zsa), self.other(zsa)], dim=1)


class PlainMRQ:
    """The networks of an agent, with its weights at this moment, and its updates."""

    def __init__(self, agent: MRQ, dtype: torch.dtype = torch.float32) -> None:
        s, shape = agent.settings, agent.observation_shape
        self.settings, self.scale, self.target_scale = s, 1.0, 1.0
        self.encoder = Encoder(shape, agent.action_size, s).to(dtype)
        self.values = Values(s.latent_dim, s.hidden).to(dtype)
        self.policy = MLP(s.latent_dim, s.hidden, agent.action_size, functional.relu).to(dtype)
        for mine, wanted in zip(self.parameters(), plain_weights(agent), strict=True):
            mine.data.copy_(wanted)
        self.encoder_target = copy.deepcopy(self.encoder)
        self.values_target = copy.deepcopy(self.values)
        self.policy_target = copy.deepcopy(self.policy)
        self.encoder_optimiser = torch.optim.AdamW(
            self.encoder.parameters(), s.encoder_learning_rate, weight_decay=s.weight_decay
        )
        self.values_optimiser, self.policy_optimiser = (
            torch.optim.AdamW(network.parameters(), s.learning_rate, weight_decay=s.weight_decay)
            for network in (self.values, self.policy)
        )
        spaced = torch.linspace(-LARGEST, LARGEST, BINS, dtype=torch.float64)
        self.bins = (spaced.sign() * (spaced.abs().exp() - 1)).to(dtype)

    def parameters(self) -> list[nn.Parameter]:
        """All of them, in the order of `plain_weights`."""
        networks = (self.encoder, self.values, self.policy)
        return [parameter for network in networks for parameter in network.parameters()]

    def begin_period(self, reward_size: float) -> None:
        """Copies the networks to their targets; the scale of rewards changes."""
        self.encoder_target.load_state_dict(self.encoder.state_dict())
        self.values_target.load_state_dict(self.values.state_dict())
        self.policy_target.load_state_dict(self.policy.state_dict())
        self.target_scale, self.scale = self.scale, reward_size

    def two_hot(self, reward: Tensor) -> Tensor:
        """Weights of the bins, [B, 65], whose mean is the reward."""
        rows = torch.zeros(len(reward), BINS, dtype=self.bins.dtype)
        below = (reward[:, None] >= self.bins).sum(dim=1).clamp(1, BINS - 1) - 1
        low, high = self.bins[below], self.bins[below + 1]
        upper = ((reward - low) / (high - low)).clamp(0, 1)
        rows.scatter_(1, below[:, None], (1 - upper)[:, None])
        rows.scatter_(1, below[:, None] + 1, upper[:, None])
        return rows

    def learn_encoders(self, windows: Windows, terminates: bool) -> Tensor:
        """One step of encoder and model, unrolled step by step; returns the loss."""
        s, steps, dtype = self.settings, windows.reward.shape[1], self.bins.dtype
        with torch.no_grad():
            wanted = [self.encoder_target.zs(windows.obs[:, t + 1]) for t in range(steps)]
        zs = self.encoder.zs(windows.obs[:, 0])
        alive = torch.ones(len(zs), dtype=dtype)
        loss = torch.zeros((), dtype=dtype)
        for t in range(steps):
            alive = alive * windows.valid[:, t].to(dtype)
            read = self.encoder.model(self.encoder.zsa(zs, windows.action[:, t]))
            zs = read[:, : s.latent_dim]
            logits, ending = read[:, s.latent_dim : -1], read[:, -1]
            away = ((zs - wanted[t]) ** 2).mean(dim=1)
            log_p = functional.log_softmax(logits, dim=1)
            surprise = -(self.two_hot(windows.reward[:, t].to(dtype)) * log_p).sum(dim=1)
            terminated = 1 - windows.discount[:, t].to(dtype)
            loss = loss + s.consistency_weight * (alive * away).mean()
            loss = loss + s.reward_weight * (alive * surprise).mean()
            if terminates:
                wrong = (ending - terminated) ** 2
                loss = loss + s.termination_weight * (alive * wrong).mean()
            alive = alive * (1 - terminated)
        self.encoder_optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.encoder_optimiser.step()
        return loss.detach()

    def learn(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of the values and of the policy; both losses, and the priorities, [B].

        Args:
            batch: Transitions.
            noise: Standard normal numbers, [B, A].
        """
        s = self.settings
        with torch.no_grad():
            next_zs = self.encoder_target.zs(batch.next_obs)
            noise = (noise * s.target_noise).clamp(-s.noise_clip, s.noise_clip)
            next_action = (torch.tanh(self.policy_target(next_zs)) + noise).clamp(-1, 1)
            next_zsa = self.encoder_target.zsa(next_zs, next_action)
            next_q = self.values_target(next_zsa).min(dim=1).values
            target = (batch.reward + batch.discount * next_q * self.target_scale) / self.scale
            zs = self.encoder.zs(batch.obs)
            zsa = self.encoder.zsa(zs, batch.action)
        q = self.values(zsa)
        errors = q - target[:, None]
        size = errors.abs()
        value_loss = torch.where(size < 1, errors**2 / 2, size - 0.5).mean()
        self.values_optimiser.zero_grad()
        value_loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.values.parameters(), s.gradient_clip)
        self.values_optimiser.step()
        logits = self.policy(zs)
        of_policy = self.values(self.encoder.zsa(zs, torch.tanh(logits)))
        policy_loss = -of_policy.mean() + s.action_penalty * (logits**2).mean()
        self.policy_optimiser.zero_grad()
        policy_loss.backward()  # type: ignore[no-untyped-call]
        self.policy_optimiser.step()
        priority = size.detach().max(dim=1).values.clamp(min=1) ** s.priority_exponent
        return value_loss.detach(), policy_loss.detach(), priority


class PlainReplay:
    """One endless episode of vectors, whose transitions are drawn by sums over the whole capacity.

    Args:
        capacity: Steps that there is room for.
        obs: The observations so far, [N + 1, D].
        action: [N, A].
        reward: [N].
        n_step: Steps of a transition.
        discount: γ.
    """

    def __init__(
        self,
        capacity: int,
        obs: Tensor,
        action: Tensor,
        reward: Tensor,
        n_step: int,
        discount: float,
    ) -> None:
        self.obs, self.action, self.reward = (
            torch.zeros(capacity, *given.shape[1:]) for given in (obs, action, reward)
        )
        for mine, given in ((self.obs, obs), (self.action, action), (self.reward, reward)):
            mine[: len(given)] = given
        self.count, self.n_step, self.discount = len(action), n_step, discount
        self.priority, self.drawable = torch.ones(capacity), torch.zeros(capacity)

    def draw(self, size: int, steps: int) -> Tensor:
        """Numbers of transitions that `steps` steps follow, [size]."""
        self.drawable[: self.count - steps] = 1
        sums = torch.cumsum(self.priority * self.drawable, 0)
        return torch.searchsorted(sums, torch.rand(size) * sums[-1])

    def windows(self, size: int, steps: int) -> Windows:
        """Windows of `steps` steps."""
        start = self.draw(size, steps)
        index = start[:, None] + torch.arange(steps + 1)
        taken, one = index[:, :-1], torch.ones(size, steps)
        return Windows(self.obs[index], self.action[taken], self.reward[taken], one, one)

    def transitions(self, size: int) -> tuple[Batch, Tensor]:
        """Transitions of n steps, and their numbers for `set_priorities`."""
        start, n = self.draw(size, self.n_step), self.n_step
        rewards = self.reward[start[:, None] + torch.arange(n)]
        total = (rewards * self.discount ** torch.arange(n)).sum(dim=1)
        left = torch.full((size,), self.discount**n)
        pair = (self.obs[start], self.action[start], total, left, self.obs[start + n])
        return Batch(*pair), start

    def set_priorities(self, entry: Tensor, priority: Tensor) -> None:
        """Gives transitions new priorities."""
        self.priority[entry] = priority


def plain_weights(agent: MRQ) -> list[Tensor]:
    """The agent's parameters as the plain networks have them, in their order."""
    n, hidden = agent.networks, agent.settings.hidden
    phi: list[Tensor] = []
    if len(agent.observation_shape) == 3:
        for layer in n.phi.convolutions:  # type: ignore[union-attr]
            phi += [layer.weight, layer.bias]
        channels = phi[-1].shape[0]
        # There features are in the order row, column, channel; plainly the channel comes first.
        by_place = n.phi.last.weight.unflatten(1, (-1, channels))
        phi += [by_place.transpose(1, 2).flatten(1), n.phi.last.bias]
    else:
        phi = list(n.phi.parameters())
    psi = n.psi
    first = torch.cat([psi.of_zs.weight, psi.of_action.weight], dim=1)
    pair = [psi.action.weight, psi.action.bias, first, psi.of_zs.bias]
    pair += [*psi.second.parameters(), *psi.last.parameters()]
    rows = (n.model.next.parameters(), n.model.ending.parameters())
    model = [torch.cat(both) for both in zip(*rows, strict=True)]
    values: list[Tensor] = []
    for k in range(2):
        half = slice(k * hidden, (k + 1) * hidden)
        values += [n.values.first.weight[half], n.values.first.bias[half]]
        for layers in (n.values.second, n.values.third, n.values.last):
            values += list(layers[k].parameters())
    weights = [*phi, *pair, *model, *values, *n.policy.parameters()]
    return [weight.detach().clone() for weight in weights]
