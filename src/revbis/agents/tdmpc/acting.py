"""What TD-MPC acts and embeds with: the model that it plans with, without targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from revbis.agents.acting import Acting, tensors_of

if TYPE_CHECKING:
    from revbis.agents.tdmpc.agent import TDMPC


def acting(agent: TDMPC) -> Acting:
    """The model, and the step and the discount of the last update."""
    return Acting(
        agent.observation_shape,
        agent.action_size,
        tensors_of(model=agent.model),
        agent.last_update,
        agent.restore_last_update,
    )
