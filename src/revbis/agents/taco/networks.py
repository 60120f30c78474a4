"""The networks that TACO adds to DrQ-v2: action tokens, and the heads of its losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from revbis.agents.linear import Linear
from revbis.agents.taco.losses import (
    bilinear_logits,
    contrastive_accuracy,
    contrastive_loss,
    reward_loss,
)
from revbis.objectives import simsr_distance
from revbis.objectives.output import effective_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from revbis.agents.taco.settings import TacoSettings

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
