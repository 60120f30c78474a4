"""Projected memory, disk and time, against real arrays and hand-made sums."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from revbis.runs.config import Config
from revbis.runs.presets import preset_config
from revbis.sweep import measure, plan
from revbis.sweep.driver import Entry, RunProgress
from revbis.sweep.measure import extrapolate, parse
from revbis.sweep.plan import (
    Speed,
    activation_bytes,
    disk_bytes,
    memory_bytes,
    representatives,
    seconds_left,
    times_left,
    together,
)

CPU = preset_config("cpu", "dmc:cheetah_run")


def _filled(config: Config, action_size: int):
    """A real replay buffer with as many records as the run comes to hold, as far as they fit."""
    from revbis.replay import Replay

    pixels = config.observation == "pixels"
    shape, kind = ((3, config.pixels, config.pixels), np.uint8) if pixels else ((64,), np.float32)
    records = min(config.replay_capacity, config.frames // config.action_repeat)
    replay = Replay(records, shape, action_size, stack=3 if pixels else 1, shift=2)
    generator = np.random.default_rng(0)
    replay.begin(generator.integers(0, 256, shape).astype(kind))
    for _ in range(records - 1):
        frame = generator.integers(0, 256, shape).astype(kind)
        replay.add(np.zeros(action_size, np.float32), 0.0, 1.0, frame, last=False)
    return replay


def _bytes(replay) -> tuple[int, int]:
    """Of frames, and of all the rest."""
    columns = {name: column.nbytes for name, column in replay._ring.columns.items()}
    arrays = [value for value in vars(replay._starts).values() if isinstance(value, np.ndarray)]
    frames = columns.pop("frame")
    return frames, sum(columns.values()) + sum(array.nbytes for array in arrays)


@pytest.mark.parametrize("observation", ["pixels", "state"])
@pytest.mark.parametrize(("capacity", "frames"), [(300, 10_000), (10_000, 1200)])
def test_memory_is_that_of_a_real_replay(observation, capacity, frames):
    config = CPU.with_settings(observation=observation, replay_capacity=capacity, frames=frames)
    fixed = plan._PROCESS_BYTES + activation_bytes(config, config.agent.batch_size)
    in_frames, rest = _bytes(_filled(config, plan._ACTIONS))
    assert memory_bytes(config) == fixed + in_frames + rest
    on_disk = config.with_settings(replay_storage="disk")
    assert memory_bytes(on_disk) == fixed + rest
    assert disk_bytes(on_disk) == 2 * in_frames + rest


def test_disk_is_that_of_a_real_checkpoint(tmp_path):
    from revbis.runs.checkpoint import Checkpoints

    config = CPU.with_settings(replay_capacity=2000, frames=2000, action_repeat=4)
    replay = _filled(config, 6)
    Checkpoints(tmp_path, 2).save(2000, {}, {"replay": replay.state()}, replay)
    used = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert disk_bytes(config) == pytest.approx(used, rel=0.1)


@pytest.mark.parametrize(("pixels", "strides"), [(84, (2, 1, 1, 1)), (48, (2, 2, 1, 1))])
def test_activations_are_those_of_the_encoder(pixels, strides):
    import torch

    from revbis.agents.drqv2 import PixelEncoder

    config = CPU.with_settings(pixels=pixels, strides=strides, channels=5)
    encoder, made = PixelEncoder((9, pixels, pixels), 5, strides), []
    for convolution in encoder.convolutions:
        convolution.register_forward_hook(lambda _, inputs, out: made.append(out.numel()))
    batch = torch.zeros((2, 9, pixels, pixels), dtype=torch.uint8)
    encoder(batch)
    numbers = batch.numel() + sum(made)
    assert activation_bytes(config, 2) == 4 * 4 * numbers  # four passes of four bytes
    assert activation_bytes(config, 6) == 3 * activation_bytes(config, 2)
    assert activation_bytes(config.with_settings(observation="state"), 2) == 0


def test_what_memory_is_made_of():
    more = CPU.with_settings(replay_capacity=CPU.replay_capacity * 2, frames=10**7)
    assert memory_bytes(more) > memory_bytes(CPU)
    assert memory_bytes(CPU.with_settings(batch_size=1024)) > memory_bytes(CPU)
    assert memory_bytes(CPU.with_settings(frames=10**12, replay_capacity=10**12)) > 10**15


# ---- time

RUN = CPU.with_settings(
    frames=1000,
    action_repeat=4,  # 250 agent steps
    explore_steps=50,
    update_every=2,
    eval_every=500,
    eval_episodes=3,
)
SPEED = Speed(step=1.0, act=0.1, update=10.0)


def test_exploration_has_no_updates():
    # 250 steps of 1 s; 200 of them choose an action (0.1 s) and make half an update (5 s)
    assert seconds_left(RUN, 0, SPEED) == pytest.approx(250 + 200 * 5.1)
    everything_random = RUN.with_settings(explore_steps=250)
    assert seconds_left(everything_random, 0, SPEED) == pytest.approx(250)
    assert seconds_left(RUN.with_settings(explore_steps=0), 0, SPEED) == pytest.approx(250 * 6.1)


def test_what_is_done_is_done():
    # 100 frames are 25 steps: 25 random ones are left, and the 200 others
    assert seconds_left(RUN, 100, SPEED) == pytest.approx(225 + 200 * 5.1)
    assert seconds_left(RUN, 600, SPEED) == pytest.approx(100 * 6.1)
    assert seconds_left(RUN, 1000, SPEED) == 0
    assert seconds_left(RUN, 5000, SPEED) == 0


def test_evaluations_play_whole_episodes():
    known = replace_speed(episode=20)
    # at 0, 500 and 1000 frames, 3 episodes of 20 steps, 1.1 s each
    assert seconds_left(RUN, 0, known) - seconds_left(RUN, 0, SPEED) == pytest.approx(3 * 66)
    assert seconds_left(RUN, 600, known) - seconds_left(RUN, 600, SPEED) == pytest.approx(66)
    assert seconds_left(RUN, 1000, known) == 0
    # on two kinds of variants
    noisy = RUN.with_settings(distractor="noise")
    assert seconds_left(noisy, 0, known) - seconds_left(noisy, 0, SPEED) == pytest.approx(6 * 66)


def replace_speed(**changes) -> Speed:
    return replace(SPEED, **changes)


def _entry(name, state="waiting", *, frames=0, seconds=None, **settings):
    config = RUN.with_settings(**settings)
    return Entry(name, config, state, progress=RunProgress(frames, seconds=seconds))


def test_runs_that_have_begun_tell_the_time_of_the_others():
    """The first 200 of 1,000 frames are random and count for nothing."""
    entries = [
        _entry("a", "running", frames=500, seconds=100.0, method="drqv2"),  # 3 frames/s
        _entry("b", method="drqv2"),
        _entry("c", "finished", frames=1000, seconds=500.0, method="simsr"),  # 1.6 frames/s
        _entry("d", method="simsr"),
        _entry("e", method="mico"),  # nothing of its method: the median of 3 and 1.6
        _entry("f", method="simsr", task="dmc:walker_run"),
    ]
    times = times_left(entries, None)
    assert times == pytest.approx([500 / 3, 800 / 3, 0, 500, 800 / 2.3, 500])
    assert together(times, 2) == pytest.approx((1300 / 3 + 500 + 800 / 2.3 + 500) / 2)
    assert together(times, 100) == 500  # no shorter than the longest


def test_a_run_that_still_explores_tells_nothing():
    entries = [_entry("a", "running", frames=300, seconds=1.0), _entry("b")]  # 200 are random
    assert times_left(entries, None) == [None, None]
    assert together([None, 1.0], 2) is None
    measured = times_left(entries, {"drqv2": SPEED})
    assert measured == [seconds_left(RUN, 300, SPEED), seconds_left(RUN, 0, SPEED)]
    assert times_left([_entry("c", "finished", frames=1000)], {}) == [0.0]


def test_every_agent_has_a_speed_of_its_own():
    entries = [_entry("a"), _entry("b", method="simsr"), _agent_entry("tdmpc")]
    slow = replace_speed(act=50.0)
    both = times_left(entries, {"drqv2": SPEED, "tdmpc": slow})
    assert both[:2] == [seconds_left(RUN, 0, SPEED)] * 2
    assert both[2] == seconds_left(entries[2].config, 0, slow) > 10 * both[0]
    assert times_left(entries, {"drqv2": SPEED})[2] is None


def _agent_entry(method):
    config = preset_config("cpu", "dmc:cheetah_run", method)
    return Entry(method, config.with_settings(frames=4000, explore_steps=100))


def test_a_run_of_each_agent_is_measured_with_an_objective_if_there_is_one():
    entries = [_entry("a"), _entry("b", "finished", method="simsr"), _entry("c", method="mico")]
    assert [config.method for config in representatives(entries)] == ["mico"]
    assert [config.method for config in representatives(entries[:2])] == ["drqv2"]
    assert representatives(entries[1:2]) == []
    entries += [_agent_entry("taco"), _entry("d", method="simsr"), _agent_entry("tdmpc")]
    assert [config.method for config in representatives(entries)] == ["mico", "taco", "tdmpc"]


# ---- measuring


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
        ({"batch_size": 10**6, "pixels": 4096, "channels": 4096}, [16]),
    ],
)
def test_batches_grow_as_far_as_memory_allows(settings, sizes):
    assert list(measure.batches(CPU.with_settings(**settings))) == sizes


def test_what_is_told_before_the_time_is_up_counts():
    lines = '{"step": 0.5, "episode": 9}\n{"act": 0.1}\n{"update": 4.0}\nsome words\n[1]\n'
    assert parse(lines) == Speed(0.5, 0.1, 4.0, 9)
    assert parse(lines + '{"update": 3.0}\n{"upd') == Speed(0.5, 0.1, 3.0, 9)
    assert parse('{"step": 0.5, "episode": null}\n{"act": 0.1}\n{"update": 4.0}').episode is None
    assert parse('{"step": 0.5}\n{"act": 0.1}\n') is None
    assert parse("") is None


def test_a_measurement_ends_when_its_time_is_up():
    with pytest.raises(measure.NotMeasuredError, match="0 s are too short"):
        measure.measure(CPU, seconds=0.01)


@pytest.mark.slow
@pytest.mark.env("gym", gl=False)
def test_a_small_run_is_measured(tmp_path: Path):
    from tests.sweep.grids import small_grid

    config = small_grid().configs(tmp_path)[1].with_settings(threads=1)
    speed = measure.measure(config, seconds=120)
    assert min(speed.step, speed.act, speed.update) > 0
    with pytest.raises(measure.NotMeasuredError, match="RuntimeError: the device has gone"):
        measure.measure(config.with_settings(task="tests.sweep.tasks:Broken"), seconds=120)


@pytest.mark.parametrize(("method", "steps"), [("drqv2", 1), ("taco", 3), ("dreamerv3", 31)])
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
