"""Replay: each frame stored once; stacks, n-step returns and shifts are made when sampling.

What needs torch or numba loads on first use: `revbis.replay.storage` can be used without either.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from revbis.replay.batch import Batch, OneStep, Sequences, Window, Windows
    from revbis.replay.buffer import Replay
    from revbis.replay.prioritised import (
        PrioritisedReplay,
        PrioritisedSequences,
        PrioritisedTransitions,
        TransitionReplay,
    )

__all__ = [
    "Batch",
    "OneStep",
    "PrioritisedReplay",
    "PrioritisedSequences",
    "PrioritisedTransitions",
    "Replay",
    "Sequences",
    "TransitionReplay",
    "Window",
    "Windows",
]
_HOMES = dict.fromkeys(("Batch", "OneStep", "Sequences", "Window", "Windows"), "batch")
_HOMES |= {"Replay": "buffer"}
_HOMES |= dict.fromkeys(("PrioritisedReplay", "PrioritisedSequences"), "prioritised")
_HOMES |= dict.fromkeys(("PrioritisedTransitions", "TransitionReplay"), "prioritised")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"revbis.replay.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'revbis.replay' has no attribute {name!r}")
