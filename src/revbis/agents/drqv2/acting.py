"""What DrQ-v2 acts and embeds with: no target, no heads of the critic or of the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from revbis.agents.acting import Acting, tensors_of
from revbis.objectives.base import BaseObjective

if TYPE_CHECKING:
    from torch import Tensor

    from revbis.agents.drqv2.agent import DrQV2


def acting(agent: DrQV2) -> Acting:
    """Encoder, actor and φ; without objective, the critic's trunk in the place of φ."""
    tensors, objective = base_tensors(agent), agent.parts.objective
    if objective is not None and type(objective).scale is not BaseObjective.scale:
        # What a scaling of its own reads is not known.
        tensors |= {f"objective.{name}": each for name, each in objective.state_dict().items()}
    return Acting(agent.observation_shape, agent.action_size, tensors)


def base_tensors(agent: DrQV2) -> dict[str, Tensor]:
    """The tensors by name, without those of the objective."""
    parts = agent.parts
    embedding = "critic" if parts.objective is None else "projection"
    tensors = tensors_of(encoder=parts.encoder, policy=parts.policy, norm=parts.norm)
    if parts.objective is None:
        tensors |= tensors_of(trunk=parts.critic.norm)
    for name in ("actor", embedding):
        weight, bias = (parameter.detach() for parameter in parts.readouts.of(name))
        tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return tensors
