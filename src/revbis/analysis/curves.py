"""A run's scores over training, and the scores of a group of runs at a budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from revbis.analysis.runs import count, number
from revbis.analysis.stats import Array, area
from revbis.envs.suite import Score
from revbis.envs.suites import suite_of
from revbis.io import schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from revbis.analysis.runs import Evaluation, Run
    from revbis.analysis.study import Group

Kind = Literal["final", "best", "area"]
KINDS = ("final", "best", "area")
Measure = Score
Variants = Literal["eval", "train", "gap"]


def measure(task: str) -> Measure:
    """What a task is scored by: its success rate or its return."""
    return suite_of(task).score


class Curve(NamedTuple):
    """A run's scores over training.

    Attributes:
        frames: Ascending, [F].
        scores: At these frames, [F].
    """

    frames: NDArray[np.int64]
    scores: Array


def curve(run: Run, of: Measure | None = None, variants: Variants = "eval") -> Curve:
    """A run's evaluations by the frames they were due at, which its seeds share.

    Args:
        run: The run.
        of: Returns or success rates; by default how its task is scored.
        variants: Scores on the evaluation variants, on the training variants, or the second minus
            the first; the last two only where an evaluation was on both.
    """
    of = of or measure(run.config.task)
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
        value, step = number(line.get(name)), count(line.get("agent_steps"))
        if value is not None and step is not None and math.isfinite(value):
            points[step * run.config.action_repeat] = value
    evaluated = {one.frames: one.status.get(name, math.nan) for one in run.evaluations}
    return _curve(points or {k: v for k, v in evaluated.items() if math.isfinite(v)})


def common(curves: Sequence[Curve], budget: int | None = None) -> tuple[NDArray[np.int64], Array]:
    """The frames that all curves have, up to a budget: nothing is interpolated or extrapolated.

    Returns:
        Frames, [F], and scores, [curves, F].

    Raises:
        ValueError: If there is no curve.
    """
    if not curves:
        raise ValueError("there is no curve")
    shared = {int(frame) for frame in curves[0].frames if budget is None or frame <= budget}
    for other in curves[1:]:
        shared &= set(other.frames.tolist())
    frames = np.array(sorted(shared), dtype=np.int64)
    rows = [one.scores[np.isin(one.frames, frames)] for one in curves]
    return frames, np.stack(rows)


class GroupScores(NamedTuple):
    """A group's scores at a budget.

    Attributes:
        seeds: The seeds that have reached the budget; all that were evaluated, if none has.
        values: Their scores, [seeds].
        frames: The last evaluation that all of them have within the budget.
        short: The seeds that have not reached it.
    """

    seeds: tuple[int, ...]
    values: Array
    frames: int
    short: tuple[int, ...]


def group_scores(
    group: Group,
    kind: Kind,
    budget: int,
    of: Measure | None = None,
    variants: Variants = "eval",
) -> GroupScores | None:
    """A group's final, best or mean scores within a budget, at frames that its seeds share.

    Args:
        group: The runs.
        kind: final: the last evaluation; best: the highest; area: the mean height of the curve.
        budget: In frames.
        of: Returns or success rates; by default how the task is scored.
        variants: As for `curve`.

    Returns:
        None if there is no evaluation that the seeds share.

    Raises:
        ValueError: For an unknown kind.
    """
    schema.choice(kind, KINDS, "kind")
    curves = {run.config.seed: curve(run, of, variants) for run in group.runs}
    curves = {seed: one for seed, one in curves.items() if len(one.frames)}
    there = {seed: one for seed, one in curves.items() if one.frames[-1] >= budget}
    used = there or curves
    if not used:
        return None
    frames, scores = common(list(used.values()), budget)
    if not len(frames):
        return None
    if kind == "final":
        values = scores[:, -1]
    else:
        values = scores.max(axis=1) if kind == "best" else area(frames, scores)
    short = tuple(seed for seed in group.seeds if seed not in there)
    return GroupScores(tuple(used), values, int(frames[-1]), short)


def _curve(points: Mapping[int, float]) -> Curve:
    frames = sorted(points)
    return Curve(np.array(frames, dtype=np.int64), np.array([points[f] for f in frames], float))
