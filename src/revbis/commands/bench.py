"""Speed, measured side by side on this machine."""

from __future__ import annotations

import json
from typing import Literal

_LIMITS = {"pixels": (8, 2048), "batch": (2, 100_000), "threads": (1, 4096), "frames": (100, 10**9)}


def env(pixels: int = 84, rounds: int = 15) -> None:
    """Rendering compared with the simulators' own, one line of JSON per task.

    `own_fps` is dm_control's or Gymnasium's rendering, `full_fps` and `fast_fps` ours; the ratios
    are medians over rounds in which the three take turns on the same scene. About a minute.

    Args:
        pixels: Side of the images.
        rounds: Rounds of ten frames each.
    """
    from revbis.envs.suites import SUITES
    from revbis.envs.tasks import require_gymnasium

    _check_sizes(pixels=pixels, rounds=rounds)
    tasks = [suite.example for suite in SUITES.values() if suite.drawn_by_mujoco]
    for task in tasks:
        require_gymnasium(task)
    from revbis.bench.rendering import measure_rendering

    for task in tasks:
        print(json.dumps(measure_rendering(task, pixels=pixels, rounds=rounds)), flush=True)


def update(
    method: str = "mico-rev",
    mode: Literal["joint", "alternating"] = "joint",
    preset: str = "paper",
    batch: int | None = None,
    pixels: int | None = None,
    repeats: int = 10,
    threads: int | None = None,
) -> None:
    """An update beside the time of its encoder passes alone, in one line of JSON.

    `seconds_per_update` includes sampling and random shifts. `encoder_bound_seconds` is the time of
    the encoder alone: forwards and backwards on a batch, forwards on the next one. The two take
    turns, and medians are reported. Joint updates should stay below 1.3 times the bound,
    alternating ones, which need the encoder twice, below 1.3 times twice the bound.

    Args:
        method: drqv2 or an objective.
        mode: joint or alternating.
        preset: Sizes of the networks.
        batch: Transitions in a batch; the preset's when not given.
        pixels: Side of the images; the preset's when not given.
        repeats: Updates measured.
        threads: Threads to use; all that this process may use when not given.
    """
    from revbis.system import runtime

    _check_sizes(batch=batch, pixels=pixels, repeats=repeats, threads=threads)
    runtime.prepare(threads)
    from revbis.bench.update import measure_update
    from revbis.presets import preset_config

    config = preset_config(preset, "dmc:cheetah_run", method)
    settings = {"mode": mode} | ({} if batch is None else {"batch_size": batch})
    speed = measure_update(
        method,
        config.with_settings(**settings).agent,
        pixels=config.pixels if pixels is None else pixels,
        repeats=repeats,
        threads=threads,
    )
    print(json.dumps({"method": method, "mode": mode, "preset": preset, **speed.as_dict()}))


def sharing(
    method: str = "mico-rev",
    preset: str = "paper",
    batch: int = 256,
    pixels: int = 84,
    repeats: int = 8,
) -> None:
    """What one-thread runs keep of their speed beside each other, in one line of JSON.

    Seconds per update of a run `alone` and of the slower of two `beside` each other; `kept` is the
    share of the lone one's speed. `kept_processor` is the same in processor time, which leaves out
    what other programs took. A sweep on two cores wants 0.7 or more.

    Args:
        method: drqv2 or an objective.
        preset: Sizes of the networks.
        batch: Transitions in a batch.
        pixels: Side of the images.
        repeats: Updates measured.
    """
    from revbis.system import runtime

    _check_sizes(batch=batch, pixels=pixels, repeats=repeats)
    runtime.prepare(1)
    from revbis.bench.update import measure_neighbours
    from revbis.presets import preset_config

    config = preset_config(preset, "dmc:cheetah_run", method)
    settings = config.with_settings(mode="joint", batch_size=batch).agent
    kept = measure_neighbours(method, settings, pixels=pixels, repeats=repeats)
    print(json.dumps({"method": method, "preset": preset, "batch": batch, **kept}))


def train(
    task: str = "dmc:cartpole_balance",
    method: str = "simsr-rev",
    preset: str = "cpu",
    frames: int = 6000,
    threads: int | None = None,
) -> None:
    """End-to-end frames per second of a short run, with the split of its time, as a line of JSON.

    Args:
        task: The task.
        method: drqv2 or an objective.
        preset: The preset.
        frames: Frames to train for; a tenth of them act at random before updates begin.
        threads: Threads to use; all that this process may use when not given.
    """
    from revbis.system import runtime

    _check_sizes(frames=frames, threads=threads)
    runtime.prepare(threads)
    from revbis.bench.training import measure_training
    from revbis.presets import preset_config

    speed = measure_training(preset_config(preset, task, method), frames)
    print(json.dumps({"task": task, "method": method, "preset": preset, **speed}))


def _check_sizes(**given: int | None) -> None:
    from revbis import checks

    for name, value in given.items():
        if value is not None:
            checks.whole(value, f"--{name}", *_LIMITS.get(name, (1, 10**6)))


COMMANDS = {"env": env, "update": update, "sharing": sharing, "train": train}
