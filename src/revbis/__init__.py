"""Bisimulation metrics in reinforcement learning: exact, learned, and in the agent.

`revbis.tabular` has the exact metrics on finite MDPs, `revbis.objectives` the learned ones,
`revbis.envs` the tasks, `revbis.runtime` the settings that make PyTorch fast on a CPU.
`revbis.train` trains an agent, `revbis.open_run` opens a trained one, and `revbis.load` loads one
that `revbis export` wrote. Submodules load on first use, so that `import revbis` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from revbis.api import open_run, train
    from revbis.export import load

__version__ = "0.2.0"
__all__ = [
    "__version__",
    "envs",
    "load",
    "objectives",
    "open_run",
    "runtime",
    "tabular",
    "train",
]
_MODULES = {
    "envs": "revbis.envs",
    "objectives": "revbis.objectives",
    "runtime": "revbis.io.runtime",
    "tabular": "revbis.tabular",
}
_FUNCTIONS = {"load": "revbis.export", "open_run": "revbis.api", "train": "revbis.api"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module 'revbis' has no attribute {name!r}")
