"""What the page shows without a script, as plain data: figures, messages, timing, episodes."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from revbis.analysis import tables
from revbis.analysis.files import printable
from revbis.analysis.generalisation import gap_table
from revbis.analysis.runs import RaisedAlarm, Run, failure_text
from revbis.analysis.yardsticks import yardstick_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from revbis.analysis.layout import Table
    from revbis.analysis.report.training import Training, Trainings
    from revbis.analysis.scores import Group, Study

_ROOM = 12_000_000  # bytes for videos and pictures, in base64: the page stays below 15 MB
_PHASES = ["environment", "rendering", "acting", "sampling", "update", "evaluation"]
_PHASES += ["saving", "other"]


@dataclass(frozen=True)
class Media:
    """Files that show a run's agent.

    Attributes:
        video: An mp4 of an episode.
        neighbours: A picture of nearest states.
    """

    video: Path | None = None
    neighbours: Path | None = None


def title(study: Study) -> str:
    """What the page is about, in a line."""
    if len(study.runs) == 1:
        config = study.runs[0].config
        return f"{config.task} · {config.method} · seed {config.seed}"
    if len(study.tasks) == 1:
        return f"{study.tasks[0]} · {counted(len(study.labels), 'method')}"
    return f"{counted(len(study.labels), 'method')} on {counted(len(study.tasks), 'task')}"


def tiles(study: Study) -> list[tuple[str, str]]:
    """A few numbers about the study, each with its name."""
    runs = study.runs
    finished = sum(run.finished for run in runs)
    presets = sorted({run.config.preset for run in runs})
    qualities = sorted({run.config.quality for run in runs})
    return [
        (f"{finished} / {len(runs)}", "runs finished"),
        (str(len(study.labels)), "methods" if len(study.labels) > 1 else "method"),
        (str(len(study.tasks)), "tasks" if len(study.tasks) > 1 else "task"),
        (_short(sum(run.frames for run in runs)), "frames in total"),
        (duration(sum(run.seconds for run in runs)), "of compute"),
        (" and ".join(presets), "presets" if len(presets) > 1 else "preset"),
        (" and ".join(qualities), "render quality"),
    ]


def failing(study: Study, root: Path) -> list[tuple[str, str]]:
    """Runs that have failed and are not finished: the folder below the root, and the reason."""
    return [
        (str(one.folder).removeprefix(f"{root}/"), failure_text(one.failures))
        for one in study.failing
    ]


def messages(study: Study, root: Path, more: Sequence[str]) -> list[str]:
    """Problems of the study, missing runs first; failed runs have a list of their own."""
    apart = {printable(f"{f.folder} is {failure_text(f.failures)}") for f in study.failing}
    texts = [problem for problem in (*study.problems, *more) if problem not in apart]
    texts = [problem.replace(f"{root}/", "") for problem in texts]
    return sorted(texts, key=lambda problem: " is left out: " not in problem)


def alarms(study: Study) -> list[tuple[Group, str, RaisedAlarm]]:
    """Every alarm with the group and the name of the run that raised it."""
    return [
        (group, _name(group, run), alarm) for group, run in _runs(study) for alarm in run.alarms
    ]


def statistics(study: Study) -> list[tuple[Table, list[str]]]:
    """Tables of pooled scores, with the indices of the methods that each row is about.

    Raises:
        ValueError: If the methods have no task in common.
    """
    pooled = [tables.aggregate_table(study)]
    pooled += [tables.pair_table(study)] if len(study.labels) > 1 else []
    shown = []
    for table in pooled:
        rows = dict.fromkeys((one["method"], one.get("other")) for one in table.records)
        indices = [[str(study.labels.index(label)) for label in row if label] for row in rows]
        shown.append((table, list(map(" ".join, indices))))
    return shown


def gaps(study: Study) -> Table | None:
    """The table of generalisation gaps; None if no run was evaluated on training variants too."""
    try:
        return gap_table(study)
    except ValueError:
        return None


def yardsticks(study: Study) -> Table | None:
    """The table of yardsticks; None if they were measured of no run."""
    try:
        return yardstick_table(study)
    except ValueError:
        return None


def timing(
    study: Study, trainings: Trainings
) -> tuple[list[str], list[tuple[Group, Run, Training]]]:
    """The names of all phases, and the runs whose time is known."""
    timed = [
        (group, run, training)
        for group, run in _runs(study)
        if (training := trainings.of(run)).seconds > 0 and training.last_frame > 0
    ]
    more = {name for *_, training in timed for name in training.phases}.difference(_PHASES)
    return [*_PHASES, *sorted(more)], timed


def episodes(
    study: Study, media: Mapping[Path, Media]
) -> tuple[list[tuple[Group, str, dict[str, str]]], list[str]]:
    """Videos and pictures of runs as data URLs by kind, and what the page has no room for."""
    shown, skipped, room = [], [], _ROOM
    for group, run in _runs(study):
        files, name = media.get(run.folder, Media()), _name(group, run)
        urls: dict[str, str] = {}
        for path, kind in ((files.video, "video/mp4"), (files.neighbours, "image/png")):
            if path is None:
                continue
            size = path.stat().st_size * 4 // 3
            if size > room:
                skipped.append(f"{name}: {path.name} is left out, the page would be too large")
                continue
            room -= size
            urls[kind] = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
        if urls:
            shown.append((group, name, urls))
    return shown, skipped


def counted(number: int, name: str) -> str:
    """Such as `1 run` and `2 runs`."""
    return f"{number} {name}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """A time in hours, minutes or seconds."""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


def _runs(study: Study) -> list[tuple[Group, Run]]:
    return [(group, run) for group in study.groups for run in group.runs]


def _name(group: Group, run: Run) -> str:
    return f"{group.task} · {group.label} · seed {run.config.seed}"


def _short(number: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return str(number)
