"""When a run is given up: one rule for the sweep, which stops trying, and for those who read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from revbis.schema import Failure

_SAME_PLACE, _IN_ALL = 3, 20


def given_up(failures: Sequence[Failure]) -> bool:
    """Whether no more attempts are made at a run.

    A run is given up if its last failure is final, as a mistake in its settings is, after three
    failures at one checkpoint, and after twenty in all.
    """
    if not failures:
        return False
    last = failures[-1]
    here = sum(each["checkpoint"] == last["checkpoint"] for each in failures)
    return last.get("final", False) or here >= _SAME_PLACE or len(failures) >= _IN_ALL
