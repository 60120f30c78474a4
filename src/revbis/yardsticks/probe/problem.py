"""An MDP whose states have images, a policy that collects and the policy whose metric is wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revbis import checks
from revbis.tabular import FiniteMDP, action_value, optimal_policy
from revbis.tabular.mdp import as_mdp, as_policy

Array = NDArray[np.float64]
_TEMPERATURE = 0.02


@dataclass(frozen=True, eq=False)
class Problem:
    """What an encoder is trained on, small enough that the exact metric is known.

    Attributes:
        mdp: The MDP.
        images: An image of each state, [S, C, H, W] floats in [0, 1].
        behaviour: The policy that collects transitions, (S, A).
        target: The policy whose metric is wanted, (S, A).
        outcomes: Equally likely rewards of each state and action, (S, A, K), whose means are
            `mdp.rewards`; None where rewards are not random.
        pixel_noise: Standard deviation of the noise in every pixel of every observation; 0 where a
            state always looks the same.

    Raises:
        ValueError: If the images, policies or outcomes do not fit the MDP.
    """

    mdp: FiniteMDP
    images: Tensor
    behaviour: Array
    target: Array
    outcomes: Array | None = None
    pixel_noise: float = 0.0

    def __post_init__(self) -> None:
        shape = as_mdp(self.mdp).rewards.shape
        _check_images(self.images, shape[0])
        for policy in (self.behaviour, self.target):
            as_policy(self.mdp, policy)
        noise = checks.number(self.pixel_noise, "pixel_noise")
        if not 0 <= noise < np.inf:
            raise ValueError(f"pixel_noise must be a finite number from 0, got {noise:g}")
        if self.outcomes is None:
            return
        count = np.shape(self.outcomes)[-1] if np.ndim(self.outcomes) == 3 else 0
        outcomes = checks.finite_matrix(self.outcomes, (*shape, max(count, 1)), "outcomes")
        if not np.allclose(outcomes.mean(axis=2), self.mdp.rewards):
            raise ValueError("the means of outcomes over its last axis must be the MDP's rewards")

    @property
    def off_policy(self) -> bool:
        """Whether another policy collects than the one whose metric is wanted."""
        return not np.array_equal(self.behaviour, self.target)


@dataclass(frozen=True)
class Dataset:
    """Collected transitions: states, actions, rewards and next states, [N] each."""

    s: Tensor
    a: Tensor
    r: Tensor
    s2: Tensor


def collect(problem: Problem, count: int, generator: np.random.Generator) -> Dataset:
    """Transitions from uniformly drawn states under the behaviour policy."""
    mdp = problem.mdp
    s = generator.integers(mdp.n_states, size=count)
    a = _draw(problem.behaviour[s], generator)
    s2 = _draw(mdp.transitions[s * mdp.n_actions + a].toarray(), generator)
    r = mdp.rewards[s, a]
    if problem.outcomes is not None:
        r = problem.outcomes[s, a, generator.integers(problem.outcomes.shape[2], size=count)]
    states, actions, following = (torch.from_numpy(x) for x in (s, a, s2))
    return Dataset(states, actions, torch.from_numpy(r.astype(np.float32)), following)


def near_greedy(mdp: FiniteMDP, gamma: float) -> Array:
    """The softmax of the optimal action values at a low temperature, (S, A)."""
    q = action_value(mdp, optimal_policy(mdp, gamma)[0], gamma)
    weights = np.exp((q - q.max(axis=1, keepdims=True)) / _TEMPERATURE)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _check_images(images: object, states: int) -> None:
    wanted = f"an image for each of its {states} states, floats in [0, 1] of shape [S, C, H, W]"
    if not isinstance(images, Tensor):
        raise ValueError(f"the MDP needs {wanted}, got {type(images).__name__}")
    if images.ndim != 4 or len(images) != states or not images.is_floating_point():
        raise ValueError(f"the MDP needs {wanted}, got {images.dtype} of {list(images.shape)}")
    if not bool(((images >= 0) & (images <= 1)).all()):  # false for NaN, too
        raise ValueError(f"the MDP needs {wanted}, but some pixels are not in [0, 1]")


def _draw(probabilities: Array, generator: np.random.Generator) -> NDArray[np.int64]:
    """One index from each row of probabilities."""
    edges = probabilities.cumsum(axis=1)
    edges[:, -1] = 1.0
    return np.asarray((generator.random((len(edges), 1)) >= edges).sum(axis=1))
