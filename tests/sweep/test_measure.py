"""Measuring how fast a run will be: by hand-made sums, and with a small run."""

from pathlib import Path

import pytest

from revbis.runs.presets import preset_config
from revbis.sweep import measure
from revbis.sweep.measure import extrapolate, parse_speed
from revbis.sweep.plan import (
    Speed,
)

CPU = preset_config("cpu", "dmc:cheetah_run")


def test_large_batches_follow_from_small_ones():
    assert extrapolate({16: 2.0}, 16) == 2.0
    assert extrapolate({16: 2.0}, 64) == 8.0  # linear
    assert extrapolate({16: 2.0, 64: 5.0}, 128) == pytest.approx(5 + 64 * 3 / 48)
    assert extrapolate({16: 2.0, 64: 1.0}, 128) == 1.0  # noise: never less than was measured
    assert extrapolate({1: 0.0, 2: 1.0}, 4) == 2.0  # nor more than linear


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"batch_size": 8}, [8]),
        ({"batch_size": 16}, [16]),
        ({"batch_size": 128}, [16, 64, 128]),
        ({"batch_size": 1024, "pixels": 84, "channels": 32, "strides": (2, 1, 1, 1)}, [16, 64]),
        ({"batch_size": 10**6, "pixels": 2048, "channels": 4096}, [16]),
    ],
)
def test_batches_grow_as_far_as_memory_allows(settings, sizes):
    assert list(measure.batches(CPU.with_settings(**settings))) == sizes


def test_the_longer_the_sequences_the_smaller_the_first_batch():
    paper = preset_config("paper", "dmc:cheetah_run", "dreamerv3", "state")
    assert list(measure.batches(paper)) == [1, 4, 16]  # of 63 steps
    assert next(measure.batches(preset_config("cpu", "dmc:cheetah_run", "taco"))) == 5  # of 3


def test_the_first_run_counts_until_there_are_others(monkeypatch):
    clock = iter([0.0, 9.0, 10.0, 12.0, 20.0, 24.0])
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))
    assert list(measure._measure(lambda: None, 2)) == [9.0, 2.0, 3.0]


def test_what_is_told_before_the_time_is_up_counts():
    lines = '{"step": 0.5, "episode": 9}\n{"act": 0.1}\n{"update": 4.0}\nsome words\n[1]\n'
    assert parse_speed(lines) == Speed(0.5, 0.1, 4.0, 9)
    assert parse_speed(lines + '{"update": 3.0}\n{"upd') == Speed(0.5, 0.1, 3.0, 9)
    assert (
        parse_speed('{"step": 0.5, "episode": null}\n{"act": 0.1}\n{"update": 4.0}').episode is None
    )
    assert parse_speed('{"step": 0.5}\n{"act": 0.1}\n') is None
    assert parse_speed("") is None


def test_a_measurement_ends_when_its_time_is_up():
    with pytest.raises(measure.NotMeasuredError, match="0 s are too short"):
        measure.measure_speed(CPU, seconds=0.01)


@pytest.mark.slow
@pytest.mark.env("gym", gl=False)
def test_a_small_run_is_measured(tmp_path: Path):
    from tests.sweep.grids import small_grid

    config = small_grid().configs(tmp_path)[1].with_settings(threads=1)
    speed = measure.measure_speed(config, seconds=120)
    assert min(speed.step, speed.act, speed.update) > 0
    with pytest.raises(measure.NotMeasuredError, match="RuntimeError: the device has gone"):
        measure.measure_speed(config.with_settings(task="tests.sweep.tasks:Broken"), seconds=120)


@pytest.mark.parametrize(("method", "steps"), [("drqv2", 1), ("taco", 3), ("dreamerv3", 15)])
def test_an_agent_that_learns_from_sequences_finds_one(method, steps):
    from revbis.envs import make_env
    from revbis.runs.trainer import make_replay

    config = preset_config("cpu", "tests.runs:Walk", method, "state")
    config = config.with_settings(observation="state", quality="full")
    assert config.agent.least_steps == steps
    env = make_env(**config.environment, seed=0)
    replay = make_replay(config, env, capacity=80)
    measure._add_episode(replay, env, steps)
    assert replay.count_sequences(steps) == 1 and replay.count_sequences(steps + 1) == 0
