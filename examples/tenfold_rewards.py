"""Known objectives with one change: they see rewards × 10. Does the unit of the rewards matter?

Train it:   cd examples && revbis train --task dmc:walker_walk --objective tenfold_rewards:simsr
Compare:    cd examples && revbis sweep noisy-cartpole --methods simsr tenfold_rewards:simsr
"""

import torch

from revbis import objectives


class Tenfold(objectives.BisimulationObjective):
    """An objective with rewards in another unit; the agent's own losses see them as they are."""

    def compute(
        self, batch: objectives.Transitions, generator: torch.Generator | None
    ) -> objectives.ObjectiveOutput:
        return super().compute(batch._replace(reward=10 * batch.reward), generator)


def simsr(latent_dim: int, action_dim: int) -> Tenfold:
    return Tenfold(latent_dim, action_dim, design=objectives.DESIGNS["simsr"])


def simsr_rev(latent_dim: int, action_dim: int) -> Tenfold:
    return Tenfold(latent_dim, action_dim, design=objectives.DESIGNS["simsr-rev"])
