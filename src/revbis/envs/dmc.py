"""DeepMind Control: the suite's tasks and the manipulation suite's vision tasks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revbis.envs.camera import Camera
from revbis.envs.rendering import Pixels, Quality
from revbis.envs.simulation import Outcome
from revbis.system.extras import require

_VISION, _FEATURES = "_vision", "_features"
_MANIPULATION_CAMERA = "front_close"
# A camera that follows the body: the one that pixel benchmarks use.
_CAMERAS = {"quadruped": 2}
# Drawn when loaded (springs), or kept from episode to episode (orders): a seed loads them anew.
_LOADED_BY_SEED = ("lqr_", "_random_order")
_UNBOUNDED = 1e6  # lqr's actions are bounded by 1e10, which is no scale


def task_names() -> list[str]:
    """Every task that is installed, such as `cheetah_run` and `reach_duplo`."""
    return sorted([*_suite_tasks(), *_manipulation_tasks()])


@cache
def _suite_tasks() -> dict[str, tuple[str, str]]:
    suite = require("dm_control.suite", "dmc", "a dmc: task")
    return {f"{domain}_{task}": (domain, task) for domain, task in suite.ALL_TASKS}


@cache
def _manipulation_tasks() -> tuple[str, ...]:
    manipulation = require("dm_control.manipulation", "dmc", "a dmc: task")
    return tuple(n.removesuffix(_VISION) for n in manipulation.ALL if n.endswith(_VISION))


class DmcSimulation:
    """A DeepMind Control task.

    Args:
        name: One of `task_names()`.
        size: Side of the pictures.
        quality: "full" or "fast".
        features: Load the variant whose vector observation tells all (manipulation only).
    """

    def __init__(self, name: str, *, size: int, quality: Quality, features: bool) -> None:
        self._name, self._features = name, features
        self._manipulation = name in _manipulation_tasks()
        domain = "" if self._manipulation else _suite_tasks()[name][0]
        self._loaded_by_seed = any(part in name for part in _LOADED_BY_SEED)
        self._env = self._load(0)
        camera = _MANIPULATION_CAMERA if self._manipulation else _CAMERAS.get(domain, 0)
        self._camera = Camera(size, camera, quality)
        spec = self._env.action_spec()
        self.low, self.high = _bounds(spec)
        self.horizon = _horizon(self._env)
        shapes = [spec.shape for spec in self._env.observation_spec().values()]
        self.feature_count = sum(int(np.prod(shape)) for shape in shapes)
        self.success_at_start: bool | None = None
        self.versions = {name: version(name) for name in ("dm_control", "mujoco")}
        self._observation: Mapping[str, Any] = {}

    def reset(self, seed: int | None) -> None:
        """Begins an episode; a seed reseeds dm_control's random state as loading with it would."""
        if seed is not None:
            if self._loaded_by_seed:
                self._env = self._load(seed)
            else:
                _random_state(self._env).seed(seed)
        self._observation = self._env.reset().observation
        self._camera.refresh(self._env.physics.model.ptr)

    def step(self, action: NDArray[np.float64]) -> Outcome:
        """One control step."""
        moment = self._env.step(action)
        self._observation = moment.observation
        return Outcome(float(moment.reward), float(moment.discount), bool(moment.last()), None)

    def draw(self, out: Pixels) -> None:
        """Draws the task's camera."""
        physics = self._env.physics
        self._camera.draw(physics.model.ptr, physics.data.ptr, out)

    def behind(self) -> NDArray[np.bool_]:
        """Where only sky or ground is seen."""
        physics = self._env.physics
        return self._camera.behind(physics.model.ptr, physics.data.ptr)

    def state(self) -> NDArray[np.float64]:
        """Positions, velocities and activations."""
        return np.array(self._env.physics.get_state(), dtype=np.float64)

    def features(self) -> NDArray[np.float32]:
        """The task's observations, flattened in their own order."""
        parts = [np.ravel(value) for value in self._observation.values()]
        return np.concatenate(parts).astype(np.float32)

    def close(self) -> None:
        """Gives back OpenGL and physics."""
        self._camera.close()
        if self._manipulation:
            self._env.close()
        else:  # whose close would leave dm_control's own OpenGL context to the end of the process
            self._env.physics.free()

    def _load(self, seed: int) -> Any:
        # dm_control 1.0.28 on NumPy 2; the requirements keep NumPy below the version without it.
        warnings.filterwarnings("ignore", "`in1d` is deprecated", DeprecationWarning)
        if not self._manipulation:
            from dm_control import suite

            return suite.load(*_suite_tasks()[self._name], task_kwargs={"random": seed})
        from dm_control import manipulation

        suffix = _FEATURES if self._features else _VISION
        env = manipulation.load(self._name + suffix, seed=seed)
        if not self._features:  # our camera draws it, and only when it is wanted
            env.task.observables[_MANIPULATION_CAMERA].enabled = False
        return env


def _random_state(env: Any) -> np.random.RandomState:
    suite_task = getattr(env.task, "random", None)
    state: np.random.RandomState = env.random_state if suite_task is None else suite_task
    return state


def _horizon(env: Any) -> int | None:
    limit = getattr(env, "_step_limit", None)
    if limit is None:
        limit = env._time_limit / env.control_timestep()
    return int(np.ceil(limit)) if np.isfinite(limit) else None


def _bounds(spec: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = np.broadcast_arrays(spec.minimum, spec.maximum, np.empty(spec.shape))[:2]
    unbounded = np.maximum(np.abs(low), np.abs(high)) > _UNBOUNDED
    return np.where(unbounded, -1.0, low), np.where(unbounded, 1.0, high)
