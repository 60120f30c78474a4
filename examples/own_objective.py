"""An objective of your own: Euclidean distances between states, learned as the revised metric.

It has to define `compute` and `distance`; `revbis.objectives.BaseObjective` has the rest.
Compare it: cd examples && revbis exactness --objective own_objective:make
Train it:   cd examples && revbis train --task dmc:cartpole_balance --objective own_objective:make
Run it:     python examples/own_objective.py
"""

import torch
from torch import Tensor
from torch.nn import functional

from revbis import objectives, runtime
from revbis.representation.exactness import ExactnessSettings, Measurement, measure
from revbis.representation.problems import build


class EuclideanObjective(objectives.BaseObjective):
    """Regresses ‖φ(s) − φ(t)‖ on |r − r'| + γ ‖φ(s') − φ(t')‖ for all pairs of a batch."""

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        return torch.linalg.vector_norm(x - y, dim=1) if rowwise else torch.cdist(x, y)

    def compute(
        self, batch: objectives.Transitions, generator: torch.Generator | None
    ) -> objectives.ObjectiveOutput:
        prediction = self.distance(batch.z, batch.z)
        with torch.no_grad():  # the targets are constants
            gap = objectives.reward_gap(batch.reward, batch.reward)
            following = self.distance(batch.next_z, batch.next_z)
            weight = objectives.pair_discount(batch.discount, batch.discount)
            targets = objectives.target(gap, following, 1.0, weight)
        return objectives.ObjectiveOutput(
            representation_loss=functional.huber_loss(prediction, targets),
            embedding=batch.z.detach(),
            prediction=prediction.detach(),
            next_weight=weight,
        )


def make(latent_dim: int, action_dim: int) -> EuclideanObjective:
    return EuclideanObjective(latent_dim, action_dim)


def compare(steps: int, size: int = 9) -> Measurement:
    problem = build("rooms", size, gamma=0.9)
    return measure(problem, "own_objective:make", settings=ExactnessSettings(steps=steps))


if __name__ == "__main__":
    runtime.prepare(threads=1)  # networks this small gain nothing from more threads
    phi = compare(steps=2000).phi
    print(f"rank correlation with the exact metric, untrained: {phi.untrained:.2f}")
    print(f"rank correlation with the exact metric, trained:   {phi.target.spearman:.2f}")
