"""Scores of runs over training and at a budget, and which of them may be compared."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import reduce
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from revbis.analysis import stats
from revbis.analysis.runs import as_count, as_number
from revbis.analysis.study import RunGroup, Study, as_study
from revbis.envs.suites import suite_of
from revbis.io import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from revbis.analysis.runs import Evaluation, Run
    from revbis.envs.suite import Measure

ScoreKind = Literal["final", "best", "area"]
Variants = Literal["eval", "train", "gap"]


def measure_of(task: str) -> Measure:
    """What a task is scored by: its success rate or its return."""
    return suite_of(task).score


class Curve(NamedTuple):
    """A run's scores over training.

    Attributes:
        frames: Ascending, [F].
        scores: At these frames, [F].
    """

    frames: NDArray[np.int64]
    scores: stats.Array


def curve(run: Run, of: Measure | None = None, variants: Variants = "eval") -> Curve:
    """A run's evaluations by the frames they were due at, which its seeds share.

    Args:
        run: The run.
        of: Returns or success rates; by default how its task is scored.
        variants: Scores on the evaluation variants, on the training variants, or the second minus
            the first; the last two only where an evaluation was on both.
    """
    of = of or measure_of(run.config.task)
    points = {
        one.frames: score
        for one in run.evaluations
        if (score := _score(one, of, variants)) is not None
    }
    return _curve(points)


def _score(one: Evaluation, of: Measure, variants: Variants) -> float | None:
    returns, successes = (one.mean_return, one.train_return), (one.success, one.train_success)
    held_out, seen = successes if of == "success" else returns
    if variants == "eval" or held_out is None or seen is None:
        return held_out if variants == "eval" else None
    return seen if variants == "train" else seen - held_out


def status_curve(run: Run, name: str) -> Curve:
    """A number that the agent reports, such as c, over a run's training; empty without it.

    Training lines are written at fixed agent steps; their frames are those of as many whole
    actions. Where they do not have the number, evaluations may.
    """
    points = {}
    for line in run.training:
        value, step = as_number(line.get(name)), as_count(line.get("agent_steps"))
        if value is not None and step is not None and math.isfinite(value):
            points[step * run.config.action_repeat] = value
    evaluated = {one.frames: one.status.get(name, math.nan) for one in run.evaluations}
    return _curve(points or {k: v for k, v in evaluated.items() if math.isfinite(v)})


def align_curves(
    curves: Sequence[Curve], budget: int | None = None
) -> tuple[NDArray[np.int64], stats.Array]:
    """The frames that all curves have, up to a budget: nothing is interpolated or extrapolated.

    Returns:
        Frames, [F], and scores, [curves, F].

    Raises:
        ValueError: If there is no curve.
    """
    if not curves:
        raise ValueError("there is no curve")
    frames = reduce(np.intersect1d, [one.frames for one in curves])
    frames = frames if budget is None else frames[frames <= budget]
    return frames, np.stack([one.scores[np.isin(one.frames, frames)] for one in curves])


class GroupScores(NamedTuple):
    """A group's scores at a budget.

    Attributes:
        seeds: The seeds that have reached the budget; all that were evaluated, if none has.
        values: Their scores, [seeds].
        frames: The last evaluation that all of them have within the budget.
        short: The seeds that have not reached it.
    """

    seeds: tuple[int, ...]
    values: stats.Array
    frames: int
    short: tuple[int, ...]


def group_scores(
    group: RunGroup,
    kind: ScoreKind,
    budget: int,
    of: Measure | None = None,
    variants: Variants = "eval",
) -> GroupScores | None:
    """A group's final, best or mean scores within a budget, at frames that its seeds share.

    Args:
        group: The runs.
        kind: final: the last evaluation; best: the highest after frame 0, where the agent is
            untrained; area: the mean height of the curve.
        budget: In frames.
        of: Returns or success rates; by default how the task is scored.
        variants: As for `curve`.

    Returns:
        None if there is no evaluation that the seeds share.

    Raises:
        ValueError: For an unknown kind.
    """
    schema.choice(kind, get_args(ScoreKind), "kind")
    curves = {run.config.seed: curve(run, of, variants) for run in group.runs}
    curves = {seed: one for seed, one in curves.items() if len(one.frames)}
    there = {seed: one for seed, one in curves.items() if one.frames[-1] >= budget}
    used = there or curves
    if not used:
        return None
    frames, scores = align_curves(list(used.values()), budget)
    if not len(frames):
        return None
    if kind == "best":
        frames, scores = frames[frames > 0], scores[:, frames > 0]
        if not len(frames):
            return None
        values = scores.max(axis=1)
    else:
        values = scores[:, -1] if kind == "final" else stats.area(frames, scores)
    short = tuple(seed for seed in group.seeds if seed not in there)
    return GroupScores(tuple(used), values, int(frames[-1]), short)


def _curve(points: Mapping[int, float]) -> Curve:
    frames = sorted(points)
    return Curve(np.array(frames, dtype=np.int64), np.array([points[f] for f in frames], float))


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
        """What a reader of normalised scores has to know, without full stops."""
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


def pool_scores(study: Study, kind: ScoreKind, budget: int | None = None) -> Pooled:
    """Normalised scores of all methods, on the tasks where each has a seed at the budget.

    A task with mixed environments or presets, without known bounds, or with evaluations at
    different frames is left out and named.

    Raises:
        ValueError: If nothing is left, with the reasons.
    """
    at = budgets(study, budget)
    notes: list[str] = []
    bounds = _comparable_tasks(study, notes)
    measured: dict[str, dict[str, GroupScores]] = defaultdict(dict)
    for group in (group for group in study.groups if group.task in bounds):
        scores = group_scores(group, kind, at[group.task])
        if scores is not None and len(scores.short) < len(group.seeds):
            measured[group.label][group.task] = scores
            if scores.short:
                name = f"{short_name(group.task)}, {group.label}"
                notes.append(f"{name}: {seed_count(group, scores)}")
    labels = [label for label in study.labels if label in measured]
    if labels:
        absent = [label for label in study.labels if label not in measured]
        notes += [f"{label} is left out: it has no score yet" for label in absent]
    for task in dict.fromkeys(task for scores_of in measured.values() for task in scores_of):
        if len({of[task].frames for of in measured.values() if task in of}) > 1:
            notes.append(f"{short_name(task)} is left out: evaluations are at different frames")
            for scores_of in measured.values():
                scores_of.pop(task, None)
    tasks = [task for task in at if labels and all(task in measured[label] for label in labels)]
    if not tasks:
        why = "there is no task on which all methods have a score"
        raise ValueError("; ".join([why, *notes]))
    partial = {task for scores in measured.values() for task in scores} - set(tasks)
    notes += [
        f"{short_name(one)} is left out: not all methods have a score" for one in sorted(partial)
    ]
    values = {label: {task: measured[label][task].values for task in tasks} for label in labels}
    return Pooled(
        {label: stats.normalise_scores(values[label], bounds) for label in labels},
        {label: {task: measured[label][task].seeds for task in tasks} for label in labels},
        tasks,
        at,
        tuple(notes),
        tuple(_bound_notes({task: bounds[task] for task in tasks})),
    )


def _comparable_tasks(study: Study, notes: list[str]) -> dict[str, stats.Bounds]:
    """The bounds of the tasks whose scores may be normalised; why others may not is noted."""
    bounds = {}
    for task in study.tasks:
        try:
            known = stats.default_bounds(task)
        except ValueError as problem:
            notes.append(f"{task} is left out: {problem}")
            continue
        if differing := mixed_settings(groups_of(study, task)):
            notes.append(f"{task} is left out: {differing}")
        else:
            bounds[task] = known
    return bounds


def _bound_notes(bounds: Mapping[str, stats.Bounds]) -> list[str]:
    names: dict[stats.Bounds, list[str]] = defaultdict(list)
    for task, known in bounds.items():
        names[known].append(short_name(task))
    return [
        f"Scores from {low:g} to {high:g} are normalised to 0 to 1 on {', '.join(tasks)}"
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
        seen = [one for run in runs if len((one := curve(run)).frames)]
        if seen and all(one.frames[-1] < at[task] for one in seen):
            shared, _ = align_curves(seen)
            at[task] = int(shared[-1]) if len(shared) else at[task]
    return at


def budget_notes(study: Study, at: Mapping[str, int]) -> list[str]:
    """At how many frames scores are, where the runs' own budgets differ, and their machines.

    Without full stops.
    """
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, frames in at.items():
        own = sorted({run.config.frames for group in groups_of(study, task) for run in group.runs})
        planned = " and ".join(f"{one:,}" for one in own)
        difference = "" if own == [frames] else f"; the runs' own budget is {planned}"
        tasks[f"at {frames:,} frames{difference}"].append(short_name(task))
    if len(tasks) == 1:
        return [f"Scores are {next(iter(tasks))}", *study.machine_notes]
    notes = [f"Scores on {', '.join(names)} are {where}" for where, names in tasks.items()]
    return notes + study.machine_notes


def mixed_settings(groups: Iterable[RunGroup]) -> str:
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


def seed_count(group: RunGroup, scores: GroupScores) -> str:
    """How many seeds scores are of, in words: `n = 2 of 3` where some are short of the budget."""
    n = len(scores.seeds)
    return f"n = {n} of {len(group.seeds)}" if n < len(group.seeds) else f"n = {n}"


def groups_of(study: Study, task: str) -> list[RunGroup]:
    """A task's groups."""
    return [group for group in study.groups if group.task == task]
