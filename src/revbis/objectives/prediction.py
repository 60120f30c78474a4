"""Baselines without a metric: a latent model of the next embedding, and of the reward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from revbis.objectives.base import BaseObjective, ObjectiveOutput
from revbis.objectives.distances import l2_distance

if TYPE_CHECKING:
    from revbis.objectives.base import Transitions
    from revbis.objectives.bisimulation import Loss


class PredictionObjective(BaseObjective):
    """Predicts the next embedding from [φ(s), a]; with `rewards` the reward, too (DeepMDP).

    The loss is the squared length of the error, to an embedding without gradient; of embeddings of
    length 1 that is 2 − 2 cos. The reward's squared error is added to it. The model is of one
    action, so it needs one-step transitions. A terminal state is predicted like any other.

    No loss is on distances. `distance` is Euclidean, for whoever compares embeddings, and `metric`
    names what the benchmark compares it with.

    Args:
        latent_dim: D.
        action_dim: A.
        rewards: Predict rewards, too.
        loss: "squared", or "huber" of each coordinate.
        normalisation: Scale embeddings and predictions of them to length 1.
        hidden: Width of the hidden layer of each model.
        discrete: Actions may be integers.
        psi: The owner's ψ: the models are then linear in ψ(φ(s), a).
    """

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        rewards: bool,
        loss: Loss = "squared",
        normalisation: bool = False,
        hidden: int = 1024,
        discrete: bool = False,
        psi: nn.Module | None = None,
    ) -> None:
        embedding: dict[str, Any] = {"normalisation": normalisation, "discrete": discrete}
        super().__init__(latent_dim, action_dim, **embedding, psi=psi)
        error = nn.MSELoss if loss == "squared" else nn.HuberLoss
        self.error = error(reduction="none")
        if psi is not None:
            self.dynamics: nn.Module = nn.Linear(latent_dim, latent_dim)
            self.reward: nn.Module | None = nn.Linear(latent_dim, 1) if rewards else None
            return
        inputs = latent_dim + action_dim
        self.dynamics = _model(inputs, hidden, latent_dim)
        self.reward = _model(inputs, hidden, 1) if rewards else None

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:  # noqa: ARG002
        """The loss of a checked batch; nothing in it is random."""
        z, wanted = self.scale(batch.z), self.scale(batch.next_z)
        if self.owned:
            inputs = self.psi(batch.z, batch.action)
        else:
            inputs = torch.cat([z, batch.action.to(z.dtype)], dim=1)
        following = self.scale(self.dynamics(inputs))
        loss = self.error(following, wanted).sum(dim=1).mean()
        predicted = {"next": (following.detach(), wanted)}
        if self.reward is not None:
            reward = self.reward(inputs).squeeze(1)
            actual = batch.reward.to(reward.dtype)
            loss = loss + self.error(reward, actual).mean()
            predicted["reward"] = (reward.detach(), actual)
        return ObjectiveOutput(representation_loss=loss, embedding=z.detach(), predicted=predicted)

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Euclidean distance between embeddings, [N, D] × [M, D] → [N, M]."""
        return l2_distance(x, y, rowwise=rowwise)


def _model(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
