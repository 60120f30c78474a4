"""Statistics, each against values worked by hand, and against rliable."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from revbis.analysis import stats
from revbis.analysis.scores import (
    measure_of,
)


def arrays(**scores: list[float]) -> dict[str, Any]:
    return {task: np.array(values) for task, values in scores.items()}


def test_summary() -> None:
    # Squared gaps from the mean 5: 9 + 1 + 16 = 26, over n - 1 is 13.
    result = stats.summarise(np.array([2.0, 4.0, 9.0]))
    assert result == (5.0, pytest.approx(math.sqrt(13)), pytest.approx(math.sqrt(13 / 3)), 3)
    one = stats.summarise(np.array([7.0]))
    assert (one.mean, one.n) == (7.0, 1) and math.isnan(one.deviation) and math.isnan(one.error)


def test_ewma() -> None:
    # 10, then 0.2·20 + 0.8·10 = 12, then 0.2·0 + 0.8·12 = 9.6.
    assert stats.ewma(np.array([10.0, 20.0, 0.0]), 0.2) == pytest.approx([10, 12, 9.6])
    values = np.array([[1.0, 3.0], [5.0, 1.0]])
    assert stats.ewma(values, 0.5).tolist() == [[1.0, 2.0], [5.0, 3.0]]
    assert stats.ewma(values, 1.0).tolist() == values.tolist()
    assert values.tolist() == [[1.0, 3.0], [5.0, 1.0]]


def test_area() -> None:
    # Trapezoids over 0-10 and 10-30: 10·(0+2)/2 + 20·(2+6)/2 = 90, over 30 frames is 3.
    frames = np.array([0, 10, 30])
    assert stats.area(frames, np.array([[0.0, 2.0, 6.0], [4.0, 4.0, 4.0]])).tolist() == [3.0, 4.0]
    assert stats.area(np.array([7]), np.array([[2.0]])).tolist() == [2.0]


def test_bounds() -> None:
    assert stats.default_bounds("dmc:reacher_hard") == (0, 1000)
    assert stats.default_bounds("dmc:stacker_stack_2") == (0, 1000)
    assert stats.default_bounds("dmc:reach_duplo") == (0, 250)
    assert stats.default_bounds("metaworld:hammer") == (0, 1)
    assert measure_of("metaworld:hammer") == "success" and measure_of("gym:X") == "return"


def test_normalise() -> None:
    scores = arrays(a=[-50.0, 100.0], b=[0.5])
    result = stats.normalise_scores(scores, {"a": stats.Bounds(-100, 100), "b": stats.Bounds(0, 1)})
    assert result["a"].tolist() == [0.25, 1.0] and result["b"].tolist() == [0.5]


def test_failed_share() -> None:
    finals = np.array([0.0, 400.0, 500.0, 1000.0])
    assert stats.failed_share(finals, reference=1000.0) == 0.5  # 500 is half of it, not below
    assert stats.failed_share(finals, reference=1000.0, share=0.3) == 0.25
    # Half of the way from -1000 to -200 is -600.
    losses = np.array([-700.0, -500.0, -200.0])
    assert stats.failed_share(losses, reference=-200.0, low=-1000.0) == pytest.approx(1 / 3)


def test_aggregates_by_hand() -> None:
    scores = arrays(a=[0.0, 1.0, 5.0], b=[2.0, 3.0, 4.0], c=[9.0, 6.0, 0.0])
    # Sorted 0 0 1 2 3 4 5 6 9; two dropped at each end: 1 2 3 4 5.
    assert stats.iqm(scores) == 3.0
    assert stats.mean(scores) == pytest.approx(30 / 9)
    assert stats.median(scores) == 3.0  # of 2, 3, 5
    # Below 4 by 4, 3, 0; 2, 1, 0; 0, 0, 4.
    assert stats.optimality_gap(scores, goal=4.0) == pytest.approx(14 / 9)
    assert stats.iqm(arrays(a=[1.0, 2.0, 9.0])) == 4.0  # less than four runs: nothing is dropped
    assert stats.iqm(arrays(a=[0.0, 1.0, 2.0, 9.0])) == 1.5


def test_unequal_seeds_give_each_task_the_same_weight() -> None:
    scores = arrays(a=[0.0, 2.0, 10.0], b=[4.0])
    # b counts three times: 0 2 4 4 4 10, one dropped at each end, leaves 2 4 4 4.
    assert stats.iqm(scores) == 3.5
    assert stats.mean(scores) == 4.0 and stats.median(scores) == 4.0
    assert stats.optimality_gap(scores, goal=4.0) == pytest.approx(1.0)  # a: (4+2+0)/3, b: 0
    # a: 2 of 3 above 1, b: 1 of 1.
    assert stats.profile(scores, np.array([1.0])) == pytest.approx((2 / 3 + 1) / 2)


@given(
    st.lists(
        st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=4), min_size=1, max_size=4
    )
)
@settings(deadline=None, max_examples=60)
def test_iqm_is_the_trimmed_mean_of_repeated_runs(lists: list[list[float]]) -> None:
    scores = {str(i): np.array(values) for i, values in enumerate(lists)}
    size = math.lcm(*map(len, lists))
    every = sorted(itertools.chain(*(values * (size // len(values)) for values in lists)))
    cut = len(every) // 4
    assert stats.iqm(scores) == pytest.approx(np.mean(every[cut : len(every) - cut]))


def test_profile() -> None:
    scores = arrays(a=[0.1, 0.5, 0.9], b=[0.5, 0.5, 0.5])
    result = stats.profile(scores, np.array([0.0, 0.3, 0.5, 0.9]))
    assert result == pytest.approx([1.0, 5 / 6, 1 / 6, 0.0])  # above, not at


def test_improvement() -> None:
    left, right = arrays(a=[1.0, 3.0], b=[2.0]), arrays(b=[2.0, 5.0, 1.0], a=[2.0])
    # a: 1 of 2 pairs; b: a tie, a loss, a win: 1.5 of 3.
    assert stats.improvement(left, right) == pytest.approx((0.5 + 0.5) / 2)
    assert stats.improvement(arrays(a=[3.0, 4.0]), arrays(a=[1.0, 3.0])) == pytest.approx(3.5 / 4)


def test_intervals_are_stratified() -> None:
    # Seeds of a task are alike: within tasks nothing varies, across tasks it would.
    scores = arrays(a=[0.0] * 4, b=[1.0] * 4)
    for found in (stats.mean_interval(scores), stats.interval(stats.iqm, scores, resamples=200)):
        assert tuple(map(float, found)) == (0.5, 0.5, 0.5)


def test_mean_interval_by_hand() -> None:
    """Welch and Satterthwaite: both tasks add 1/12 · ¼, so that 3 + 3 degrees of freedom are left.

    Of 0, 0, 1, 1 the variance is ⅓ and that of the mean 1/12. t(6) is 2.447.
    """
    found = stats.mean_interval(arrays(a=[0.0, 0.0, 1.0, 1.0], b=[4.0, 4.0, 5.0, 5.0]))
    reach = 2.446912 * math.sqrt(2 * (1 / 12) / 4)
    assert tuple(map(float, found)) == pytest.approx((2.5, 2.5 - reach, 2.5 + reach))
    # If one task does not vary, the other's 3 degrees of freedom are left: t(3) is 3.182.
    found = stats.mean_interval(arrays(a=[0.0, 0.0, 1.0, 1.0], b=[4.0] * 4))
    reach = 3.182446 * math.sqrt((1 / 12) / 4)
    assert tuple(map(float, found)) == pytest.approx((2.25, 2.25 - reach, 2.25 + reach))


def test_the_gap_below_the_goal_mirrors_the_mean() -> None:
    scores = arrays(a=[0.1, 0.5, 0.6, 0.2], b=[0.9, 0.3, 0.4, 0.8])
    value, low, high = stats.mean_interval(scores)
    assert tuple(stats.gap_interval(scores)) == pytest.approx((1 - value, 1 - high, 1 - low))
    above = arrays(a=[2.0, 3.0, 0.5, 0.5])  # shortfalls of 0, 0, ½ and ½
    value, low, high = stats.gap_interval(above)
    assert value == 0.25 == stats.optimality_gap(above) and low < 0 < high


def test_resampling_depends_on_its_seed_and_on_nothing_else() -> None:
    generator = np.random.default_rng(5)
    scores = {task: generator.normal(size=7) for task in "abc"}
    backwards = dict(reversed(scores.items()))
    first = stats.interval(stats.iqm, scores, seed=1, resamples=500)
    np.random.default_rng(9).random()
    assert first == stats.interval(stats.iqm, backwards, seed=1, resamples=500)
    assert first != stats.interval(stats.iqm, scores, seed=2, resamples=500)
    assert first.low < first.value < first.high
    assert first.value == stats.iqm(scores)


def test_a_share_has_wilsons_interval() -> None:
    """Against scipy; over tasks the mean of shares counts as one of T²/Σ 1/n runs."""
    scores = arrays(a=[0.2, 0.4, 0.6, 0.8, 1.0])
    found = stats.profile_interval(scores, np.array([0.0, 0.3, 0.5, 2.0]))
    assert found.value == pytest.approx([1.0, 0.8, 0.6, 0.0])
    for value, *ends in zip(*found, strict=True):
        test = scipy_stats.binomtest(round(5 * value), 5)
        wanted = test.proportion_ci(0.95, method="wilson")
        assert ends == pytest.approx(list(wanted), abs=1e-12)
    two = stats.profile_interval(scores | arrays(b=[0.9] * 5), np.array([0.5]))
    wanted = scipy_stats.binomtest(8, 10).proportion_ci(0.95, method="wilson")
    assert [float(end[0]) for end in two[1:]] == pytest.approx(list(wanted))


def test_improvement_has_newcombes_interval() -> None:
    """Both ends are 1.96 standard deviations from the estimate, by the variance at the end."""
    left, right = arrays(a=[1.0, 4.0, 5.0, 7.0, 8.0]), arrays(a=[2.0, 3.0, 0.0, 6.0])
    value, low, high = stats.improvement_interval(left, right)
    assert value == float(stats.improvement(left, right)) == 0.75
    for end in (low, high):
        # Hanley and McNeil: Q1 = θ/(2 − θ), Q2 = 2θ²/(1 + θ), with m = 5 and n = 4 both at 4.5.
        first, second = end / (2 - end), 2 * end**2 / (1 + end)
        variance = end * (1 - end) + 3.5 * (first + second - 2 * end**2)
        assert abs(value - end) == pytest.approx(1.959964 * math.sqrt(variance / 20), rel=1e-6)
    won = stats.improvement_interval(arrays(a=[5.0] * 4), arrays(a=[1.0] * 4))
    lost = stats.improvement_interval(arrays(a=[1.0] * 4), arrays(a=[5.0] * 4))
    assert won.value == 1 == won.high and 0.3 < won.low < 0.7
    assert lost == pytest.approx((0.0, 0.0, 1 - won.low))
    over_two = stats.improvement_interval(
        arrays(a=[5.0] * 4, b=[5.0] * 4), arrays(a=[1.0] * 4, b=[1.0] * 4)
    )
    assert over_two.low > won.low


TRIALS = 400  # each statistic resamples for itself
SHAPE = 4.0  # of gamma laws: skewness 2/√4 = 1


def drawn(law: str, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
    if law == "normal":
        return generator.normal(0.5, 0.15, shape)
    return generator.gamma(SHAPE, 0.5 / SHAPE, shape)


@pytest.mark.parametrize("law", ["normal", "skewed"])
@pytest.mark.parametrize("n", [5, 10])
def test_intervals_of_other_statistics_cover(n: int, law: str) -> None:
    """IQM, profile and improvement over three tasks of one law, by which the truth is known."""
    generator = np.random.default_rng(n)
    many = drawn(law, (10**6,), generator)
    low, high = np.quantile(many, (0.25, 0.75))
    truths = {
        "iqm": many[(many >= low) & (many <= high)].mean(),
        "profile": (many > 0.6).mean(),
        "improvement": (many[: 10**5] + 0.1 > many[-(10**5) :]).mean(),
    }
    hits = dict.fromkeys(truths, 0)
    for trial in range(TRIALS):
        one, other = ({t: drawn(law, (n,), generator) for t in "abc"} for _ in range(2))
        ahead = {task: values + 0.1 for task, values in other.items()}
        found = {
            "iqm": stats.interval(stats.iqm, one, seed=trial, resamples=200),
            "profile": stats.profile_interval(one, np.array([0.6])),
            "improvement": stats.improvement_interval(ahead, one),
        }
        for name, (_, left, right) in found.items():
            hits[name] += bool(left <= truths[name] <= right)
    assert {name: count / TRIALS for name, count in hits.items() if count < 0.93 * TRIALS} == {}


def test_few_seeds_have_no_interval() -> None:
    few = arrays(a=[0.1, 0.2, 0.3, 0.4], b=[0.1, 0.2, 0.3])
    for found in (
        stats.mean_interval(few),
        stats.gap_interval(few),
        stats.interval(stats.iqm, few),
        stats.interval(stats.improvement, few, few),
        stats.improvement_interval(few, few),
        stats.profile_interval(few, np.array([0.2])),
    ):
        assert not np.isnan(found.value).any()
        assert np.isnan(found.low).all() and np.isnan(found.high).all()


def test_holm_by_hand() -> None:
    # Sorted .005, .01, .03, .04: times 4, 3, 2 and 1 is .02, .03, .06, .04; the last may not fall.
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.2]) == [0.2] and stats.holm([]) == []
    assert stats.holm([0.6, 0.5, 0.5]) == [1.0, 1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=12))
@settings(deadline=None, max_examples=100)
def test_holm_against_its_definition(p_values: list[float]) -> None:
    """A hypothesis falls at a level if it and all with smaller p do: the least such level."""

    def naive(own: float) -> float:
        smaller = [p for p in p_values if p <= own]
        return min(1.0, max(p * sum(other >= p for other in p_values) for p in smaller))

    assert stats.holm(p_values) == pytest.approx([naive(p) for p in p_values])


def test_paired_by_hand() -> None:
    left = {"a": {1: 5.0, 2: 7.0, 3: 9.0, 4: 100.0}}
    right = {"a": {1: 4.0, 2: 5.0, 3: 6.0, 5: -100.0}}
    result = stats.paired(left, right)
    # Differences 1, 2, 3. Of 8 patterns of signs only + + + and - - - give |sum| of 6.
    assert (result.difference, result.p_value, result.exact) == (2.0, 0.25, True)
    assert (result.pairs, result.unpaired, result.fewest) == (3, 2, 3)
    assert math.isnan(result.low) and math.isnan(result.high)  # of three pairs
    # With a fourth of 2: standard error √(2/3/4), t(3) is 3.182.
    result = stats.paired({"a": left["a"] | {5: 2.0}}, {"a": right["a"] | {5: 0.0}})
    reach = 3.182446 * math.sqrt(1 / 6)
    assert (result.low, result.high) == pytest.approx((2 - reach, 2 + reach))
    assert result.fewest == 4
    # Differences 3, -1: |sum| ≥ 2 for all four patterns.
    assert stats.paired({"a": {1: 3.0, 2: 0.0}}, {"a": {1: 0.0, 2: 1.0}}).p_value == 1.0
    # Differences 4, 1, -1: |sum| ≥ 4 where the ones cancel or help: 6 of 8.
    result = stats.paired({"a": {1: 4.0, 2: 1.0, 3: 0.0}}, {"a": {1: 0.0, 2: 0.0, 3: 1.0}})
    assert result.p_value == 0.75


def test_paired_over_tasks_weighs_tasks_alike() -> None:
    left = {"a": {1: 1.0, 2: 1.0}, "b": {1: -3.0}, "only": {1: 50.0}}
    right = {"a": {1: 0.0, 2: 0.0}, "b": {1: 0.0}}
    result = stats.paired(left, right)
    # ½·(½·1 + ½·1) − ½·3 = −1, and ±¼ ±¼ ±1.5 is never smaller in size.
    assert (result.difference, result.p_value, result.pairs, result.unpaired) == (-1.0, 1.0, 3, 1)
    assert result.fewest == 1
    # ±½ ±½ ±½ is never below ½; with one weight for all pairs, ±⅔ ±⅔ ±⅓ is below 1 half the time.
    left = {"a": {1: 2.0, 2: 2.0}, "b": {1: -1.0}}
    assert stats.paired(left, right).p_value == 1.0


def test_paired_equal_scores_and_rounding() -> None:
    same = {"a": {1: 0.1, 2: 0.3, 3: 0.2, 4: 0.7}}
    assert stats.paired(same, same)[:4] == (0.0, 0.0, 0.0, 1.0)
    # Sums of tenths differ in the last bit; the opposite pattern is as large all the same.
    gaps = {i: 0.1 * (i + 1) for i in range(6)}
    assert stats.paired({"a": gaps}, {"a": dict.fromkeys(gaps, 0.0)}).p_value == 2 / 2**6


def test_paired_samples_where_there_are_too_many_patterns() -> None:
    zero = {"a": dict.fromkeys(range(20), 0.0)}
    clear = stats.paired({"a": dict.fromkeys(range(20), 1.0)}, zero, resamples=999)
    assert not clear.exact and clear.p_value == pytest.approx(1 / 1000)
    assert stats.paired({"a": dict.fromkeys(range(16), 1.0)}, zero).exact
    generator = np.random.default_rng(3)
    noise = {"a": dict(enumerate(generator.normal(size=20)))}
    unclear = stats.paired(noise, zero, seed=1)
    assert unclear.p_value == stats.paired(noise, zero, seed=1).p_value
    assert unclear.p_value > 0.05


@pytest.mark.parametrize(("runs", "tasks"), [(1, 1), (3, 1), (3, 9), (5, 4), (10, 6)])
def test_agreement_with_rliable(runs: int, tasks: int) -> None:
    metrics = pytest.importorskip("rliable.metrics", reason="rliable does not install here")
    generator = np.random.default_rng(runs)
    left, right = generator.normal(0.5, 0.4, (2, runs, tasks)).round(1)  # rounded: ties
    ours, other = ({str(i): m[:, i] for i in range(tasks)} for m in (left, right))
    assert stats.iqm(ours) == pytest.approx(metrics.aggregate_iqm(left), abs=1e-12)
    assert stats.median(ours) == pytest.approx(metrics.aggregate_median(left), abs=1e-12)
    assert stats.mean(ours) == pytest.approx(metrics.aggregate_mean(left), abs=1e-12)
    gap = metrics.aggregate_optimality_gap(left)
    assert stats.optimality_gap(ours) == pytest.approx(gap, abs=1e-12)
    better = metrics.probability_of_improvement(left, right)
    assert stats.improvement(ours, other) == pytest.approx(better, abs=1e-12)
