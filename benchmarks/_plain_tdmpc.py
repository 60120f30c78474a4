"""TD-MPC's planner without any care for speed: what `plan.py` times, and the tests' reference.

One network after the other, one step after the other, as the algorithm is described: all samples
and the policy's proposals are predicted anew in every iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from revbis.agents import TDMPC
    from revbis.agents.tdmpc_planner import Search

CLIP, WIDEST, EDGE = 0.3, 2.0, 1e-6


class Noise(NamedTuple):
    """The random numbers of a plan, all from a standard normal distribution.

    Attributes:
        samples: Of the drawn actions, [iterations, H, samples, A].
        proposals: Of the policy's proposals, [H, policy_samples, A].
        last: Of the policy's action after the plan, [iterations, samples + policy_samples, A].
    """

    samples: Tensor
    proposals: Tensor
    last: Tensor


def draw_noise(search: Search, horizon: int, size: int, generator: torch.Generator) -> Noise:
    """Draws in the order in which the planner does."""
    s = search

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    samples = draw(s.iterations, horizon, s.samples, size)
    proposals = torch.empty(horizon, s.policy_samples, size)
    if s.policy_samples:
        for t in range(horizon):
            proposals[t] = draw(s.policy_samples, size)
    last = [draw(s.samples + s.policy_samples, size) for _ in range(s.iterations)]
    return Noise(samples, proposals, torch.stack(last))


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two hidden layers with ELU."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ELU(),
        nn.Linear(hidden, hidden),
        nn.ELU(),
        nn.Linear(hidden, outputs),
    )


def q(inputs: int, hidden: int) -> nn.Sequential:
    """A value: the first layer is normalised."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.LayerNorm(hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.ELU(),
        nn.Linear(hidden, 1),
    )


class PlainPlanner:
    """The networks of an agent, with its weights at this moment, and its planner."""

    def __init__(self, agent: TDMPC) -> None:
        s, size = agent.settings, agent.action_size
        both = s.latent_dim + size
        self.dynamics, self.reward = mlp(both, s.hidden, s.latent_dim), mlp(both, s.hidden, 1)
        self.q1, self.q2 = q(both, s.hidden), q(both, s.hidden)
        self.actor = mlp(s.latent_dim, s.hidden, size)
        theirs = agent.model
        pairs = (
            (self.dynamics, theirs.dynamics),
            (self.reward, theirs.reward),
            (self.q1, theirs.values.q1),
            (self.q2, theirs.values.q2),
            (self.actor, theirs.actor),
        )
        for mine, wanted in pairs:
            for parameter, value in zip(mine.parameters(), wanted.parameters(), strict=True):
                parameter.data.copy_(value)

    def next(self, z: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The next latent state, [B, D], and the reward, [B, 1]."""
        x = torch.cat([z, action], dim=-1)
        return self.dynamics(x), self.reward(x)

    def policy(self, z: Tensor, deviation: float, noise: Tensor) -> Tensor:
        """The policy's action with noise, [B, A]."""
        mean = torch.tanh(self.actor(z))
        action = mean + torch.clamp(deviation * noise, -CLIP, CLIP)
        return torch.clamp(action, EDGE - 1, 1 - EDGE)

    def value(self, z: Tensor, action: Tensor) -> Tensor:
        """The smaller value, [B, 1]."""
        x = torch.cat([z, action], dim=-1)
        return torch.min(self.q1(x), self.q2(x))

    @torch.no_grad()
    def returns(self, z: Tensor, actions: Tensor, search: Search, noise: Tensor) -> Tensor:
        """Discounted rewards of action sequences, [H, B, A], and the value that follows, [B, 1]."""
        total, discount = torch.zeros(len(z), 1), 1.0
        for t in range(len(actions)):
            z, reward = self.next(z, actions[t])
            total = total + discount * reward
            discount *= search.discount
        last = self.policy(z, search.policy_deviation, noise)
        return total + discount * self.value(z, last)

    @torch.no_grad()
    def plan(
        self, z: Tensor, mean: Tensor, search: Search, noise: Noise, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, deviation and one elite's actions, [H, A] each.

        Args:
            z: The current latent state, [1, D].
            mean: Mean of the first iteration's actions, [H, A].
            search: How to search.
            noise: All random numbers but the choice of an elite.
            generator: Chooses the elite.
        """
        s, horizon = search, len(mean)
        proposals = torch.empty(horizon, s.policy_samples, mean.shape[1])
        if s.policy_samples:
            state = z.repeat(s.policy_samples, 1)
            for t in range(horizon):
                proposals[t] = self.policy(state, s.policy_deviation, noise.proposals[t])
                state, _ = self.next(state, proposals[t])
        start = z.repeat(s.samples + s.policy_samples, 1)
        deviation = WIDEST * torch.ones_like(mean)
        for i in range(s.iterations):
            drawn = mean.unsqueeze(1) + deviation.unsqueeze(1) * noise.samples[i]
            actions = torch.cat([torch.clamp(drawn, -1, 1), proposals], dim=1)
            value = self.returns(start, actions, s, noise.last[i]).nan_to_num(0.0)
            best = torch.topk(value.squeeze(1), s.elites, dim=0).indices
            elite_value, elites = value[best], actions[:, best]
            score = torch.exp(s.temperature * (elite_value - elite_value.max(dim=0).values))
            score = score / score.sum(dim=0)
            fitted = torch.sum(score.unsqueeze(0) * elites, dim=1)
            away = (elites - fitted.unsqueeze(1)) ** 2
            spread = torch.sqrt(torch.sum(score.unsqueeze(0) * away, dim=1))
            deviation = torch.clamp(spread, min(s.least_deviation, WIDEST), WIDEST)
            mean = s.momentum * mean + (1 - s.momentum) * fitted
        chosen = torch.multinomial(score.squeeze(1), 1, generator=generator)
        return mean, deviation, elites[:, chosen].squeeze(1)
