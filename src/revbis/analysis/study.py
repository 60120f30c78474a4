"""Run folders read into one tidy table; whatever is not comparable is named."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from revbis.analysis.problems import MIXED, Kind, OnProblem, StudyProblem
from revbis.analysis.runs import Run, read_failures, read_run, run_folders
from revbis.envs import EnvironmentSettings, suite_of
from revbis.io import schema
from revbis.io.files import naming
from revbis.io.machine import conditions
from revbis.runs.folder import unpacked

# With different values of these, scores are of different problems, whatever the method.
_ENVIRONMENT = [each.name for each in fields(EnvironmentSettings) if each.name != "task"]


class TidyRow(NamedTuple):
    """One evaluation in the tidy table.

    Attributes:
        method: The group's label: the method, with its runs' name, and the settings in which it
            differs from another group of that method and name.
        task: The task.
        seed: The run's seed.
        frames: The frame it was due at, in simulator steps.
        agent_steps: Actions so far.
        updates: Updates so far.
        seconds: Time so far; None where it is not known.
        mean_return: Mean over the evaluation's episodes.
        success: Share of episodes with success at any step; None where the task has none.
        train_mean_return: Mean return on the training variants; None where there are none.
        train_success: The same of success.
        status: What the agent reported of itself by then, such as c.
    """

    method: str
    task: str
    seed: int
    frames: int
    agent_steps: int
    updates: int
    seconds: float | None
    mean_return: float
    success: float | None
    train_mean_return: float | None
    train_success: float | None
    status: Mapping[str, float]


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in their seed, and may therefore be averaged.

    Attributes:
        label: The method, its runs' name if they have one and, where there are several such groups,
            the settings in which they differ.
        task: The task.
        runs: By seed.
    """

    label: str
    task: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, ascending."""
        return tuple(run.config.seed for run in self.runs)


@dataclass(frozen=True)
class Study:
    """Everything that was read.

    Attributes:
        groups: In order of task and label.
        problems: What is missing, mixed, failed or unreadable.
    """

    groups: tuple[RunGroup, ...]
    problems: tuple[StudyProblem, ...]

    @property
    def runs(self) -> list[Run]:
        """Every run, in order of task, label and seed."""
        return [run for group in self.groups for run in group.runs]

    @property
    def tasks(self) -> list[str]:
        """Every task, sorted."""
        return sorted({group.task for group in self.groups})

    @property
    def labels(self) -> list[str]:
        """Every label, sorted."""
        return sorted({group.label for group in self.groups})

    @property
    def machine_notes(self) -> list[str]:
        """In sentences without full stop, how the runs' simulators and machines differ."""
        found = [str(each) for each in self.problems if each.kind in MIXED]
        return [text[0].upper() + text[1:] for text in found]

    def group(self, label: str, task: str) -> RunGroup | None:
        """The group of a label on a task, if there is one."""
        return next((g for g in self.groups if (g.label, g.task) == (label, task)), None)

    def rows(self) -> list[TidyRow]:
        """The tidy table: a row for each evaluation."""
        return [
            TidyRow(
                method=group.label,
                task=group.task,
                seed=run.config.seed,
                frames=one.frames,
                agent_steps=one.agent_steps,
                updates=one.updates,
                seconds=one.seconds,
                mean_return=one.mean_return,
                success=one.success,
                train_mean_return=one.train_return,
                train_success=one.train_success,
                status=one.status,
            )
            for group in self.groups
            for run in group.runs
            for one in run.evaluations
        ]

    def write_csv(self, path: Path) -> None:
        """Writes the tidy table; every number that some agent reported has a column."""
        rows = self.rows()
        reported = dict.fromkeys(name for row in rows for name in row.status)
        with naming(path), path.open("w", newline="", encoding="utf-8", errors="replace") as file:
            writer = csv.writer(file)
            writer.writerow([*TidyRow._fields[:-1], *reported])
            writer.writerows([*row[:-1], *map(row.status.get, reported)] for row in rows)


def read_study(paths: Iterable[Path]) -> Study:
    """Reads every run in or below the given folders and zip files.

    What cannot be read is skipped and named in `problems`; everything else is kept.

    Raises:
        ValueError: If there is no run at all, with what is there instead, or if a zip file that is
            passed cannot be unpacked.
    """
    problems: list[StudyProblem] = []
    runs = []
    for folder in _run_folders(paths, problems.append):
        run = read_run(folder, problems.append)
        runs += [] if run is None else [run]
        failures = read_failures(folder, lambda _: None) if run is None else run.failures
        if failures is not None and not (run and run.finished):
            problems.append(StudyProblem(Kind.FAILED, folder, {"failures": failures}))
    if not runs:
        raise ValueError("; ".join(["there is no run to read", *map(str, problems)]))
    groups = _grouped(_without_doubles(runs, problems.append))
    problems += _comparability(groups)
    return Study(tuple(groups), tuple(problems))


def as_study(value: object) -> Study:
    """The study itself.

    Raises:
        ValueError: If it is something else.
    """
    if not isinstance(value, Study):
        raise ValueError(f"a Study, as read_study gives, is wanted, got {value!r:.80}")
    return value


def _run_folders(paths: Iterable[Path], problem: OnProblem) -> list[Path]:
    if not isinstance(paths, (list, tuple, set, Iterator)):
        raise ValueError(f"paths must be a list of folders, got {paths!r:.80}")

    def bad_folder(reason: str) -> None:
        problem(StudyProblem(Kind.BAD_FOLDER, details={"reason": reason}))

    folders: dict[Path, None] = {}
    for each in paths:
        path: Path = unpacked(schema.convert(each, Path, "each of paths"))
        if not path.exists():
            problem(StudyProblem(Kind.ABSENT, path))
        elif not path.is_dir():
            problem(StudyProblem(Kind.NOT_A_FOLDER, path))
        else:
            below = sorted(run_folders(path, bad_folder))
            if not below:
                problem(StudyProblem(Kind.NO_RUN, path))
            folders |= dict.fromkeys(folder.resolve() for folder in below)
    return list(folders)


def _without_doubles(runs: Sequence[Run], problem: OnProblem) -> list[Run]:
    """One run of each identity: the one with more frames, or the first."""
    runs_by_identity: dict[Any, Run] = {}
    for run in runs:
        identity = (run.config.task, run.config.label, run.config.seed, run.settings)
        other = runs_by_identity.get(identity)
        if other is None:
            runs_by_identity[identity] = run
            continue
        better, worse = (run, other) if run.frames > other.frames else (other, run)
        runs_by_identity[identity] = better
        problem(StudyProblem(Kind.DUPLICATE, worse.folder, {"kept": better.folder}))
    return list(runs_by_identity.values())


def _grouped(runs: Sequence[Run]) -> list[RunGroup]:
    labels = _labels(runs)
    by_group: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        by_group[run.config.task, labels[run.config.label, run.settings]].append(run)
    return [
        RunGroup(label, task, tuple(sorted(members, key=lambda run: run.config.seed)))
        for (task, label), members in sorted(by_group.items(), key=lambda item: item[0])
    ]


def _labels(runs: Sequence[Run]) -> dict[Any, str]:
    """A name for each method, its runs' name if they have one, and their settings.

    Only settings that differ among runs of one method and name are in it. Settings that depend on
    the task, as a preset's may, do not separate groups: only runs on one task are compared.
    """
    differing: dict[str, set[str]] = defaultdict(set)
    first: dict[tuple[str, str, str], Any] = {}  # a setting's, where it has an effect
    for run in runs:
        label = run.config.label
        for name, value in run.settings:
            if first.setdefault((label, run.config.task, name), value) != value:
                differing[label].add(name)
    labels = {}
    for run in runs:
        label, values = run.config.label, dict(run.settings)
        named = [] if run.config.name is None else [run.config.name]
        own = sorted(differing[label] & values.keys())
        marks = named + [f"{name}={values[name]}" for name in own]
        text = f"{run.config.system} ({', '.join(marks)})" if marks else label
        labels[label, run.settings] = text
    return labels


def _comparability(groups: Sequence[RunGroup]) -> Iterator[StudyProblem]:
    """What a reader must know before comparing the groups."""
    for task in sorted({group.task for group in groups}):
        runs = [run for group in groups if group.task == task for run in group.runs]
        for name in _ENVIRONMENT:
            values = sorted({str(getattr(run.config, name)) for run in runs})
            if len(values) > 1:
                about = {"task": task, "setting": name, "values": values}
                yield StudyProblem(Kind.MIXED_SETTING, details=about)
        presets = sorted({run.config.preset for run in runs})
        if len(presets) > 1:
            yield StudyProblem(Kind.MIXED_PRESETS, details={"task": task, "values": presets})
    yield from _missing_seeds(groups)
    runs = [run for group in groups for run in group.runs]
    yield from _mixed_versions(runs)
    mixed, simulators = _mixed_conditions(runs), _mixed_simulators(runs)
    if simulators:
        yield StudyProblem(Kind.MIXED_SIMULATORS, details={"mixed": simulators})
    if machines := {name: counts for name, counts in mixed.items() if name not in simulators}:
        yield StudyProblem(Kind.MIXED_MACHINES, details={"mixed": machines})


def _missing_seeds(groups: Sequence[RunGroup]) -> Iterator[StudyProblem]:
    every = sorted({seed for group in groups for seed in group.seeds})
    separate = ""
    for group in sorted(groups, key=lambda group: (group.label, group.task)):
        if group.label not in (group.runs[0].config.label, separate):
            separate = group.label
            yield StudyProblem(Kind.SEPARATE, details={"label": separate})
        about = {"task": group.task, "label": group.label}
        if missing := [seed for seed in every if seed not in group.seeds]:
            yield StudyProblem(Kind.NO_SEEDS, details={**about, "seeds": missing})
        if len(group.seeds) == 1:
            yield StudyProblem(Kind.ONE_SEED, details=about)


def _mixed_conditions(runs: Sequence[Run]) -> dict[str, Counter[str]]:
    """What seeds depend on and not all runs share: how many runs have each value.

    Runs of earlier versions do not name their processor: empty, if others do.
    """
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for name, value in conditions(run.about).items():
            seen[name][value] += 1
    if known := seen.get("processor"):
        known[""] = len(runs) - known.total()
    return {name: +counts for name, counts in seen.items() if len(+counts) > 1}


def _mixed_simulators(runs: Sequence[Run]) -> dict[str, Counter[str]]:
    """The packages that determine the runs' tasks, if of several versions: how many have each."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        versions = run.about.get("versions", {})
        for name in suite_of(run.config.task).simulators:
            if name in versions:
                seen[name][versions[name]] += 1
    return {name: counts for name, counts in seen.items() if len(counts) > 1}


def _mixed_versions(runs: Sequence[Run]) -> Iterator[StudyProblem]:
    seen: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for name in ("revbis", "python"):
            if value := run.about.get("versions", {}).get(name):
                seen[name].add(value)
        if run.about:
            seen["revision"].add(str(run.about.get("revision")))
    for name, values in sorted(seen.items()):
        if len(values) > 1:
            about = {"name": name, "values": sorted(values)}
            yield StudyProblem(Kind.MIXED_VERSIONS, details=about)
