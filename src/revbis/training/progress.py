"""The progress of a run: counters, the running episode, averages, and its status."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from revbis.schema import CountOrZero, EvaluationLine, Seed


@dataclass
class Progress:
    """Counters of a run.

    Attributes:
        frames: Simulator steps.
        agent_steps: Actions.
        updates: Updates.
        episodes: Finished episodes.
        evaluations: Evaluations.
        largest_reward: Largest absolute reward of an agent step.
    """

    frames: CountOrZero = 0
    agent_steps: CountOrZero = 0
    updates: CountOrZero = 0
    episodes: CountOrZero = 0
    evaluations: CountOrZero = 0
    largest_reward: float = 0.0


@dataclass
class RunningEpisode:
    """An unfinished episode; its seed and its actions reproduce it.

    Attributes:
        seed: Seed of its reset.
        actions: Actions so far.
        total: Sum of rewards so far.
        observation: The current observation.
    """

    seed: int
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    total: float = 0.0
    observation: NDArray[Any] = field(default_factory=lambda: np.zeros(0))


class SavedEpisode(TypedDict):
    """The running episode in a checkpoint."""

    seed: Seed
    actions: list[list[float]]
    total: float
    observation: str


class SavedRecords(TypedDict):
    """A run's records in a checkpoint."""

    evaluations: list[EvaluationLine]
    alarms: list[dict[str, Any]]
    train_bytes: CountOrZero


class SavedState(TypedDict):
    """The content of a checkpoint's state.json, except for the replay buffer's state."""

    progress: Progress
    seconds: dict[str, float]
    records: SavedRecords
    raised: list[str]
    last_return: float | None
    episode: SavedEpisode | None


@dataclass(frozen=True)
class Status:
    """What the progress line shows.

    Attributes:
        progress: Counters.
        last_return: Return of the last training episode.
        last_evaluation: Mean return of the last evaluation.
        agent: The agent's status, such as the coefficient c.
        seconds: Seconds by phase.
        frames_per_second: Since this process started.
    """

    progress: Progress
    last_return: float | None
    last_evaluation: float | None
    agent: dict[str, float]
    seconds: dict[str, float]
    frames_per_second: float


class Averages:
    """Means of the metrics of several updates; they stay tensors until `take`."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing was added since the last `take`."""
        return not self._sums

    def add(self, metrics: dict[str, torch.Tensor]) -> None:
        """Adds the metrics of one update."""
        for name, value in metrics.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Returns the means and resets them."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


def saved_episode(episode: RunningEpisode) -> SavedEpisode:
    """An episode as a checkpoint stores it, in JSON types."""
    return {
        "seed": episode.seed,
        "actions": [action.tolist() for action in episode.actions],
        "total": episode.total,
        "observation": digest_of(episode.observation),
    }


def digest_of(observation: NDArray[Any]) -> str:
    """A checksum of an observation."""
    return hashlib.blake2b(observation.tobytes(), digest_size=16).hexdigest()
