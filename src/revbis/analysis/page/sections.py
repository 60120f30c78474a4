"""What the page shows without a script, as plain data."""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from revbis.analysis import stats, tables
from revbis.analysis.differences import difference_table, differences, verdict
from revbis.analysis.problems import LEFT_OUT, MIXED, Kind, StudyProblem, short_hashes
from revbis.analysis.scores import group_scores, measure_of
from revbis.analysis.study import RunGroup, Study
from revbis.analysis.tables import FIRST
from revbis.io.files import atomic_write
from revbis.io.machine import conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from revbis.analysis.page.data import Trainings, TrainingSample
    from revbis.analysis.runs import Failures, RaisedAlarm, Run
    from revbis.analysis.tables import Table

_NAME = "differences"


class Row(NamedTuple):
    """Which methods and which task a row of the table is about, by index; None for all tasks."""

    labels: str
    task: int | None


class PairedPart(NamedTuple):
    """What the page shows of it.

    Attributes:
        baseline: Its label.
        problem: Why there is nothing to show; empty if there is.
        verdict: What the differences come to, in sentences.
        table: The differences.
        rows: What each row of the table is about.
        picture: The forest plot as a data URL.
    """

    baseline: str
    problem: str
    verdict: Sequence[str] = ()
    table: Table | None = None
    rows: Sequence[Row] = ()
    picture: str = ""


def paired_part(study: Study, baseline: str, folder: Path) -> PairedPart:
    """Compares every method with the baseline.

    If there is anything to compare, differences.csv, .png, .svg and .pdf go to the folder.

    Raises:
        ValueError: If the baseline is not in the study.
    """
    compared = differences(study, baseline)
    try:
        table = difference_table(compared)
    except ValueError as problem:
        return PairedPart(baseline, str(problem))
    from revbis.analysis import figures

    png, *_ = figures.save(figures.forest(study, compared), folder, _NAME)
    atomic_write(folder / f"{_NAME}.csv", table.csv().encode())
    rows = [
        Row(
            " ".join(str(study.labels.index(label)) for label in (row.label, baseline)),
            None if row.task is None else study.tasks.index(row.task),
        )
        for row in compared.rows
    ]
    picture = f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}"
    return PairedPart(baseline, "", verdict(compared), table, rows, picture)


class Shown(NamedTuple):
    """A mean and its spread as text; `best` if no method has a better one."""

    mean: str = "–"
    spread: str = ""
    best: bool = False


class SummaryRow(NamedTuple):
    """A group's scores, the seeds and the frame they are of, and the mean time of a run.

    `published` is the share of the published final return, `final_return` the return of a group
    that is not scored by it.
    """

    group: RunGroup
    final: Shown
    published: str
    best: Shown
    final_return: Shown
    seeds: str
    frames: str
    hours: float


def summary_rows(study: Study, at: Mapping[str, int]) -> list[SummaryRow]:
    """A row for each group, at the budget of its task."""
    final = tables.measured_scores(study, kind="final", at=at)
    best = tables.measured_scores(study, kind="best", at=at)
    rows = []
    for group in study.groups:
        key, budget = (group.label, group.task), at[group.task]
        times = [run.seconds / 3600 for run in group.runs if run.evaluations]
        rows.append(
            SummaryRow(
                group,
                _score(final.get(key), group.task),
                _published(final.get(key), group.task),
                _score(best.get(key), group.task),
                _return(group, budget),
                *_reached(group, final.get(key), budget),
                fmean(times) if times else 0.0,
            )
        )
    return rows


def _reached(group: RunGroup, score: tables.MeasuredScore | None, budget: int) -> tuple[str, str]:
    """The number of seeds of a score, and its frame."""
    if score is None:
        return f"0 of {len(group.runs)}", "–"
    n, frames = len(score.of.seeds), score.of.frames
    return (
        f"{n} of {len(group.runs)}" if n < len(group.runs) else str(n),
        f"{frames:,}" if frames >= budget else f"{frames:,} of {budget:,}",
    )


def _score(score: tables.MeasuredScore | None, task: str) -> Shown:
    if score is None:
        return Shown()
    mean, spread = tables.summary_parts(score.summary, score.digits)
    percent = "%" if measure_of(task) == "success" else ""
    return Shown(mean + percent, spread and spread + percent, score.rank == FIRST)


def _published(score: tables.MeasuredScore | None, task: str) -> str:
    share = None if score is None else tables.published_share(task, score.summary.mean)
    return tables.share_text(share)


def _return(group: RunGroup, budget: int) -> Shown:
    """The return of a group that is not scored by it."""
    if measure_of(group.task) == "return":
        return Shown("")
    returns = group_scores(group, "final", budget, "return")
    if returns is None:
        return Shown()
    mean, deviation, _, n = stats.summarise(returns.values)
    return Shown(f"{mean:.0f}", f"{deviation:.0f}" if n > 1 else "")


_ELSEWHERE = ("task", "method", "seed", "out")  # on the page
_OF_DRAWN = ("pixels", "quality")  # settings of observations that are rendered


Differing = tuple[RunGroup, str, tuple[str, ...]]


def settings(study: Study) -> tuple[dict[str, str], list[str], list[Differing]]:
    """Settings that all runs have in common, the names of the others, and these by group.

    A group has a row for each set of values that some of its seeds have.
    """
    values = {run.folder: _settings(run) for run in study.runs}
    names = dict.fromkeys(name for each in values.values() for name in each)
    seen = {name: {each.get(name, "–") for each in values.values()} for name in names}
    common = {name: next(iter(seen[name])) for name in names if len(seen[name]) == 1}
    differing = [name for name in names if len(seen[name]) > 1]
    rows: list[Differing] = []
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
        machine = conditions(run.about)
        for name, value in {**run.about.get("versions", {}), **own, **machine}.items():
            if value:
                seen.setdefault(name, Counter())[short_hashes(value)] += 1
    return {name: _mixed(values, len(study.runs)) for name, values in seen.items()}


def _settings(run: Run) -> dict[str, str]:
    values = run.config.as_dict().items()
    drawn = run.config.observation == "pixels"
    without = _ELSEWHERE if drawn else (*_ELSEWHERE, *_OF_DRAWN)
    return {name.replace("_", " "): _text(v) for name, v in values if name not in without}


def _mixed(values: Counter[str], runs: int) -> str:
    if len(values) == 1 and values.total() == runs:
        return next(iter(values))
    return ", ".join(f"{value} ({n} of {runs})" for value, n in values.items())


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        return " ".join(map(_text, value))  # as on the command line
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


_ROOM = 12_000_000  # bytes for videos and pictures, in base64: the page stays below 15 MB
_PHASES = ["environment", "rendering", "acting", "sampling", "update", "evaluation"]
_PHASES += ["saving", "other"]


@dataclass(frozen=True)
class Media:
    """Files that show a run's agent.

    Attributes:
        video: An mp4 of an episode.
        neighbours: A picture of nearest states.
        untrained: An mp4 of the same episode before training.
    """

    video: Path | None = None
    neighbours: Path | None = None
    untrained: Path | None = None


def title(study: Study) -> str:
    """What the page is about, in a line."""
    if len(study.runs) == 1:
        config = study.runs[0].config
        return f"{config.task} · {config.label} · seed {config.seed}"
    if len(study.tasks) == 1:
        return f"{study.tasks[0]} · {counted(len(study.labels), 'method')}"
    return f"{counted(len(study.labels), 'method')} on {counted(len(study.tasks), 'task')}"


def tiles(study: Study) -> list[tuple[str, str]]:
    """A few numbers about the study, each with its name."""
    runs = study.runs
    finished = sum(run.finished for run in runs)
    presets = sorted({run.config.preset for run in runs})
    qualities = sorted({run.config.quality for run in runs if run.config.observation == "pixels"})
    shown = [
        (f"{finished} / {len(runs)}", "runs finished"),
        (str(len(study.labels)), "methods" if len(study.labels) > 1 else "method"),
        (str(len(study.tasks)), "tasks" if len(study.tasks) > 1 else "task"),
        (_short(sum(run.frames for run in runs)), "frames in total"),
        (duration(sum(run.seconds for run in runs)), "of compute"),
        (" and ".join(presets), "presets" if len(presets) > 1 else "preset"),
    ]
    return shown + ([(" and ".join(qualities), "render quality")] if qualities else [])


def failing(study: Study, root: Path) -> list[tuple[str, Failures]]:
    """Runs that have failed and are not finished, by their folder below the root."""
    return [
        (str(each.run).removeprefix(f"{root}/"), each.details["failures"])
        for each in study.problems
        if each.kind is Kind.FAILED
    ]


def messages(study: Study, root: Path, more: Sequence[StudyProblem]) -> list[str]:
    """Problems of the study, missing runs and mixtures first; failed runs have a list."""
    shown = [each for each in (*study.problems, *more) if each.kind is not Kind.FAILED]
    shown.sort(key=lambda problem: problem.kind not in LEFT_OUT | MIXED)
    return [str(problem).replace(f"{root}/", "") for problem in shown]


def alarms(study: Study) -> list[tuple[RunGroup, str, RaisedAlarm]]:
    """Every alarm with the group and the name of the run that raised it."""
    return [
        (group, _name(group, run), alarm) for group, run in _runs(study) for alarm in run.alarms
    ]


def statistics(study: Study) -> list[tuple[Table, list[str]]]:
    """Tables of pooled scores, with the indices of the methods that each row is about."""
    pooled = [tables.aggregate_table(study)]
    pooled += [tables.pair_table(study)] if len(study.labels) > 1 else []
    shown = []
    for table in pooled:
        rows = dict.fromkeys((one["method"], one.get("other")) for one in table.records)
        indices = [[str(study.labels.index(label)) for label in row if label] for row in rows]
        shown.append((table, list(map(" ".join, indices))))
    return shown


def table_or_none(make: Callable[[Study], Table], study: Study) -> Table | None:
    """The table; None if no run has what it shows."""
    try:
        return make(study)
    except ValueError:
        return None


def timing(
    study: Study, trainings: Trainings
) -> tuple[list[str], list[tuple[RunGroup, Run, TrainingSample]]]:
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
) -> tuple[list[tuple[RunGroup, str, dict[str, str]]], list[StudyProblem]]:
    """Files of `Media` as data URLs by their names, and what the page has no room for."""
    shown, skipped, room = [], [], _ROOM
    for group, run in _runs(study):
        files, name = media.get(run.folder, Media()), _name(group, run)
        urls: dict[str, str] = {}
        for shows, path in vars(files).items():
            if path is None:
                continue
            kind = "image/png" if shows == "neighbours" else "video/mp4"
            size = path.stat().st_size * 4 // 3
            if size > room:
                about = {"name": name, "file": path.name}
                skipped.append(StudyProblem(Kind.NO_ROOM, run.folder, about))
                continue
            room -= size
            urls[shows] = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
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


def _runs(study: Study) -> list[tuple[RunGroup, Run]]:
    return [(group, run) for group in study.groups for run in group.runs]


def _name(group: RunGroup, run: Run) -> str:
    return f"{group.task} · {group.label} · seed {run.config.seed}"


def _short(number: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return str(number)
