"""TACO (Zheng et al. 2023): DrQ-v2 whose critic reads action tokens, with three more losses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.agents.base import InferenceState, tensors_of
from revbis.agents.common import as_settings, check_batch, descent
from revbis.agents.drqv2 import (
    ActorCritic,
    ActorCriticParts,
    SplitReadouts,
    StepSizes,
    acting_tensors,
    objective_metrics,
)
from revbis.agents.linear import Linear
from revbis.agents.settings import TacoSettings
from revbis.objectives.base import effective_rank
from revbis.replay import Batch, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from revbis.agents.base import Metrics
    from revbis.agents.settings import Shape
    from revbis.replay import Replay


def bilinear_logits(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """How well each y matches each x: xᵢᵀ W yⱼ, [B, D] × [B, D] → [B, B], a row for each x."""
    return x @ weight @ y.T


def contrastive_loss(logits: Tensor) -> Tensor:
    """InfoNCE: cross-entropy of choosing, in each row, the match on the diagonal; [B, B] → [B]."""
    return functional.cross_entropy(logits, _own(logits), reduction="none")


def contrastive_accuracy(logits: Tensor) -> Tensor:
    """1 where the match has the largest logit of its row, else 0; [B, B] → [B]."""
    return (logits.argmax(dim=1) == _own(logits)).to(logits.dtype)


def reward_loss(prediction: Tensor, reward: Tensor) -> Tensor:
    """Squared error of predicted rewards, [B] and [B] → [B]."""
    return (prediction - reward).square()


def _own(logits: Tensor) -> Tensor:
    return torch.arange(len(logits), device=logits.device)


_HIDDEN = 64  # width of the tokens' hidden layer, as in the public code


class ActionTokens(nn.Module):
    """An embedding of single actions, which the critic reads in their place.

    Args:
        action_size: A.
        token_size: T.
    """

    def __init__(self, action_size: int, token_size: int) -> None:
        super().__init__()
        self.hidden = Linear(action_size, _HIDDEN)
        self.output = Linear(_HIDDEN, token_size)

    def forward(self, action: Tensor) -> Tensor:
        """[B, A] → [B, T]."""
        token: Tensor = self.output(torch.tanh(self.hidden(action)))
        return token


@dataclass(frozen=True, eq=False, kw_only=True)
class TacoOutput:
    """The losses of one batch.

    Attributes:
        terms: The losses that are on, by name, with gradient.
        logits: Of the contrastive ones, by the first word of their name, detached, [B, B].
        embedding: z, detached, [B, D].
    """

    terms: dict[str, Tensor]
    logits: dict[str, Tensor]
    embedding: Tensor

    @property
    def representation_loss(self) -> Tensor:
        """Their sum, unweighted."""
        return torch.stack(list(self.terms.values())).sum()

    @property
    def losses(self) -> dict[str, Tensor]:
        """The sum and the terms by name."""
        return {"representation_loss": self.representation_loss, **self.terms}

    @cached_property
    def metrics(self) -> dict[str, Tensor]:
        """Detached scalars by name, computed on first access; docs/metrics.md explains each."""
        metrics = {name: loss.detach() for name, loss in self.losses.items()}
        for name, logits in self.logits.items():
            metrics[f"{name}_accuracy"] = contrastive_accuracy(logits).mean()
        metrics["embedding_norm"] = torch.linalg.vector_norm(self.embedding, dim=1).mean()
        metrics["effective_rank"] = effective_rank(self.embedding)
        return metrics


class TacoHeads(nn.Module):
    """The three losses with their heads; z is tanh(LayerNorm(projection of the features)).

    One bilinear form W serves both contrastive losses. It starts uniform in [0, 1].

    Args:
        settings: Which losses are on, and the sizes.
        token_size: Width of a token.
    """

    def __init__(self, settings: TacoSettings, token_size: int) -> None:
        super().__init__()
        latent, width = settings.latent_dim, settings.action_steps * token_size
        self.curl = settings.curl_loss
        self.norm = nn.LayerNorm(latent)
        self.sequence = self.following = self.reward = None
        if settings.taco_loss or settings.reward_loss:
            self.sequence = nn.Sequential(Linear(width, width), nn.LayerNorm(width), nn.Tanh())
        if settings.taco_loss:
            self.following = _mlp(latent + width, settings.hidden, latent)
        if settings.reward_loss:
            self.reward = _mlp(latent + width, settings.hidden, 1)
        if settings.taco_loss or settings.curl_loss:
            self.bilinear = nn.Parameter(torch.rand(latent, latent))

    def forward(
        self, projected: Tensor, tokens: Tensor, reward: Tensor, following: Tensor, positive: Tensor
    ) -> TacoOutput:
        """The losses of one batch.

        Args:
            projected: Projected features of the observations, [B, D], with gradient.
            tokens: Of the K actions, [B, K·T].
            reward: The n-step reward, [B].
            following: Projected features K steps on, [B, D]; no gradient reaches them.
            positive: The same of another shift of the observations, [B, D], also without gradient.
        """
        z = self.scale(projected)
        losses, logits, given = {}, {}, z
        if self.sequence is not None:
            given = torch.cat([z, self.sequence(tokens)], dim=1)
        if self.following is not None:
            next_z = self.scale(following).detach()
            logits["taco"] = bilinear_logits(self.following(given), next_z, self.bilinear)
        if self.curl:
            logits["curl"] = bilinear_logits(z, self.scale(positive).detach(), self.bilinear)
        for name, matrix in logits.items():
            losses[f"{name}_loss"] = contrastive_loss(matrix).mean()
        if self.reward is not None:
            losses["reward_loss"] = reward_loss(self.reward(given).squeeze(1), reward).mean()
        detached = {name: matrix.detach() for name, matrix in logits.items()}
        return TacoOutput(terms=losses, logits=detached, embedding=z.detach())

    def scale(self, z: Tensor) -> Tensor:
        """z, [B, D] in (−1, 1), from the projected features."""
        return torch.tanh(self.norm(z))


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(Linear(inputs, hidden, "relu"), Linear(hidden, outputs))


def sample_batch(replay: Replay, batch_size: int, action_steps: int) -> Batch:
    """Transitions of n steps, the replay's n, each with a window of K = `action_steps` steps.

    Every image has a random shift of its own.
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


class TacoParts(ActorCriticParts):
    """The networks of DrQ-v2, with action tokens and TACO's heads.

    Attributes:
        objective: The losses with their heads; None where all are off.
    """

    def __init__(
        self, shape: Shape, action_size: int, settings: TacoSettings, device: torch.device
    ) -> None:
        size = settings.token_size(action_size)
        super().__init__(
            shape,
            action_size,
            settings,
            device,
            projection=settings.has_losses,
            tokens=ActionTokens(action_size, size) if settings.tokens == "learned" else None,
            token_size=size,
        )
        self.objective = TacoHeads(settings, size).to(device) if settings.has_losses else None
        if settings.compile and self.objective is not None:
            self.objective.compile()

    def heads(self) -> list[nn.Parameter]:
        """What the losses train beside encoder and tokens."""
        if self.objective is None:
            return []
        return [*self.readouts.of("projection"), *self.objective.parameters()]

    def phi(self, features: Tensor) -> Tensor | None:
        """The embedding z as the losses compare it, [B, latent_dim]."""
        if self.objective is None:
            return None
        return self.objective.scale(self.readouts(features, "projection")[0].float())

    def modules(self) -> dict[str, Any]:
        """The networks by name, as a checkpoint has them; without what there is none of."""
        heads = {} if self.objective is None else {"objective": self.objective}
        return super().modules() | heads


class Taco(ActorCritic):
    """DrQ-v2 with TACO's losses in the place of an objective, and its modes.

    Two shifts of the same observations are encoded, one of them with gradient for the losses. The
    rest is shared with the critic:

    - joint, balanced: the critic's pass has the gradient; the second shift is encoded without.
    - alternating: the second shift has the gradient, in a step of its own. What it is compared
      with is from the passes of the critic's step, before that step.

    Args:
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action.
        settings: Losses, tokens, sizes and rates.
        seed: Seed of the networks, the exploration and the updates.
        device: Device of the networks.

    Raises:
        ValueError: For sizes that do not match, or a precision that the device does not have.
    """

    parts: TacoParts
    settings: TacoSettings

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: TacoSettings,
        *,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        settings, sizes = as_settings(settings, TacoSettings), (observation_shape, action_size)
        super().__init__(*sizes, settings, TacoParts, method="taco", seed=seed, device=device)

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:
        """One update on a batch from the replay buffer; see `learn`."""
        size = self.settings.batch_size
        if self.parts.objective is None:
            batch = replay.sample(size)
        else:
            batch = sample_batch(replay, size, self.settings.action_steps)
        return self.learn(batch, step, with_metrics=with_metrics)

    def learn(self, batch: Batch, step: int, *, with_metrics: bool = False) -> Metrics:
        """One step of critic, actor, TACO's losses and target.

        Args:
            batch: Transitions with a window of K steps (without losses no window is needed).
            step: Agent steps so far, for the noise schedule.
            with_metrics: Also return the losses' metrics, which take time to compute.

        Returns:
            Losses and metrics as scalar tensors; docs/metrics.md explains each.
        """
        batch = check_batch(batch, self.observation_shape, self.action_size, self.device)
        heads, window, deviation = self.parts.objective, batch.window, self.deviation(step)
        if heads is None:
            metrics = self.critic_and_actor(batch, deviation)
        else:
            steps, wanted = 0 if window is None else window.action.shape[1], self.settings
            if window is None or steps != wanted.action_steps:
                raise ValueError(
                    f"the batch must have a window of {wanted.action_steps} steps, as "
                    f"`sample_batch` returns, got {steps} steps"
                )
            learn = self._alternating if self.settings.mode == "alternating" else self._together
            metrics = learn(batch, window, heads, deviation, with_metrics)
        self.parts.move_target(self.settings.target_rate)
        noise = {"actor_std": torch.tensor(deviation)}
        return metrics | noise | {"batch_reward": batch.reward.mean()}

    def _together(
        self, batch: Batch, window: Window, heads: TacoHeads, deviation: float, with_metrics: bool
    ) -> Metrics:
        """Joint and balanced: the losses share the critic's encoder passes and its step."""
        parts = self.parts
        # Targets, without gradient.
        with torch.no_grad():
            next_features = self.encode(batch.next_obs)
            following, actor, target = self.read(next_features, "projection", "actor", "target")
        target_q, _ = self.targets(batch, actor, target, deviation)
        # Predictions.
        features = self.encode(batch.obs)
        with self.precision():
            read = SplitReadouts(parts.readouts, features)
            q1, q2 = parts.critic(read.critic, parts.tokens(batch.action))
        # Losses.
        positive = self._project(window.obs) if self.settings.curl_loss else read.projection
        out = self._losses(batch, window, heads, read.projection, following, positive)
        # Steps.
        step = self.joint_step if self.settings.mode == "joint" else self.balanced_step
        losses = (out.representation_loss, None)
        metrics = step(read, (q1, q2, target_q), losses, with_metrics=with_metrics)
        metrics |= self.actor_step(features.detach(), deviation)
        return metrics | objective_metrics(out.metrics if with_metrics else out.losses)

    def _alternating(
        self, batch: Batch, window: Window, heads: TacoHeads, deviation: float, with_metrics: bool
    ) -> Metrics:
        """The steps of critic and actor, then the losses' with one more encoder pass."""
        sizes = StepSizes(self.parts.encoder if with_metrics else None)
        # The critic's and the actor's step; what the losses compare with is from before.
        with torch.no_grad():
            next_features = self.encode(batch.next_obs)
            (following,) = self.read(next_features, "projection")
            actor, target = self.read(next_features, "actor", "target")
        target_q, _ = self.targets(batch, actor, target, deviation)
        features = self.encode(batch.obs)
        with torch.no_grad():
            (positive,) = self.read(features, "projection")
        metrics = self.critic_step(batch, features, target_q)
        metrics |= self.actor_step(features.detach(), deviation)
        sizes.mark()
        out = self.objective_step(batch, window, heads, following, positive)
        sizes.mark()
        metrics |= objective_metrics(out.metrics if with_metrics else out.losses)
        return metrics | sizes.share()

    def objective_step(
        self, batch: Batch, window: Window, heads: TacoHeads, following: Tensor, positive: Tensor
    ) -> TacoOutput:
        """Updates encoder, tokens and heads by the losses alone, with one encoder pass."""
        (projected,) = self.read(self.encode(window.obs), "projection")
        out = self._losses(batch, window, heads, projected, following, positive)
        with descent(self.optimisers, "objective"):
            out.representation_loss.backward()  # type: ignore[no-untyped-call]
        return out

    def _losses(
        self,
        batch: Batch,
        window: Window,
        heads: TacoHeads,
        projected: Tensor,
        following: Tensor,
        positive: Tensor,
    ) -> TacoOutput:
        if window.next_obs is not None:  # K is not the critic's n
            following = self._project(window.next_obs)
        tokens = self.parts.tokens(window.action.flatten(0, 1)).reshape(len(batch.reward), -1)
        inputs = (projected.float(), tokens, batch.reward, following.float(), positive.float())
        out: TacoOutput = heads(*inputs)
        return out

    @torch.no_grad()
    def _project(self, observations: Tensor) -> Tensor:
        return self.read(self.encode(observations), "projection")[0]


def acting(agent: Taco) -> InferenceState:
    """Encoder, actor and z; without losses, the critic's trunk in the place of z."""
    tensors, heads = acting_tensors(agent.parts), agent.parts.objective
    if heads is not None:
        tensors |= tensors_of(scale=heads.norm)
    return InferenceState(agent.observation_shape, agent.action_size, tensors)
