"""Agents: DrQ-v2, alone or with a bisimulation objective.

agent = DrQV2((9, 84, 84), action_size=6, settings=AgentSettings("simsr-rev"), seed=0)
losses = agent.update(replay.sample(256), step)

The agent loads on first use, so that settings can be read without torch.
"""

from typing import TYPE_CHECKING, Any

from revbis.agents.settings import AgentSettings
from revbis.methods import METHODS

if TYPE_CHECKING:
    from revbis.agents.drqv2 import DrQV2

__all__ = ["METHODS", "AgentSettings", "DrQV2"]


def __getattr__(name: str) -> Any:
    if name == "DrQV2":
        from revbis.agents.drqv2 import DrQV2

        return DrQV2
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
