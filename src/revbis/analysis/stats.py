"""Statistics of runs: curves, aggregates over tasks, intervals, paired tests, Holm's correction.

A method's scores are a mapping from task to the scores of its seeds, `[..., n]`; n may differ from
task to task, and every task has the same weight. Leading axes are kept, so one call serves all
resamples of a bootstrap. With equal n the aggregates are those of Agarwal et al. (2021), "Deep
Reinforcement Learning at the Edge of the Statistical Precipice".

Intervals have 95%. Tasks are fixed: an interval is about other seeds of these tasks, not about
other tasks. Where a task has fewer than `LEAST` seeds, its ends are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from revbis.envs.suites import suite_of
from revbis.io import schema, statistics
from revbis.io.statistics import LEAST, RESAMPLES, Interval

Array = NDArray[np.float64]
Scores = Mapping[str, Array]

PATTERNS = 10_000  # of signs, where not all are tried
_MOST_RESAMPLES = 10**7
_MOST_PATTERNS = 2**16  # of signs, up to which the test is exact
_Z = NormalDist().inv_cdf(0.975)


class Summary(NamedTuple):
    """Mean and spread over seeds.

    Attributes:
        mean: Of their scores.
        deviation: Sample standard deviation (n − 1); NaN for one seed.
        error: Standard error of the mean; NaN for one seed.
        n: Number of seeds.
    """

    mean: float
    deviation: float
    error: float
    n: int


def summarise(values: Array) -> Summary:
    """Mean, standard deviation and standard error of scores over seeds, [n]."""
    values = _finite(values, "scores")
    deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Summary(float(values.mean()), deviation, deviation / math.sqrt(len(values)), len(values))


class Bounds(NamedTuple):
    """The scores that are normalised to 0 and to 1."""

    low: float
    high: float


def default_bounds(task: str) -> Bounds:
    """The bounds of a task's scores that its suite knows.

    Raises:
        ValueError: If they are not known.
    """
    suite = suite_of(str(task))
    bounds = suite.bounds(suite.local_name(str(task)))
    if bounds is None:
        raise ValueError(
            f"no bounds are known for {task!s:.80}: pass the scores to normalise to 0 and to 1"
        )
    return Bounds(*bounds)


def published_return(task: str) -> float | None:
    """The final return on a task that was published, as its suite knows it; None if unknown."""
    suite = suite_of(str(task))
    return suite.published.get(suite.local_name(str(task)))


def normalise_scores(scores: Scores, bounds: Mapping[str, Bounds]) -> dict[str, Array]:
    """Scores normalised with the given bounds.

    Raises:
        ValueError: If a task has no bounds, or its high is not above its low.
    """
    known = _mapping(bounds, "bounds")
    normal = {}
    for task, values in _mapping(scores, "scores").items():
        if task not in known:
            raise ValueError(f"bounds must have {task}")
        ends = _numbers(known[task], f"bounds of {task}")
        if ends.shape != (2,):
            raise ValueError(f"bounds of {task} must be two numbers, got {known[task]!r:.80}")
        low, high = map(float, ends)
        if not low < high:
            raise ValueError(f"bounds of {task} must rise, got {low:g} and {high:g}")
        normal[task] = (_numbers(values, f"scores of {task}") - low) / (high - low)
    return normal


def ewma(values: Array, alpha: float) -> Array:
    """Exponentially weighted moving average, y_t = α x_t + (1 − α) y_{t−1} and y_0 = x_0.

    Args:
        values: [..., F], smoothed along the last axis.
        alpha: In (0, 1]; 1 leaves the values as they are.

    Raises:
        ValueError: If alpha is out of range.
    """
    alpha = check_alpha(alpha)
    smooth = np.atleast_1d(_numbers(values, "values")).copy()
    for t in range(1, smooth.shape[-1]):
        smooth[..., t] = alpha * smooth[..., t] + (1 - alpha) * smooth[..., t - 1]
    return smooth


def check_alpha(alpha: float) -> float:
    """The weight of a moving average, in (0, 1].

    Raises:
        ValueError: If it is none.
    """
    alpha = schema.number(alpha, "alpha")
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must be in (0, 1], got {alpha:g}")
    return alpha


def area(frames: NDArray[np.int64], scores: Array) -> Array:
    """Area under curves by the trapezoid rule over their range of frames: their mean height.

    Args:
        frames: [F], ascending.
        scores: [..., F].

    Returns:
        [...]; a single evaluation is its own height.

    Raises:
        ValueError: If frames do not rise, or scores are not as many.
    """
    x, y = _numbers(frames, "frames"), _numbers(scores, "scores")
    if x.ndim != 1 or not len(x) or y.shape[-1:] != x.shape or not (np.diff(x) > 0).all():
        raise ValueError(
            f"frames must be one rising row with a score for each, got shapes {x.shape}, {y.shape}"
        )
    if len(x) == 1:
        return np.asarray(y[..., 0])
    height: Array = np.trapezoid(y, x, axis=-1) / (x[-1] - x[0])
    return height


def failed_share(finals: Array, reference: float, share: float = 0.5, low: float = 0.0) -> float:
    """Share of seeds that failed: their final score is below a fraction of a reference.

    Args:
        finals: Final scores, [n].
        reference: The score a seed should reach, such as that of the best seed.
        share: The fraction of the way from `low` to `reference` that is enough.
        low: The score without learning.
    """
    low, share = schema.number(low, "low"), schema.number(share, "share")
    enough = low + share * (schema.number(reference, "reference") - low)
    return float(np.mean(_finite(finals, "finals") < enough))


def mean(scores: Scores) -> Array:
    """Mean over tasks of the mean over seeds."""
    return np.asarray(_task_means(scores).mean(axis=0))


def median(scores: Scores) -> Array:
    """Median over tasks of the mean over seeds."""
    return np.asarray(np.median(_task_means(scores), axis=0))


def iqm(scores: Scores) -> Array:
    """Interquartile mean: the mean without the lowest and the highest quarter of all runs.

    ⌊N/4⌋ runs are dropped at each end, as in a 25% trimmed mean. With unequal numbers of seeds, the
    runs of each task are first repeated until all tasks are equally large.
    """
    arrays = list(_checked(scores).values())
    size = math.lcm(*(values.shape[-1] for values in arrays))
    copies = np.concatenate([np.full(v.shape[-1], size // v.shape[-1]) for v in arrays])
    values = np.concatenate(arrays, axis=-1)
    order = values.argsort(axis=-1)
    until = copies[order].cumsum(axis=-1)
    first, last = size * len(arrays) // 4, size * len(arrays) - size * len(arrays) // 4
    weights = until.clip(first, last) - (until - copies[order]).clip(first, last)
    total: Array = (weights * np.take_along_axis(values, order, axis=-1)).sum(axis=-1)
    return total / (last - first)


def optimality_gap(scores: Scores, goal: float = 1.0) -> Array:
    """Mean shortfall of runs from a goal; a score above the goal does not offset others."""
    goal = schema.number(goal, "goal")
    return goal - mean({task: np.minimum(v, goal) for task, v in _checked(scores).items()})


def profile(scores: Scores, thresholds: Array) -> Array:
    """Performance profile: the share of runs above each threshold, [..., thresholds]."""
    arrays, limits = _checked(scores).values(), _numbers(thresholds, "thresholds")
    if limits.ndim != 1:
        raise ValueError(f"thresholds must be one row, got shape {limits.shape}")
    shares = np.stack([(v[..., None] > limits).mean(axis=-2) for v in arrays])
    return np.asarray(shares.mean(axis=0))


def improvement(scores: Scores, other: Scores) -> Array:
    """Probability that a run of one method beats one of the other, mean over tasks; ties are half.

    Raises:
        ValueError: If their tasks are not the same.
    """
    left, right = _checked(scores), _checked(other)
    if list(left) != list(right):
        raise ValueError(f"tasks must be the same, got {list(left)} and {list(right)}")
    shares = []
    for task in left:
        gap = left[task][..., :, None] - right[task][..., None, :]
        shares.append(((gap > 0) + 0.5 * (gap == 0)).mean(axis=(-2, -1)))
    return np.asarray(np.stack(shares).mean(axis=0))


def mean_interval(scores: Scores) -> Interval[Array]:
    """`mean`, with Student's t and the degrees of freedom of Welch and Satterthwaite."""
    return statistics.means_interval(list(_checked(scores).values()))


def gap_interval(scores: Scores, goal: float = 1.0) -> Interval[Array]:
    """`optimality_gap`, a mean of shortfalls, with the interval of `mean_interval`."""
    goal = schema.number(goal, "goal")
    short = {task: goal - np.minimum(v, goal) for task, v in _checked(scores).items()}
    return mean_interval(short)


def profile_interval(scores: Scores, thresholds: Array) -> Interval[Array]:
    """`profile` with Wilson's pointwise score intervals, [thresholds].

    The mean over tasks counts as a share of T²/Σ 1/n runs, all with one probability: where those of
    tasks differ, its variance is smaller and the interval wider than needed.
    """
    share, counts = profile(scores, thresholds), [len(v) for v in _checked(scores).values()]
    if min(counts) < LEAST:
        unknown = np.full_like(share, np.nan)
        return Interval(share, unknown, unknown)
    runs = len(counts) ** 2 / sum(1 / n for n in counts)
    weight = _Z**2 / runs
    centre = (share + weight / 2) / (1 + weight)
    reach = np.sqrt(weight * (share * (1 - share) + weight / 4)) / (1 + weight)
    return Interval(share, centre - reach, centre + reach)


def improvement_interval(scores: Scores, other: Scores) -> Interval[float]:
    """`improvement` with the interval of Newcombe (2006), method 5.

    It has the θ from which the estimate is not further than 1.96 standard deviations, by Hanley and
    McNeil's variance at θ, so that it has a width even where one method wins every pair. Over tasks
    the variance is that of the mean of shares that all have θ.
    """
    left, right = _checked(scores), _checked(other)
    value = float(improvement(left, right))
    counts = [(len(left[task]), len(right[task])) for task in left]
    if min(min(each) for each in counts) < LEAST:
        return Interval(value, math.nan, math.nan)

    def variance(theta: float) -> float:
        ordered = (1 - theta) / (2 - theta) + theta / (1 + theta)
        parts = [(1 + ((m + n) / 2 - 1) * ordered) / (m * n) for m, n in counts]
        return theta * (1 - theta) * sum(parts) / len(counts) ** 2

    def lowest(share: float) -> float:
        """By bisection between 0, which is too far, and the share itself, which is not."""
        far, near = 0.0, share
        for _ in range(50):
            middle = (far + near) / 2
            if (share - middle) ** 2 > _Z**2 * variance(middle):
                far = middle
            else:
                near = middle
        return far

    return Interval(value, lowest(value), 1 - lowest(1 - value))  # θ and 1 − θ vary alike


def interval(
    statistic: Callable[..., Array], *scores: Scores, seed: int = 0, resamples: int = RESAMPLES
) -> Interval[Array]:
    """Any other statistic, such as `iqm`: Student's t with a bootstrap's standard error.

    Seeds are resampled within each task and method; ends are pointwise where the statistic is an
    array.

    Args:
        statistic: Of one or more methods' scores, keeping leading axes.
        *scores: One for each method, task → [n].
        seed: Of the generator.
        resamples: Number of resamples of each task's seeds.
    """
    if not callable(statistic):
        raise ValueError(f"statistic must be a function such as iqm, got {statistic!r:.80}")
    resamples = schema.integer(resamples, "resamples", 1, _MOST_RESAMPLES)
    seed = schema.integer(seed, "seed", 0)
    checked = [_checked(one) for one in scores]

    def of_samples(samples: Sequence[Array]) -> Array:
        rest = iter(samples)
        return statistic(*({task: next(rest) for task in one} for one in checked))

    samples = [values for one in checked for values in one.values()]
    return statistics.bootstrap_interval(of_samples, samples, seed=seed, resamples=resamples)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of a family's p-values, in their order.

    The smallest of m is multiplied by m, the next by m − 1, and so on; no result is below that of a
    smaller one, or above 1. Rejecting where the result is at most α keeps the chance of any false
    rejection in the family at most α, however the tests depend on each other.

    Raises:
        ValueError: If one is not between 0 and 1.
    """
    raw = [schema.number(each, "a p-value") for each in p_values]
    if outside := [each for each in raw if not 0 <= each <= 1]:
        raise ValueError(f"p-values must be between 0 and 1, got {outside[0]:g}")
    corrected, last = [0.0] * len(raw), 0.0
    for rank, place in enumerate(sorted(range(len(raw)), key=raw.__getitem__)):
        last = max(last, min(1.0, (len(raw) - rank) * raw[place]))
        corrected[place] = last
    return corrected


class Paired(NamedTuple):
    """One method compared with another, seed by seed.

    Attributes:
        difference: Mean over tasks of the mean difference of their pairs.
        low: Lower end of its 95% interval, as of `mean_interval`; NaN if a task has too few pairs.
        high: Upper end.
        p_value: Two-sided, of the sign-flip test: how often random signs give a difference at
            least as large.
        pairs: Number of seeds that both have, over all tasks.
        unpaired: Number of seeds that only one of them has; they are left out.
        exact: Whether all patterns of signs were tried.
        fewest: The number of pairs of the task with the fewest.
    """

    difference: float
    low: float
    high: float
    p_value: float
    pairs: int
    unpaired: int
    exact: bool
    fewest: int


SeedScores = Mapping[str, Mapping[int, float]]


def paired(
    scores: SeedScores, other: SeedScores, *, seed: int = 0, resamples: int = PATTERNS
) -> Paired:
    """Compares two methods on the tasks and seeds that both have.

    With N pairs no p-value is below 2 / 2^N: three seeds of one task cannot give less than 0.25.

    Args:
        scores: Of one method, task → seed → score, on one scale for all tasks.
        other: Of the other.
        seed: Of the generator.
        resamples: Number of patterns of signs, where not all are tried.

    Raises:
        ValueError: If they have no seed of a task in common.
    """
    gaps: dict[str, Array] = {}
    unpaired = 0
    one_side, other_side = _by_seed(scores, "scores"), _by_seed(other, "other")
    for task in sorted(one_side.keys() | other_side.keys()):
        left, right = one_side.get(task, {}), other_side.get(task, {})
        both = sorted(left.keys() & right.keys())
        unpaired += len(left.keys() ^ right.keys())
        if both:
            gaps[task] = np.array([left[one] - right[one] for one in both])
    if not gaps:
        raise ValueError("the two have no seed of a task in common, so nothing can be paired")
    resamples = schema.integer(resamples, "resamples", 1, _MOST_RESAMPLES)
    seed = schema.integer(seed, "seed", 0)
    value, low, high = map(float, mean_interval(gaps))
    weighted = np.concatenate([gap / (len(gap) * len(gaps)) for gap in gaps.values()])
    p_value, exact = _sign_flip(weighted, seed, resamples)
    fewest = min(map(len, gaps.values()))
    return Paired(value, low, high, p_value, len(weighted), unpaired, exact, fewest)


def _sign_flip(parts: Array, seed: int, resamples: int) -> tuple[float, bool]:
    count = len(parts)
    exact = 2**count <= _MOST_PATTERNS
    if exact:
        signs = (np.arange(2**count)[:, None] >> np.arange(count) & 1) * 2 - 1
    else:
        signs = np.random.default_rng(seed).choice((-1, 1), size=(resamples, count))
    rounding = 1e-12 * np.abs(parts).sum()
    as_large = np.abs(signs @ parts) >= abs(parts.sum()) - rounding
    if exact:
        return float(as_large.mean()), True
    return float((1 + as_large.sum()) / (1 + resamples)), False  # the observed signs are one


def _task_means(scores: Scores) -> Array:
    return np.stack([values.mean(axis=-1) for values in _checked(scores).values()])


def _checked(scores: Scores) -> dict[str, Array]:
    """Sorted by task, so that resamples do not depend on the order of the tasks."""
    by_task = _mapping(scores, "scores")
    if not by_task:
        raise ValueError("scores must have at least one task")
    return {task: _finite(by_task[task], f"scores of {task}") for task in sorted(by_task)}


def _by_seed(scores: object, name: str) -> dict[str, dict[int, float]]:
    """By task and seed."""
    return {
        task: {
            schema.integer(seed, f"a seed of {task}", 0): schema.number(value, f"{name} of {task}")
            for seed, value in _mapping(seeds, f"{name} of {task}", int).items()
        }
        for task, seeds in _mapping(scores, name).items()
    }


def _mapping(value: object, name: str, key: type = str) -> Mapping[Any, Any]:
    """A mapping from task or seed to something."""
    what = "task" if key is str else "seed"
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping with each {what}, got {value!r:.80}")
    malformed = [each for each in value if not isinstance(each, key)]
    if malformed:
        raise ValueError(f"{name} must have a {what} for each key, got {malformed[0]!r:.80}")
    return value


def _numbers(values: object, name: str) -> Array:
    array = schema.real_array(values, name)
    if not array.size:
        raise ValueError(f"{name} must have at least one number")
    return array.astype(np.float64, copy=False)


def _finite(values: object, name: str) -> Array:
    array = schema.real_array(values, name).astype(np.float64, copy=False)
    if array.ndim < 1 or array.shape[-1] < 1:
        raise ValueError(f"{name} must have at least one seed")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite: leave out runs without a score, and say so")
    return array
