"""Tells an error that is meant for the sender of an input from one that escaped."""

from __future__ import annotations

import traceback
from pathlib import Path

import revbis
from revbis.objectives import NonFiniteError

_OURS = str(Path(revbis.__file__).parent)
_HERE = str(Path(__file__).parent)
_MEANT = (ValueError, MemoryError, ModuleNotFoundError, NonFiniteError)


class TracebackError(AssertionError):
    """An input ended in something other than an error for its sender."""


def refused(problem: BaseException) -> bool:
    """True for an error that is meant for the sender: one that the package raises on purpose.

    A call with other arguments than a function has is Python's own to refuse.

    Raises:
        TracebackError: For every other error.
    """
    frames = traceback.extract_tb(problem.__traceback__)
    last = frames[-1]
    if isinstance(problem, TypeError) and last.filename.startswith(_HERE):
        return True
    on_purpose = last.filename.startswith(_OURS) and (last.line or "").startswith("raise")
    if isinstance(problem, _MEANT) and on_purpose and str(problem).strip():
        return True
    where = "".join(traceback.format_list(frames[-3:]))
    raise TracebackError(f"{type(problem).__name__}: {problem!s:.300}\n{where}") from problem
