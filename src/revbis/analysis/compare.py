"""Which scores of a study may be compared, at how many frames, and with what caveats."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from revbis.analysis import curves, stats
from revbis.analysis.study import Group, Study, as_study
from revbis.envs.suites import suite_of
from revbis.io import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Pooled(NamedTuple):
    """Normalised scores of all methods on the tasks that they share.

    Attributes:
        scores: Method → task → scores of its seeds.
        seeds: Method → task → these seeds.
        tasks: The shared tasks.
        at: The budget of every task of the study.
        left_out: Missing seeds, and what is left out.
        units: The bounds that scores are normalised by.
    """

    scores: dict[str, dict[str, stats.Array]]
    seeds: dict[str, dict[str, tuple[int, ...]]]
    tasks: list[str]
    at: dict[str, int]
    left_out: tuple[str, ...]
    units: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of normalised scores has to know."""
        return self.left_out + self.units

    def by_seed(self, label: str) -> dict[str, dict[int, float]]:
        """A method's scores, task → seed → score."""
        seeds = self.seeds[label]
        return {
            task: dict(zip(seeds[task], values.tolist(), strict=True))
            for task, values in self.scores[label].items()
        }

    def paired(self, label: str, other: str, seed: int) -> stats.Paired | None:
        """Two methods' difference over all tasks; None if they have no common seed of one."""
        one_side, other_side = self.by_seed(label), self.by_seed(other)
        if not all(one_side[task].keys() & other_side[task].keys() for task in self.tasks):
            return None
        return stats.paired(one_side, other_side, seed=seed)


def pooled(study: Study, kind: curves.Kind, budget: int | None = None) -> Pooled:
    """Normalised scores of all methods, on the tasks where each has a seed at the budget.

    A task with mixed environments or presets, without known bounds, or with evaluations at
    different frames is left out and named.

    Raises:
        ValueError: If nothing is left, with the reasons.
    """
    at = budgets(study, budget)
    notes: list[str] = []
    bounds = _comparable_tasks(study, notes)
    measured: dict[str, dict[str, curves.GroupScores]] = defaultdict(dict)
    for group in (group for group in study.groups if group.task in bounds):
        scores = curves.group_scores(group, kind, at[group.task])
        if scores is not None and len(scores.short) < len(group.seeds):
            measured[group.label][group.task] = scores
            if scores.short:
                name = f"{short_name(group.task)}, {group.label}"
                notes.append(f"{name}: {seed_count(group, scores)}")
    labels = [label for label in study.labels if label in measured]
    if labels:
        absent = [label for label in study.labels if label not in measured]
        notes += [f"{label} is left out: it has no score yet" for label in absent]
    for task in _uneven(measured):
        notes.append(f"{short_name(task)} is left out: evaluations are at different frames")
        for scores_of in measured.values():
            scores_of.pop(task, None)
    tasks = [task for task in at if labels and all(task in measured[label] for label in labels)]
    if not tasks:
        why = "there is no task on which all methods have a score"
        raise ValueError("; ".join([why, *(note.rstrip(".") for note in notes)]))
    partial = {task for scores in measured.values() for task in scores} - set(tasks)
    notes += [
        f"{short_name(one)} is left out: not all methods have a score" for one in sorted(partial)
    ]
    values = {label: {task: measured[label][task].values for task in tasks} for label in labels}
    return Pooled(
        {label: stats.normalise(values[label], bounds) for label in labels},
        {label: {task: measured[label][task].seeds for task in tasks} for label in labels},
        tasks,
        at,
        tuple(notes),
        tuple(_bound_notes({task: bounds[task] for task in tasks})),
    )


def _uneven(measured: Mapping[str, Mapping[str, curves.GroupScores]]) -> list[str]:
    """The tasks whose methods have scores at different frames."""
    frames: dict[str, set[int]] = defaultdict(set)
    for scores in measured.values():
        for task, of in scores.items():
            frames[task].add(of.frames)
    return [task for task, seen in frames.items() if len(seen) > 1]


def _comparable_tasks(study: Study, notes: list[str]) -> dict[str, stats.Bounds]:
    """The bounds of the tasks whose scores may be normalised; why others may not is noted."""
    bounds = {}
    for task in study.tasks:
        try:
            known = stats.default_bounds(task)
        except ValueError as problem:
            notes.append(f"{task} is left out: {problem}")
            continue
        if differing := mixed(groups_of(study, task)):
            notes.append(f"{task} is left out: {differing}")
        else:
            bounds[task] = known
    return bounds


def _bound_notes(bounds: Mapping[str, stats.Bounds]) -> list[str]:
    names: dict[stats.Bounds, list[str]] = defaultdict(list)
    for task, known in bounds.items():
        names[known].append(short_name(task))
    return [
        f"Scores from {low:g} to {high:g} are normalised to 0 to 1 on {', '.join(tasks)}."
        for (low, high), tasks in names.items()
        if (low, high) != (0, 1)
    ]


def budgets(study: Study, budget: int | None = None) -> dict[str, int]:
    """The frames at which each task's methods are compared.

    Args:
        study: The runs.
        budget: The same for all tasks. By default the smallest budget of a task's runs; as long
            as none of them has reached it, the last frame that all evaluated ones have.
    """
    as_study(study)
    if budget is not None:
        return dict.fromkeys(study.tasks, schema.integer(budget, "budget", 0))
    at = {}
    for task in study.tasks:
        runs = [run for group in groups_of(study, task) for run in group.runs]
        at[task] = min(run.config.frames for run in runs)
        seen = [one for run in runs if len((one := curves.curve(run)).frames)]
        if seen and all(one.frames[-1] < at[task] for one in seen):
            shared, _ = curves.common(seen)
            at[task] = int(shared[-1]) if len(shared) else at[task]
    return at


def budget_notes(study: Study, at: Mapping[str, int]) -> list[str]:
    """At how many frames scores are, and where the runs' own budgets differ."""
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, frames in at.items():
        own = sorted({run.config.frames for group in groups_of(study, task) for run in group.runs})
        planned = " and ".join(f"{one:,}" for one in own)
        difference = "" if own == [frames] else f"; the runs' own budget is {planned}"
        tasks[f"at {frames:,} frames{difference}"].append(short_name(task))
    if len(tasks) == 1:
        return [f"Scores are {next(iter(tasks))}."]
    return [f"Scores on {', '.join(names)} are {where}." for where, names in tasks.items()]


def mixed(groups: Iterable[Group]) -> str:
    """In words, which settings make scores of these groups not comparable; empty if none do."""
    seen: dict[str, set[str]] = defaultdict(set)
    for run in (run for group in groups for run in group.runs):
        for name, value in {"preset": run.config.preset, **run.config.environment}.items():
            seen[name].add(str(value))
    differing = [f"{k} is {' and '.join(sorted(v))}" for k, v in seen.items() if len(v) > 1]
    return f"not comparable, {', '.join(differing)}" if differing else ""


def short_name(task: str) -> str:
    """A task's name, without its suite where the suite lists its tasks."""
    suite = suite_of(task)
    return suite.local_name(task) if suite.tasks else task


def seed_count(group: Group, scores: curves.GroupScores) -> str:
    """How many seeds scores are of, in words: `n = 2 of 3` where some are short of the budget."""
    n = len(scores.seeds)
    return f"n = {n} of {len(group.seeds)}" if n < len(group.seeds) else f"n = {n}"


def groups_of(study: Study, task: str) -> list[Group]:
    """A task's groups."""
    return [group for group in study.groups if group.task == task]
