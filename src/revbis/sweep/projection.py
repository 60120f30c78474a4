"""What a run will take, before it is started: time, memory and disk."""

from __future__ import annotations

import time
from dataclasses import replace

from revbis.config import Config
from revbis.replay.storage import Layout

_PROCESS_BYTES = 800_000_000  # Python, PyTorch and a simulator, as measured
_FLOAT = 4
_PASSES = 4  # activations alive at once: forwards, their gradients, the next batch, scratch
_ACTIONS = 32  # more numbers than any action has
_STEPS, _UPDATES = 30, 2  # measured


def memory_bytes(config: Config) -> int:
    """Memory of a run: the replay buffer, the activations of an update, and the process."""
    layout = _layout(config, _records(config))
    frames = layout.frame_bytes if config.replay_storage == "ram" else 0
    return _PROCESS_BYTES + frames + layout.other_bytes + _activation_bytes(config)


def disk_bytes(config: Config) -> int:
    """Disk of a run's folder: mostly the replay buffer, which checkpoints contain."""
    layout = _layout(config, _records(config))
    copies = 2 if config.replay_storage == "disk" else 1  # the buffer's own file, and checkpoints
    return copies * layout.frame_bytes + layout.other_bytes


def frames_per_second(config: Config) -> float:
    """Speed of a run with its threads, from a few steps and updates made here and now."""
    from revbis.envs import make_env
    from revbis.speed import measure_update

    env = make_env(**config.environment, seed=0)
    env.reset(seed=0)
    env.action_space.seed(0)
    start = time.perf_counter()
    for _ in range(_STEPS):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset(seed=0)
    step = (time.perf_counter() - start) / _STEPS
    env.close()
    pixels = config.pixels if config.observation == "pixels" else 24  # vectors cost next to nothing
    speed = measure_update(
        replace(config.agent, compile=False, mixed_precision=False),
        batch=config.batch_size,
        pixels=pixels,
        repeats=_UPDATES,
        threads=config.threads,
    )
    per_step = step + speed.seconds_per_update / config.update_every
    return config.action_repeat / per_step


def _records(config: Config) -> int:
    """Frames the replay buffer comes to hold; what is never written takes no memory."""
    return max(min(config.replay_capacity, config.frames // config.action_repeat), 1)


def _layout(config: Config, records: int) -> Layout:
    side = config.pixels
    shape = (3, side, side) if config.observation == "pixels" else (64,)
    return Layout.checked(records, shape, _ACTIONS)


def _activation_bytes(config: Config) -> int:
    if config.observation != "pixels":
        return 0
    side, numbers = config.pixels, 9 * config.pixels**2
    for stride in config.strides:
        side = (side - 3) // stride + 1
        numbers += config.channels * side**2
    return _PASSES * config.batch_size * numbers * _FLOAT
