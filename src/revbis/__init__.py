"""Bisimulation metrics in reinforcement learning: exact, learned, and in the agent.

`revbis.tabular` has the exact metrics on finite MDPs, `revbis.objectives` the learned ones,
`revbis.envs` the tasks, `revbis.runtime` the settings that make PyTorch fast on a CPU.
`revbis.load` loads an agent that `revbis export` wrote. Submodules load on first use, so that
`import revbis` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from revbis.export import load

__version__ = "0.2.0"
__all__ = ["__version__", "envs", "load", "objectives", "runtime", "tabular"]
_MODULES = {
    "envs": "revbis.envs",
    "objectives": "revbis.objectives",
    "runtime": "revbis.io.runtime",
    "tabular": "revbis.tabular",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name == "load":
        return import_module("revbis.export").load
    raise AttributeError(f"module 'revbis' has no attribute {name!r}")
