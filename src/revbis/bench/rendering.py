"""Our rendering compared with the simulators' own, measured in turns."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.envs import make_env
from revbis.envs.rendering import choose_backend
from revbis.envs.suite import MujocoSimulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.envs.environment import TaskEnv

_FRAMES = 10  # drawn by each renderer per round


def measure_rendering(task: str, *, pixels: int, rounds: int) -> dict[str, Any]:
    """Frames per second of the simulator's own rendering and of both qualities.

    The three take turns on the same moving scene, so that the load of the machine affects them
    equally.

    Args:
        task: A task that MuJoCo renders.
        pixels: Side of the images.
        rounds: Number of rounds; medians over them are reported.

    Raises:
        ValueError: If MuJoCo does not render the task, or its simulator has no renderer.
    """
    choose_backend()
    envs = {q: make_env(task, seed=1, pixels=pixels, quality=q) for q in ("full", "fast")}
    simulation = envs["full"].simulation
    if not isinstance(simulation, MujocoSimulation):
        raise ValueError(f"{task}: its simulator has no renderer of its own to compare with")
    out = np.empty((3, pixels, pixels), dtype=np.uint8)
    draws: dict[str, Callable[[], Any]] = {"own": simulation.native_renderer(pixels)}
    draws |= {name: _drawer(env, out) for name, env in envs.items()}
    for env in envs.values():
        env.reset(seed=1)
    for draw in draws.values():
        draw()
    times: dict[str, list[float]] = {name: [] for name in draws}
    for _ in range(rounds):
        for env in envs.values():
            env.simulation.step(env.scaled(env.action_space.sample()))
        for name, draw in draws.items():
            start = time.perf_counter()
            for _ in range(_FRAMES):
                draw()
            times[name].append((time.perf_counter() - start) / _FRAMES)
    for env in envs.values():
        env.close()
    return {
        "task": task,
        "pixels": pixels,
        **{f"{name}_fps": round(1 / median(seconds), 1) for name, seconds in times.items()},
        "full_ratio": _ratio(times["own"], times["full"]),
        "fast_ratio": _ratio(times["own"], times["fast"]),
    }


def _ratio(slow: list[float], fast: list[float]) -> float:
    return round(median(a / b for a, b in zip(slow, fast, strict=True)), 2)


def _drawer(env: TaskEnv, out: Any) -> Callable[[], None]:
    return lambda: env.draw(out)
