"""The config of a training run: a frozen, validated record with its flags, folder and file.

A config consists of the run's own settings and those of its agent, `Config.agent`. Their names
are distinct, so flags, files and grids are flat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from revbis.agents.registry import agents, resolve
from revbis.agents.settings import AgentSettings
from revbis.envs import EnvironmentSettings
from revbis.envs.suites import imported_by
from revbis.io import schema
from revbis.io.files import shown_path
from revbis.io.schema import (
    ActionRepeat,
    Count,
    Discount,
    FolderName,
    FrameStack,
    NoiseCount,
    Seed,
    Shift,
    Side,
    Strength,
    Text,
    UpTo4096,
)

# A run may resume with other values of these: they do not change what is learned.
SAFE = frozenset(
    ("frames", "checkpoint_every", "keep_checkpoints", "log_every", "out", "device", "threads")
    + ("replay_storage", "tensorboard", "wandb", "compile")
)
# Nor do these, but they matter when runs are compared.
_RESUMABLE = SAFE | {"eval_every", "eval_episodes", "yardstick_every"}
# Settings of earlier versions, which changed no result: they are dropped when a config is read.
_RETIRED = frozenset(("prefetch",))


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a run, without its agent's; the most common ones come first.

    Raises:
        ValueError: If a value is not of its type or out of range.
    """

    task: Annotated[Text, tyro.conf.arg(help_behavior_hint="(required)")]
    """dmc:NAME, metaworld:NAME, gym:ID or package.module:factory."""
    method: str = "drqv2"
    """drqv2 alone, or with an objective by name (laws, simsr-rev, ...), or another agent: taco,
    tdmpc, mrq or dreamerv3."""
    preset: Literal["paper", "cpu"] = "paper"
    """Source of the defaults: paper (for GPUs) or cpu (smaller in every dimension)."""
    seed: Seed = 1
    """Seed of everything random in the run."""
    name: FolderName | None = None
    """Keeps a run beside others of its method and seed, as with other settings: its folder is
    METHOD+NAME instead of METHOD."""
    frames: Count = 1_000_000
    """Budget, in frames (simulator steps)."""
    out: Path = Path("runs")
    """Folder for runs; a run goes to PRESET/TASK/METHOD/seed-N in it."""
    eval_every: Count = 10_000
    """Frames between evaluations."""
    eval_episodes: Count = 10
    """Episodes per evaluation, with the mean action; twice, if there are distractors or noise."""
    yardstick_every: Count | None = None
    """Frames between measurements of the yardsticks, each at an evaluation; None for none."""
    checkpoint_every: Count = 50_000
    """Frames between checkpoints."""
    keep_checkpoints: Count = 2
    """Number of checkpoints to keep; older ones are deleted."""
    log_every: Count = 1000
    """Frames between lines of train.jsonl."""
    device: Text = "auto"
    """cpu, cuda, cuda:1, mps, or auto for the best one available."""
    threads: UpTo4096 | None = None
    """CPU threads; None for all that are available to this process."""
    observation: Literal["pixels", "state"] = "pixels"
    """Learn from pixels or from the task's state vector."""
    pixels: Side = 84
    """Side of a frame, in pixels."""
    frame_stack: FrameStack = 3
    """Frames in an observation."""
    action_repeat: ActionRepeat = 2
    """Simulator steps per action."""
    quality: Literal["full", "fast"] = "full"
    """full: the simulator's own pixels; fast: no shadows, reflections or multisampling."""
    distractor: Text | None = None
    """Moving background: noise, shapes, instance (another instance of the task) or video:FOLDER; or
    gaussian noise on every pixel."""
    distractor_strength: Strength | None = None
    """Standard deviation of the gaussian distractor, as a share of the full range (255)."""
    state_noise: NoiseCount = 0
    """Irrelevant numbers added to the state vector, before a fixed rotation mixes them."""
    state_noise_kind: Text = "gaussian"
    """gaussian: new at every observation; walk: drifting, correlated over about 20 actions;
    instance: other instances of the task; shadow: driven by the agent's actions. Several, joined
    by +, each have --state-noise numbers."""
    reward_gate: bool = False
    """Multiply rewards by a slow process, of which the state vector shows two numbers."""
    n_step: UpTo4096 = 3
    """Agent steps per transition."""
    discount: Discount = 0.99
    """Discount factor per agent step."""
    update_every: Count = 2
    """Agent steps between updates."""
    replay_capacity: Count = 1_000_000
    """Capacity of the replay buffer, in single frames."""
    replay_storage: Literal["ram", "disk"] = "ram"
    """Where the replay buffer keeps its frames."""
    shift: Shift = 4
    """Largest random shift of the images, in pixels."""
    tensorboard: bool = True
    """Also write TensorBoard files, if tensorboard is installed."""
    wandb: Text | None = None
    """Weights & Biases project to log to as well; also works offline."""

    def __post_init__(self) -> None:
        schema.validate_fields(self, RunSettings)


RUN_SETTINGS = frozenset(each.name for each in fields(RunSettings))


@dataclass(frozen=True, kw_only=True)
class Config(RunSettings):
    """A training run. Frames are simulator steps; an agent step is `action_repeat` frames.

    Attributes:
        agent: The agent's settings; the method determines their class and their objective.
    """

    agent: AgentSettings

    @property
    def directory(self) -> Path:
        """The run's own folder."""
        variant = self.agent.variant and f"-{self.agent.variant}"
        named = (self.task, self.method + variant)
        task, method = (re.sub("[:/]", "-", name) for name in named)
        name = "" if self.name is None else f"+{self.name}"
        return self.out / self.preset / task / f"{method}{name}" / f"seed-{self.seed}"

    @property
    def system(self) -> str:
        """The method, with the variant of its agent if there are several."""
        variant = self.agent.variant
        return f"{self.method}[{variant}]" if variant else self.method

    @property
    def label(self) -> str:
        """The method and its variant, with the run's name if it has one."""
        return self.system if self.name is None else f"{self.system} ({self.name})"

    @property
    def environment(self) -> dict[str, Any]:
        """The arguments of `make_env`, except for the seed."""
        return {each.name: getattr(self, each.name) for each in fields(EnvironmentSettings)}

    @property
    def splits(self) -> tuple[Literal["eval", "train"], ...]:
        """The variants that evaluations are on: both kinds if there are any, else one."""
        disturbed = self.distractor is not None or self.state_noise > 0 or self.reward_gate
        return ("eval", "train") if disturbed else ("eval",)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(C, H, W) of stacked frames; (1,) for vectors, whose length depends on the task."""
        if self.observation == "state":
            return (1,)
        return (3 * self.frame_stack, self.pixels, self.pixels)

    @property
    def code(self) -> tuple[str, ...]:
        """The user's own code that it names, of the task, the agent and its objectives."""
        named = (imported_by(self.task), resolve(self.method).factory, *self.agent.code)
        return tuple(name for name in named if name is not None)

    def as_dict(self) -> dict[str, Any]:
        """All settings by the names of their flags, in JSON types."""
        values = asdict(self)
        agent = values.pop("agent")
        agent.pop("objective", None)  # it follows from the method
        values |= {name: list(v) if isinstance(v, tuple) else v for name, v in agent.items()}
        return values | {"out": str(self.out)}

    def effective(self) -> dict[str, Any]:
        """The settings of `as_dict` that have an effect for the method."""
        without = resolve(self.method).without.keys() | self.agent.idle.keys()
        return {name: value for name, value in self.as_dict().items() if name not in without}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """The config from the values that `as_dict` returns.

        Raises:
            ValueError: For unknown names or wrong values.
        """
        named = isinstance(values, Mapping) and "method" in values
        method = resolve(values["method"] if named else RunSettings.method)
        values = schema.check_keys(values, RUN_SETTINGS | method.agent.flags, "the config")
        agent = {name: values.pop(name) for name in method.agent.flags & values.keys()}
        return cls(**values, agent=method.settings(**agent))

    def with_seed(self, seed: int) -> Config:
        """The same run with another seed; fast, as nothing else is checked again."""
        other = copy(self)
        object.__setattr__(other, "seed", schema.convert(seed, Seed, "seed"))
        return other

    @property
    def kind(self) -> tuple[object, ...]:
        """What it shares with its copies by `with_seed`; a key for as long as one of them lives."""
        own = (value for name, value in vars(self).items() if name not in ("seed", "agent"))
        return (*own, id(self.agent))

    def with_settings(self, **settings: Any) -> Config:
        """The same run with other values of some settings, its own or its agent's.

        With another method, settings that the new agent does not have are dropped, and those that
        one of the two methods requires follow the new one.

        Raises:
            ValueError: For unknown names, wrong values, or settings without effect for the method.
        """
        values = self.as_dict()
        if "method" in settings:
            before, now = resolve(self.method), resolve(settings["method"])
            dropped = before.agent.flags - now.agent.flags | before.defaults.keys()
            values = {k: v for k, v in values.items() if k not in dropped} | now.defaults
        config = Config.from_dict(values | settings)
        check_effective((k for k, v in settings.items() if v is not None), config)
        return config

    @classmethod
    def from_saved(cls, values: dict[str, Any]) -> Config:
        """The config from the values that `as_dict` returned, also in an earlier version of revbis.

        Raises:
            ValueError: For unknown names or wrong values.
        """
        values = {name: value for name, value in values.items() if name not in _RETIRED}
        if "mixed_precision" in values:  # until 0.1.0
            mixed = values.pop("mixed_precision")
            values["precision"] = "bfloat16" if mixed else "float32"
        return cls.from_dict(values)

    @classmethod
    def from_json(cls, content: bytes) -> Config:
        """The config from the content of a config.json, also of an earlier version of revbis.

        Raises:
            ValueError: If it is not a config.
        """
        try:
            return cls.from_saved(schema.parse_json(content, dict[str, Any], "it"))
        except (ValueError, TypeError) as problem:
            raise ValueError(f"not a revbis config: {problem}") from None

    @classmethod
    def read(cls, path: Path) -> Config:
        """The config in a run's config.json.

        Raises:
            ValueError: If there is none, or this version of revbis cannot read it.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            there = path.parent.exists()
            what = f"is not a run: it has no {path.name}" if there else "does not exist"
            raise ValueError(
                f"{shown_path(path.parent)} {what}; pass a run's folder, such as "
                "runs/cpu/TASK/METHOD/seed-1"
            ) from None
        try:
            return cls.from_json(content)
        except ValueError as problem:
            raise ValueError(f"{shown_path(path)} is {problem}") from None


@dataclass(frozen=True)
class Change:
    """A setting whose value differs from the one that the run was started with."""

    name: str
    before: Any
    now: Any

    @property
    def safe(self) -> bool:
        """Whether the run can resume with the new value."""
        return self.name in _RESUMABLE

    def __str__(self) -> str:
        return f"--{self.name.replace('_', '-')} was {self.before}, now {self.now}"


def setting_names() -> frozenset[str]:
    """The names of all settings, of runs and of every agent."""
    return RUN_SETTINGS.union(*(agent.flags for agent in agents()))


def check_effective(names: Iterable[str], config: Config) -> None:
    """Refuses settings that an agent has, but that have no effect in this run.

    Raises:
        ValueError: For the first of them.
    """
    method, idle = config.method, config.agent.idle
    without = resolve(method).without
    for name in names:
        if name in without:
            raise ValueError(
                f"{name} would change nothing: {method} has no {without[name]}; leave it out, or "
                "choose a method that has one"
            )
        if name in idle:
            raise ValueError(
                f"{name} would change nothing: it needs {idle[name]}; leave it out, or set that too"
            )


def changes(before: Config, now: Config) -> list[Change]:
    """Every setting that differs, except for those without effect."""
    old, new = before.effective(), now.effective()
    names = [*new, *(name for name in old if name not in new)]
    pairs = [(name, old.get(name), new.get(name)) for name in names]
    return [Change(*pair) for pair in pairs if pair[1] != pair[2]]
