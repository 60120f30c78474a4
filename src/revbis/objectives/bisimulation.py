"""MICo, SimSR, their revised forms and the ablations: points on one grid.

The grid is distance × state-action encoder ψ × weights. An objective receives embeddings and owns
only its heads; the encoder φ stays with the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from revbis.methods import Design
from revbis.objectives.coefficient import AdaptiveCoefficient
from revbis.objectives.distances import mico_distance, normalise, simsr_distance
from revbis.objectives.inputs import (
    Transitions,
    check_batch,
    random_partners,
    refuse_non_finite,
)
from revbis.objectives.output import ObjectiveOutput
from revbis.objectives.targets import mean_reward_gap, pair_discount, reward_gap, target

Loss = Literal["huber", "squared"]
Pairing = Literal["all", "permuted"]


class StateActionEncoder(nn.Module):
    """ψ: an MLP with one hidden layer from [φ(s), a] to an embedding of the pair."""

    def __init__(self, latent_dim: int, action_dim: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(latent_dim + action_dim, hidden), nn.ReLU(), nn.Linear(hidden, latent_dim)
        )

    def forward(self, z: Tensor, action: Tensor) -> Tensor:
        """[B, D] and [B, A] → [B, D]."""
        embedding: Tensor = self.layers(torch.cat([z, action.to(z.dtype)], dim=1))
        return embedding


class BisimulationObjective(nn.Module):
    """Regresses distances of embeddings on their own one-step targets.

    Args:
        design: The point of the grid.
        latent_dim: D.
        action_dim: A.
        loss: "huber" (the paper's pseudocode) or "squared" (its Eq. 7).
        normalisation: Scale embeddings of states and of pairs to length 1.
        beta: Weight of the angle in MICo's distance.
        hidden: Width of ψ's hidden layer.
        pairing: "all" pairs of a batch, or each element with one other ("permuted").
    """

    steps: Tensor

    def __init__(
        self,
        design: Design,
        latent_dim: int,
        action_dim: int,
        *,
        loss: Loss = "huber",
        normalisation: bool = True,
        beta: float = 0.1,
        hidden: int = 1024,
        pairing: Pairing = "all",
    ) -> None:
        super().__init__()
        self.design, self.normalisation, self.beta = design, normalisation, beta
        self.latent_dim, self.action_dim = latent_dim, action_dim
        self.rowwise = pairing == "permuted"
        self.regression = nn.HuberLoss() if loss == "huber" else nn.MSELoss()
        self.psi = (
            StateActionEncoder(latent_dim, action_dim, hidden) if design.state_action else None
        )
        self.coefficient = AdaptiveCoefficient() if design.adaptive else None
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        z: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_z: Tensor,
        generator: torch.Generator | None = None,
    ) -> ObjectiveOutput:
        """The losses of one batch.

        Args:
            z: Embeddings φ(s), [B, D], with gradient.
            action: [B, A].
            reward: [B] or [B, 1]; for n-step transitions the discounted sum.
            discount: [B] or [B, 1]: γⁿ, and 0 where the episode terminated. Adaptive weights do
                not use it, as in Eq. 9.
            next_z: Embeddings of the next states, [B, D]; no gradient reaches them.
            generator: Draws the partners when pairs are permuted.

        Raises:
            ValueError: For wrong shapes.
            NonFiniteError: For NaN or infinity in an input or a loss.
        """
        given = Transitions(z, action, reward, discount, next_z)
        batch = check_batch(given, self.latent_dim, self.action_dim)
        partner = random_partners(batch.z, generator) if self.rowwise else None

        embedding = self.embed(batch.z, batch.action)
        prediction = self._predict(embedding, partner)
        gap, following, reward_weight, next_weight = self._target_parts(batch, partner)
        wanted = target(gap, following, reward_weight, next_weight)

        representation = self.regression(prediction, wanted.detach().expand_as(prediction))
        coefficient = None
        losses = {"representation_loss": representation}
        if self.coefficient is not None:
            coefficient = self.regression(prediction.detach(), wanted.expand_as(prediction))
            losses["coefficient_loss"] = coefficient
        refuse_non_finite(batch._asdict() | losses, self.steps)
        self.steps += 1
        own = embedding.detach()
        return ObjectiveOutput(
            representation_loss=representation,
            coefficient_loss=coefficient,
            embedding=own,
            prediction=prediction.detach(),
            self_distance=self.distance(own, own, rowwise=True),
            gap=gap,
            following=following,
            reward_weight=reward_weight.detach(),
            next_weight=next_weight.detach(),
        )

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """The distance of this objective between embeddings, [N, D] × [M, D] → [N, M]."""
        if self.design.distance == "mico":
            return mico_distance(x, y, self.beta, rowwise=rowwise)
        return simsr_distance(x, y, rowwise=rowwise)

    def embed(self, z: Tensor, action: Tensor) -> Tensor:
        """What is compared: ψ(φ(s), a), or φ(s) where there is no ψ, [B, D]."""
        z = self._scaled(z)
        return z if self.psi is None else self._scaled(self.psi(z, action))

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `representation_loss` trains: ψ's."""
        return iter(()) if self.psi is None else self.psi.parameters()

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `coefficient_loss` trains: raw_c."""
        return iter(()) if self.coefficient is None else self.coefficient.parameters()

    def _scaled(self, x: Tensor) -> Tensor:
        return normalise(x) if self.normalisation else x

    def _predict(self, embedding: Tensor, partner: Tensor | None) -> Tensor:
        other = embedding if partner is None else embedding[partner]
        if self.design.released:
            other = other.detach()
        return self.distance(embedding, other, rowwise=self.rowwise)

    @torch.no_grad()
    def _next_distance(self, next_z: Tensor, partner: Tensor | None) -> Tensor:
        next_z = self._scaled(next_z)
        other = next_z if partner is None else next_z[partner]
        return self.distance(next_z, other, rowwise=self.rowwise)

    def _target_parts(
        self, batch: Transitions, partner: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Reward gap, next-state distance, and the weights of the two."""
        other = batch if partner is None else batch.take(partner)
        if self.design.released:
            gap = mean_reward_gap(batch.reward, other.reward)
        else:
            gap = reward_gap(batch.reward, other.reward, rowwise=self.rowwise)
        following = self._next_distance(batch.next_z, partner)
        if self.coefficient is not None:
            return gap, following, *self.coefficient()
        discount = pair_discount(batch.discount, other.discount, rowwise=self.rowwise)
        return gap, following, torch.ones_like(discount[:1]), discount
