"""Bisimulation metrics in reinforcement learning: exact, learned, and in the agent.

`revbis.tabular` holds the exact metrics on finite MDPs, `revbis.objectives` the learned ones,
`revbis.envs` the tasks.
Submodules load on first use, so that `import revbis` costs nothing.
"""

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"
__all__ = ["__version__", "envs", "objectives", "tabular"]


def __getattr__(name: str) -> ModuleType:
    if name in ("envs", "objectives", "tabular"):
        return import_module(f"revbis.{name}")
    raise AttributeError(f"module 'revbis' has no attribute {name!r}")
