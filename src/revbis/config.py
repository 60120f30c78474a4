"""What a training run is: a frozen, validated record; its flags, its folder, its file.

A run has settings of its own and those of its agent, `Config.agent`. Their names are distinct:
flags, files and grids are flat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from revbis import schema
from revbis.agents.registry import agents, resolve
from revbis.agents.settings import AgentSettings
from revbis.schema import Count, Discount, Few, Seed, Shift, Text

# A run may be taken up again with another value of these: they do not change what is learned.
SAFE = frozenset(
    ("frames", "checkpoint_every", "keep_checkpoints", "log_every", "out", "device", "threads")
    + ("replay_storage", "tensorboard", "wandb", "compile")
)
# Nor do these, but a comparison of runs must know them.
_RESUMABLE = SAFE | {"eval_every", "eval_episodes"}


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a run that are not its agent's; what every user sets comes first.

    Raises:
        ValueError: If a value is not of its type or out of range.
    """

    task: Annotated[Text, tyro.conf.arg(help_behavior_hint="(required)")]
    """dmc:NAME, metaworld:NAME, gym:ID or package.module:factory."""
    method: str = "drqv2"
    """drqv2 alone, or with an objective by name: mico, simsr, mico-rev, simsr-rev, ..."""
    preset: Literal["paper", "cpu"] = "paper"
    """Where defaults come from: paper (for GPUs) or cpu (smaller in every dimension)."""
    seed: Seed = 1
    """Seed of everything random in the run."""
    frames: Count = 1_000_000
    """Budget, in frames."""
    out: Path = Path("runs")
    """Folder for runs; a run's own folder below it follows from preset, task, method and seed."""
    eval_every: Count = 10_000
    """Frames between evaluations."""
    eval_episodes: Count = 10
    """Episodes of an evaluation, with the mean action."""
    checkpoint_every: Count = 50_000
    """Frames between checkpoints."""
    keep_checkpoints: Count = 2
    """Checkpoints kept; older ones are deleted."""
    log_every: Count = 1000
    """Frames between lines of train.jsonl."""
    device: Text = "auto"
    """cpu, cuda, cuda:1, mps, or auto for the best there is."""
    threads: Few | None = None
    """CPU threads; None uses all that this process may use."""
    observation: Literal["pixels", "state"] = "pixels"
    """Learn from pixels or from the task's own vector."""
    pixels: Few = 84
    """Side of a frame, in pixels."""
    frame_stack: Few = 3
    """Frames in an observation."""
    action_repeat: Few = 2
    """Simulator steps for one action, in frames."""
    quality: Literal["full", "fast"] = "full"
    """full: the simulator's own pixels; fast: no shadows, reflections or multisampling."""
    distractor: Text | None = None
    """Moving background behind the task: noise, shapes or video:FOLDER."""
    n_step: Few = 3
    """Agent steps in a transition."""
    discount: Discount = 0.99
    """Discount factor of an agent step."""
    update_every: Count = 2
    """Agent steps between updates."""
    replay_capacity: Count = 1_000_000
    """Single frames the replay buffer holds."""
    replay_storage: Literal["ram", "disk"] = "ram"
    """Where the replay buffer keeps its frames."""
    shift: Shift = 4
    """Largest random shift of images, in pixels."""
    tensorboard: bool = True
    """Write TensorBoard files too, where tensorboard is installed."""
    wandb: Text | None = None
    """Weights & Biases project to log to as well; works offline."""

    def __post_init__(self) -> None:
        schema.settle(self, RunSettings)


RUN_SETTINGS = frozenset(each.name for each in fields(RunSettings))


@dataclass(frozen=True, kw_only=True)
class Config(RunSettings):
    """A training run. Frames are simulator steps: an agent step is `action_repeat` of them.

    Attributes:
        agent: The agent's settings, of the class and with the objective that the method names.
    """

    agent: AgentSettings

    @property
    def directory(self) -> Path:
        """The run's own folder."""
        task, method = (_folder_name(name) for name in (self.task, self.method))
        return self.out / self.preset / task / method / f"seed-{self.seed}"

    @property
    def environment(self) -> dict[str, Any]:
        """The part that `make_env` takes, but for the seed."""
        names = ("task", "observation", "pixels", "frame_stack", "action_repeat", "quality")
        return {name: getattr(self, name) for name in (*names, "distractor")}

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(C, H, W) of stacked frames; (1,) for vectors, whose length only the task knows."""
        if self.observation == "state":
            return (1,)
        return (3 * self.frame_stack, self.pixels, self.pixels)

    def as_dict(self) -> dict[str, Any]:
        """Plain values by the names of their flags, fit for JSON."""
        values = asdict(self)
        agent = values.pop("agent")
        agent.pop("objective", None)  # the method says it
        values |= {name: list(v) if isinstance(v, tuple) else v for name, v in agent.items()}
        return values | {"out": str(self.out)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """The config that `as_dict` gave.

        Raises:
            ValueError: For unknown names or wrong values.
        """
        named = isinstance(values, Mapping) and "method" in values
        method = resolve(values["method"] if named else RunSettings.method)
        values = schema.check_keys(values, RUN_SETTINGS | method.agent.flags, "the config")
        agent = {name: values.pop(name) for name in method.agent.flags & values.keys()}
        return cls(**values, agent=method.settings(**agent))

    def with_settings(self, **settings: Any) -> Config:
        """The same run with other values of its own or its agent's settings.

        Another method keeps the settings that its agent has too.

        Raises:
            ValueError: For unknown names or wrong values.
        """
        values = self.as_dict()
        if "method" in settings:
            before, now = (resolve(each).agent.flags for each in (self.method, settings["method"]))
            values = {name: value for name, value in values.items() if name not in before - now}
        return Config.from_dict(values | settings)

    @classmethod
    def read(cls, path: Path) -> Config:
        """The config in a run's config.json.

        Raises:
            ValueError: If there is none, or it is not one of this revbis.
        """
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{path.parent} is no run: it has no {path.name}") from None
        try:
            return cls.from_dict(schema.parse_json(text, dict[str, Any], "it"))
        except (ValueError, TypeError) as problem:
            raise ValueError(f"{path} is not a revbis config: {problem}") from None


@dataclass(frozen=True)
class Change:
    """A setting whose value differs from the one a run was begun with.

    Attributes:
        name: The setting.
        before: Its value in the run.
        now: The value asked for.
    """

    name: str
    before: Any
    now: Any

    @property
    def safe(self) -> bool:
        """Whether the run can go on with the new value."""
        return self.name in _RESUMABLE

    def __str__(self) -> str:
        return f"--{self.name.replace('_', '-')} was {self.before}, now {self.now}"


def setting_names() -> frozenset[str]:
    """Every setting of a run, and of every agent."""
    return RUN_SETTINGS.union(*(agent.flags for agent in agents()))


def _folder_name(name: str) -> str:
    return name.replace(":", "-").replace("/", "-")


def changes(before: Config, now: Config) -> list[Change]:
    """Every setting that differs."""
    old, new = before.as_dict(), now.as_dict()
    names = [*new, *(name for name in old if name not in new)]
    pairs = [(name, old.get(name), new.get(name)) for name in names]
    return [Change(*pair) for pair in pairs if pair[1] != pair[2]]
