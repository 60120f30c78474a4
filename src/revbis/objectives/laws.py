r"""Reward laws as an objective: the revised metric without pairs, for every horizon at once.

The revised metric is a function of the laws of the rewards to come (`revbis.tabular.reward_laws`),
which obey a recursion for each state. So each state's laws are learned by classification, and
distances are read from them. A window j is a distribution \(κ_j\) of lags; \(F_j(s)\) is the law of
the reward at a lag drawn from it. The first windows are single lags, later ones are longer:

.. math:: F_0(s,a) = \mathrm{law}(r), \quad
          F_j(s,a) = E[(1−λ_j) F_{j−1}(s') + λ_j F_j(s')], \quad F_j(s) = E_{a∼π} F_j(s,a).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.signal import lfilter
from torch import Tensor, nn

from revbis.io import schema
from revbis.objectives.base import BaseObjective, ObjectiveOutput, as_vectors, can_look
from revbis.objectives.bisimulation import StateActionEncoder
from revbis.objectives.distances import normalise, simsr_distance

if TYPE_CHECKING:
    from revbis.objectives.base import Transitions

Array = NDArray[np.float64]

_SINGLE, _WINDOWS, _GROWTH = 8, 24, 1.3  # windows of one lag, windows, growth of the others
_LEVELS = 33  # that rewards are rounded to
_REWARDS = 4096  # kept, to choose the levels from
_EVERY = 1000  # batches between two choices of levels
_OUTSIDE = 0.1  # of their range: a reward that far outside asks for a new choice at once
_UNSEEN = 0.05  # of a reward: how often a level without rewards counts as seen
_START = 1e-3  # scale of the head's weights: the first laws are those of all rewards
_LONGEST = 1 << 14  # lags that windows are compared with a discount over


def window_leaks() -> Array:
    """λ of each window: 0 for the single lags, then windows that grow by a factor."""
    delays = _GROWTH ** np.maximum(np.arange(_WINDOWS) - _SINGLE + 1, 0)
    return np.asarray(1 - 1 / delays)


def window_lags(leaks: Array, lags: int) -> Array:
    """κ: the distribution of lags of each window, (windows, lags)."""
    κ = np.zeros((len(leaks), lags))
    κ[0, 0] = 1.0
    for j in range(1, len(leaks)):
        κ[j] = lfilter([0.0, 1 - leaks[j]], [1.0, -leaks[j]], κ[j - 1])
    return κ


class Weights(NamedTuple):
    """How a discount is read from windows.

    Attributes:
        weights: w ≥ 0 of each window, such that Σ_j w_j κ_j(k) is nearly γ^k.
        missed: Σ_k |γ^k − Σ_j w_j κ_j(k)|.
        blurred: Σ_j w_j (1 − Σ_k κ_j(k)²): the weight of pairs of lags that are not equal.
    """

    weights: Array
    missed: float
    blurred: float


@lru_cache(maxsize=256)
def window_weights(leaks: tuple[float, ...], gamma: float) -> Weights:
    """The weights of windows that stand for γ^k.

    Args:
        leaks: λ of each window.
        gamma: In [0, 1).
    """
    lags = _LONGEST if gamma > 0.99 else _LONGEST >> 3
    κ, wanted = window_lags(np.array(leaks), lags), gamma ** np.arange(lags)
    importance = np.maximum(wanted, 1e-4) ** -0.5
    weights, _ = nnls((κ * importance).T, wanted * importance)
    beyond = gamma**lags / (1 - gamma) + float(weights @ (1 - κ.sum(axis=1)))
    missed = float(np.abs(wanted - weights @ κ).sum()) + beyond
    return Weights(weights, missed, float(weights @ (1 - (κ**2).sum(axis=1))))


def reward_levels(rewards: Tensor, count: int) -> Tensor:
    """Rewards that stand for all, [count], in order; some are equal if there are few values.

    The density of levels is the square root of that of rewards, which makes the largest product of
    a gap and the share of rewards in it small. Up to about `count` values are all among them.

    Args:
        rewards: [N].
        count: At least 2.
    """
    x = rewards.double().sort().values
    steps = (x[1:] - x[:-1]).sqrt().cumsum(0)
    place = torch.cat([steps.new_zeros(1), steps]) / steps[-1:].clamp_min(1e-300)
    wanted = torch.linspace(0, 1, count, dtype=x.dtype, device=x.device)
    above = torch.searchsorted(place, wanted).clamp(1, len(x) - 1)
    nearer = place[above] - wanted < wanted - place[above - 1]
    return x[torch.where(nearer, above, above - 1)].to(rewards.dtype)


def nearest_level(rewards: Tensor, levels: Tensor) -> Tensor:
    """Index of the level next to each reward, of rewards' shape; of equal levels the first."""
    return torch.bucketize(rewards.contiguous(), (levels[1:] + levels[:-1]) / 2)


def follow(first: Tensor, following: Tensor, leaks: Tensor) -> Tensor:
    """What the windows of a transition should hold, [B, W, …].

    Args:
        first: Of its own reward, [B, …]: window 0.
        following: The windows of the next state, [B, W, …].
        leaks: λ, [W].
    """
    leak = leaks[1:].reshape(-1, *[1] * (following.ndim - 2))
    later = (1 - leak) * following[:, :-1] + leak * following[:, 1:]
    return torch.cat([first[:, None], later], dim=1)


@dataclass(frozen=True)
class LearnedBound:
    """Bounds on the error of learned distances, which add up.

    Attributes:
        residual: From the recursion's residuals on the transitions given.
        rounding: From rewards that are rounded to levels.
        windows: From lags that share a window, and from γ^k that windows do not reproduce.
        largest: No distance is larger, exact or learned.
    """

    residual: float
    rounding: float
    windows: float
    largest: float

    @property
    def total(self) -> float:
        """No distance between the states of the transitions has a larger error."""
        return min(self.residual + self.rounding + self.windows, self.largest)


class WindowObjective(BaseObjective):
    """What follows a state, by windows of lags; a subclass says what of the rewards is learned.

    ψ(φ(s), a) and φ(s) are read by one linear head. No target network: the next state's reading,
    without gradient, is the target of a transition; that of the policy's action the target of φ(s).

    Args:
        latent_dim: D.
        action_dim: A.
        hidden: Width of ψ's hidden layer.
        predict: Beside it predict the direction of the next embedding from ψ, by 1 − cos.
        discrete: Actions may be integers.
        psi: The owner's ψ; None for one of its own.
        outputs: Of the head, for each window.
    """

    compares = "state_action"
    policy_actions = ("policy_action",)
    _on_equal_rewards = (" and none terminated", "")
    rewards: Tensor
    levels: Tensor
    leaks: Tensor
    gamma: Tensor
    terminates: Tensor

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        hidden: int = 1024,
        predict: bool = False,
        discrete: bool = False,
        psi: nn.Module | None = None,
        outputs: int,
    ) -> None:
        super().__init__(latent_dim, action_dim, discrete=discrete, psi=psi)
        if not self.owned:
            self.psi = StateActionEncoder(latent_dim, action_dim, hidden)
        self.windows = tuple(float(leak) for leak in window_leaks())
        self.head = nn.Linear(latent_dim, len(self.windows) * outputs)
        with torch.no_grad():
            self.head.weight *= _START
            self.head.bias.zero_()
        self.dynamics = nn.Linear(latent_dim, latent_dim) if predict else None
        self.register_buffer("leaks", torch.tensor(self.windows), persistent=False)
        self.register_buffer("rewards", torch.zeros(_REWARDS))
        self.register_buffer("levels", torch.zeros(_LEVELS))
        self.register_buffer("gamma", torch.zeros(()))
        self.register_buffer("terminates", torch.zeros((), dtype=torch.bool))

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:  # noqa: ARG002
        """The loss of a checked batch; nothing in it is random."""
        assert batch.policy_action is not None
        self._observe(batch)
        pair = self.embed(batch.z, batch.action)
        with torch.no_grad():
            of_policy = self.embed(batch.z, batch.policy_action)
            policy, following = self.read(torch.cat([of_policy, batch.next_z])).chunk(2)
            targets = torch.cat([self._targets(batch, following), policy])
        loss, tie_loss = self.errors(torch.cat([pair, batch.z]), targets).view(2, -1).mean(dim=1)
        # Nearest levels are levels: without this the loss of a reward that is NaN would be finite.
        total, predicted = loss + tie_loss + 0 * (batch.reward + batch.discount).sum(), {}
        if self.dynamics is not None:
            following = self.dynamics(pair)
            total = total + simsr_distance(following, batch.next_z, rowwise=True).mean()
            predicted["next"] = (normalise(following.detach()), normalise(batch.next_z))
        changes = (batch.reward - batch.reward.roll(1)).abs()
        return ObjectiveOutput(
            representation_loss=total,
            tie_loss=tie_loss.detach(),
            embedding=pair.detach(),
            predicted=predicted,
            gap=changes + (batch.discount == 0),  # an end is a change: later rewards are 0
        )

    def embed(self, z: Tensor, action: Tensor) -> Tensor:
        """ψ(φ(s), a), [B, D]."""
        if self.discrete:
            action = as_vectors("action", action, len(z), self.action_dim, discrete=True)
        embedding: Tensor = self.psi(z, action)
        return embedding

    def read(self, x: Tensor) -> Tensor:
        """What is predicted of embeddings of states or pairs, [B, W, …]."""
        raise NotImplementedError

    def errors(self, x: Tensor, targets: Tensor) -> Tensor:
        """The loss of what is predicted of each embedding, [B]."""
        raise NotImplementedError

    def of_reward(self, reward: Tensor) -> Tensor:
        """What window 0 of a transition with this reward should hold, [B] → [B, …]."""
        raise NotImplementedError

    def _targets(self, batch: Transitions, following: Tensor) -> Tensor:
        """Of transitions, whose next states read `following`; [B, W, …]."""
        over = (batch.discount == 0).reshape(-1, *[1] * (following.ndim - 1))
        nothing = self.of_reward(torch.zeros_like(batch.reward[:1]))
        following = torch.where(over, nothing[:, None], following)
        return follow(self.of_reward(batch.reward), following, self.leaks)

    def _observe(self, batch: Transitions) -> None:
        """Keeps rewards, and chooses levels at batches 1, 2, 4, 8, … and every thousandth."""
        reward = _finite(batch.reward[-_REWARDS:].to(self.rewards.dtype))
        order = torch.arange(len(reward), device=reward.device)
        places = (self.steps * len(reward) + order) % _REWARDS
        copies = reward.repeat(-(-_REWARDS // len(reward)))[:_REWARDS]
        self.rewards.copy_(torch.where(self.steps == 0, copies, self.rewards))
        self.rewards[places] = reward
        self.gamma.copy_(torch.maximum(self.gamma, _finite(batch.discount).max()))
        self.terminates |= (batch.discount == 0).any()
        end = torch.where(self.terminates, 0.0, self.rewards[:1])
        new, margin = torch.cat([reward, end]), _OUTSIDE * (self.levels[-1] - self.levels[0])
        due = (self.steps & (self.steps - 1) == 0) | (self.steps % _EVERY == 0)
        due |= ((new < self.levels[0] - margin) | (new > self.levels[-1] + margin)).any()
        if not can_look(due) or due:
            self._choose(torch.cat([self.rewards, end]), due)

    def _choose(self, rewards: Tensor, due: Tensor) -> None:
        """Chooses the levels where that is due."""
        self.levels.copy_(torch.where(due, reward_levels(rewards, _LEVELS), self.levels))


class LawObjective(WindowObjective):
    """Learns the laws of the rewards to come; distances at any γ up to .995 are read from them.

    Each law is a distribution over levels, trained by cross-entropy; windows count alike. A
    terminated state has rewards of 0. With n-step transitions a step is n steps, and its reward
    the discounted sum. Options as for `WindowObjective`.
    """

    prior: Tensor

    def __init__(self, latent_dim: int, action_dim: int, **options: Any) -> None:
        super().__init__(latent_dim, action_dim, outputs=_LEVELS, **options)
        self.register_buffer("prior", torch.zeros(_LEVELS))

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """U between embeddings of states, or G between those of pairs, in the unit of rewards.

        At the discount of the data; `at` reads it at others. [N, D] × [M, D] → [N, M].
        """
        return self._data_horizon().distance(x, y, rowwise=rowwise)

    def at(self, *, gamma: float | None = None, c: float | None = None) -> LawReading:
        """The same laws read at another horizon: weights γ^k, or (1 − c)c^k.

        Raises:
            ValueError: Unless one of the two is given, in [0, .995].
        """
        if gamma is not None and c is None:
            return LawReading(self, _readable(gamma, "gamma"), 1.0)
        if c is not None and gamma is None:
            return LawReading(self, _readable(c, "c"), 1 - c)
        raise ValueError("at(...) reads one horizon: pass either gamma= or c=")

    def value(self, x: Tensor) -> Tensor:
        """V of embedded states, or Q of embedded pairs, at the discount of the data: [N]."""
        return self._data_horizon().value(x)

    def error_bound(
        self,
        batch: Transitions,
        reading: LawReading | None = None,
        *,
        pairs: Tensor | None = None,
        states: Tensor | None = None,
    ) -> LearnedBound:
        """Bounds the error of distances between states by the residuals on these transitions.

        The largest residual of a window adds to the error of its law and of all later ones. That is
        so whatever a residual is of: of a single transition and a single action of the policy, or,
        which is tighter, of means over those that begin alike. It is true of the states that the
        batch starts from and leads to if it includes, for each of them, every action and outcome
        that has a chance, as that of all transitions of a finite MDP; a sample bounds what it saw.

        Args:
            batch: Transitions with actions of the policy.
            reading: The horizon; that of the data by default.
            pairs: How transitions of the same state and action are averaged, [P, B], rows sum to 1.
            states: How those of the same state are, with the policy's actions, [S, B].
        """
        reading = reading or self._data_horizon()
        assert batch.policy_action is not None
        with torch.no_grad():
            gaps, leaks = self.levels.diff().double(), self.leaks.double()
            targets = self._targets(batch, self.read(batch.next_z))
            pair = self.read(self.embed(batch.z, batch.action)) - targets
            state = self.read(batch.z) - self.read(self.embed(batch.z, batch.policy_action))
            residuals = _largest(pair, pairs, gaps) + _largest(state, states, gaps)
            errors = (residuals / (1 - leaks)).cumsum(dim=0).numpy(force=True)
            end = torch.zeros_like(batch.reward[: int(self.terminates)])
            reward = torch.cat([batch.reward, end])
            away = (reward - self.levels[nearest_level(reward, self.levels)]).abs().max()
            both = torch.cat([reward, self.levels.to(reward.dtype)])
            span = reading.reward_weight * float(both.max() - both.min())
        weights, scale = reading.weights, reading.reward_weight
        return LearnedBound(
            residual=2 * float(weights.weights @ np.minimum(scale * errors, span)),
            rounding=2 * scale * float(away) * float(weights.weights.sum()),
            windows=span * (weights.blurred + weights.missed),
            largest=span / (1 - reading.discount),
        )

    def read(self, x: Tensor) -> Tensor:
        """The laws of embeddings of states or pairs: probabilities of the levels, [B, W, L]."""
        return self._scores(x).softmax(dim=2)

    def errors(self, x: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy, summed over windows."""
        return -(targets * self._scores(x).log_softmax(dim=2)).sum(dim=(1, 2))

    def of_reward(self, reward: Tensor) -> Tensor:
        """All on the level next to it."""
        return self._shares(reward.to(self.levels.dtype)).to(self.head.weight.dtype)

    def _shares(self, rewards: Tensor) -> Tensor:
        """Which level is next to each reward, [N] → [N, L]; without a look at the numbers."""
        order = torch.arange(_LEVELS, device=rewards.device)
        return nearest_level(rewards, self.levels)[:, None] == order

    def _scores(self, x: Tensor) -> Tensor:
        """Log-probabilities of the levels, up to a constant, [B, W, L]."""
        outputs: Tensor = self.head(x.to(self.head.weight.dtype))
        return outputs.view(len(x), len(self.windows), _LEVELS) + self.prior

    def _choose(self, rewards: Tensor, due: Tensor) -> None:
        super()._choose(rewards, due)
        seen = self._shares(rewards).sum(dim=0)
        prior = ((seen + _UNSEEN) / len(rewards)).log().to(self.prior.dtype)
        self.prior.copy_(torch.where(due, prior, self.prior))

    def _data_horizon(self) -> LawReading:
        return LawReading(self, min(float(self.gamma), _LARGEST), 1.0)


_LARGEST = 0.995  # that windows are read at, also where the discount of the data is larger


def _readable(value: float, name: str) -> float:
    discount = schema.discount(value, name)
    if discount > _LARGEST:
        raise ValueError(
            f"{name} must be at most {_LARGEST}, got {discount}: the windows of laws end at lags "
            "of some 300, and would leave out more than 7% of its weights"
        )
    return discount


def _finite(x: Tensor) -> Tensor:
    """0 for what is not finite: a CPU has refused it, a GPU must not remember it."""
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def _largest(residual: Tensor, means: Tensor | None, gaps: Tensor) -> Tensor:
    """The largest ∫|F − F'| of each window, [W], of differences of laws, [B, W, L]."""
    difference = residual.double().cumsum(dim=2)[..., :-1]
    if means is not None:
        difference = torch.tensordot(means.double(), difference, dims=1)
    return (difference.abs() @ gaps).amax(dim=0)


@dataclass(frozen=True, eq=False)
class LawReading:
    """Learned laws, read at one horizon.

    Attributes:
        objective: Whose laws.
        discount: γ, or c.
        reward_weight: 1, or 1 − c.
    """

    objective: LawObjective
    discount: float
    reward_weight: float

    @property
    def weights(self) -> Weights:
        """Of the windows; `reward_weight` is not in them."""
        return window_weights(self.objective.windows, self.discount)

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """U between embeddings of states, G between those of pairs: [N, M], or [N] rowwise."""
        F, G, weights = self._laws(x), self._laws(y), self._of_cells(x)
        if rowwise:
            return ((F * (1 - G) + G * (1 - F)) * weights).sum(dim=1)
        F_weighted = F * weights
        return F_weighted @ (1 - G).T + (weights - F_weighted) @ G.T

    def reduced(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """U less half of both self-distances: [N, M], or [N] rowwise."""
        scale = self._of_cells(x).sqrt()
        F, G = self._laws(x) * scale, self._laws(y) * scale
        if rowwise:
            return (F - G).square().sum(dim=1)
        return torch.cdist(F, G).square()

    def value(self, x: Tensor) -> Tensor:
        """V of embedded states, or Q of embedded pairs: Σ_k γ^k E R_k, [N]."""
        total = self.reward_weight * float(self.weights.weights.sum())
        return total * self.objective.levels[-1] - self._laws(x) @ self._of_cells(x)

    def _laws(self, x: Tensor) -> Tensor:
        below = self.objective.read(x).cumsum(dim=2)[..., :-1].clamp(0, 1)
        return below.flatten(start_dim=1)

    def _of_cells(self, x: Tensor) -> Tensor:
        """Weight of each window and gap between levels, [W · (L − 1)]."""
        windows = torch.as_tensor(self.reward_weight * self.weights.weights, device=x.device)
        cells = windows[:, None] * self.objective.levels.diff()
        return cells.flatten().to(self.objective.head.weight.dtype)


class MeanObjective(WindowObjective):
    """Learns expected rewards instead of their laws; else as `LawObjective`.

    `distance` is Σ γ^k |E R_k − E R'_k|, at most the revised metric.
    """

    def __init__(self, latent_dim: int, action_dim: int, **options: Any) -> None:
        super().__init__(latent_dim, action_dim, outputs=1, **options)

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Σ γ^k |E R_k − E R'_k| between embeddings of states or pairs, [N, M], or [N] rowwise."""
        discount = min(float(self.gamma), _LARGEST)
        weights = window_weights(self.windows, discount).weights
        scaled = torch.as_tensor(weights, device=x.device).to(x.dtype)
        F, G = self.read(x) * scaled, self.read(y) * scaled
        return (F - G).abs().sum(dim=1) if rowwise else torch.cdist(F, G, p=1)

    def read(self, x: Tensor) -> Tensor:
        """Expected rewards of the windows, [B, W]."""
        mean, scale = self._unit()
        outputs: Tensor = self.head(x.to(self.head.weight.dtype))
        return mean + scale * outputs

    def errors(self, x: Tensor, targets: Tensor) -> Tensor:
        """Squared errors in units of the rewards' variance, summed over windows."""
        return ((self.read(x) - targets) / self._unit()[1]).square().sum(dim=1)

    def of_reward(self, reward: Tensor) -> Tensor:
        """Itself."""
        return reward.to(self.head.weight.dtype)

    def _unit(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the rewards that are kept."""
        deviation = self.rewards.std(correction=0)
        return self.rewards.mean(), torch.where(deviation > 0, deviation, 1.0)
