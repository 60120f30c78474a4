"""A task at a glance: images over an episode, and its numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.envs import make_env, suite_of
from revbis.io.files import atomic_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from revbis.envs.environment import TaskEnv
    from revbis.envs.rendering import Pixels
    from revbis.envs.suite import SimulationStep

_COLUMNS = 8
_ENDLESS = 1000  # simulator steps shown of a task without a time limit
_RETURNS = 3  # episodes of the random policy
_PATIENCE = 5.0  # seconds for them
_TIMED_SECONDS = 1.0

_GAUSSIAN = {"distractor": "gaussian", "distractor_strength": 0.2}
# Each row by its name, and its arguments to make_env.
_DRAWN_BY_MUJOCO: dict[str, dict[str, Any]] = {
    "full": {"quality": "full"},
    "fast": {"quality": "fast"},
    "noise": {"quality": "fast", "distractor": "noise"},
    "shapes": {"quality": "fast", "distractor": "shapes"},
    "gaussian 0.2": {"quality": "fast", **_GAUSSIAN},
}
_DRAWN_BY_ITSELF: dict[str, dict[str, Any]] = {
    "full": {"quality": "full"},
    "gaussian 0.2": {"quality": "full", **_GAUSSIAN},
}


@dataclass(frozen=True)
class Preview:
    """Images and numbers of a task.

    Attributes:
        task: Its name.
        times: Simulator steps at which it was drawn.
        images: By row, [columns, 3, pixels, pixels].
        frames_per_second: By row, environment steps per second, drawing included.
        observation: Shape and type.
        action: Shape of the actions.
        horizon: Simulator steps to the time limit, if any.
        returns: Of a random policy, one episode each.
    """

    task: str
    times: list[int]
    images: dict[str, Pixels]
    frames_per_second: dict[str, float]
    observation: str
    action: str
    horizon: int | None
    returns: list[float]

    def numbers(self) -> dict[str, str]:
        """The numbers in words."""
        low, mean, high = min(self.returns), float(np.mean(self.returns)), max(self.returns)
        speeds = ", ".join(f"{name} {fps:.0f}" for name, fps in self.frames_per_second.items())
        numbers = {
            "observation": self.observation,
            "action": self.action,
            "horizon": f"{self.horizon} simulator steps" if self.horizon else "no time limit",
            "random return": f"{mean:.1f} ({low:.1f} to {high:.1f}, {len(self.returns)} episodes)",
            "steps/s": speeds,
        }
        if "fast" in self.images:
            gaps = self.images["fast"].astype(int) - self.images["full"]
            numbers["fast differs by"] = f"{np.abs(gaps).mean():.1f} of 255 from full, on average"
        return numbers


def preview(
    task: str,
    *,
    seed: int,
    pixels: int,
    action_repeat: int,
    video: str | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Preview:
    """Plays a task with random actions and draws it in every way it can be drawn.

    Args:
        task: As for `make_env`.
        seed: Of the episode and the actions.
        pixels: Side of the images.
        action_repeat: Simulator steps per action.
        video: A folder of videos to show behind the task too.
        report: Called with the name of each way of drawing, before it is tried.
    """
    rows = dict(_DRAWN_BY_MUJOCO if suite_of(task).drawn_by_mujoco else _DRAWN_BY_ITSELF)
    if video is not None:
        rows["video"] = {"quality": "fast", "distractor": f"video:{video}"}
    images, speeds, times = {}, {}, [0]
    returns: list[float] = []
    for name, changes in rows.items():
        report(name)
        env = make_env(task, seed=seed, pixels=pixels, action_repeat=action_repeat, **changes)
        try:
            times, images[name] = _episode(env, seed, pixels)
            speeds[name] = _speed(env)
            returns = returns or _random_returns(env, seed)
        finally:
            env.close()
    space = env.observation_space
    return Preview(
        task=task,
        times=times,
        images=images,
        frames_per_second=speeds,
        observation=f"{space.dtype} {space.shape}",
        action=f"float32 {env.action_space.shape} in [−1, 1], repeated {action_repeat}×",
        horizon=env.simulation.horizon,
        returns=returns,
    )


def draw_sheet(shown: Preview, path: Path) -> None:
    """Writes the contact sheet as a PNG: a row for each way of drawing, time from left to right."""
    from matplotlib.figure import Figure

    rows, columns = len(shown.images), len(shown.times)
    figure = Figure(figsize=(1.35 * columns + 0.8, 1.45 * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for line, (name, images) in zip(axes, shown.images.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image.transpose(1, 2, 0), interpolation="nearest")
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=10)
    for axis, moment in zip(axes[0], shown.times, strict=True):
        axis.set_title(f"step {moment}", fontsize=8)
    numbers = shown.numbers()
    figure.suptitle(f"{shown.task}   random return {numbers['random return']}", fontsize=10)
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=150)


def _episode(env: TaskEnv, seed: int, pixels: int) -> tuple[list[int], Pixels]:
    """One episode of random actions, drawn at a few steps."""
    env.reset(seed=seed)
    env.action_space.seed(seed)
    due = np.linspace(0, env.simulation.horizon or _ENDLESS, _COLUMNS + 1).astype(int)
    images: Pixels = np.zeros((_COLUMNS, 3, pixels, pixels), dtype=np.uint8)
    times: list[int] = []
    frames, over = 0, False
    while len(times) < _COLUMNS:
        if frames >= due[len(times)] or over:
            env.draw(images[len(times)])
            times.append(frames)
            if over:
                break
        else:
            steps = _random_step(env)
            frames, over = frames + len(steps), steps[-1].last
    return times, images[: len(times)]


def _random_returns(env: TaskEnv, seed: int) -> list[float]:
    """Returns of a random policy: several episodes, or one if they take long."""
    returns: list[float] = []
    start = time.perf_counter()
    while not returns or (len(returns) < _RETURNS and time.perf_counter() - start < _PATIENCE):
        env.simulation.reset(seed + len(returns))
        steps: list[SimulationStep] = []
        while len(steps) < (env.simulation.horizon or _ENDLESS):
            steps += _random_step(env)
            if steps[-1].last:
                break
        returns.append(sum(step.reward for step in steps))
    return returns


def _random_step(env: TaskEnv) -> list[SimulationStep]:
    """One random action, without drawing."""
    action = env.scaled(env.action_space.sample())
    steps: list[SimulationStep] = []
    for _ in range(env.action_repeat):
        steps.append(env.simulation.step(action))
        if steps[-1].last:
            break
    return steps


def _speed(env: TaskEnv) -> float:
    """Environment steps per second, measured for about a second."""
    env.reset()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < _TIMED_SECONDS:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
        if terminated or truncated:
            env.reset()
    return steps / (time.perf_counter() - start)
