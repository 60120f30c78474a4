"""How many times faster than the simulators' own rendering ours is, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from revbis.envs import make_env
from revbis.envs.environment import TaskEnv
from revbis.envs.rendering import choose_backend

_FRAMES = 10  # drawn by each in a round


def measure_rendering(task: str, *, pixels: int, rounds: int) -> dict[str, Any]:
    """Frames per second of the simulator's own rendering and of both qualities.

    The three take turns, frame by frame on the same moving scene, so that whatever else the machine
    does falls on all of them.

    Args:
        task: A dmc: or metaworld: task.
        pixels: Side of the pictures.
        rounds: Rounds; the medians are reported.
    """
    choose_backend()
    envs = {q: make_env(task, seed=1, pixels=pixels, quality=q) for q in ("full", "fast")}
    own = _own_rendering(envs["full"], task, pixels)
    out = np.empty((3, pixels, pixels), dtype=np.uint8)
    draws: dict[str, Callable[[], Any]] = {"own": own}
    draws |= {name: _drawer(env, out) for name, env in envs.items()}
    for env in envs.values():
        env.reset(seed=1)
    for draw in draws.values():
        draw()
    taken: dict[str, list[float]] = {name: [] for name in draws}
    for _ in range(rounds):
        for env in envs.values():
            env.simulation.step(env.scaled(env.action_space.sample()))
        for name, draw in draws.items():
            start = time.perf_counter()
            for _ in range(_FRAMES):
                draw()
            taken[name].append((time.perf_counter() - start) / _FRAMES)
    for env in envs.values():
        env.close()
    return {
        "task": task,
        "pixels": pixels,
        **{f"{name}_fps": round(1 / median(seconds), 1) for name, seconds in taken.items()},
        "full_ratio": _ratio(taken["own"], taken["full"]),
        "fast_ratio": _ratio(taken["own"], taken["fast"]),
    }


def _ratio(slow: list[float], fast: list[float]) -> float:
    return round(median(a / b for a, b in zip(slow, fast, strict=True)), 2)


def _drawer(env: TaskEnv, out: Any) -> Callable[[], None]:
    return lambda: env.draw(out)


def _own_rendering(env: TaskEnv, task: str, pixels: int) -> Callable[[], Any]:
    """What a user of the simulator alone would call."""
    simulation: Any = env.simulation
    inner = simulation._env
    if task.startswith("dmc:"):
        camera = simulation._camera.camera
        return lambda: inner.physics.render(pixels, pixels, camera_id=camera)
    from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

    viewer = MujocoRenderer(
        inner.model, inner.data, width=pixels, height=pixels, camera_name=simulation._camera.camera
    )

    def render() -> Any:
        if viewer.viewer is not None:
            viewer.viewer.make_context_current()
        return viewer.render("rgb_array")

    return render
