"""Tasks of DeepMind Control, Meta-World and Gymnasium, from pixels or vectors, as `gymnasium.Env`s.

env = make_env("dmc:cheetah_run", seed=1)
observation, info = env.reset()
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from revbis.envs.distractors import (
    GAUSSIAN,
    Distractor,
    PixelNoise,
    Split,
    check_strength,
    parse_background,
)
from revbis.envs.gate import NUMBERS, GatedSimulation
from revbis.envs.instances import INSTANCES, filmed
from revbis.envs.rendering import QUALITIES, Quality, RenderingError, choose_backend
from revbis.envs.state_noise import StateNoise, parse_kinds
from revbis.envs.suite import Suite
from revbis.envs.suites import (
    SUITES,
    check_task,
    check_task_name,
    missing,
    register,
    require_gymnasium,
    suite_of,
    task_names,
)
from revbis.io import schema
from revbis.io.schema import ActionRepeat, FrameStack, NoiseCount, Seed, Side, Strength, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from revbis.envs.environment import TaskEnv


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings:
    """The arguments of `make_env` except for seed and split: valid, and possible together.

    Raises:
        ValueError: If a value is not of its type, or values contradict each other.
    """

    task: Text
    observation: Literal["pixels", "state"]
    pixels: Side
    frame_stack: FrameStack
    action_repeat: ActionRepeat
    quality: Quality
    distractor: Text | None
    distractor_strength: Strength | None
    state_noise: NoiseCount
    state_noise_kind: Text
    reward_gate: bool = False

    def __post_init__(self) -> None:
        check_task_name(self.task)
        schema.validate_fields(self)
        background = self.distractor not in (None, GAUSSIAN)
        if background:
            parse_background(self.distractor)  # first: a misspelt name explains what follows it
        check_strength(self.distractor, self.distractor_strength)
        parse_kinds(self.state_noise_kind)
        if self.observation == "state":
            if self.distractor is not None:
                raise ValueError(
                    "distractors require observation pixels; drop the distractor or use pixels"
                )
            return
        if self.state_noise:
            raise ValueError(
                "state_noise requires observation state; drop state_noise or use state"
            )
        if self.reward_gate:
            raise ValueError(
                "reward_gate requires observation state, where the gate is seen; drop reward_gate "
                "or use state"
            )
        if not suite_of(self.task).drawn_by_mujoco:
            if background:
                raise ValueError(
                    f"{self.task} draws its own images: drop distractor, or set it to gaussian"
                )
            if self.quality != "full":
                raise ValueError(f"{self.task} draws its own images: set quality to full")


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
    state_noise_kind: str = "gaussian",
    reward_gate: bool = False,
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
        distractor: A moving background behind the task, "noise", "shapes", "instance" (another
            instance of the task) or "video:FOLDER", or "gaussian" for independent noise on every
            pixel.
        distractor_strength: Standard deviation of "gaussian", as a share of the full range.
        distractor_split: Which backgrounds or noise: for training or for evaluation.
        observation: "pixels", or "state" for the task's own vector.
        state_noise: Irrelevant numbers that are added to the vector, which a fixed random
            rotation then mixes; 0 for the plain vector.
        state_noise_kind: "gaussian", new at every observation, "walk", which drifts, "instance",
            other instances of the task, "shadow", driven by the agent's actions, or several joined
            by +, each with `state_noise` numbers.
        reward_gate: Multiply rewards by a slow process, of which the vector shows two numbers.

    Raises:
        ValueError: For an unknown task, with the nearest names, or an invalid setting.
        ModuleNotFoundError: If a simulator is not installed, with the line that installs it.
    """
    settings = EnvironmentSettings(
        task=task,
        observation=observation,
        pixels=pixels,
        frame_stack=frame_stack,
        action_repeat=action_repeat,
        quality=quality,
        distractor=distractor,
        distractor_strength=distractor_strength,
        state_noise=state_noise,
        state_noise_kind=state_noise_kind,
        reward_gate=reward_gate,
    )
    seed = schema.convert(seed, Seed, "seed")
    split: Split = schema.convert(distractor_split, Split, "distractor_split")
    suite = suite_of(task)
    require_gymnasium(task)
    from revbis.envs.environment import TaskEnv

    size = settings.pixels if settings.observation == "pixels" else 0
    background = pixel_noise = noise = None
    if settings.distractor_strength is not None:
        pixel_noise = PixelNoise(settings.distractor_strength, size, split=split)
    elif settings.distractor is not None:
        background = make_background(vars(settings), split)
    # Before anything imports MuJoCo. What draws itself may do so without OpenGL.
    with nullcontext() if size and suite.drawn_by_mujoco else suppress(RenderingError):
        choose_backend()
    simulation = suite.make(suite.local_name(task), size=size, quality=settings.quality)
    if settings.reward_gate:
        simulation = GatedSimulation(simulation, split)
    identity: dict[str, Any] = {
        "task": task,
        "observation": settings.observation,
        "action_repeat": settings.action_repeat,
        "versions": simulation.versions,
    }
    if size:
        identity |= {"pixels": size, "frame_stack": settings.frame_stack}
        shown = background or pixel_noise
        identity |= {"quality": settings.quality, "distractor": shown.identity if shown else None}
    if isinstance(simulation, GatedSimulation):
        identity["reward_gate"] = simulation.gate_identity
    if settings.state_noise:
        noise = make_state_noise(vars(settings), simulation.feature_count, split)
        identity["state_noise"] = noise.identity
    return TaskEnv(
        simulation,
        identity=identity,
        seed=seed,
        pixels=size,
        frame_stack=settings.frame_stack,
        action_repeat=settings.action_repeat,
        distractor=background,
        pixel_noise=pixel_noise,
        state_noise=noise,
    )


def make_background(environment: Mapping[str, Any], split: Split) -> Distractor:
    """The moving background of an environment, from the arguments of `make_env`."""
    task, repeat = environment["task"], environment["action_repeat"]
    size, quality = environment["pixels"], environment["quality"]
    return Distractor(
        environment["distractor"],
        size,
        split=split,
        clips=len(INSTANCES[split]),
        clip=lambda number: filmed(task, repeat, split, number, size, quality).views,
    )


def make_state_noise(environment: Mapping[str, Any], features: int, split: Split) -> StateNoise:
    """The irrelevant numbers of an environment, from the arguments of `make_env`."""
    return StateNoise(
        environment["state_noise"],
        environment["state_noise_kind"],
        features,
        task=environment["task"],
        split=split,
        action_repeat=environment["action_repeat"],
        gate=NUMBERS if environment["reward_gate"] else 0,
    )


__all__ = [
    "QUALITIES",
    "SUITES",
    "EnvironmentSettings",
    "Quality",
    "Suite",
    "check_task",
    "make_env",
    "missing",
    "register",
    "suite_of",
    "task_names",
]
