"""Agents: the protocol, the registry, DrQ-v2 with or without an objective, TACO, TD-MPC, MR.Q.

settings = DrQV2Settings(objective="simsr-rev", batch_size=256)
agent = DrQV2((9, 84, 84), action_size=6, settings=settings, seed=0)
losses = agent.update(replay, step)

Agents load on first use, so that settings can be read without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from revbis.agents.base import Agent, BaseAgent
from revbis.agents.registry import AgentEntry, make_agent, methods, register, resolve, unregister
from revbis.agents.settings import (
    AgentSettings,
    DrQV2Settings,
    MRQSettings,
    TacoSettings,
    TDMPCSettings,
)

if TYPE_CHECKING:
    from revbis.agents.drqv2 import DrQV2
    from revbis.agents.mrq import MRQ
    from revbis.agents.taco import Taco
    from revbis.agents.tdmpc import TDMPC

__all__ = [
    "MRQ",
    "TDMPC",
    "Agent",
    "AgentEntry",
    "AgentSettings",
    "BaseAgent",
    "DrQV2",
    "DrQV2Settings",
    "MRQSettings",
    "TDMPCSettings",
    "Taco",
    "TacoSettings",
    "make_agent",
    "methods",
    "register",
    "resolve",
    "unregister",
]


def __getattr__(name: str) -> Any:
    if name in ("DrQV2", "MRQ", "Taco", "TDMPC"):
        return getattr(import_module(f"revbis.agents.{name.lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
