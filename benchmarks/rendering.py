"""Our rendering compared with the simulators' own, in turns; prints one line of JSON per task.

`own_fps` is dm_control's or Gymnasium's rendering, `full_fps` and `fast_fps` ours; the ratios are
medians over rounds in which the three take turns on the same moving scene. Takes about a minute.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from _measure import median_ratio, print_line
from revbis.envs import make_env
from revbis.envs.rendering import choose_backend
from revbis.envs.suites import SUITES, require_gymnasium

if TYPE_CHECKING:
    from collections.abc import Callable


def measure(task: str, pixels: int, rounds: int, frames: int) -> dict[str, Any]:
    """Frames per second of the simulator's own rendering and of both qualities."""
    envs = {q: make_env(task, seed=1, pixels=pixels, quality=q) for q in ("full", "fast")}
    simulation, out = envs["full"].simulation, np.empty((3, pixels, pixels), dtype=np.uint8)
    draws = {"own": native_renderer(simulation, pixels)}
    draws |= {name: lambda env=env: env.draw(out) for name, env in envs.items()}
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
            for _ in range(frames):
                draw()
            times[name].append((time.perf_counter() - start) / frames)
    for env in envs.values():
        env.close()
    return {
        "task": task,
        "pixels": pixels,
        **{f"{name}_fps": round(1 / median(seconds), 1) for name, seconds in times.items()},
        "full_ratio": round(median_ratio(times["own"], times["full"]), 2),
        "fast_ratio": round(median_ratio(times["own"], times["fast"]), 2),
    }


def native_renderer(simulation: Any, size: int) -> Callable[[], Any]:
    """Draws the same camera as a user of dm_control or of Meta-World alone would."""
    env, camera = simulation._env, simulation._camera.camera  # noqa: SLF001
    if hasattr(env, "physics"):
        return lambda: env.physics.render(size, size, camera_id=camera)
    from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

    sides = {"width": size, "height": size}
    renderer = MujocoRenderer(env.model, env.data, **sides, camera_name=camera)

    def render() -> Any:
        if renderer.viewer is not None:  # it draws into whichever context is current
            renderer.viewer.make_context_current()
        return renderer.render("rgb_array")

    return render


def rendering(pixels: int = 84, rounds: int = 15, frames: int = 10) -> None:
    """Compares our rendering with the simulators' own; prints one line of JSON per task.

    Args:
        pixels: Side of the images.
        rounds: Rounds of each renderer.
        frames: Frames of a round.
    """
    tasks = [suite.example for suite in SUITES.values() if suite.drawn_by_mujoco]
    for task in tasks:
        require_gymnasium(task)
    choose_backend()
    for task in tasks:
        print_line({"benchmark": "rendering", **measure(task, pixels, rounds, frames)})


if __name__ == "__main__":
    try:
        tyro.cli(rendering)
    except (ValueError, ModuleNotFoundError) as problem:
        sys.exit(f"rendering.py: error: {problem}")
