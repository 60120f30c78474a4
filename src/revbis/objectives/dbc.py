"""Deep bisimulation for control (Zhang et al. 2021) behind the same interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from revbis.objectives.base import BaseObjective, ObjectiveOutput, Transitions, random_partners
from revbis.objectives.bisimulation import gaussian_w2, pair_discount, reward_gap, target
from revbis.objectives.distances import l1_distance

if TYPE_CHECKING:
    from revbis.objectives.bisimulation import Loss, Pairing

_LOG_DEVIATION = (-10.0, 2.0)


class GaussianDynamics(nn.Module):
    """Predicts the next embedding as a diagonal Gaussian from [φ(s), a], or from ψ(φ(s), a).

    Args:
        inputs: Width of what it reads.
        latent_dim: D.
        hidden: Width of its hidden layer; None for none: the owner's ψ has them.
    """

    def __init__(self, inputs: int, latent_dim: int, hidden: int | None) -> None:
        super().__init__()
        self.layers: nn.Module
        if hidden is None:
            self.layers = nn.Linear(inputs, 2 * latent_dim)
        else:
            first, last = nn.Linear(inputs, hidden), nn.Linear(hidden, 2 * latent_dim)
            self.layers = nn.Sequential(first, nn.LayerNorm(hidden), nn.ReLU(), last)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, inputs] → mean and standard deviation, [B, D] each."""
        mean, log_deviation = self.layers(x).chunk(2, dim=1)
        return mean, log_deviation.clamp(*_LOG_DEVIATION).exp()


def gaussian_nll(mean: Tensor, deviation: Tensor, x: Tensor) -> Tensor:
    """PyTorch's `gaussian_nll_loss`, but without its look at the variances, for which a GPU waits.

    Variances below 1e-6 count as that much, with the gradient that they would have.
    """
    variance = deviation.square()
    variance = variance + (variance.clamp_min(1e-6) - variance).detach()
    return (variance.log() + (mean - x).square() / variance).mean() / 2


class DBCObjective(BaseObjective):
    """L1 distances of embeddings, regressed on reward gaps plus W2 of predicted next embeddings.

    Its representation loss is the sum of that regression, which reaches φ alone, and of the
    dynamics' negative log-likelihood, which reaches φ and the dynamics. Arguments as for
    `BisimulationObjective`; there is no coefficient, and no ψ but the owner's, in which the
    dynamics are then linear.
    """

    metric = "pi_bisimulation"

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        loss: Loss = "squared",
        normalisation: bool = False,
        hidden: int = 512,
        pairing: Pairing = "permuted",
        discrete: bool = False,
        psi: nn.Module | None = None,
    ) -> None:
        embedding: dict[str, Any] = {"normalisation": normalisation, "discrete": discrete}
        super().__init__(latent_dim, action_dim, **embedding, psi=psi)
        self.rowwise = pairing == "permuted"
        self.regression = nn.HuberLoss() if loss == "huber" else nn.MSELoss()
        inputs = latent_dim if psi is not None else latent_dim + action_dim
        self.dynamics = GaussianDynamics(inputs, latent_dim, None if psi is not None else hidden)

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:
        """The losses of a checked batch; the generator draws partners when pairs are permuted."""
        embedding = self.embed(batch.z, batch.action)
        if self.owned:
            inputs = self.psi(batch.z, batch.action)
        else:
            inputs = torch.cat([embedding, batch.action.to(embedding.dtype)], dim=1)
        mean, deviation = self.dynamics(inputs)
        next_embedding = self.embed(batch.next_z, batch.action)
        likelihood = gaussian_nll(mean, deviation, next_embedding)

        partner = random_partners(batch.z, generator) if self.rowwise else slice(None)
        prediction = self.distance(embedding, embedding[partner], rowwise=self.rowwise)
        with torch.no_grad():
            gap = reward_gap(batch.reward, batch.reward[partner], rowwise=self.rowwise)
            others = (mean[partner], deviation[partner])
            following = gaussian_w2(mean, deviation, others, rowwise=self.rowwise)
            weight = pair_discount(batch.discount, batch.discount[partner], rowwise=self.rowwise)
            targets = target(gap, following, 1.0, weight)

        loss = self.regression(prediction, targets) + likelihood
        detached = embedding.detach()
        return ObjectiveOutput(
            representation_loss=loss,
            embedding=detached,
            prediction=prediction.detach(),
            self_distance=self.distance(detached, detached, rowwise=True),
            gap=gap,
            following=following,
            reward_weight=torch.ones_like(gap[:1]),
            next_weight=weight,
        )

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """L1 distance between embeddings, [N, D] × [M, D] → [N, M]."""
        return l1_distance(x, y, rowwise=rowwise)
