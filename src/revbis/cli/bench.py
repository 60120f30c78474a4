"""Measures speed on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from revbis.runs.config import Config

_LIMITS = {"pixels": (8, 2048), "batch": (2, 100_000), "threads": (1, 4096), "frames": (100, 10**9)}


def env(pixels: int = 84, rounds: int = 15) -> None:
    """Compares our rendering with the simulators' own; prints one line of JSON per task.

    `own_fps` is dm_control's or Gymnasium's rendering, `full_fps` and `fast_fps` ours; the ratios
    are medians over rounds in which the three take turns on the same scene. Takes about a minute.

    Args:
        pixels: Side of the images.
        rounds: Rounds of ten frames each.
    """
    from revbis.envs.suites import SUITES, require_gymnasium

    _check_sizes(pixels=pixels, rounds=rounds)
    tasks = [suite.example for suite in SUITES.values() if suite.drawn_by_mujoco]
    for task in tasks:
        require_gymnasium(task)
    from revbis.bench.rendering import measure_rendering

    for task in tasks:
        print(json.dumps(measure_rendering(task, pixels=pixels, rounds=rounds)), flush=True)


def update(
    method: str = "mico-rev",
    mode: Literal["joint", "alternating", "balanced"] = "joint",
    preset: str = "paper",
    batch: int | None = None,
    pixels: int | None = None,
    repeats: int = 10,
    threads: int | None = None,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> None:
    """Compares an update with its encoder passes alone; prints one line of JSON.

    `seconds_per_update` includes sampling and random shifts. `encoder_bound_seconds` is the time of
    the encoder alone: forward and backward on a batch, forward on the next observations. The two
    are measured in turns; medians are reported; docs/speed.md has figures to compare with. The
    bound is that of float32, whatever the precision of the update. For agents that plan,
    `seconds_per_action` is the time of a plan of the full horizon.

    Args:
        method: An agent or an objective.
        mode: joint, alternating or balanced; for DrQ-v2 and TACO.
        preset: Sizes of the networks.
        batch: Transitions per batch; by default the preset's.
        pixels: Side of the images; by default the preset's.
        repeats: Number of measured updates.
        threads: CPU threads; by default all that are available to this process.
        precision: Of the update's activations.
    """
    from revbis.io import runtime

    _check_sizes(batch=batch, pixels=pixels, repeats=repeats, threads=threads)
    runtime.prepare(threads)
    from revbis.bench.update import measure_update
    from revbis.runs.presets import preset_config

    config = preset_config(preset, "dmc:cheetah_run", method)
    speed = measure_update(
        method,
        _with_known(config, mode=mode, batch_size=batch, precision=precision).agent,
        pixels=config.pixels if pixels is None else pixels,
        stack=config.frame_stack,
        repeats=repeats,
        threads=threads,
    )
    given = {"mode": mode, "precision": precision}
    about = {"method": method} | {name: v for name, v in given.items() if name in config.as_dict()}
    print(json.dumps({**about, "preset": preset, **speed.as_dict()}))


def sharing(
    method: str = "mico-rev",
    preset: str = "paper",
    batch: int = 256,
    pixels: int = 84,
    repeats: int = 8,
) -> None:
    """Measures how two one-thread runs slow each other down; prints one line of JSON.

    `alone` is the seconds per update of a single run, `beside` those of the slower of two
    simultaneous runs, `kept` is `alone` divided by `beside`. `kept_processor` is the same in CPU
    time, which excludes other programs. For a sweep on two cores `kept` should be at least 0.7.

    Args:
        method: An agent or an objective.
        preset: Sizes of the networks.
        batch: Transitions per batch.
        pixels: Side of the images.
        repeats: Number of measured updates.
    """
    from revbis.io import runtime

    _check_sizes(batch=batch, pixels=pixels, repeats=repeats)
    runtime.prepare(1)
    from revbis.bench.update import measure_neighbours
    from revbis.runs.presets import preset_config

    config = preset_config(preset, "dmc:cheetah_run", method)
    settings = _with_known(config, mode="joint", batch_size=batch).agent
    speeds = measure_neighbours(method, settings, pixels=pixels, repeats=repeats)
    print(json.dumps({"method": method, "preset": preset, "batch": batch, **speeds}))


def train(
    task: str = "dmc:cartpole_balance",
    method: str = "simsr-rev",
    preset: str = "cpu",
    frames: int = 6000,
    threads: int | None = None,
) -> None:
    """Measures frames per second of a short run, and its time by phase; prints one line of JSON.

    Args:
        task: The task.
        method: An agent or an objective.
        preset: The preset.
        frames: Frames to train for; updates start after the first tenth, which is random.
        threads: CPU threads; by default all that are available to this process.
    """
    from revbis.io import runtime

    _check_sizes(frames=frames, threads=threads)
    runtime.prepare(threads)
    from revbis.bench.training import measure_training
    from revbis.runs.presets import preset_config

    speed = measure_training(preset_config(preset, task, method), frames)
    print(json.dumps({"task": task, "method": method, "preset": preset, **speed}))


def _with_known(config: Config, **settings: str | int | None) -> Config:
    """The run with those of the settings that are given and that its agent has."""
    known = config.as_dict()
    given = {name: value for name, value in settings.items() if value is not None}
    return config.with_settings(**{name: v for name, v in given.items() if name in known})


def _check_sizes(**sizes: int | None) -> None:
    from revbis.io import schema

    for name, value in sizes.items():
        if value is not None:
            schema.integer(value, f"--{name}", *_LIMITS.get(name, (1, 10**6)))


COMMANDS = {"env": env, "update": update, "sharing": sharing, "train": train}
