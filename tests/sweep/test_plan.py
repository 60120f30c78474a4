"""A sweep before it starts: its forecast, from hand-made numbers, and what it leaves alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.sweep.grids import small_grid

from revbis.runs import memory, preflight
from revbis.runs.config import Config
from revbis.runs.memory import activation_bytes, disk_bytes, memory_bytes
from revbis.runs.presets import preset_config
from revbis.sweep import backend as places
from revbis.sweep import plan as plans
from revbis.sweep.backend import Backend, local_workers
from revbis.sweep.driver import Entry, RunProgress
from revbis.sweep.plan import (
    Speed,
    forecast,
    make_plan,
    representatives,
    run_plan,
    seconds_left,
    times_left,
    together,
)

SPEED = Speed(step=0.01, act=0.0, update=0.02)
SPEEDS = {"drqv2": SPEED}
TASK = "tests.runs:Walk"


@pytest.fixture(autouse=True)
def _plenty_of_memory_and_ray(monkeypatch):
    monkeypatch.setattr(places, "available_bytes", lambda: 10**12)
    monkeypatch.setattr(places, "is_installed", lambda module: True)


def _write(config, name, content):
    config.directory.mkdir(parents=True, exist_ok=True)
    (config.directory / name).write_text(json.dumps(content))


def test_a_forecast_is_the_sum_of_its_runs(tmp_path):
    plan = make_plan(small_grid(TASK, seeds=[1, 2]), str(tmp_path), Backend(workers=2))
    expected = forecast(plan, SPEEDS)
    one = seconds_left(plan.configs[0], 0, SPEED)
    assert expected.seconds == pytest.approx(4 * one / 2) and expected.workers == 2
    assert expected.disk == sum(map(disk_bytes, plan.configs))
    assert expected.folder == f"{tmp_path}/cpu/tests.runs-Walk"
    assert [run.name for run in expected.runs][:2] == ["drqv2/seed-1", "simsr-rev/seed-1"]
    assert {(run.state, run.seconds) for run in expected.runs} == {("waiting", one)}
    assert not list(tmp_path.iterdir())


def test_ray_decides_how_many_run_at_once(tmp_path):
    plan = make_plan(small_grid(TASK), str(tmp_path), Backend(on="ray"))
    expected = forecast(plan, SPEEDS)
    assert expected.workers is None
    assert expected.seconds == pytest.approx(sum(run.seconds for run in expected.runs))


@pytest.mark.parametrize(
    ("free", "where", "workers"),
    [
        (5, Backend(threads=1), 4),  # memory for five, four cores
        (3, Backend(threads=1), 3),
        (5, Backend(threads=2), 2),
        (1, Backend(threads=64), 1),  # always one
        (5, Backend(workers=5), 5),  # as asked for, beyond the cores
    ],
)
def test_as_many_at_once_as_cores_and_memory_allow(free, where, workers, monkeypatch):
    monkeypatch.setattr(places, "available_bytes", lambda: free * 1000 + 999)
    monkeypatch.setattr(places, "usable_cores", lambda: 4)
    assert local_workers(where, 1000) == workers
    with pytest.raises(MemoryError, match=r"parallel runs take .* but only .* use fewer --workers"):
        local_workers(Backend(workers=free + 1), 1000)


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    plan = make_plan(small_grid(TASK), str(tmp_path), Backend())
    monkeypatch.setattr(places, "available_bytes", lambda: memory_bytes(plan.configs[0]) - 1)
    with pytest.raises(MemoryError, match="a run takes"):
        run_plan(plan, lambda: False)
    assert not list(tmp_path.iterdir())


def test_what_this_machine_lacks_is_left_to_the_nodes(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "is_installed", lambda module: False)
    both = small_grid(TASK, methods=["drqv2", "dreamerv3"], settings={"explore_steps": 40})
    grid = replace(both, methods=("dreamerv3",))
    plan = make_plan(grid, str(tmp_path), Backend())
    assert plan.lack.startswith("dreamerv3 needs sheeprl")  # all runs do
    assert make_plan(grid, str(tmp_path), Backend("ray", "auto")).lack is None
    with pytest.raises(ValueError, match="dreamerv3 needs sheeprl"):
        run_plan(plan, lambda: False)
    assert not list(tmp_path.iterdir())


def test_a_mistake_is_refused_with_all_reasons_even_if_something_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "is_installed", lambda module: False)
    grid = small_grid(TASK, methods=["drqv2", "dreamerv3"], settings={"explore_steps": 40})
    wrong = replace(grid, tasks=(TASK, "walk"))
    with pytest.raises(ValueError, match="3 of 4 runs cannot be trained; none was") as refused:
        make_plan(wrong, str(tmp_path), Backend())
    assert "a task must be" in str(refused.value) and "sheeprl" in str(refused.value)


def test_a_finished_sweep_needs_no_runner(tmp_path, monkeypatch):
    for config in small_grid(TASK).configs(tmp_path):
        _write(config, "result.json", {"frames": config.frames, "mean_return": 1.0})
    monkeypatch.setattr(plans, "make_runner", None)  # would fail if it were called
    monkeypatch.setattr(places, "available_bytes", lambda: 0)
    sweep = run_plan(make_plan(small_grid(TASK), str(tmp_path), Backend()), lambda: False)
    assert sweep.complete


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
    fixed = memory.PROCESS_BYTES + activation_bytes(config, config.agent.batch_size)
    in_frames, rest = _bytes(_filled(config, memory.ACTIONS))
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
PARTS = Speed(step=1.0, act=0.1, update=10.0)


def test_exploration_has_no_updates():
    # 250 steps of 1 s; 200 of them choose an action (0.1 s) and make half an update (5 s)
    assert seconds_left(RUN, 0, PARTS) == pytest.approx(250 + 200 * 5.1)
    everything_random = RUN.with_settings(explore_steps=250)
    assert seconds_left(everything_random, 0, PARTS) == pytest.approx(250)
    assert seconds_left(RUN.with_settings(explore_steps=0), 0, PARTS) == pytest.approx(250 * 6.1)


def test_what_is_done_is_done():
    # 100 frames are 25 steps: 25 random ones are left, and the 200 others
    assert seconds_left(RUN, 100, PARTS) == pytest.approx(225 + 200 * 5.1)
    assert seconds_left(RUN, 600, PARTS) == pytest.approx(100 * 6.1)
    assert seconds_left(RUN, 1000, PARTS) == 0
    assert seconds_left(RUN, 5000, PARTS) == 0


def test_evaluations_play_whole_episodes():
    known = replace_parts(episode=20)
    # at 0, 500 and 1000 frames, 3 episodes of 20 steps, 1.1 s each
    assert seconds_left(RUN, 0, known) - seconds_left(RUN, 0, PARTS) == pytest.approx(3 * 66)
    assert seconds_left(RUN, 600, known) - seconds_left(RUN, 600, PARTS) == pytest.approx(66)
    assert seconds_left(RUN, 1000, known) == 0
    # on two kinds of variants
    noisy = RUN.with_settings(distractor="noise")
    assert seconds_left(noisy, 0, known) - seconds_left(noisy, 0, PARTS) == pytest.approx(6 * 66)


def replace_parts(**changes) -> Speed:
    return replace(PARTS, **changes)


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
    measured = times_left(entries, {"drqv2": PARTS})
    assert measured == [seconds_left(RUN, 300, PARTS), seconds_left(RUN, 0, PARTS)]
    assert times_left([_entry("c", "finished", frames=1000)], {}) == [0.0]


def test_every_agent_has_a_speed_of_its_own():
    entries = [_entry("a"), _entry("b", method="simsr"), _agent_entry("tdmpc")]
    slow = replace_parts(act=50.0)
    both = times_left(entries, {"drqv2": PARTS, "tdmpc": slow})
    assert both[:2] == [seconds_left(RUN, 0, PARTS)] * 2
    assert both[2] == seconds_left(entries[2].config, 0, slow) > 10 * both[0]
    assert times_left(entries, {"drqv2": PARTS})[2] is None


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
