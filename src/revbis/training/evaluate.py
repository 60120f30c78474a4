"""Playing episodes with the mean action."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from revbis.agents import Agent
    from revbis.envs.environment import TaskEnv

Watch = Callable[[NDArray[Any], dict[str, Any]], None]


@dataclass(frozen=True)
class Episode:
    """One episode's outcome.

    Attributes:
        total: Sum of rewards.
        frames: Simulator steps it lasted.
        success_any: The goal was met at some step; None where a task has no such notion.
        success_last: The goal was met at the last step.
    """

    total: float
    frames: int
    success_any: bool | None
    success_last: bool | None


def play(agent: Agent, env: TaskEnv, seed: int, watch: Watch | None = None) -> Episode:
    """One episode with the mean action; it draws no random number of the agent's.

    Args:
        agent: Acts.
        env: Is acted in.
        seed: Of the episode.
        watch: Called with every action taken (and the info that followed it).
    """
    observation, info = env.reset(seed=seed)
    agent.begin_episode()
    total, over = 0.0, False
    while not over:
        action = agent.act(observation, 0, explore=False)
        observation, reward, terminated, truncated, info = env.step(action)
        total += reward
        over = terminated or truncated
        if watch is not None:
            watch(action, info)
    return Episode(total, info["frames"], info["success_any"], info["success_last"])


def evaluate(agent: Agent, env: TaskEnv, seeds: Iterable[int]) -> list[Episode]:
    """One episode for each seed."""
    return [play(agent, env, seed) for seed in seeds]


def episode_seed(run_seed: int, *stream: int) -> int:
    """A seed for one episode: a function of the run's seed and of where the episode stands.

    Episodes therefore do not depend on what was played before them, and a resumed run needs no
    simulator state at their boundaries.
    """
    words = np.random.SeedSequence([run_seed, *stream]).generate_state(1)
    return int(words[0])
