"""Batches of transitions with the actions, images and observations that TACO's losses use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from revbis.replay import Batch, Window

if TYPE_CHECKING:
    from torch import Tensor

    from revbis.replay import Replay


def sample_batch(replay: Replay, batch_size: int, action_steps: int) -> Batch:
    """Transitions of n steps, the replay's n, each with a window of K steps.

    Every image has a random shift of its own.

    Args:
        replay: The replay buffer.
        batch_size: Transitions.
        action_steps: K.
    """
    n, k = replay.n_step, action_steps
    at = (0, 0, n) if n == k else (0, 0, n, k)
    steps = replay.sample_sequences(batch_size, max(n, k), shift="image", at=at)
    reward, discount = n_step_return(steps.reward[:, :n], steps.discount[:, :n], replay.discount)
    obs, positive, next_obs, *other = steps.obs.unbind(dim=1)
    window = Window(steps.action[:, :k], positive, other[0] if other else None)
    return Batch(obs, steps.action[:, 0], reward, discount, next_obs, window=window)


def n_step_return(reward: Tensor, discount: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """The discounted sum of n rewards, [B], and the discount of what follows, [B].

    Args:
        reward: Of single steps, [B, n].
        discount: The environment's, [B, n].
        gamma: The agent's discount γ.
    """
    after = torch.cumprod(gamma * discount, dim=1)
    before = torch.cat([torch.ones_like(after[:, :1]), after[:, :-1]], dim=1)
    return (before * reward).sum(dim=1), after[:, -1]
