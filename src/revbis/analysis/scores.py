"""Run folders read into one tidy table; whatever is not comparable is named."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from revbis.analysis.runs import (
    Evaluation,
    Failures,
    OnProblem,
    Run,
    failure_text,
    printable,
    read_failures,
    read_run,
    run_folders,
)
from revbis.io import schema
from revbis.io.files import naming
from revbis.runs.folder import unpacked

# With different values of these, scores are of different problems, whatever the method.
_ENVIRONMENT = (
    *("quality", "observation", "pixels", "frame_stack", "action_repeat"),
    *("distractor", "distractor_strength", "state_noise", "state_noise_kind"),
)


class Row(NamedTuple):
    """One evaluation in the tidy table.

    Attributes:
        method: The group's label: the method, with the settings in which it differs from another
            group of that method.
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


class Failing(NamedTuple):
    """A run that is not finished and has failed.

    Attributes:
        folder: Where it is.
        failures: How often and why.
    """

    folder: Path
    failures: Failures


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed, and may therefore be averaged.

    Attributes:
        label: The method and, where it has several groups, the settings in which they differ.
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
        problems: What is missing, mixed or unreadable, in words.
        failing: Runs that have failed and are not finished, also those that cannot be read.
    """

    groups: tuple[Group, ...]
    problems: tuple[str, ...]
    failing: tuple[Failing, ...] = ()

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

    def group(self, label: str, task: str) -> Group | None:
        """The group of a label on a task, if there is one."""
        return next((g for g in self.groups if (g.label, g.task) == (label, task)), None)

    def rows(self) -> list[Row]:
        """The tidy table: a row for each evaluation."""
        return [
            _row(group, run, one)
            for group in self.groups
            for run in group.runs
            for one in run.evaluations
        ]

    def write_csv(self, path: Path) -> None:
        """Writes the tidy table; every number that some agent reported has a column."""
        rows = self.rows()
        reported = dict.fromkeys(name for row in rows for name in row.status)
        with (
            naming(path),
            path.open("w", newline="", encoding="utf-8", errors="replace") as file,
        ):
            writer = csv.writer(file)
            writer.writerow([*Row._fields[:-1], *reported])
            writer.writerows([*row[:-1], *map(row.status.get, reported)] for row in rows)


def read_study(paths: Iterable[Path]) -> Study:
    """Reads every run in or below the given folders and zip files.

    What cannot be read is skipped and named in `problems`; everything else is kept.

    Raises:
        ValueError: If there is no run at all, with what is there instead, or if a zip file that is
            passed cannot be unpacked.
    """
    problems: list[str] = []
    folders = _run_folders(paths, problems.append)
    failing: list[Failing] = []
    runs = []
    for folder in folders:
        run = read_run(folder, problems.append)
        runs += [] if run is None else [run]
        failures = read_failures(folder, lambda _: None) if run is None else run.failures
        if failures is not None and not (run and run.finished):
            failing.append(Failing(folder, failures))
            problems.append(f"{folder} is {failure_text(failures)}")
    if not runs:
        raise ValueError("; ".join(["there is no run to read", *problems]))
    groups = _grouped(_without_doubles(runs, problems.append))
    problems += _comparability(groups)
    return Study(tuple(groups), tuple(map(printable, problems)), tuple(failing))


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
    folders: dict[Path, None] = {}
    for each in paths:
        path: Path = unpacked(schema.convert(each, Path, "each of paths"))
        if not path.exists():
            problem(f"{path} does not exist")
        elif not path.is_dir():
            problem(f"{path} is not a run folder: pass folders that revbis train or sweep made")
        else:
            below = sorted(run_folders(path, problem))
            if not below:
                problem(f"{path} contains no run")
            folders |= dict.fromkeys(folder.resolve() for folder in below)
    return list(folders)


def _without_doubles(runs: Sequence[Run], problem: OnProblem) -> list[Run]:
    """One run of each identity: the one with more frames, or the first."""
    runs_by_identity: dict[Any, Run] = {}
    for run in runs:
        identity = (run.config.task, run.config.method, run.config.seed, run.settings)
        other = runs_by_identity.get(identity)
        if other is None:
            runs_by_identity[identity] = run
            continue
        better, worse = (run, other) if run.frames > other.frames else (other, run)
        runs_by_identity[identity] = better
        problem(f"{worse.folder} is left out: {better.folder} is the same run")
    return list(runs_by_identity.values())


def _grouped(runs: Sequence[Run]) -> list[Group]:
    labels = _labels(runs)
    by_group: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        by_group[run.config.task, labels[run.config.method, run.settings]].append(run)
    return [
        Group(label, task, tuple(sorted(members, key=lambda run: run.config.seed)))
        for (task, label), members in sorted(by_group.items(), key=lambda item: item[0])
    ]


def _labels(runs: Sequence[Run]) -> dict[Any, str]:
    """A name for each method and its settings; only settings that differ are in it.

    Settings that depend on the task, as a preset's may, do not separate groups: only runs of one
    method on one task are compared.
    """
    differing: dict[str, set[str]] = defaultdict(set)
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        values = dict(run.settings)
        other = first.setdefault((run.config.method, run.config.task), values)
        differing[run.config.method] |= {k for k in values if values[k] != other[k]}
    labels = {}
    for run in runs:
        method, values = run.config.method, dict(run.settings)
        marks = [f"{name}={values[name]}" for name in sorted(differing[method])]
        labels[method, run.settings] = f"{method} ({', '.join(marks)})" if marks else method
    return labels


def _comparability(groups: Sequence[Group]) -> list[str]:
    """What a reader must know before comparing the groups."""
    problems = []
    for task in sorted({group.task for group in groups}):
        runs = [run for group in groups if group.task == task for run in group.runs]
        for name in _ENVIRONMENT:
            values = sorted({str(getattr(run.config, name)) for run in runs})
            if len(values) > 1:
                problems.append(
                    f"{task}: {name} is {' and '.join(values)}: returns are not comparable"
                )
        presets = sorted({run.config.preset for run in runs})
        if len(presets) > 1:
            problems.append(f"{task}: presets {' and '.join(presets)} are not comparable")
    every = sorted({seed for group in groups for seed in group.seeds})
    for label in sorted({group.label for group in groups}):
        if "(" in label:
            problems.append(
                f"{label} is kept separate: its settings differ from those of other runs"
            )
        for group in (group for group in groups if group.label == label):
            missing = [seed for seed in every if seed not in group.seeds]
            if missing:
                problems.append(f"{group.task}, {label}: no seed {', '.join(map(str, missing))}")
            if len(group.seeds) == 1:
                problems.append(f"{group.task}, {label}: one seed only, so no spread is known")
    return problems + _mixed_versions([run for group in groups for run in group.runs])


def _mixed_versions(runs: Sequence[Run]) -> list[str]:
    seen: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        versions = run.about.get("versions")
        for name, value in (versions if isinstance(versions, dict) else {}).items():
            seen[name].add(str(value))
        if run.about:
            seen["revision"].add(str(run.about.get("revision")))
    return [
        f"versions are mixed: {name} {' and '.join(sorted(values))}"
        for name, values in sorted(seen.items())
        if len(values) > 1
    ]


def _row(group: Group, run: Run, one: Evaluation) -> Row:
    return Row(
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
