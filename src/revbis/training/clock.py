"""The time of a run, by phase."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PHASES = ("environment", "rendering", "acting", "sampling", "update", "evaluation", "saving")


class Clock:
    """Seconds by phase; time outside any phase is `other`.

    Args:
        seconds: Seconds of earlier attempts at the run, by phase.
    """

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self._spent = dict.fromkeys((*PHASES, "other"), 0.0) | (seconds or {})
        self._before = sum(self._spent.values())
        self._start = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time within the context to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - start

    def move(self, seconds: float, source: str, target: str) -> None:
        """Moves seconds from one phase to another."""
        self._spent[source] -= seconds
        self._spent[target] += seconds

    @property
    def total(self) -> float:
        """Seconds of the whole run, including earlier attempts."""
        return self._before + time.perf_counter() - self._start

    def split(self) -> dict[str, float]:
        """Seconds by phase; they sum to the total."""
        known = sum(value for name, value in self._spent.items() if name != "other")
        return self._spent | {"other": max(self.total - known, 0.0)}
