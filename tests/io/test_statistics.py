"""Intervals over seeds."""

import numpy as np

from revbis.io.statistics import bootstrap, mean_interval


def test_an_interval_covers_the_mean_and_shrinks_with_seeds() -> None:
    values = np.random.default_rng(0).normal(size=50)
    few, many = mean_interval(values[:5]), mean_interval(values)
    for each in (few, many):
        assert each.low < each.value < each.high
    assert many.high - many.low < few.high - few.low
    assert mean_interval([1.0, 1.0]) == (1.0, 1.0, 1.0)
    one = mean_interval([0.5])
    assert one.value == 0.5 and np.isnan(one.low) and np.isnan(one.high)


def test_samples_are_resampled_one_by_one() -> None:
    """Constant samples of other sizes: every resample has the same statistic."""
    samples = [np.full(2, 1.0), np.full(5, 4.0)]
    result = bootstrap(lambda each: each[0].sum(axis=-1) + each[1].mean(axis=-1), samples)
    assert tuple(map(float, result)) == (6.0, 6.0, 6.0)
