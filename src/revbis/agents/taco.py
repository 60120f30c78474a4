"""TACO (Zheng et al. 2023): DrQ-v2 whose critic reads action tokens, with three more losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.agents.base import InferenceState, tensors_of
from revbis.agents.common import Linear, check_batch
from revbis.agents.drqv2 import DrQV2, NextStep, Parts, base_tensors
from revbis.agents.settings import TacoSettings
from revbis.objectives import simsr_distance
from revbis.objectives.base import effective_rank
from revbis.replay import Batch, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from revbis.agents.base import Metrics
    from revbis.agents.drqv2 import Auxiliary
    from revbis.replay import Replay


def bilinear_logits(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """How well each y matches each x: xᵢᵀ W yⱼ.

    Args:
        x: [B, D].
        y: [B, D].
        weight: W, [D, D].

    Returns:
        [B, B], a row for each x.
    """
    return x @ weight @ y.T


def contrastive_loss(logits: Tensor) -> Tensor:
    """InfoNCE: cross-entropy of choosing, for each row, the match in the same column.

    Args:
        logits: [B, B]; the matches are on the diagonal, the rest of a row are the negatives.

    Returns:
        [B].
    """
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
    coefficient_loss: None = field(default=None, init=False)

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

    policy_actions: tuple[str, ...] = ()

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

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """SimSR's distance: TACO has none of its own."""
        return simsr_distance(x, y, rowwise=rowwise)

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """All of them."""
        return self.parameters()

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """None."""
        return iter(())

    def status(self) -> dict[str, float]:
        """Nothing."""
        return {}


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(Linear(inputs, hidden, "relu"), Linear(hidden, outputs))


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


def parts_of_the_work(
    parts: Parts, heads: TacoHeads, batch: Batch, window: Window, *, alternating: bool
) -> dict[str, Callable[[], None]]:
    """The encoder passes of an update on this batch, and the losses given embeddings.

    Args:
        parts: The networks.
        heads: The losses.
        batch: Transitions.
        window: Their first K steps.
        alternating: Whether the losses have a backward pass of their own.
    """
    encoder, size = parts.encoder, len(batch.obs)
    gradient = torch.randn(size, encoder.size) / encoder.size
    without = [batch.next_obs, *([] if window.next_obs is None else [window.next_obs])]
    with_gradient = [batch.obs]
    (with_gradient if alternating else without).append(window.obs)

    def encode() -> None:
        with torch.no_grad():
            for observations in without:
                encoder(observations)
        for observations in with_gradient:
            for parameter in encoder.parameters():
                parameter.grad = None
            encoder(observations).backward(gradient)

    width = len(parts.readouts.weights["projection"])
    z, following, positive = (torch.randn(size, width) for _ in range(3))
    trained = [*heads.parameters(), *parts.tokens.parameters()]

    def compare() -> None:
        x = z.clone().requires_grad_()
        tokens = parts.tokens(window.action.flatten(0, 1)).reshape(size, -1)
        loss = heads(x, tokens, batch.reward, following, positive).representation_loss
        torch.autograd.grad(loss, [x, *trained], allow_unused=True)

    return {"encoder": encode, "objective": compare}


class Taco(DrQV2):
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
        ValueError: For sizes that do not match, or mixed precision on a CPU.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: TacoSettings,
        *,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        if not isinstance(settings, TacoSettings):
            raise ValueError(f"settings must be TacoSettings, got {settings!r:.80}")
        self._taco = settings
        super().__init__(observation_shape, action_size, settings.drqv2, seed=seed, device=device)
        self._method = "taco"
        self._projected: list[Tensor] = []  # of the critic's passes: next observations, then these

    def _make_parts(self) -> Parts:
        taco, tokens = self._taco, None
        size = taco.token_size(self.action_size)
        if taco.tokens == "learned":
            tokens = ActionTokens(self.action_size, size)
        heads = partial(TacoHeads, taco, size) if taco.has_losses else None
        shape, device = self.observation_shape, self.device
        return Parts(shape, self.action_size, self.settings, device, heads, tokens, size)

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:
        """One update on a batch from the replay buffer; see `learn`."""
        if self.parts.objective is None:
            return super().update(replay, step, with_metrics=with_metrics)
        with self.stopwatch("sample"):
            batch = sample_batch(replay, self.settings.batch_size, self._taco.action_steps)
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
        if self.parts.objective is not None:
            steps = 0 if batch.window is None else batch.window.action.shape[1]
            if steps != self._taco.action_steps:
                wanted = f"{self._taco.action_steps} steps, as `sample_batch` returns"
                raise ValueError(f"the batch must have a window of {wanted}, got {steps} steps")
        self._projected = []
        return super().learn(batch, step, with_metrics=with_metrics)

    def work(self, replay: Replay) -> dict[str, Callable[[], None]]:
        """The encoder passes of an update, and TACO's losses given embeddings.

        Gradients are discarded; no parameter changes.
        """
        heads = self.parts.objective
        if not isinstance(heads, TacoHeads):
            return super().work(replay)
        batch = sample_batch(replay, self.settings.batch_size, self._taco.action_steps)
        alternating = not self._shared
        return parts_of_the_work(self.parts, heads, batch, _window(batch), alternating=alternating)

    def _encode(self, observations: Tensor) -> Tensor:
        """The critic's features; alternating, their projections are kept for the losses."""
        features = super()._encode(observations)
        if self.parts.objective is not None and not self._shared:
            with torch.no_grad():
                self._projected += self.parts.readouts(features, "projection")
        return features

    def _compare(
        self,
        batch: Batch,
        objective: Auxiliary,
        z: Tensor,
        following: NextStep,
        policy_action: Tensor | None,  # noqa: ARG002
    ) -> TacoOutput:
        """The losses where they share the critic's pass."""
        positive = self._project(_window(batch).obs) if self._taco.curl_loss else z
        return self._losses(batch, objective, z, following.z, positive)

    def _objective_step(
        self,
        batch: Batch,
        objective: Auxiliary,
        deviation: float,  # noqa: ARG002
    ) -> TacoOutput:
        """Updates encoder, tokens and heads, with one more encoder pass."""
        next_projected, positive = self._projected
        self._projected = []
        with self._precision():
            features = self.parts.encoder(_window(batch).obs)
            (projected,) = self.parts.readouts(features, "projection")
        out = self._losses(batch, objective, projected, next_projected, positive)
        with self._descent("objective"):
            out.representation_loss.backward()  # type: ignore[no-untyped-call]
        return out

    def _losses(
        self, batch: Batch, heads: Auxiliary, projected: Tensor, following: Tensor, positive: Tensor
    ) -> TacoOutput:
        window = _window(batch)
        assert isinstance(heads, TacoHeads)
        if window.next_obs is not None:  # K is not the critic's n
            following = self._project(window.next_obs)
        tokens = self.parts.tokens(window.action.flatten(0, 1)).reshape(len(batch.reward), -1)
        inputs = (projected.float(), tokens, batch.reward, following.float(), positive.float())
        out: TacoOutput = heads(*inputs)
        return out

    @torch.no_grad()
    def _project(self, observations: Tensor) -> Tensor:
        with self._precision():
            features = self.parts.encoder(observations)
            (projected,) = self.parts.readouts(features, "projection")
        assert isinstance(projected, Tensor)
        return projected


def _window(batch: Batch) -> Window:
    assert batch.window is not None
    return batch.window


def acting(agent: Taco) -> InferenceState:
    """Encoder, actor and z; without losses, the critic's trunk in the place of z."""
    tensors, heads = base_tensors(agent), agent.parts.objective
    if isinstance(heads, TacoHeads):
        tensors |= tensors_of(scale=heads.norm)
    return InferenceState(agent.observation_shape, agent.action_size, tensors)
