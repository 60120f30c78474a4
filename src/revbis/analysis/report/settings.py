"""How the runs were made: settings, the differences between them, commands, versions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from revbis.analysis.scores import Group, Study

if TYPE_CHECKING:
    from revbis.analysis.runs import Run

_ELSEWHERE = ("task", "method", "seed", "out")  # on the page


Difference = tuple[Group, str, tuple[str, ...]]


def settings(study: Study) -> tuple[dict[str, str], list[str], list[Difference]]:
    """Settings that all runs have in common, the names of the others, and these by group.

    A group has a row for each set of values that some of its seeds have.
    """
    values = {run.folder: _settings(run) for run in study.runs}
    names = dict.fromkeys(name for each in values.values() for name in each)
    seen = {name: {each.get(name, "–") for each in values.values()} for name in names}
    common = {name: next(iter(seen[name])) for name in names if len(seen[name]) == 1}
    differing = [name for name in names if len(seen[name]) > 1]
    rows: list[Difference] = []
    for group in study.groups if differing else ():
        seeds: dict[tuple[str, ...], list[int]] = {}
        for run in group.runs:
            own = tuple(values[run.folder].get(name, "–") for name in differing)
            seeds.setdefault(own, []).append(run.config.seed)
        rows += [(group, ", ".join(map(str, some)), own) for own, some in seeds.items()]
    return common, differing, rows


def commands(study: Study) -> Counter[str]:
    """How many runs each command made; the empty one where it is not known."""
    return Counter(str(run.about.get("command", "")) for run in study.runs)


def versions(study: Study) -> dict[str, str]:
    """Versions, the revision of the source and the machines; several where they are mixed."""
    seen: dict[str, Counter[str]] = {}
    for run in study.runs:
        own = {name: run.about.get(name) for name in ("revision", "machine")}
        for name, value in {**run.about.get("versions", {}), **own}.items():
            if value:
                seen.setdefault(name, Counter())[str(value)] += 1
    return {name: _mixed(values, len(study.runs)) for name, values in seen.items()}


def _settings(run: Run) -> dict[str, str]:
    values = run.config.as_dict().items()
    return {name.replace("_", " "): _text(v) for name, v in values if name not in _ELSEWHERE}


def _mixed(values: Counter[str], runs: int) -> str:
    if len(values) == 1 and values.total() == runs:
        return next(iter(values))
    return ", ".join(f"{value} ({n} of {runs})" for value, n in values.items())


def _text(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
