"""How the runs were made: settings, the differences between them, commands, versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from revbis.analysis.report.markup import Html, element, row, section, table
from revbis.analysis.runs import Run
from revbis.analysis.scores import Study

_NAMES = ("task", "method", "seed", "out")  # told elsewhere on the page


def settings(study: Study) -> Html:
    """Common settings once, and a table of those in which runs differ."""
    values = {run.folder: run.config.as_dict() for run in study.runs}
    names = [name for name in next(iter(values.values())) if name not in _NAMES]
    seen = {name: {_value(found[name]) for found in values.values()} for name in names}
    differing = [name for name in names if len(seen[name]) > 1]
    common = {name: next(iter(seen[name])) for name in names if len(seen[name]) == 1}
    if len(study.runs) == 1:
        told: list[Html] = []
    elif differing:
        head = ["task", "method", "seeds", *(_flag(name) for name in differing)]
        rows = _differences(study, values, differing)
        told = [element("h3", "Differences"), table(head, rows, "plain", "Differences")]
    else:
        told = [element("p", "The runs differ in task, method and seed, and in nothing else.")]
    shared = element("h3", "Common to all runs") if len(study.runs) > 1 else Html()
    return section("settings", "Settings", *told, shared, _pairs(common))


def commands(study: Study) -> Html:
    """The commands that made the runs, each once."""
    found = Counter(str(run.about.get("command", "")) for run in study.runs)
    unknown = found.pop("", 0)
    lines = [
        element("div", element("code", command), element("small", f"{n} runs") if n > 1 else "")
        for command, n in found.items()
    ]
    if unknown:
        lines.append(element("p", f"Of {unknown} of the runs the command is not known."))
    return section("commands", "Commands", element("div", *lines, class_="commands"))


def versions(study: Study) -> Html:
    """Versions, the revision of the source and the machines; several where they are mixed."""
    seen: dict[str, Counter[str]] = {}
    for run in study.runs:
        for name, value in _about(run).items():
            seen.setdefault(name, Counter())[str(value)] += 1
    told = {name: _mixed(found, len(study.runs)) for name, found in seen.items()}
    return section("versions", "Versions", _pairs(told)) if told else Html()


def _about(run: Run) -> dict[str, Any]:
    found = run.about.get("versions")
    known = dict(found) if isinstance(found, dict) else {}
    more = {name: run.about[name] for name in ("revision", "machine") if run.about.get(name)}
    return known | more


def _mixed(found: Counter[str], runs: int) -> str:
    if len(found) == 1 and sum(found.values()) == runs:
        return next(iter(found))
    return ", ".join(f"{value} ({n} of {runs})" for value, n in found.items())


def _differences(
    study: Study, values: Mapping[Any, Mapping[str, Any]], names: Sequence[str]
) -> list[Html]:
    """A row for each group, or several where its seeds differ."""
    rows = []
    for group in study.groups:
        seeds: dict[tuple[str, ...], list[int]] = {}
        for run in group.runs:
            found = tuple(_value(values[run.folder][name]) for name in names)
            seeds.setdefault(found, []).append(run.config.seed)
        place = {
            "data_task": study.tasks.index(group.task),
            "data_label": study.labels.index(group.label),
        }
        for found, of in seeds.items():
            rows.append(row(group.task, group.label, ", ".join(map(str, of)), *found, **place))
    return rows


def _pairs(values: Mapping[str, Any]) -> Html:
    items = [
        element("div", element("dt", _flag(name)), element("dd", value))
        for name, value in values.items()
    ]
    return element("dl", *items, class_="pairs")


def _value(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def _flag(name: str) -> str:
    return name.replace("_", " ")
