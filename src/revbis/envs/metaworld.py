"""Meta-World: its 50 tasks, seeded, with a goal sampled at each reset and upright images."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.envs.rendering import Camera
from revbis.envs.suite import SimulationStep, Suite
from revbis.io.plugins import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from revbis.envs.rendering import Pixels, Quality

# Those of the pinned version; a test compares them with what is installed.
_TASKS = """
    assembly basketball bin-picking box-close button-press button-press-topdown
    button-press-topdown-wall button-press-wall coffee-button coffee-pull coffee-push dial-turn
    disassemble door-close door-lock door-open door-unlock drawer-close drawer-open faucet-close
    faucet-open hammer hand-insert handle-press handle-press-side handle-pull handle-pull-side
    lever-pull peg-insert-side peg-unplug-side pick-out-of-hole pick-place pick-place-wall
    plate-slide plate-slide-back plate-slide-back-side plate-slide-side push push-back push-wall
    reach reach-wall shelf-place soccer stick-pull stick-push sweep sweep-into window-close
    window-open
"""
_CAMERA = "corner2"
_CAMERA_POSITION = (0.75, 0.075, 0.7)
_SUFFIX = "-v3"
_HORIZON = 500


def installed_tasks() -> list[str]:
    """The tasks of the installed Meta-World, such as `hammer` and `drawer-close`."""
    return sorted(name.removesuffix(_SUFFIX) for name in _environments())


def _environments() -> dict[str, Any]:
    module = require("metaworld.env_dict", "metaworld", "a metaworld: task")
    environments: dict[str, Any] = module.ALL_V3_ENVIRONMENTS
    return environments


class MetaworldSimulation:
    """A Meta-World task; takes what `Suite.make` does."""

    def __init__(self, name: str, *, size: int, quality: Quality) -> None:
        self._env = _environments()[name + _SUFFIX]()
        self._env.model.camera(_CAMERA).pos = _CAMERA_POSITION
        self._env.max_path_length = _HORIZON
        # Without a list of tasks to choose from, an environment samples its goals itself, from its
        # own generator instead of NumPy's global one, and has them in its vector observation.
        self._env._set_task_called = True  # noqa: SLF001
        self._env._freeze_rand_vec = False  # noqa: SLF001
        self._env.seeded_rand_vec = True
        self._env._partially_observable = False  # noqa: SLF001
        self._env.__dict__.pop("sawyer_observation_space", None)  # cached for hidden goals
        self._camera = Camera(size, _CAMERA, quality)
        self.low, self.high = np.full(4, -1.0), np.full(4, 1.0)
        self.horizon: int | None = _HORIZON
        self.feature_count = 39
        self.success_at_start: bool | None = False
        self.versions = {name: version(name) for name in ("metaworld", "mujoco")}
        self._observation: NDArray[np.float64] = np.zeros(0)

    def reset(self, seed: int | None) -> None:
        """Starts an episode with a newly sampled goal."""
        if seed is not None:
            self._env.seed(seed)
        self._observation, _ = self._env.reset()

    def step(self, action: NDArray[np.float64]) -> SimulationStep:
        """One simulator step; its time limit is not a termination."""
        self._observation, reward, _, truncated, info = self._env.step(action)
        return SimulationStep(float(reward), 1.0, bool(truncated), bool(info["success"]))

    def draw(self, out: Pixels) -> None:
        """Draws the camera's image rotated by 180°, because the camera is mounted upside down."""
        self._camera.draw(self._env.model, self._env.data, out[:, ::-1, ::-1])

    def background_mask(self) -> NDArray[np.bool_]:
        """The pixels that show only sky or floor."""
        return self._camera.background_mask(self._env.model, self._env.data)[::-1, ::-1]

    def state(self) -> NDArray[np.float64]:
        """Positions and velocities, then the goal."""
        env = self._env
        return np.concatenate([env.data.qpos, env.data.qvel, np.ravel(env._target_pos)])  # noqa: SLF001

    def features(self) -> NDArray[np.float32]:
        """Meta-World's observation of 39 numbers, goal included."""
        return self._observation.astype(np.float32)

    def close(self) -> None:
        """Releases OpenGL."""
        self._camera.close()
        self._env.close()


SUITE = Suite(
    name="metaworld",
    form="metaworld:NAME",
    description="Meta-World (v3): 50 tasks, scored by success rate",
    make=MetaworldSimulation,
    example="metaworld:hammer",
    modules=("gymnasium", "mujoco", "metaworld.env_dict"),
    extra="metaworld",
    tasks=tuple(_TASKS.split()),
    drawn_by_mujoco=True,
    score="success",
    bounds=lambda _name: (0.0, 1.0),  # a success rate is a share
    presets={"paper": {"noise_steps": (3_000_000, "the paper")}},
)
