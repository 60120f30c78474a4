"""The yardsticks of one agent: plays episodes, embeds them, and measures every embedding."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from revbis.envs.gate import NUMBERS
from revbis.objectives.base import effective_rank
from revbis.representation.episodes import (
    CleanEpisode,
    Disturbance,
    NotReproducibleError,
    collect_episodes,
    feature_count,
    irrelevant_factors,
    observations,
    play_on,
)
from revbis.representation.measures import (
    clustered_correlation,
    complete_returns,
    denoising_factor,
    draw_others,
    rank_correlation,
    returns_to_go,
    state_probe,
)
from revbis.representation.true_metric import true_distances

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from revbis.agents import Agent

Embeddings = dict[str, Tensor]
Embed = Callable[[Tensor], Embeddings]
Distance = Callable[[str, Tensor], Tensor]
LEAST_EPISODES = 2
_LOG = logging.getLogger("revbis")
_MOMENTS = 256  # anchors, and states whose distances are compared
ROLLOUT_MOMENTS = 64  # at most: moments that are played from again
_DRAWS = 16  # positives, and negatives, of an anchor
_BLOCK = 256  # observations that are embedded at a time


class Pool:
    """Observations to measure embeddings on: episodes of one agent, whoever embeds them.

    Args:
        environment: The arguments of `make_env`.
        discount: Discount factor of the returns.
        episodes: At least 2.
        seed: Draws the anchors, the negatives and the noise.

    Raises:
        ValueError: If there are fewer than 2 episodes.
    """

    def __init__(
        self,
        environment: Mapping[str, Any],
        discount: float,
        episodes: Sequence[CleanEpisode],
        seed: int,
    ) -> None:
        if len(episodes) < LEAST_EPISODES:
            raise ValueError(
                f"the yardsticks need at least {LEAST_EPISODES} episodes, some to fit the state "
                f"probe and others to test it, got {len(episodes)}"
            )
        self._environment, self._episodes, self._seed = environment, episodes, seed
        self._stack = environment["frame_stack"] if environment["observation"] == "pixels" else 1
        self._disturbed = environment["distractor"] is not None or environment["state_noise"] > 0
        lengths = [len(episode) for episode in episodes]
        self._episode = np.repeat(np.arange(len(episodes)), lengths)
        self._time = np.concatenate([np.arange(length) for length in lengths])
        states = np.concatenate([episode.states for episode in episodes])
        gate = NUMBERS if environment["reward_gate"] else 0
        self._states = states[:, : states.shape[1] - gate]
        disturbance = self._disturbance("eval")
        kinds = [irrelevant_factors(each, disturbance) for each in episodes]
        self._factors = {name: np.concatenate([each[name] for each in kinds]) for name in kinds[0]}
        if gate:
            self._factors["gate"] = states[:, -gate:]
        self._returns = np.concatenate([returns_to_go(each.rewards, discount) for each in episodes])
        complete = [complete_returns(len(e), discount, e.terminated) for e in episodes]
        generator = np.random.default_rng(seed)
        self._anchors = _some(np.arange(len(self._time)), generator)
        valued = self._time < np.repeat(complete, lengths)
        self._valued = _some(np.flatnonzero(valued), generator)
        self._discount = discount
        self._true_rows = self._valued
        rewards = [[episodes[e].rewards[t:]] for e, t in self._places(self._valued)]
        ended = [[episodes[e].terminated] for e, _ in self._places(self._valued)]
        self._truth = true_distances(rewards, ended, discount)

    def roll_out(self, agent: Agent, count: int, played: Callable[[], None]) -> None:
        """Takes U from further trajectories of the agent that played the episodes.

        Args:
            agent: The agent.
            count: Trajectories from each of at most `ROLLOUT_MOMENTS` moments.
            played: Called `ROLLOUT_MOMENTS` times.

        Raises:
            NotReproducibleError: If the task cannot be brought to a moment again.
        """
        chosen = np.linspace(0, len(self._valued) - 1, min(ROLLOUT_MOMENTS, len(self._valued)))
        rows = self._valued[np.unique(chosen.astype(np.int64))]
        moments = [(self._episodes[e], t) for e, t in self._places(rows)]
        lags = self._truth.lags
        found = play_on(self._environment, agent, moments, lags, count, self._seed + 2, played)
        for _ in range(ROLLOUT_MOMENTS - len(rows)):
            played()
        rewards = [[one for one, _ in each] for each in found]
        ended = [[end for _, end in each] for each in found]
        self._truth, self._true_rows = true_distances(rewards, ended, self._discount), rows

    def measure(self, embed: Embed, distance: Distance) -> dict[str, float]:
        """Every measure of every embedding, by names such as `phi_state_r2`.

        Args:
            embed: Embeddings of a batch of observations by name, [B, D] each.
            distance: Distances between the embeddings of a name, [N, D] → [N, N].

        Raises:
            ValueError: If an embedding is not finite.
        """
        seen = self._seen(embed)
        values: dict[str, float] = {}
        for factor, numbers in self._factors.items():
            told = state_probe(self._states, numbers, self._episode)
            values |= {} if told is None else {f"task_{factor}_r2": told}
        factors = self._denoising(embed, seen) if self._disturbed else {}
        for name, z in seen.items():
            i, j = np.triu_indices(len(self._valued), 1)
            distances = _checked(name, distance(name, z[self._valued]).double()).numpy()
            returns = self._returns[self._valued]
            measured = factors.get(name, {}) | {
                "state_r2": state_probe(z.double().numpy(), self._states, self._episode),
                "effective_rank": float(effective_rank(z.double())),
                "value": rank_correlation(distances[i, j], np.abs(returns[i] - returns[j])),
            }
            measured |= {
                f"{factor}_r2": state_probe(z.double().numpy(), numbers, self._episode)
                for factor, numbers in self._factors.items()
            }
            measured |= self._with_truth(name, z, distance)
            values |= {
                f"{name}_{key}": value for key, value in measured.items() if value is not None
            }
        return values | {"true_lags": float(self._truth.lags), "true_tail": self._truth.tail}

    def _with_truth(self, name: str, z: Tensor, distance: Distance) -> dict[str, float]:
        """Rank correlation of distances with U, and the ends of its interval if there is one."""
        rows = self._true_rows
        distances = _checked(name, distance(name, z[rows]).double()).numpy()
        found = clustered_correlation(distances, self._truth.matrix, self._episode[rows])
        if found is None:
            return {}
        ends = {"true_low": found.low, "true_high": found.high}
        return {"true": found.value} | {k: v for k, v in ends.items() if np.isfinite(v)}

    def _places(self, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
        """The episode and the time of rows."""
        return list(zip(self._episode[rows].tolist(), self._time[rows].tolist(), strict=True))

    def _seen(self, embed: Embed) -> Embeddings:
        """Embeddings of everything that the agent saw, [N, D] each."""
        disturbance = self._disturbance("eval")
        seen = _joined(
            [
                _in_blocks(
                    embed,
                    observations(each, np.arange(len(each)), disturbance, each.seed, self._stack),
                )
                for each in self._episodes
            ]
        )
        return {name: _checked(name, z) for name, z in seen.items()}

    def _denoising(self, embed: Embed, seen: Embeddings) -> dict[str, dict[str, float]]:
        """Denoising factors of each embedding: all noise of training, and all of evaluation."""
        generator = np.random.default_rng(self._seed + 1)
        factors: dict[str, dict[str, float]] = {name: {} for name in seen}
        for measure_agent, split in (("denoising_id", "train"), ("denoising_ood", "eval")):
            disturbance = self._disturbance(split)
            if split == "eval":
                anchors = {name: z[self._anchors] for name, z in seen.items()}
            else:
                anchors = self._redrawn(embed, disturbance, generator)
            draws = [self._redrawn(embed, disturbance, generator) for _ in range(_DRAWS)]
            for name, z in anchors.items():
                positives = torch.stack([draw[name] for draw in draws])
                others = draw_others(_DRAWS, len(z), torch.Generator().manual_seed(self._seed))
                factors[name][measure_agent] = denoising_factor(z, positives, z[others])
        return factors

    def _redrawn(
        self, embed: Embed, disturbance: Disturbance, generator: np.random.Generator
    ) -> Embeddings:
        """Embeddings of the anchors' moments with the disturbance drawn once more."""
        parts = []
        for number, episode in enumerate(self._episodes):
            moments = self._time[self._anchors[self._episode[self._anchors] == number]]
            if len(moments):
                seed = int(generator.integers(2**32))
                views = observations(episode, moments, disturbance, seed, self._stack)
                parts.append(_in_blocks(embed, views))
        return _joined(parts)

    def _disturbance(self, split: Any) -> Disturbance:
        return Disturbance(self._environment, feature_count(self._episodes[0]), split)


def measure_agent(
    environment: Mapping[str, Any],
    discount: float,
    agent: Agent,
    seeds: Sequence[int],
    played: Callable[[], None] = lambda: None,
    between: Callable[[], None] = lambda: None,
    rollouts: int = 0,
) -> dict[str, float]:
    """The yardsticks of an agent, by names such as `phi_state_r2`.

    The agent draws no random numbers. Without a distractor or state noise there is no denoising
    factor.

    Args:
        environment: The arguments of `make_env`.
        discount: Discount factor of the returns, per action.
        agent: The agent.
        seeds: Seeds of the episodes, at least 2.
        played: Called after each episode, and with rollouts `ROLLOUT_MOMENTS` times more.
        between: Called after each step of an episode and batch of embeddings; it may raise.
        rollouts: Trajectories from each of some moments, for the true metric; with 0, or with a
            warning if the task does not repeat itself, it is that of the episodes themselves.

    Raises:
        ValueError: If there are fewer than 2 seeds, or an embedding is not finite.
    """
    episodes = collect_episodes(environment, agent, seeds, played, between)
    pool = Pool(environment, discount, episodes, seeds[0] if seeds else 0)

    if rollouts:
        try:
            pool.roll_out(agent, rollouts, played)
        except NotReproducibleError as problem:
            _LOG.warning("no rollouts, so U is that of the episodes themselves: %s", problem)

    def distance(name: str, z: Tensor) -> Tensor:
        return agent.distance(z, z) if name == "phi" else euclidean(z)

    def embed(batch: Tensor) -> Embeddings:
        between()
        return embeddings(agent, batch)

    return pool.measure(embed, distance)


def euclidean(z: Tensor) -> Tensor:
    """L2 distances, [N, D] → [N, N]; exactly 0 between equal embeddings."""
    return torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")


def embeddings(agent: Agent, batch: Tensor) -> Embeddings:
    """All embeddings of an agent; those of an agent that has but one are φ."""
    several = getattr(agent, "embeddings", None)
    return {"phi": agent.embed(batch)} if several is None else several(batch)


def _checked(name: str, numbers: Tensor) -> Tensor:
    """The numbers, if they are finite."""
    if not bool(torch.isfinite(numbers).all()):
        raise ValueError(f"the embedding {name} is not finite: its training has diverged")
    return numbers


def _in_blocks(embed: Embed, views: NDArray[Any]) -> Embeddings:
    blocks = torch.split(torch.from_numpy(views), _BLOCK)
    return _joined([{name: z.cpu() for name, z in embed(block).items()} for block in blocks])


def _joined(parts: Sequence[Embeddings]) -> Embeddings:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _some(rows: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """At most `_MOMENTS` of the rows, in their order."""
    count = min(_MOMENTS, len(rows))
    return np.sort(generator.choice(rows, size=count, replace=False))
