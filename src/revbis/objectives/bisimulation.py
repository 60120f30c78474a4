"""MICo, SimSR, their revised forms and the ablations: points on one grid.

The grid is distance × state-action encoder ψ × weights. An objective receives embeddings and owns
only its heads; the encoder φ stays with the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from revbis.objectives.base import BaseObjective
from revbis.objectives.coefficient import AdaptiveCoefficient
from revbis.objectives.distances import mico_distance, simsr_distance
from revbis.objectives.inputs import Transitions, random_partners
from revbis.objectives.output import ObjectiveOutput
from revbis.objectives.targets import mean_reward_gap, pair_discount, reward_gap, target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from revbis.objectives.designs import Design
    from revbis.objectives.protocol import Objective

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


class BisimulationObjective(BaseObjective):
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
        super().__init__(latent_dim, action_dim, normalisation=normalisation)
        self.design, self.beta = design, beta
        self.compares = "state_action" if design.state_action else "state"
        self.rowwise = pairing == "permuted"
        self.regression = nn.HuberLoss() if loss == "huber" else nn.MSELoss()
        self.psi = (
            StateActionEncoder(latent_dim, action_dim, hidden) if design.state_action else None
        )
        self.coefficient = AdaptiveCoefficient() if design.adaptive else None

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:
        """The losses of a checked batch; the generator draws partners when pairs are permuted."""
        partner = random_partners(batch.z, generator) if self.rowwise else None
        embedding = self.embed(batch.z, batch.action)
        prediction = self._predict(embedding, partner)
        gap, following, reward_weight, next_weight = self._target_parts(batch, partner)
        targets = target(gap, following, reward_weight, next_weight)

        representation = self.regression(prediction, targets.detach().expand_as(prediction))
        coefficient = None
        if self.coefficient is not None:
            coefficient = self.regression(prediction.detach(), targets.expand_as(prediction))
        detached = embedding.detach()
        return ObjectiveOutput(
            representation_loss=representation,
            coefficient_loss=coefficient,
            embedding=detached,
            prediction=prediction.detach(),
            self_distance=self.distance(detached, detached, rowwise=True),
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
        z = self.scale(z)
        return z if self.psi is None else self.scale(self.psi(z, action))

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `coefficient_loss` trains: raw_c."""
        return iter(()) if self.coefficient is None else self.coefficient.parameters()

    def status(self) -> dict[str, float]:
        """The coefficient c, where there is one."""
        return {} if self.coefficient is None else {"c": float(self.coefficient()[1].detach())}

    def _predict(self, embedding: Tensor, partner: Tensor | None) -> Tensor:
        other = embedding if partner is None else embedding[partner]
        if self.design.released:
            other = other.detach()
        return self.distance(embedding, other, rowwise=self.rowwise)

    @torch.no_grad()
    def _next_distance(self, next_z: Tensor, partner: Tensor | None) -> Tensor:
        next_z = self.scale(next_z)
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


def make(latent_dim: int, action_dim: int, *, design: Design, **options: Any) -> Objective:
    """The objective of a design; options as for `BisimulationObjective`."""
    return BisimulationObjective(design, latent_dim, action_dim, **options)
