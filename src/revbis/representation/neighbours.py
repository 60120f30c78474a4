"""A picture of nearest neighbours under a learned metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from revbis.envs import make_env
from revbis.io.files import atomic_file
from revbis.runs.seeds import Stream, derive_seed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from revbis.agents import Agent
    from revbis.runs.config import Config

_BLOCK = 256


@dataclass(frozen=True)
class Neighbours:
    """Query states, with their nearest and farthest states under the learned distance.

    Attributes:
        queries: Indices of the query states, [Q].
        nearest: Indices of the nearest states at other times, [Q, K].
        distances: Their distances, [Q, K].
        farthest: Index of the farthest state, [Q].
        farthest_distances: Its distance, [Q].
        frames: Newest frame of every state, [N, 3, pixels, pixels].
        rewards: Reward after each state, [N].
    """

    queries: NDArray[np.int64]
    nearest: NDArray[np.int64]
    distances: NDArray[np.float64]
    farthest: NDArray[np.int64]
    farthest_distances: NDArray[np.float64]
    frames: NDArray[np.uint8]
    rewards: NDArray[np.float64]


def find_neighbours(
    config: Config, agent: Agent, *, episodes: int, queries: int, count: int, seed: int
) -> Neighbours:
    """Plays episodes, embeds the observations, and finds nearest neighbours.

    Half of the episodes use the mean action and half random actions, so that there are good and bad
    states. States within ten agent steps of a query in the same episode are excluded: they are
    similar whatever the metric.

    Args:
        config: The run.
        agent: The agent, which embeds, and acts in half of the episodes.
        episodes: Number of episodes.
        queries: Number of query states.
        count: Neighbours per query.
        seed: Seed of the episodes and of the choice of queries.

    Raises:
        ValueError: For a run on state vectors, which cannot be drawn.
    """
    if config.observation != "pixels":
        raise ValueError("pictures of neighbours require a run with observation pixels")
    data = _collect(config, agent, episodes, seed)
    z = _embed(agent, data["observations"])
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.choice(len(z), size=min(queries, len(z)), replace=False))
    distances = agent.distance(z[chosen], z).numpy().astype(np.float64)
    close = (data["episode"][chosen, None] == data["episode"]) & (
        np.abs(data["time"][chosen, None] - data["time"]) <= 10
    )
    near = np.where(close, np.inf, distances)
    nearest = np.argsort(near, axis=1)[:, :count]
    farthest = np.argmax(np.where(close, -np.inf, distances), axis=1)
    rows = np.arange(len(chosen))
    return Neighbours(
        queries=chosen,
        nearest=nearest,
        distances=near[rows[:, None], nearest],
        farthest=farthest,
        farthest_distances=distances[rows, farthest],
        frames=data["observations"][:, -3:],
        rewards=data["reward"],
    )


def draw_neighbours(neighbours: Neighbours, path: Path, title: str) -> None:
    """Writes the picture: a row per query, with its neighbours and their distances."""
    from matplotlib.figure import Figure

    rows, count = neighbours.nearest.shape
    columns = count + 2
    figure = Figure(figsize=(1.25 * columns, 1.5 * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row in range(rows):
        shown = [neighbours.queries[row], *neighbours.nearest[row], neighbours.farthest[row]]
        distances = [0.0, *neighbours.distances[row], neighbours.farthest_distances[row]]
        for column, (state, distance) in enumerate(zip(shown, distances, strict=True)):
            axis = axes[row, column]
            axis.imshow(neighbours.frames[state].transpose(1, 2, 0), interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            reward = f"r {neighbours.rewards[state]:.2f}"
            axis.set_title(reward if column == 0 else f"{distance:.3g}  {reward}", fontsize=7)
    for column, name in ((0, "query"), (1, "nearest →"), (columns - 1, "farthest")):
        axes[-1, column].set_xlabel(name, fontsize=9)
    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=130)


def _collect(config: Config, agent: Agent, episodes: int, seed: int) -> dict[str, NDArray[Any]]:
    """Every observation of some episodes, with its episode, its time and the next reward."""
    env = make_env(**config.environment, seed=seed, distractor_split="eval")
    columns: dict[str, list[Any]] = {"observations": [], "reward": [], "episode": [], "time": []}
    for number in range(episodes):
        reset_seed = derive_seed(seed, Stream.NEIGHBOURS, number)
        observation, _ = env.reset(seed=reset_seed)
        agent.begin_episode()
        env.action_space.seed(reset_seed)
        over, time = False, 0
        while not over:
            columns["observations"].append(observation)
            columns["episode"].append(number)
            columns["time"].append(time)
            by_agent = number % 2 == 0
            action = (
                agent.act(observation, 0, explore=False) if by_agent else env.action_space.sample()
            )
            observation, reward, terminated, truncated, _ = env.step(action)
            columns["reward"].append(reward)
            over, time = terminated or truncated, time + 1
    env.close()
    return {name: np.asarray(values) for name, values in columns.items()}


def _embed(agent: Agent, observations: NDArray[np.uint8]) -> torch.Tensor:
    blocks = torch.split(torch.from_numpy(observations), _BLOCK)
    return torch.cat([agent.embed(block).cpu() for block in blocks])
