"""TD-MPC's planner: model predictive path integral control with proposals of the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch
from torch.nn import functional

from revbis.agents.drqv2 import noisy_action
from revbis.agents.inference import elu_, elu_dot, normalised_tanh_
from revbis.agents.linear import PackedLinear, linear

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from revbis.agents.tdmpc import MLP, Model, Q

NOISE_CLIP = 0.3  # largest absolute noise of the policy
_WIDEST = 2.0  # standard deviation of actions at the start of a plan, and the largest later


class Search(NamedTuple):
    """How a plan is searched for.

    Attributes:
        iterations: Iterations.
        samples: Action sequences drawn in each.
        policy_samples: Action sequences that the policy proposes, once.
        elites: Best ones, to which the distribution is fitted.
        temperature: How much an elite's weight depends on its return.
        momentum: Share of the previous mean in the new one.
        discount: γ.
        least_deviation: Least standard deviation of actions.
        policy_deviation: Standard deviation of the policy's noise.
    """

    iterations: int
    samples: int
    policy_samples: int
    elites: int
    temperature: float
    momentum: float
    discount: float
    least_deviation: float
    policy_deviation: float


class PlannedActions(NamedTuple):
    """The outcome of a search.

    Attributes:
        mean: Mean of the actions in the end, [H, A]: the next plan can start from it.
        deviation: Their standard deviation, [H, A].
        actions: One of the last iteration's elites, drawn by its weight, [H, A].
    """

    mean: Tensor
    deviation: Tensor
    actions: Tensor


class Predictor(Protocol):
    """What a plan asks of a model."""

    def dynamics(self, z: Tensor, action: Tensor) -> Tensor:
        """The next latent states, [N, D]; z is [N, D], or [1, D] if all actions start there."""

    def reward(self, z: Tensor, action: Tensor) -> Tensor:
        """The rewards, [N, D] and [N, A] → [N]."""

    def policy(self, z: Tensor) -> Tensor:
        """The policy's mean actions, [N, D] → [N, A]."""

    def value(self, z: Tensor, action: Tensor, which: Literal[0, 1]) -> Tensor:
        """One of the two values, [N, D] and [N, A] → [N]."""


class Paths(NamedTuple):
    """Where action sequences lead.

    Attributes:
        actions: [H, N, A].
        rewards: Discounted sum of the predicted rewards, [N].
        z: Last latent state, [N, D].
        following: The policy's mean action there, [N, A].
    """

    actions: Tensor
    rewards: Tensor
    z: Tensor
    following: Tensor

    def joined(self, others: Paths) -> Paths:
        """Both, one after the other."""
        pairs = zip(self[1:], others[1:], strict=True)
        actions = torch.cat([self.actions, others.actions], dim=1)
        return Paths(actions, *(torch.cat(pair) for pair in pairs))


@torch.no_grad()
def plan(
    model: Predictor, z: Tensor, mean: Tensor, search: Search, generator: torch.Generator
) -> PlannedActions:
    """Searches for the actions with the largest predicted return.

    Args:
        model: Predicts what actions lead to.
        z: The current latent state, [1, D].
        mean: Mean of the first iteration's actions, [H, A].
        search: How to search.
        generator: Draws all random numbers, on z's device.
    """
    (horizon, size), s = mean.shape, search
    # All noise in one call: many small ones take longer than the numbers themselves.
    noise = torch.randn(
        (s.iterations, horizon, s.samples, size), generator=generator, device=z.device
    )
    # The proposals stay the same, so where they lead is predicted once.
    proposed = propose(model, z, horizon, search, generator) if s.policy_samples else None
    deviation = torch.full_like(mean, _WIDEST)
    for draws in noise:
        drawn = torch.addcmul(mean[:, None], deviation[:, None], draws).clamp_(-1, 1)
        paths = follow(model, z, drawn, s.discount)
        paths = paths if proposed is None else paths.joined(proposed)
        best, index = best_returns(model, paths, search, generator)
        elites = paths.actions[:, index]
        weight = torch.softmax(s.temperature * best, dim=0)
        fitted = (weight[:, None] * elites).sum(dim=1)
        spread = (weight[:, None] * (elites - fitted[:, None]).square()).sum(dim=1).sqrt()
        deviation = spread.clamp(min(s.least_deviation, _WIDEST), _WIDEST)
        mean = s.momentum * mean + (1 - s.momentum) * fitted
    chosen = torch.multinomial(weight, 1, generator=generator)
    return PlannedActions(mean, deviation, elites[:, chosen].squeeze(1))


def propose(
    model: Predictor, z: Tensor, horizon: int, search: Search, generator: torch.Generator
) -> Paths:
    """The noisy policy's actions along its own predicted paths from z, [1, D]."""
    states, actions = [z], []
    for _ in range(horizon):
        mean = model.policy(states[-1]).expand(search.policy_samples, -1)
        actions.append(noisy_action(mean, search.policy_deviation, generator, NOISE_CLIP))
        states.append(model.dynamics(states[-1], actions[-1]))
    return _paths(model, states, torch.stack(actions), search.discount)


def follow(model: Predictor, z: Tensor, actions: Tensor, discount: float) -> Paths:
    """Predicts where action sequences, [H, N, A], lead from z, [1, D]."""
    states = [z]
    for action in actions:
        states.append(model.dynamics(states[-1], action))
    return _paths(model, states, actions, discount)


def _paths(model: Predictor, states: list[Tensor], actions: Tensor, discount: float) -> Paths:
    """Rewards of all steps are predicted together, after the last one."""
    *before, last = states
    z = torch.cat([state.expand(actions.shape[1], -1) for state in before])
    rewards = model.reward(z, actions.flatten(0, 1)).view(actions.shape[:2])
    total, factor = rewards[0], 1.0
    for reward in rewards[1:]:
        factor *= discount
        total = total.add_(reward, alpha=factor)
    return Paths(actions, total, last, model.policy(last))


def best_returns(
    model: Predictor, paths: Paths, search: Search, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The elites' returns in descending order and their places among the paths, [elites] each.

    A return is the discounted sum of rewards and of the smaller value of what follows.

    Args:
        model: Predicts the values.
        paths: Where the action sequences lead.
        search: How many, the discount, and the noise of the policy that follows.
        generator: Draws that noise.
    """
    last = noisy_action(paths.following, search.policy_deviation, generator, NOISE_CLIP)
    factor = search.discount ** len(paths.actions)
    first = paths.rewards.add(model.value(paths.z, last, 0), alpha=factor)

    def second(places: Tensor) -> Tensor:
        value = model.value(paths.z[places], last[places], 1)
        return paths.rewards[places].add(value, alpha=factor)

    return largest_minima(first, second, search.elites)


def largest_minima(
    first: Tensor, second: Callable[[Tensor], Tensor], count: int
) -> tuple[Tensor, Tensor]:
    """The largest of the numbers min(first, second) in descending order, and their places.

    No minimum exceeds its first number. So if enough minima among the largest first numbers exceed
    all other first numbers, the other second numbers do not matter, and are not asked for. NaN
    counts as 0 where it is seen.

    Args:
        first: [N].
        second: Computes the second numbers at some places.
        count: How many minima, at most N.
    """
    candidates = 2 * count
    # On a GPU the comparison would make the host wait, and the whole batch takes no longer.
    if candidates < len(first) and first.device.type == "cpu":
        bounds, places = torch.topk(first, candidates + 1)
        minima = torch.minimum(bounds[:-1], second(places[:-1]))
        best, index = torch.topk(minima, count)
        if best[-1] > bounds[-1] and best[0].isfinite():  # NaN would be the largest
            return best, places[index]
    everywhere = torch.arange(len(first), device=first.device)
    best, index = torch.topk(torch.minimum(first, second(everywhere)).nan_to_num(0.0), count)
    return best, index


def following_mean(mean: Tensor, horizon: int) -> Tensor:
    """Where the next plan of the episode starts: one step on, and 0 where nothing was planned.

    Args:
        mean: Of the last plan, [at most horizon, A].
        horizon: Steps of the longest plan.
    """
    start = torch.zeros((horizon, mean.shape[1]), device=mean.device)
    start[: len(mean) - 1] = mean[1:]
    return start


class PackedModel:
    """A model with its weights at this moment, for predictions without gradient.

    Args:
        model: The networks.
        samples: Action sequences in most batches.
        horizon: Steps of a plan; their rewards are predicted together.
    """

    def __init__(self, model: Model, samples: int, horizon: int) -> None:
        self._dynamics, self._actor, *self._values = (
            _PackedNetwork(network, samples)
            for network in (model.dynamics, model.actor, model.values.q1, model.values.q2)
        )
        self._reward = _PackedNetwork(model.reward, samples * horizon)

    def dynamics(self, z: Tensor, action: Tensor) -> Tensor:
        """The next latent states, [N, D]; z is [N, D], or [1, D] if all actions start there."""
        network = self._dynamics
        if len(z) == len(action):
            return network.outputs(network.first(torch.cat([z, action], dim=1)))
        return network.outputs(network.first_of_one(z, action))

    def reward(self, z: Tensor, action: Tensor) -> Tensor:
        """The rewards, [N]."""
        return self._reward.output(self._reward.first(torch.cat([z, action], dim=1)))

    def policy(self, z: Tensor) -> Tensor:
        """The policy's mean actions, [N, A]."""
        return self._actor.outputs(self._actor.first(z)).tanh_()

    def value(self, z: Tensor, action: Tensor, which: Literal[0, 1]) -> Tensor:
        """One of the two values, [N]."""
        network = self._values[which]
        return network.output(network.first(torch.cat([z, action], dim=1)))


class _PackedNetwork:
    """An MLP or a value, layer by layer."""

    def __init__(self, network: MLP | Q, rows: int) -> None:
        self._first, second, self._last = (
            (layer.weight.detach(), layer.bias.detach())
            for layer in (network.first, network.second, network.last)
        )
        self._norm = getattr(network, "norm", None)
        self._second = PackedLinear(*second, rows)

    def first(self, x: Tensor) -> Tensor:
        """The first layer, [N, inputs] → [N, hidden]."""
        return linear(x, *self._first)

    def first_of_one(self, z: Tensor, action: Tensor) -> Tensor:
        """The first layer of one z, [1, D], with many actions, [N, A]."""
        weight, bias = self._first
        size = z.shape[1]
        return functional.linear(
            action, weight[:, size:], torch.addmv(bias, weight[:, :size], z[0])
        )

    def outputs(self, first: Tensor) -> Tensor:
        """What follows the first layer, [N, hidden] → [N, outputs]; overwrites it."""
        return linear(elu_(self._hidden(first)), *self._last)

    def output(self, first: Tensor) -> Tensor:
        """The same of a network with one output, [N]."""
        weight, bias = self._last
        return elu_dot(self._hidden(first), weight[0], bias)

    def _hidden(self, x: Tensor) -> Tensor:
        """The second layer before its activation."""
        return self._second(elu_(x) if self._norm is None else normalised_tanh_(x, self._norm))
