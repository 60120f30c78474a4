"""DrQ-v2 whose encoder takes two steps in each update, both by the critic's loss.

In alternating mode an objective's encoder takes two steps, DrQ-v2's own takes one: what of the
objective's effect is only that?

Train it:   cd examples && revbis train --task dmc:cartpole_swingup --observation state \
                --state-noise 8 --agent twice_the_encoder:make
"""

from collections.abc import Sequence

import torch

from revbis.agents.base import Metrics
from revbis.agents.common import Adam
from revbis.agents.drqv2 import DrQV2, critic_loss
from revbis.agents.settings import DrQV2Settings, OwnSettings
from revbis.replay import Batch
from revbis.runs.presets import preset_settings


class TwiceTheEncoder(DrQV2):
    """DrQ-v2 without objective; the second step is the encoder's alone, with an Adam of its own."""

    def __init__(
        self,
        shape: Sequence[int],
        action_size: int,
        settings: DrQV2Settings,
        *,
        seed: int,
        device: str,
    ) -> None:
        super().__init__(shape, action_size, settings, seed=seed, device=device)
        encoder = list(self.parts.encoder.parameters())
        rate = settings.objective_learning_rate
        self.optimisers["objective"] = Adam([{"params": encoder, "lr": rate}])

    def critic_and_actor(self, batch: Batch, deviation: float) -> Metrics:
        """The steps of critic and actor, then the encoder's with passes of its own."""
        metrics = super().critic_and_actor(batch, deviation)
        with torch.no_grad():
            actor, target = self.read(self.encode(batch.next_obs), "actor", "target")
        target_q, _ = self.targets(batch, actor, target, deviation)
        (readout,) = self.read(self.encode(batch.obs), "critic")
        q1, q2 = self.parts.critic(readout, batch.action)
        with self.descent("objective"):
            critic_loss(q1, q2, target_q).backward()
        return metrics


def make(
    observation_shape: Sequence[int],
    action_size: int,
    settings: OwnSettings,
    *,
    seed: int,
    device: str,
) -> TwiceTheEncoder:
    """With the sizes and rates of the cpu preset."""
    preset = preset_settings("cpu", "dmc:cartpole_swingup")
    names = DrQV2Settings.__dataclass_fields__
    values = {name: each.value for name, each in preset.items() if name in names}
    values |= {"batch_size": settings.batch_size, "explore_steps": settings.explore_steps}
    own = DrQV2Settings(**values)
    return TwiceTheEncoder(observation_shape, action_size, own, seed=seed, device=device)
