"""Gymnasium environments: registered ones by their ids, and the user's own by their factory."""

from __future__ import annotations

import ast
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from revbis.envs.rendering import Pixels, forget_in_dm_control
from revbis.envs.suite import SimulationStep, Suite
from revbis.io.plugins import load_factory, search_working_folder

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.spaces import Box, Discrete
    from numpy.typing import NDArray

    from revbis.envs.rendering import Quality


def _is_box(space: object) -> TypeGuard[Box]:
    from gymnasium.spaces import Box  # here, so that the names of suites need no Gymnasium

    return isinstance(space, Box)


def is_discrete(space: object) -> TypeGuard[Discrete]:
    """Whether actions are a choice of a few."""
    from gymnasium.spaces import Discrete

    return isinstance(space, Discrete)


def is_image(space: object) -> bool:
    """Whether observations are images: uint8, [height, width], 1 or 3 channels first or last."""
    if not _is_box(space) or space.dtype != np.uint8:
        return False
    shape = space.shape
    return len(shape) == 2 or (len(shape) == 3 and (shape[-1] in (1, 3) or shape[0] in (1, 3)))


class GymSimulation:
    """An environment that draws itself.

    Its image is its observation if that is an image, else what its `render` returns, resized. A
    discrete action is the largest of as many numbers as there are choices.

    Args:
        env: The environment.
        task: Its name, for messages.
        size: Side of the images; 0 if none are drawn.
    """

    def __init__(self, env: Env[Any, Any], task: str, *, size: int) -> None:
        self._env, self._task, self._size = env, task, size
        actions: Any = env.action_space
        problem = action_problem(actions)
        if problem is not None:
            raise ValueError(f"{task}: {problem}")
        self.discrete = is_discrete(actions)
        if self.discrete:
            self.high = np.ones(int(actions.n))
            self.low, self._first = -self.high, int(actions.start)
        else:
            self.low, self.high = actions.low.astype(np.float64), actions.high.astype(np.float64)
        self._dtype = actions.dtype
        self._draws = not is_image(env.observation_space)
        if size and self._draws and env.render_mode != "rgb_array":
            raise ValueError(
                f"{task}: its observations are not images and its render_mode is "
                f'{env.render_mode!r}; make it with render_mode="rgb_array", or use '
                'observation="state"'
            )
        if not size and not _is_vector(env.observation_space):
            raise ValueError(
                f'{task}: observation="state" needs a vector (a one-dimensional Box), got '
                f"{env.observation_space}"
            )
        self.feature_count = int(np.prod(env.observation_space.shape or (0,)))
        self.horizon: int | None = env.spec.max_episode_steps if env.spec else None
        self.success_at_start: bool | None = None
        self.versions = {"gymnasium": version("gymnasium")}
        self._observation: Any = None

    def reset(self, seed: int | None) -> None:
        """Starts an episode."""
        self._observation, _ = self._env.reset(seed=seed)

    def reseed(self, seed: int) -> None:
        """Draws other random numbers from here on."""
        self._env.unwrapped.np_random = np.random.default_rng(seed)

    def step(self, action: NDArray[np.float64]) -> SimulationStep:
        """One step; only its own `terminated` is a termination."""
        taken = action.astype(self._dtype) if not self.discrete else self._chosen(action)
        answer = self._env.step(taken)
        self._observation, reward, terminated, truncated, info = answer
        success = info.get("success", info.get("is_success"))
        return SimulationStep(
            float(reward),
            0.0 if terminated else 1.0,
            bool(terminated or truncated),
            None if success is None else bool(success),
        )

    def draw(self, out: Pixels) -> None:
        """Draws its observation, or what its `render` returns, resized."""
        image = self._rendered() if self._draws else np.asarray(self._observation)
        out[...] = resized(image, self._size)

    def background_mask(self) -> NDArray[np.bool_]:
        """Refused: only MuJoCo's segmentation finds the background."""
        raise ValueError(f"{self._task} draws its own images: its background is not known")

    def state(self) -> NDArray[np.float64]:
        """MuJoCo's positions and velocities, else its vector observation, else nothing."""
        data: Any = getattr(self._env.unwrapped, "data", None)
        if hasattr(data, "qpos") and hasattr(data, "qvel"):
            return np.concatenate([np.ravel(data.qpos), np.ravel(data.qvel)]).astype(np.float64)
        if _is_vector(self._env.observation_space):
            return np.array(self._observation, dtype=np.float64)
        return np.zeros(0)

    def features(self) -> NDArray[np.float32]:
        """Its vector observation."""
        return np.array(self._observation, dtype=np.float32)

    def close(self) -> None:
        """Closes it."""
        self._env.close()

    def _chosen(self, action: NDArray[np.float64]) -> Any:
        return self._dtype.type(self._first + int(action.argmax()))

    def _rendered(self) -> Pixels:
        renderer = getattr(self._env.unwrapped, "mujoco_renderer", None)
        viewer = getattr(renderer, "viewer", None)
        if viewer is not None:  # Gymnasium draws into whichever context is current
            viewer.make_context_current()
        image: Any = self._env.render()
        forget_in_dm_control()
        problem = image_problem(image)
        if problem is not None:
            raise ValueError(f"{self._task}: {problem}")
        pixels: Pixels = image
        return pixels


def image_problem(image: object) -> str | None:
    """What is wrong with what `render` returned, if anything."""
    requirement = "render() must return uint8 [height, width, 3]"
    if not isinstance(image, np.ndarray):
        return f"{requirement}, got {type(image).__name__}"
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3:
        return f"{requirement}, got {image.dtype} {image.shape}"
    return None


def resized(image: Pixels, size: int) -> Pixels:
    """An image in any common layout as [3, size, size]."""
    if image.ndim == 3 and image.shape[0] in (1, 3) and image.shape[-1] not in (1, 3):
        image = image.transpose(1, 2, 0)
    if image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    if image.shape[:2] != (size, size):
        from PIL import Image

        picture = Image.fromarray(np.ascontiguousarray(image))
        image = np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR))
    if image.ndim == 2:
        return np.broadcast_to(image, (3, size, size))
    return image.transpose(2, 0, 1)


def _is_vector(space: object) -> bool:
    return _is_box(space) and len(space.shape) == 1


def action_problem(space: object) -> str | None:
    """What is wrong with an action space, if anything."""
    if is_discrete(space):
        return None if space.n > 1 else f"there must be a choice of actions, got {space}"
    if not _is_box(space) or len(space.shape) != 1 or space.dtype.kind != "f":
        return (
            "actions must be continuous (a one-dimensional Box of floats) or a choice (Discrete), "
            f"got {space}"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return f"actions must have finite bounds, got {space}; give the Box low and high"
    if not (space.low < space.high).all():
        return f"actions must have bounds with low below high, got {space}"
    return None


def make_registered(name: str) -> Env[Any, Any]:
    """A registered environment by its id.

    Raises:
        ValueError: If Gymnasium cannot make it.
        ModuleNotFoundError: If it needs a package that is not installed.
    """
    from gymnasium import error, make

    try:
        return make(name, render_mode="rgb_array")
    except error.DependencyNotInstalled as missing:
        raise ModuleNotFoundError(f"gym:{name} needs another package: {missing}") from None
    except (error.Error, TypeError) as problem:
        raise ValueError(f"gym:{name} cannot be made: {problem}") from None


def _make_registered(name: str, *, size: int, quality: Quality) -> GymSimulation:  # noqa: ARG001
    return GymSimulation(make_registered(name), f"gym:{name}", size=size)


def _check_registered(name: str) -> None:
    if ":" in name:  # registered by a module that must be imported first
        return
    from gymnasium import error, spec

    try:
        spec(name)
    except error.Error as problem:
        raise ValueError(f"gym:{name} cannot be made: {problem}") from None


REGISTERED = Suite(
    name="gym",
    form="gym:ID",
    description="any Gymnasium environment; discrete actions for mrq",
    make=_make_registered,
    example="gym:Pendulum-v1",
    extra="gym",
    check=_check_registered,
    gymnasium_env=make_registered,
)


def make_custom(task: str) -> Env[Any, Any]:
    """The environment that `package.module:factory` returns; searches the working folder too.

    Raises:
        ValueError: If there is no such factory, or it does not return a `gymnasium.Env`.
    """
    from gymnasium import Env

    factory = load_factory(task)
    try:
        signature(factory).bind()
    except TypeError as problem:
        raise ValueError(f"{task}: the factory is called without arguments: {problem}") from None
    env = factory()
    if not isinstance(env, Env):
        raise ValueError(f"{task}: the factory must return a gymnasium.Env, got {type(env)}")
    return env


def _make_environment(name: str, *, size: int, quality: Quality) -> GymSimulation:  # noqa: ARG001
    return GymSimulation(make_custom(name), name, size=size)


def _check_custom(task: str) -> None:
    """Looks for the factory in the module's source; the module is not imported."""
    module, _, factory = task.partition(":")
    search_working_folder()
    try:
        spec = None if module.startswith(".") else find_spec(module)
    except ModuleNotFoundError as absent:
        if absent.name is None or not module.startswith(absent.name):
            raise  # a package around it needs another one
        raise _no_module(task, absent.name) from None
    except Exception:  # noqa: BLE001 (the packages around it are imported, and may raise anything)
        return
    if spec is None:
        raise _no_module(task, module)
    if spec.origin and spec.origin.endswith(".py"):
        names = _bound_names(Path(spec.origin))
        if names is not None and factory not in names:
            raise ValueError(f"{task}: module {module!r} has no function {factory!r}")


def _no_module(task: str, module: str) -> ValueError:
    from revbis.envs.suites import forms  # which has a line for this suite

    return ValueError(
        f"{task}: there is no module {module!r} on sys.path or in {Path.cwd()}; a task is {forms()}"
    )


def _bound_names(path: Path) -> set[str] | None:
    """Every name that a module's source may bind; None if the source does not show them."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    names, called = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
    return None if {"*", "__getattr__", "globals"} & (names | called) else names


CUSTOM = Suite(
    name="",
    form="package.module:factory",
    description="your own: a function that returns a gymnasium.Env",
    make=_make_environment,
    example="package.module:factory",
    extra="gym",
    check=_check_custom,
    gymnasium_env=make_custom,
    # What a step of an unknown task is, only its author knows.
    presets={preset: {"action_repeat": (1, "ours")} for preset in ("paper", "cpu")},
)
