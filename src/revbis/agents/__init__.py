"""Agents: DrQ-v2, alone or with a bisimulation objective.

agent = DrQV2((9, 84, 84), action_size=6, settings=AgentSettings("simsr-rev"), seed=0)
losses = agent.update(replay.sample(256), step)
"""

from revbis.agents.drqv2 import DrQV2
from revbis.agents.settings import METHODS, AgentSettings

__all__ = ["METHODS", "AgentSettings", "DrQV2"]
