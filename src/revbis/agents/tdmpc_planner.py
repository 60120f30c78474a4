"""TD-MPC's planner: model predictive path integral control with proposals of the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from revbis.agents.drqv2 import noisy_action

if TYPE_CHECKING:
    from torch import Tensor

    from revbis.agents.tdmpc import Model

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


@torch.no_grad()
def plan(
    model: Model, z: Tensor, mean: Tensor, search: Search, generator: torch.Generator
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
    count = s.samples + s.policy_samples
    # All noise in one call: many small ones take longer than the numbers themselves.
    noise = torch.randn(
        (s.iterations, horizon, s.samples, size), generator=generator, device=z.device
    )
    candidates = torch.empty((horizon, count, size), device=z.device)
    if s.policy_samples:
        candidates[:, s.samples :] = _proposals(model, z, horizon, search, generator)
    start, deviation = z.expand(count, -1), torch.full_like(mean, _WIDEST)
    for draws in noise:
        drawn = candidates[:, : s.samples]
        torch.addcmul(mean[:, None], deviation[:, None], draws, out=drawn).clamp_(-1, 1)
        returns = predicted_return(model, start, candidates, search, generator).nan_to_num(0.0)
        best, index = torch.topk(returns, s.elites)
        elites = candidates[:, index]
        weight = torch.softmax(s.temperature * best, dim=0)
        fitted = (weight[:, None] * elites).sum(dim=1)
        spread = (weight[:, None] * (elites - fitted[:, None]).square()).sum(dim=1).sqrt()
        deviation = spread.clamp(min(s.least_deviation, _WIDEST), _WIDEST)
        mean = s.momentum * mean + (1 - s.momentum) * fitted
    chosen = torch.multinomial(weight, 1, generator=generator)
    return PlannedActions(mean, deviation, elites[:, chosen].squeeze(1))


def predicted_return(
    model: Model, z: Tensor, actions: Tensor, search: Search, generator: torch.Generator
) -> Tensor:
    """Discounted rewards of action sequences, and the value of what follows, [N].

    Args:
        model: Predicts what actions lead to.
        z: Where they start, [N, D].
        actions: [H, N, A].
        search: The discount, and the noise of the policy that follows.
        generator: Draws that noise.
    """
    total, discount = torch.zeros(len(z), device=z.device), 1.0
    for action in actions:
        z, reward = model.next(z, action)
        total.add_(reward, alpha=discount)
        discount *= search.discount
    last = noisy_action(model.policy(z), search.policy_deviation, generator, NOISE_CLIP)
    return total.add_(model.value(z, last), alpha=discount)


def following_mean(mean: Tensor, horizon: int) -> Tensor:
    """Where the next plan of the episode starts: one step on, and 0 where nothing was planned.

    Args:
        mean: Of the last plan, [at most horizon, A].
        horizon: Steps of the longest plan.
    """
    start = torch.zeros((horizon, mean.shape[1]), device=mean.device)
    start[: len(mean) - 1] = mean[1:]
    return start


def _proposals(
    model: Model, z: Tensor, horizon: int, search: Search, generator: torch.Generator
) -> Tensor:
    """Actions of the noisy policy along its own predicted paths, [H, policy_samples, A]."""
    z, actions = z.expand(search.policy_samples, -1), []
    for _ in range(horizon):
        action = noisy_action(model.policy(z), search.policy_deviation, generator, NOISE_CLIP)
        actions.append(action)
        z, _ = model.next(z, action)
    return torch.stack(actions)
