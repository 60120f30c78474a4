"""What a sweep will take: the time of each run, from runs that have begun or from a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from revbis.sweep.projection import Speed, seconds_left

if TYPE_CHECKING:
    from revbis.config import Config
    from revbis.sweep.driver import Entry

_OVER = ("finished", "failed")  # no more attempts are made at such a run


def times_left(entries: Sequence[Entry], speed: Speed | None) -> list[float | None]:
    """Seconds that each run will still take; None where nothing is known, 0 if it is given up.

    Args:
        entries: The runs.
        speed: As measured; else runs are taken to be as fast as those that have begun.
    """
    if speed is not None:
        return [
            0.0
            if entry.state in _OVER
            else seconds_left(entry.config, entry.standing.frames, speed)
            for entry in entries
        ]
    rates = {entry.name: rate for entry in entries if (rate := _rate(entry)) is not None}
    return [_time_left(entry, entries, rates) for entry in entries]


def representative(entries: Sequence[Entry]) -> Config | None:
    """A run to measure: one that is still to be made, with an objective if there is one."""
    open_runs = [entry.config for entry in entries if entry.state not in _OVER]
    with_objective = [config for config in open_runs if config.agent.has_objective]
    return next(iter(with_objective or open_runs), None)


def together(times: Sequence[float | None], workers: int) -> float | None:
    """Seconds until the last run ends, with so many at once; None if one is not known."""
    known = [each for each in times if each is not None]
    if len(known) < len(times):
        return None
    return max(sum(known) / workers, max(known, default=0.0))


def _rate(entry: Entry) -> float | None:
    """Frames a second of a run that has learned for as long as it explored.

    Random steps take next to no time: they count neither here nor among the frames left.
    """
    explored = _explored(entry)
    learned = entry.standing.frames - explored
    if learned <= 0 or learned < explored or not entry.standing.seconds:
        return None
    return learned / entry.standing.seconds


def _explored(entry: Entry) -> int:
    """Frames of random actions at the start of a run."""
    return entry.config.explore_steps * entry.config.action_repeat


def _time_left(entry: Entry, entries: Sequence[Entry], rates: dict[str, float]) -> float | None:
    """By the rate of the run itself, of runs of its task and method, of its method, or of all."""
    if entry.state in _OVER:
        return 0.0
    left = max(entry.config.frames - max(entry.standing.frames, _explored(entry)), 0)
    mine = entry.config
    for similar in (
        [entry],
        [e for e in entries if (e.config.task, e.config.method) == (mine.task, mine.method)],
        [e for e in entries if e.config.method == mine.method],
        entries,
    ):
        found = [rates[each.name] for each in similar if each.name in rates]
        if found:
            return left / median(found)
    return None
