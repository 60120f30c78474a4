"""Deep bisimulation for control (Zhang et al. 2021) behind the same interface."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.objectives.bisimulation import Loss, Pairing
from revbis.objectives.distances import l1_distance, normalise
from revbis.objectives.inputs import (
    Transitions,
    check_batch,
    random_partners,
    refuse_non_finite,
)
from revbis.objectives.output import ObjectiveOutput
from revbis.objectives.targets import gaussian_w2, pair_discount, reward_gap, target

_LOG_DEVIATION = (-10.0, 2.0)


class GaussianDynamics(nn.Module):
    """Predicts the next embedding as a diagonal Gaussian from [φ(s), a]."""

    def __init__(self, latent_dim: int, action_dim: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(latent_dim + action_dim, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, 2 * latent_dim),
        )

    def forward(self, z: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """[B, D] and [B, A] → mean and standard deviation, [B, D] each."""
        mean, log_deviation = self.layers(torch.cat([z, action.to(z.dtype)], dim=1)).chunk(2, dim=1)
        return mean, log_deviation.clamp(*_LOG_DEVIATION).exp()


class DBCObjective(nn.Module):
    """L1 distances of embeddings, regressed on reward gaps plus W2 of predicted next embeddings.

    Its representation loss is the sum of that regression, which reaches φ alone, and of the
    dynamics' negative log-likelihood, which reaches φ and the dynamics. Arguments as for
    `BisimulationObjective`; there is no ψ and no coefficient.
    """

    steps: Tensor

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        loss: Loss = "squared",
        normalisation: bool = False,
        hidden: int = 512,
        pairing: Pairing = "permuted",
    ) -> None:
        super().__init__()
        self.latent_dim, self.action_dim, self.normalisation = latent_dim, action_dim, normalisation
        self.rowwise = pairing == "permuted"
        self.regression = nn.HuberLoss() if loss == "huber" else nn.MSELoss()
        self.dynamics = GaussianDynamics(latent_dim, action_dim, hidden)
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
        """The losses of one batch; arguments as for `BisimulationObjective.forward`."""
        given = Transitions(z, action, reward, discount, next_z)
        batch = check_batch(given, self.latent_dim, self.action_dim)
        embedding = self.embed(batch.z, batch.action)
        mean, deviation = self.dynamics(embedding, batch.action)
        next_embedding = self.embed(batch.next_z, batch.action)
        likelihood = functional.gaussian_nll_loss(mean, next_embedding, deviation.square())

        partner = random_partners(batch.z, generator) if self.rowwise else slice(None)
        prediction = self.distance(embedding, embedding[partner], rowwise=self.rowwise)
        with torch.no_grad():
            gap = reward_gap(batch.reward, batch.reward[partner], rowwise=self.rowwise)
            others = (mean[partner], deviation[partner])
            following = gaussian_w2(mean, deviation, others, rowwise=self.rowwise)
            weight = pair_discount(batch.discount, batch.discount[partner], rowwise=self.rowwise)
            wanted = target(gap, following, 1.0, weight)

        loss = self.regression(prediction, wanted) + likelihood
        refuse_non_finite(batch._asdict() | {"representation_loss": loss}, self.steps)
        self.steps += 1
        own = embedding.detach()
        return ObjectiveOutput(
            representation_loss=loss,
            coefficient_loss=None,
            embedding=own,
            prediction=prediction.detach(),
            self_distance=self.distance(own, own, rowwise=True),
            gap=gap,
            following=following,
            reward_weight=torch.ones_like(gap[:1]),
            next_weight=weight,
        )

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """L1 distance between embeddings, [N, D] × [M, D] → [N, M]."""
        return l1_distance(x, y, rowwise=rowwise)

    def embed(self, z: Tensor, action: Tensor) -> Tensor:
        """What is compared: φ(s), [B, D]; the action plays no part."""
        return normalise(z) if self.normalisation else z

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """The dynamics' parameters."""
        return self.dynamics.parameters()

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """None: the weights are (1, γ)."""
        return iter(())
