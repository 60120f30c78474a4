"""Measures how fast a run will be, in a process of its own that is ended when the time is up.

`python -m revbis.sweep.measure CONFIG` is that process. It prints what it knows after each part,
so that a machine too slow for all of them still gives some.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from revbis.config import Config
from revbis.sweep.projection import Speed, activation_bytes

if TYPE_CHECKING:
    from revbis.agents import DrQV2
    from revbis.envs.environment import TaskEnv
    from revbis.replay import Batch

SECONDS = 18.0  # with the start of the command, no more than 20
_STEPS, _ACTS, _UPDATES = 30, 10, 3  # measured, if the time allows
_STEP_SECONDS = 3.0
_BATCHES = 4  # a batch is so many times larger than the one before it
_MOST_BYTES = 500_000_000  # of activations
_MOST_DATA = 6_000_000_000  # of the process; most of it is never touched


class NotMeasuredError(RuntimeError):
    """The speed could not be measured; the message says why."""


def measure(config: Config, seconds: float = SECONDS) -> Speed:
    """The speed of a run on this machine.

    Large batches are not tried: their time follows from that of smaller ones.

    Raises:
        NotMeasuredError: If the time is too short, or the run cannot be made.
    """
    words = [sys.executable, "-m", "revbis.sweep.measure", json.dumps(config.as_dict())]
    try:
        done = subprocess.run(words, capture_output=True, timeout=seconds, check=False)
        printed, errors = done.stdout, done.stderr.decode(errors="replace").split("\n")
        reason = next((line for line in reversed(errors) if line.strip()), "it told nothing")
    except subprocess.TimeoutExpired as late:
        printed, reason = late.stdout or b"", f"{seconds:.0f} s are too short on this machine now"
    speed = parse(printed.decode(errors="replace"))
    if speed is None:
        raise NotMeasuredError(f"the speed could not be measured: {reason.strip()}")
    return speed


def parse(printed: str) -> Speed | None:
    """The speed in what the process printed; None if a part of it is missing."""
    parts: dict[str, Any] = {}
    for line in printed.splitlines():
        try:
            parts |= json.loads(line)
        except (ValueError, TypeError):  # cut off, or a simulator's own words
            continue
    times = [parts.get(name) for name in ("step", "act", "update")]
    step, act, update = (each if isinstance(each, float) else None for each in times)
    if step is None or act is None or update is None:
        return None
    episode = parts.get("episode")
    return Speed(step, act, update, episode if isinstance(episode, int) else None)


def batches(config: Config) -> Iterator[int]:
    """Batch sizes to measure: growing ones, up to the run's own or to what memory allows."""
    batch = min(16, config.batch_size)
    while True:
        yield batch
        if batch == config.batch_size:
            return
        batch = min(batch * _BATCHES, config.batch_size)
        if activation_bytes(config, batch) > _MOST_BYTES:
            return


def extrapolate(times: dict[int, float], batch: int) -> float:
    """The time for a batch from those of smaller ones: linear in what is added to the largest."""
    (*_, largest) = sorted(times)
    slope = times[largest] / largest
    if len(times) > 1:
        before = sorted(times)[-2]
        rise = (times[largest] - times[before]) / (largest - before)
        slope = min(max(rise, 0.0), slope)
    return times[largest] + slope * (batch - largest)


def _measure_steps(env: TaskEnv) -> float:
    env.reset(seed=0)
    env.action_space.seed(0)
    times: list[float] = []
    while len(times) < _STEPS and sum(times) < _STEP_SECONDS:
        start = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
        times.append(time.perf_counter() - start)
    return sum(times) / len(times)


def _measure(run: Callable[[], object], repeats: int) -> float:
    """Median time, after one run that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return median(times[1:])


def _random_batch(agent: DrQV2, batch: int, one_step: bool) -> Batch:
    import torch

    from revbis.replay import Batch, OneStep

    generator = torch.Generator().manual_seed(0)
    shape = (batch, *agent.observation_shape)

    def observations() -> torch.Tensor:
        if len(shape) == 2:
            return torch.randn(shape, generator=generator)
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

    action = torch.rand((batch, agent.action_size), generator=generator)
    reward, discount = torch.rand(batch, generator=generator), torch.full((batch,), 0.9)
    extra = OneStep(reward, discount, observations()) if one_step else None
    return Batch(observations(), action, reward, discount, observations(), extra)


def _tell(**parts: float | int | None) -> None:
    print(json.dumps(parts), flush=True)


def main() -> None:
    """Measures the config given as JSON, part by part."""
    from revbis.system import runtime

    _limit_memory()
    config = Config.from_dict(json.loads(sys.argv[1]))
    runtime.prepare(config.threads)
    from dataclasses import replace

    from revbis.agents import DrQV2
    from revbis.envs import make_env
    from revbis.training.run import resolve_device

    env = make_env(**config.environment, seed=0)
    horizon = env.simulation.horizon
    _tell(
        step=_measure_steps(env),
        episode=None if horizon is None else -(-horizon // config.action_repeat),
    )
    shape, size = env.observation_space.shape, int(env.action_space.shape[0])
    settings = replace(config.agent, compile=False)
    agent = DrQV2(shape, size, settings, seed=0, device=resolve_device(config.device))
    observation, _ = env.reset(seed=0)
    _tell(act=_measure(lambda: agent.act(observation, 0, explore=False), _ACTS))
    times: dict[int, float] = {}
    for batch in batches(config):
        data = _random_batch(agent, batch, config.transition == "one_step")

        def update(data: Batch = data) -> float:
            return float(agent.update(data, config.explore_steps)["critic_loss"])  # waits for GPUs

        times[batch] = _measure(update, _UPDATES)
        _tell(update=extrapolate(times, config.batch_size))


def _limit_memory() -> None:
    """What is too large for a measurement ends it, and not the machine."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA, _MOST_DATA))
    except (ImportError, ValueError, OSError):  # no such limit here
        return


if __name__ == "__main__":
    main()
