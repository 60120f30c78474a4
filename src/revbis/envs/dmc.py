"""DeepMind Control: the suite's tasks and the manipulation suite's vision tasks."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.envs.rendering import Camera
from revbis.envs.suite import SimulationStep, Suite
from revbis.io.plugins import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from revbis.envs.rendering import Pixels, Quality

# Those of 1.0.28 and of 1.0.50; a test compares them with what is installed.
_TASKS = """
    acrobot_swingup acrobot_swingup_sparse ball_in_cup_catch cartpole_balance
    cartpole_balance_sparse cartpole_swingup cartpole_swingup_sparse cartpole_three_poles
    cartpole_two_poles cheetah_run dog_fetch dog_run dog_stand dog_trot dog_walk finger_spin
    finger_turn_easy finger_turn_hard fish_swim fish_upright hopper_hop hopper_stand
    humanoid_CMU_run humanoid_CMU_stand humanoid_CMU_walk humanoid_run humanoid_run_pure_state
    humanoid_stand humanoid_walk lift_brick lift_large_box lqr_lqr_2_1 lqr_lqr_6_2
    manipulator_bring_ball manipulator_bring_peg manipulator_insert_ball manipulator_insert_peg
    pendulum_swingup place_brick place_cradle point_mass_easy point_mass_hard quadruped_escape
    quadruped_fetch quadruped_run quadruped_walk reach_duplo reach_site reacher_easy
    reacher_hard reassemble_3_bricks_fixed_order reassemble_5_bricks_random_order stack_2_bricks
    stack_2_bricks_moveable_base stack_2_of_3_bricks_random_order stack_3_bricks stacker_stack_2
    stacker_stack_4 swimmer_swimmer15 swimmer_swimmer6 walker_run walker_stand walker_walk
"""
_VISION, _FEATURES = "_vision", "_features"
_MANIPULATION_CAMERA = "front_close"
# A camera that follows the body: the one that pixel benchmarks use.
_CAMERAS = {"quadruped": 2}
# Drawn when loaded (springs), or kept from episode to episode (orders): a seed loads them anew.
_LOADED_BY_SEED = ("lqr_", "_random_order")
_UNBOUNDED = 1e6  # lqr's actions are bounded by 1e10, which is no scale
# The manipulation suite's tasks; an episode has 250 steps there and 1000 in the others.
_SHORT_EPISODES = ("lift_", "place_", "reach_", "reassemble_", "stack_")


def installed_tasks() -> list[str]:
    """The tasks of the installed dm_control, such as `cheetah_run` and `reach_duplo`."""
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
    """A DeepMind Control task; takes what `Suite.make` does."""

    def __init__(self, name: str, *, size: int, quality: Quality) -> None:
        self._name, self._draws = name, size > 0
        self._manipulation = name in _manipulation_tasks()
        domain = "" if self._manipulation else _suite_tasks()[name][0]
        self._loaded_by_seed = any(part in name for part in _LOADED_BY_SEED)
        self._env = self._load(0)
        camera = _MANIPULATION_CAMERA if self._manipulation else _CAMERAS.get(domain, 0)
        self._camera = Camera(size, camera, quality)
        spec = self._env.action_spec()
        low, high = np.broadcast_arrays(spec.minimum, spec.maximum, np.empty(spec.shape))[:2]
        unbounded = np.maximum(np.abs(low), np.abs(high)) > _UNBOUNDED
        self.low, self.high = np.where(unbounded, -1.0, low), np.where(unbounded, 1.0, high)
        self.horizon = _horizon(self._env)
        shapes = [spec.shape for spec in self._env.observation_spec().values()]
        self.feature_count = sum(int(np.prod(shape)) for shape in shapes)
        self.success_at_start: bool | None = None
        self.versions = {name: version(name) for name in ("dm_control", "mujoco")}
        self._observation: Mapping[str, Any] = {}

    def reset(self, seed: int | None) -> None:
        """Starts an episode; a seed sets dm_control's random state as loading with it would."""
        if seed is not None:
            if self._loaded_by_seed:
                self._env = self._load(seed)
            else:
                random = getattr(self._env.task, "random", None)  # of the suite's tasks
                (self._env.random_state if random is None else random).seed(seed)
        self._observation = self._env.reset().observation
        self._camera.refresh(self._env.physics.model.ptr)

    def step(self, action: NDArray[np.float64]) -> SimulationStep:
        """One control step."""
        moment = self._env.step(action)
        self._observation = moment.observation
        reward, discount = float(moment.reward), float(moment.discount)
        return SimulationStep(reward, discount, bool(moment.last()), success=None)

    def draw(self, out: Pixels) -> None:
        """Draws the task's camera."""
        physics = self._env.physics
        self._camera.draw(physics.model.ptr, physics.data.ptr, out)

    def background_mask(self) -> NDArray[np.bool_]:
        """The pixels that show only sky or ground."""
        physics = self._env.physics
        return self._camera.background_mask(physics.model.ptr, physics.data.ptr)

    def state(self) -> NDArray[np.float64]:
        """Positions, velocities and activations."""
        return np.array(self._env.physics.get_state(), dtype=np.float64)

    def features(self) -> NDArray[np.float32]:
        """The task's observations, flattened in their own order."""
        parts = [np.ravel(value) for value in self._observation.values()]
        return np.concatenate(parts).astype(np.float32)

    def close(self) -> None:
        """Releases OpenGL and the physics."""
        self._camera.close()
        if self._manipulation:
            self._env.close()
        else:  # whose close would leave dm_control's own OpenGL context to the end of the process
            self._env.physics.free()

    def _load(self, seed: int) -> Any:
        # dm_control 1.0.28 on NumPy 2, in quadruped tasks; NumPy 2.4 is without it.
        warnings.filterwarnings("ignore", "`in1d` is deprecated", DeprecationWarning)
        if not self._manipulation:
            from dm_control import suite

            return suite.load(*_suite_tasks()[self._name], task_kwargs={"random": seed})
        from dm_control import manipulation

        # Not the variant with vision, which would draw its camera's image while it is loaded.
        env = manipulation.load(self._name + _FEATURES, seed=seed)
        if self._draws:  # then nobody reads the vectors
            for observable in env.task.observables.values():
                observable.enabled = False
        return env


def _horizon(env: Any) -> int | None:
    limit = getattr(env, "_step_limit", None)
    if limit is None:
        limit = env._time_limit / env.control_timestep()  # noqa: SLF001
    return int(np.ceil(limit)) if np.isfinite(limit) else None


def _score_bounds(name: str) -> tuple[float, float]:
    """A simulator step earns a reward between 0 and 1."""
    return 0.0, 250.0 if name.startswith(_SHORT_EPISODES) else 1000.0


# DrQ-v2 on clean pixels, near 1M frames: read off its published learning curves.
_PUBLISHED = {"cartpole_swingup": 865.0, "walker_walk": 767.0, "cheetah_run": 729.0}

SUITE = Suite(
    name="dmc",
    form="dmc:NAME",
    description="DeepMind Control: its suite and the manipulation tasks",
    make=DmcSimulation,
    example="dmc:cheetah_run",
    modules=("gymnasium", "mujoco", "dm_control.suite"),
    extra="dmc",
    tasks=tuple(_TASKS.split()),
    drawn_by_mujoco=True,
    bounds=_score_bounds,
    published=_PUBLISHED,
)
