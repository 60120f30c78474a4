"""What a training run is: one flat, frozen, validated record; its flags, its folder, its file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from revbis import checks
from revbis.agents.settings import AgentSettings

# A run may be taken up again with another value of these: they do not change what is learned.
SAFE = frozenset(
    ("frames", "checkpoint_every", "keep_checkpoints", "log_every", "out", "device", "threads")
    + ("replay_storage", "tensorboard", "wandb", "compile")
)
_COUNTS = (
    ("frames", "eval_every", "eval_episodes", "checkpoint_every", "keep_checkpoints", "log_every")
    + ("pixels", "frame_stack", "action_repeat", "batch_size", "n_step", "update_every")
    + ("replay_capacity",)
)


@dataclass(frozen=True, kw_only=True)
class Config(AgentSettings):
    """A training run. Frames are simulator steps: an agent step is `action_repeat` of them.

    Raises:
        ValueError: If a value is out of range.
    """

    task: str
    """dmc:NAME, metaworld:NAME, gym:ID or package.module:factory."""
    preset: str = "paper"
    """Where defaults come from: paper (for GPUs) or cpu (smaller in every dimension)."""
    seed: int = 1
    """Seed of everything random in the run."""
    frames: int = 1_000_000
    """Budget, in frames."""
    eval_every: int = 10_000
    """Frames between evaluations."""
    eval_episodes: int = 10
    """Episodes of an evaluation, with the mean action."""
    checkpoint_every: int = 50_000
    """Frames between checkpoints."""
    keep_checkpoints: int = 2
    """Checkpoints kept; older ones are deleted."""
    log_every: int = 1000
    """Frames between lines of train.jsonl."""
    out: Path = Path("runs")
    """Folder for runs; a run's own folder below it follows from preset, task, method and seed."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps, or auto for the best there is."""
    threads: int | None = None
    """Threads of the CPU to use; all that this process may use when not given."""
    observation: Literal["pixels", "state"] = "pixels"
    """Learn from pixels or from the task's own vector."""
    pixels: int = 84
    """Side of a frame, in pixels."""
    frame_stack: int = 3
    """Frames in an observation."""
    action_repeat: int = 2
    """Simulator steps for one action, in frames."""
    quality: Literal["full", "fast"] = "full"
    """full: the simulator's own pixels; fast: no shadows, reflections or multisampling."""
    distractor: str | None = None
    """Moving background behind the task: noise, shapes or video:FOLDER."""
    batch_size: int = 1024
    """Transitions in an update."""
    n_step: int = 3
    """Agent steps in a transition."""
    discount: float = 0.99
    """Discount factor of an agent step."""
    update_every: int = 2
    """Agent steps between updates."""
    replay_capacity: int = 1_000_000
    """Single frames the replay buffer holds."""
    replay_storage: Literal["ram", "disk"] = "ram"
    """Where the replay buffer keeps its frames."""
    shift: int = 4
    """Largest random shift of images, in pixels."""
    tensorboard: bool = True
    """Write TensorBoard files too, where tensorboard is installed."""
    wandb: str | None = None
    """Weights & Biases project to log to as well; works offline."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _COUNTS:
            checks.whole(getattr(self, name), name, 1)
        checks.whole(self.seed, "seed", 0)
        checks.whole(self.shift, "shift", 0)
        checks.discount(self.discount, "discount")
        checks.choice(self.observation, ("pixels", "state"), "observation")
        checks.choice(self.quality, ("full", "fast"), "quality")
        checks.choice(self.replay_storage, ("ram", "disk"), "replay_storage")
        if self.threads is not None:
            checks.whole(self.threads, "threads", 1)

    @property
    def directory(self) -> Path:
        """The run's own folder."""
        task = self.task.replace(":", "-").replace("/", "-")
        return self.out / self.preset / task / self.method / f"seed-{self.seed}"

    @property
    def agent(self) -> AgentSettings:
        """The part that is the agent's."""
        return AgentSettings(**{f.name: getattr(self, f.name) for f in fields(AgentSettings)})

    @property
    def environment(self) -> dict[str, Any]:
        """The part that `make_env` takes, but for the seed."""
        names = ("task", "observation", "pixels", "frame_stack", "action_repeat", "quality")
        return {name: getattr(self, name) for name in (*names, "distractor")}

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        values = asdict(self)
        return values | {"out": str(self.out), "strides": list(self.strides)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """The config that `as_dict` gave.

        Raises:
            ValueError: For unknown names or wrong values.
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown settings {', '.join(unknown)}: not made by this revbis")
        values = values | {"out": Path(values["out"]), "strides": tuple(values["strides"])}
        return cls(**values)

    @classmethod
    def read(cls, path: Path) -> Config:
        """The config in a run's config.json."""
        try:
            return cls.from_dict(json.loads(path.read_text()))
        except FileNotFoundError:
            raise ValueError(f"{path.parent} is no run: it has no {path.name}") from None
        except (json.JSONDecodeError, KeyError, TypeError) as problem:
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
        return self.name in SAFE

    def __str__(self) -> str:
        return f"--{self.name.replace('_', '-')} was {self.before}, now {self.now}"


def changes(before: Config, now: Config) -> list[Change]:
    """Every setting that differs."""
    old, new = before.as_dict(), now.as_dict()
    return [Change(name, old[name], new[name]) for name in new if old[name] != new[name]]
