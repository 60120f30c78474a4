"""When a run is given up: one rule for sweeps, which then stop retrying, and for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from revbis.schema import Failure

_SAME_PLACE, _IN_ALL = 3, 20


def given_up(failures: Sequence[Failure]) -> bool:
    """Whether a run is not retried any more.

    A run is given up if its last failure is final (such as a mistake in its settings), after three
    failures at the same checkpoint, or after twenty in total.
    """
    if not failures:
        return False
    last = failures[-1]
    here = sum(each["checkpoint"] == last["checkpoint"] for each in failures)
    return last.get("final", False) or here >= _SAME_PLACE or len(failures) >= _IN_ALL
