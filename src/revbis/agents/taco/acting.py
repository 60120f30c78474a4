"""What TACO acts and embeds with: no target, no tokens, and of its heads the normalisation only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from revbis.agents.acting import Acting, tensors_of
from revbis.agents.drqv2.acting import base_tensors
from revbis.agents.taco.networks import TacoHeads

if TYPE_CHECKING:
    from revbis.agents.taco.agent import Taco


def acting(agent: Taco) -> Acting:
    """Encoder, actor and z; without losses, the critic's trunk in the place of z."""
    tensors, heads = base_tensors(agent), agent.parts.objective
    if isinstance(heads, TacoHeads):
        tensors |= tensors_of(scale=heads.norm)
    return Acting(agent.observation_shape, agent.action_size, tensors)
