"""What of a study may be compared, at how many frames, and what a reader must know of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from revbis import checks
from revbis.analysis import curves, stats
from revbis.analysis.scores import Group, Study, as_study


class Together(NamedTuple):
    """What of a study may be put together over tasks.

    Attributes:
        scores: Method → task → normalised scores of its seeds; all methods have the same tasks.
        tasks: These tasks.
        at: The frames at which scores are, for every task of the study.
        notes: Bounds, missing seeds, and what is left out.
    """

    scores: dict[str, dict[str, stats.Array]]
    tasks: list[str]
    at: dict[str, int]
    notes: tuple[str, ...]


def together(study: Study, kind: curves.Kind, budget: int | None = None) -> Together:
    """Normalised scores of all methods, on the tasks where each has a seed at the budget.

    A task of mixed environments or presets, or without known bounds, is left out and named.

    Raises:
        ValueError: If nothing is left, with why.
    """
    at = budgets(study, budget)
    notes = []
    found: dict[str, dict[str, stats.Array]] = defaultdict(dict)
    bounds = {}
    for task in at:
        try:
            bounds[task] = stats.default_bounds(task)
        except ValueError as problem:
            notes.append(f"{task} is left out: {problem}")
            continue
        if differing := mixed(groups_of(study, task)):
            notes.append(f"{task} is left out: {differing}")
            continue
        for group in groups_of(study, task):
            result = curves.result(group, kind, at[task])
            if result is not None and len(result.short) < len(group.seeds):
                found[group.label][task] = result.values
                if result.short:
                    notes.append(f"{short_name(task)}, {group.label}: {seed_count(group, result)}")
    if found:
        absent = [label for label in study.labels if label not in found]
        notes += [f"{label} is left out: no score yet" for label in absent]
    tasks = [task for task in at if found and all(task in scores for scores in found.values())]
    if not tasks:
        why = "there is no task on which all methods have a score"
        raise ValueError("; ".join([why, *(note.rstrip(".") for note in notes)]))
    apart = {task for scores in found.values() for task in scores} - set(tasks)
    notes += [f"{short_name(one)} is left out: some method has no score" for one in sorted(apart)]
    highs: dict[stats.Bounds, list[str]] = defaultdict(list)
    for task in tasks:
        highs[bounds[task]].append(short_name(task))
    for (low, high), names in highs.items():
        notes.append(f"{low:g} to {high:g} count as 0 to 1 on {', '.join(names)}.")
    scores = {
        label: stats.normalise({task: found[label][task] for task in tasks}, bounds)
        for label in study.labels
        if label in found
    }
    return Together(scores, tasks, at, tuple(notes))


def budgets(study: Study, budget: int | None = None) -> dict[str, int]:
    """The frames at which each task's methods are compared.

    Args:
        study: The runs.
        budget: The same for all tasks. When not given: the smallest budget of a task's runs; as
            long as none of them has got there, the last frame that all evaluated ones have.
    """
    as_study(study)
    if budget is not None:
        return dict.fromkeys(study.tasks, checks.whole(budget, "budget", 0))
    found = {}
    for task in study.tasks:
        runs = [run for group in groups_of(study, task) for run in group.runs]
        found[task] = min(run.config.frames for run in runs)
        seen = [one for run in runs if len((one := curves.curve(run)).frames)]
        if seen and all(one.frames[-1] < found[task] for one in seen):
            shared, _ = curves.common(seen)
            found[task] = int(shared[-1]) if len(shared) else found[task]
    return found


def budget_notes(study: Study, at: Mapping[str, int]) -> list[str]:
    """At how many frames scores are, and where runs' own budgets are others."""
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, frames in at.items():
        own = sorted({run.config.frames for group in groups_of(study, task) for run in group.runs})
        planned = " and ".join(f"{one:,}" for one in own)
        told = "" if own == [frames] else f"; the runs' own budget is {planned}"
        tasks[f"at {frames:,} frames{told}"].append(short_name(task))
    if len(tasks) == 1:
        return [f"Scores are {next(iter(tasks))}."]
    return [f"Scores on {', '.join(names)} are {where}." for where, names in tasks.items()]


def mixed(groups: Iterable[Group]) -> str:
    """In words, which settings make scores of these groups not comparable; empty if none do."""
    seen: dict[str, set[str]] = defaultdict(set)
    for run in (run for group in groups for run in group.runs):
        for name, value in {"preset": run.config.preset, **run.config.environment}.items():
            seen[name].add(str(value))
    told = [f"{k} is {' and '.join(sorted(v))}" for k, v in seen.items() if len(v) > 1]
    return f"not comparable, {', '.join(told)}" if told else ""


def short_name(task: str) -> str:
    """A task's name without its suite."""
    return task.removeprefix("dmc:").removeprefix("metaworld:")


def seed_count(group: Group, result: curves.Result) -> str:
    """How many seeds a result is of, in words: `n = 2 of 3` where some have not got there."""
    n = len(result.seeds)
    return f"n = {n} of {len(group.seeds)}" if n < len(group.seeds) else f"n = {n}"


def groups_of(study: Study, task: str) -> list[Group]:
    """A task's groups."""
    return [group for group in study.groups if group.task == task]
