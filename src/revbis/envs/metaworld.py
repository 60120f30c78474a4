"""Meta-World: its 50 tasks, seeded, with a goal drawn at each reset and upright pictures."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revbis.envs.camera import Camera
from revbis.envs.rendering import Pixels, Quality
from revbis.envs.simulation import Outcome
from revbis.system.extras import require

_CAMERA = "corner2"
_CAMERA_POSITION = (0.75, 0.075, 0.7)
_SUFFIX = "-v3"
_HORIZON = 500


def task_names() -> list[str]:
    """Every task that is installed, such as `hammer` and `drawer-close`."""
    return sorted(name.removesuffix(_SUFFIX) for name in _environments())


def _environments() -> dict[str, Any]:
    module = require("metaworld.env_dict", "metaworld", "a metaworld: task")
    environments: dict[str, Any] = module.ALL_V3_ENVIRONMENTS
    return environments


class MetaworldSimulation:
    """A Meta-World task.

    Args:
        name: One of `task_names()`.
        size: Side of the pictures.
        quality: "full" or "fast".
    """

    def __init__(self, name: str, *, size: int, quality: Quality) -> None:
        self._env = _environments()[name + _SUFFIX]()
        self._env.model.camera(_CAMERA).pos = _CAMERA_POSITION
        self._env.max_path_length = _HORIZON
        # Without a list of tasks to pick from, an environment draws its goals itself, from its own
        # generator instead of NumPy's global one, and shows them in its vector observation.
        self._env._set_task_called = True
        self._env._freeze_rand_vec = False
        self._env.seeded_rand_vec = True
        self._env._partially_observable = False
        self._env.__dict__.pop("sawyer_observation_space", None)  # cached for hidden goals
        self._camera = Camera(size, _CAMERA, quality)
        self.low, self.high = np.full(4, -1.0), np.full(4, 1.0)
        self.horizon: int | None = _HORIZON
        self.feature_count = 39
        self.success_at_start: bool | None = False
        self.versions = {name: version(name) for name in ("metaworld", "mujoco")}
        self._observation: NDArray[np.float64] = np.zeros(0)

    def reset(self, seed: int | None) -> None:
        """Begins an episode with a newly drawn goal."""
        if seed is not None:
            self._env.seed(seed)
        self._observation, _ = self._env.reset()

    def step(self, action: NDArray[np.float64]) -> Outcome:
        """One simulator step; its time limit is no termination."""
        self._observation, reward, _, truncated, info = self._env.step(action)
        return Outcome(float(reward), 1.0, bool(truncated), bool(info["success"]))

    def draw(self, out: Pixels) -> None:
        """Draws the camera, which hangs upside down: turned by half a turn it is upright."""
        self._camera.draw(self._env.model, self._env.data, out[:, ::-1, ::-1])

    def behind(self) -> NDArray[np.bool_]:
        """Where only sky or floor is seen."""
        return self._camera.behind(self._env.model, self._env.data)[::-1, ::-1]

    def state(self) -> NDArray[np.float64]:
        """Positions and velocities, then the goal."""
        env = self._env
        return np.concatenate([env.data.qpos, env.data.qvel, np.ravel(env._target_pos)])

    def features(self) -> NDArray[np.float32]:
        """Meta-World's observation of 39 numbers, goal included."""
        return self._observation.astype(np.float32)

    def close(self) -> None:
        """Gives back OpenGL."""
        self._camera.close()
        self._env.close()
