"""Measures how fast a run will be, in a process of its own that is ended when the time is up.

`python -m revbis.sweep.measure CONFIG` is that process. It prints its results after each part and
each update, so that a machine too slow for all of them still gives some.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from revbis.io import runtime
from revbis.runs.config import Config
from revbis.runs.memory import activation_bytes
from revbis.sweep.plan import Speed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from revbis.agents import Agent
    from revbis.envs.environment import TaskEnv
    from revbis.replay import Replay

SECONDS = 18.0  # with the start of the command, no more than 20
_STEPS, _ACTS, _UPDATES = 30, 10, 3  # measured, if the time allows
_STEP_SECONDS = 3.0
_FIRST_STEPS = 16  # of the first batch that is measured, in all its sequences
_BATCHES = 4  # a batch is so many times larger than the one before it
_MOST_BYTES = 500_000_000  # of activations
_MOST_DATA = 6_000_000_000  # of the process; most of it is never touched


class NotMeasuredError(RuntimeError):
    """The speed could not be measured; the message says why."""


def measure_speed(config: Config, seconds: float = SECONDS) -> Speed:
    """The speed of a run on this machine.

    Large batches are not tried: their time follows from that of smaller ones.

    Raises:
        NotMeasuredError: If the time is too short, or the run cannot be trained.
    """
    words = [sys.executable, "-m", "revbis.sweep.measure", json.dumps(config.as_dict())]
    try:
        done = subprocess.run(words, capture_output=True, timeout=seconds, check=False)
        printed, errors = done.stdout, done.stderr.decode(errors="replace").split("\n")
        reason = next((line for line in reversed(errors) if line.strip()), "no message")
    except subprocess.TimeoutExpired as late:
        printed, reason = late.stdout or b"", f"{seconds:.0f} s are too short on this machine now"
    speed = parse_speed(printed.decode(errors="replace"))
    if speed is None:
        raise NotMeasuredError(f"the speed could not be measured: {reason.strip()}")
    return speed


def parse_speed(printed: str) -> Speed | None:
    """The speed in what the process printed; None if a part of it is missing."""
    parts: dict[str, Any] = {}
    for line in printed.splitlines():
        try:
            parts |= json.loads(line)
        except (ValueError, TypeError):  # cut off, or a simulator's own output
            continue
    times = [parts.get(name) for name in ("step", "act", "update")]
    step, act, update = (each if isinstance(each, float) else None for each in times)
    if step is None or act is None or update is None:
        return None
    episode = parts.get("episode")
    return Speed(step, act, update, episode if isinstance(episode, int) else None)


def batches(config: Config) -> Iterator[int]:
    """Batch sizes to measure: growing ones, up to the run's own or to what memory allows.

    The first is small, the smaller the longer the sequences that a batch is made of.
    """
    batch = min(max(_FIRST_STEPS // config.agent.least_steps, 1), config.agent.batch_size)
    while True:
        yield batch
        if batch == config.agent.batch_size:
            return
        batch = min(batch * _BATCHES, config.agent.batch_size)
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


def _measure_steps(env: TaskEnv, replay: Replay) -> float:
    """Mean time of a step at random; what is seen goes into the replay buffer."""
    observation, info = env.reset(seed=0)
    replay.begin(info.get("frame", observation))
    env.action_space.seed(0)
    times: list[float] = []
    while len(times) < _STEPS and sum(times) < _STEP_SECONDS:
        action = env.action_space.sample()
        start = time.perf_counter()
        observation, reward, terminated, truncated, info = env.step(action)
        times.append(time.perf_counter() - start)
        over, frame = terminated or truncated, info.get("frame", observation)
        replay.add(action, reward, info["discount"], frame, last=over)
        if over:
            observation, info = env.reset()
            replay.begin(info.get("frame", observation))
    replay.cut()
    return sum(times) / len(times)


def _add_episode(replay: Replay, env: TaskEnv, steps: int) -> None:
    """An episode of one picture, for agents whose updates need longer ones than were played."""
    observation, info = env.reset(seed=0)
    frame = info.get("frame", observation)
    replay.begin(frame)
    for _ in range(steps):
        replay.add(env.action_space.sample(), 0.0, 1.0, frame, last=False)
    replay.cut()


def _measure(run: Callable[[], object], repeats: int) -> Iterator[float]:
    """The time as known after each run: the first's, then the median of those after it."""
    times: list[float] = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        yield median(times[1:] or times)


def _send(**parts: float | int | None) -> None:
    sys.stdout.write(json.dumps(parts) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measures the config given as JSON, part by part."""
    _limit_memory()
    config = Config.from_dict(json.loads(sys.argv[1]))
    runtime.prepare(config.threads)
    from revbis.envs import make_env
    from revbis.runs.trainer import build_agent, make_replay, resolve_device

    env = make_env(**config.environment, seed=0)
    horizon = env.simulation.horizon
    least = config.agent.least_steps
    room = 2 * _STEPS + least + 2 * (config.frame_stack + config.n_step)
    replay = make_replay(config, env, capacity=room)
    _send(
        step=_measure_steps(env, replay),
        episode=None if horizon is None else -(-horizon // config.action_repeat),
    )
    if least > 1:
        _add_episode(replay, env, least)
    config = replace(config, agent=config.agent.for_inference())  # compiling takes too long
    device = resolve_device(config.device)
    observation, _ = env.reset(seed=0)
    last = max(config.frames // config.action_repeat, config.agent.explore_steps)  # longest plans
    times: dict[int, float] = {}
    for batch in batches(config):
        agent = build_agent(config.with_settings(batch_size=batch), env, device)

        def act(agent: Agent = agent) -> object:
            return agent.act(observation, last, explore=True)

        if not times:
            (*_, seconds) = _measure(act, _ACTS)
            _send(act=seconds)

        def update(agent: Agent = agent) -> float:
            metrics = agent.update(replay, config.agent.explore_steps)
            return float(sum(metrics.values()))  # waits for GPUs

        for seconds in _measure(update, _UPDATES):
            times[batch] = seconds
            _send(update=extrapolate(times, config.agent.batch_size))


def _limit_memory() -> None:
    """Ends a measurement that needs too much memory before the machine runs out of it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA, _MOST_DATA))
    except (ImportError, ValueError, OSError):  # no such limit here
        return


if __name__ == "__main__":
    main()
