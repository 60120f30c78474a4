"""Tasks in pixels from DeepMind Control, Meta-World and Gymnasium, as `gymnasium.Env`s.

env = make_env("dmc:cheetah_run", seed=1)
observation, info = env.reset()
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal

from revbis.envs.rendering import QUALITIES, Quality, RenderingError, choose_backend
from revbis.envs.suite import Suite
from revbis.envs.suites import (
    SUITES,
    check_name,
    check_task,
    missing,
    register,
    require_gymnasium,
    suite_of,
    task_names,
)
from revbis.io import schema

if TYPE_CHECKING:
    from revbis.envs.distractors import Distractor, PixelNoise
    from revbis.envs.environment import TaskEnv
    from revbis.envs.suite import Simulation

_MOST_PIXELS, _MOST_FRAMES, _MOST_REPEATS = 2048, 100, 1000


def make_env(
    task: str,
    *,
    seed: int,
    pixels: int = 84,
    frame_stack: int = 3,
    action_repeat: int = 2,
    quality: Quality = "full",
    distractor: str | None = None,
    distractor_strength: float | None = None,
    distractor_split: Literal["train", "eval"] = "train",
    observation: Literal["pixels", "state"] = "pixels",
    state_noise: int = 0,
    state_noise_kind: Literal["gaussian", "walk"] = "gaussian",
) -> TaskEnv:
    """Makes an environment by the name of its task.

    Args:
        task: `dmc:cheetah_run`, `dmc:reach_duplo`, `metaworld:hammer`, `gym:CarRacing-v3`, or
            `package.module:factory` for a function that returns a `gymnasium.Env`.
        seed: Seed of the first episode and those after it, unless `reset` is given one.
        pixels: Side of a frame.
        frame_stack: Frames in an observation.
        action_repeat: Simulator steps per action; their rewards are summed.
        quality: "full" gives the simulator's own pixels; "fast" omits shadows, reflections and
            multisampling, which is many times faster with software OpenGL.
        distractor: A moving background behind the task, "noise", "shapes" or "video:FOLDER", or
            "gaussian" for independent noise on every pixel.
        distractor_strength: Standard deviation of "gaussian", as a share of the full range.
        distractor_split: Which backgrounds or noise: for training or for evaluation.
        observation: "pixels", or "state" for the task's own vector.
        state_noise: Irrelevant numbers that are added to the vector, which a fixed random
            rotation then mixes; 0 for the plain vector.
        state_noise_kind: "gaussian", new at every observation, or "walk", which drifts.

    Raises:
        ValueError: For an unknown task, with the nearest names, or an invalid setting.
        ModuleNotFoundError: If a simulator is not installed, with the line that installs it.
    """
    schema.choice(quality, QUALITIES, "quality")
    schema.choice(observation, ("pixels", "state"), "observation")
    schema.choice(distractor_split, ("train", "eval"), "distractor_split")
    frame_stack = schema.integer(frame_stack, "frame_stack", 1, _MOST_FRAMES)
    action_repeat = schema.integer(action_repeat, "action_repeat", 1, _MOST_REPEATS)
    pixels = schema.integer(pixels, "pixels", 8, _MOST_PIXELS)
    seed = schema.integer(seed, "seed", 0)
    if seed >= 2**32:
        raise ValueError(f"seed must be below 2**32, got {seed}")
    _check_distractor(distractor, distractor_strength, observation)
    state_noise = _check_state_noise(state_noise, state_noise_kind, observation)
    check_name(task)
    require_gymnasium(task)
    from revbis.envs.environment import TaskEnv
    from revbis.envs.state_noise import StateNoise

    size = pixels if observation == "pixels" else 0
    background, pixel_noise = _disturbances(
        distractor, distractor_strength, pixels, distractor_split
    )
    simulation = _simulation(task, size, quality, background is not None)
    identity: dict[str, Any] = {
        "task": task,
        "observation": observation,
        "action_repeat": action_repeat,
        "versions": simulation.versions,
    }
    if size:
        identity |= {"pixels": pixels, "frame_stack": frame_stack, "quality": quality}
        shown = background or pixel_noise
        identity["distractor"] = shown.identity if shown else None
    noise = None
    if state_noise:
        length = simulation.feature_count
        noise = StateNoise(state_noise, state_noise_kind, length, task=task, split=distractor_split)
        identity["state_noise"] = noise.identity
    return TaskEnv(
        simulation,
        identity=identity,
        seed=seed,
        pixels=size,
        frame_stack=frame_stack,
        action_repeat=action_repeat,
        distractor=background,
        pixel_noise=pixel_noise,
        state_noise=noise,
    )


def _check_distractor(distractor: str | None, strength: float | None, observation: str) -> None:
    """Refuses a distractor that the observations cannot have."""
    from revbis.envs.distractors import SPECS, check_strength

    if not isinstance(distractor, str | None):
        raise ValueError(f"distractor must be one of {', '.join(SPECS)}, got {distractor!r:.80}")
    if distractor is not None and observation == "state":
        raise ValueError('a distractor needs pixels; omit it with observation="state"')
    check_strength(distractor, strength)


def _check_state_noise(state_noise: int, kind: str, observation: str) -> int:
    """Refuses numbers that the observations cannot have; returns how many there are."""
    from revbis.envs.state_noise import KINDS, MOST

    schema.choice(kind, KINDS, "state_noise_kind")
    numbers = schema.integer(state_noise, "state_noise", 0, MOST)
    if numbers and observation == "pixels":
        raise ValueError('state_noise needs observation="state"; omit it with pixels')
    return numbers


def _disturbances(
    distractor: str | None, strength: float | None, pixels: int, split: Literal["train", "eval"]
) -> tuple[Distractor | None, PixelNoise | None]:
    """The background or the pixel noise that a distractor is."""
    from revbis.envs.distractors import Distractor, PixelNoise

    if distractor is None:
        return None, None
    if strength is not None:
        return None, PixelNoise(strength, pixels, split=split)
    return Distractor(distractor, pixels, split=split), None


def _simulation(task: str, size: int, quality: Quality, background: bool) -> Simulation:
    suite = suite_of(task)
    if size and not suite.drawn_by_mujoco and (quality != "full" or background):
        able = " and ".join(f"{each.name}:" for each in SUITES.values() if each.drawn_by_mujoco)
        option = "distractors other than gaussian are" if background else 'quality="fast" is'
        raise ValueError(f"{task} draws its own images: {option} for {able} tasks")
    # Before anything imports MuJoCo. What draws itself may do so without OpenGL.
    with nullcontext() if size and suite.drawn_by_mujoco else suppress(RenderingError):
        choose_backend()
    return suite.make(suite.local_name(task), size=size, quality=quality)


__all__ = [
    "QUALITIES",
    "SUITES",
    "Quality",
    "Suite",
    "check_task",
    "make_env",
    "missing",
    "register",
    "suite_of",
    "task_names",
]
