"""What methods are compared on: the replay buffer, the policy and the episodes of one run."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from revbis.agents.drqv2.agent import DrQV2
from revbis.agents.networks import noisy_action
from revbis.envs import make_env
from revbis.system.files import digest
from revbis.training.build import make_replay
from revbis.training.checkpoint import Checkpoint, read_checkpoint
from revbis.training.evaluate import yardstick_seeds
from revbis.training.folder import CHECKPOINTS, MANIFEST
from revbis.training.run import open_run
from revbis.yardsticks.episodes import collect
from revbis.yardsticks.measurement import Pool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from revbis.replay import Replay


class Source:
    """A run at its newest checkpoint.

    Args:
        folder: The run's folder.

    Attributes:
        config: The run.
        observation_shape: Of its agent.
        action_size: Dimension of an action.

    Raises:
        ValueError: If it is not a run, or has no intact checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.config, self._agent = open_run(folder)
        checkpoint = read_checkpoint(folder / CHECKPOINTS)
        assert checkpoint is not None  # open_run has read one
        self._checkpoint: Checkpoint = checkpoint
        self._env = make_env(**self.config.environment, seed=self.config.seed)
        self.observation_shape: tuple[int, ...] = self._env.observation_space.shape
        self.action_size = int(self._env.action_space.shape[0])
        self._env.close()
        self._folder = folder
        self._pools: dict[tuple[int, int], Pool] = {}

    @property
    def identity(self) -> str:
        """A checksum of the checkpoint: it lists the checksums of all its files."""
        return digest(self._checkpoint.folder / MANIFEST)

    @property
    def acts_in_batches(self) -> bool:
        """Whether its policy can act for objectives."""
        return isinstance(self._agent, DrQV2)

    def replay(self, seed: int, *, one_step: bool) -> Replay:
        """Its replay buffer, which draws by this seed.

        Args:
            seed: Of the draws.
            one_step: Whether batches also have the one-step transition.

        Raises:
            ValueError: If it has fewer transitions than a batch.
        """
        config, saved = self.config, self._checkpoint.state["replay"]
        # As large as the records: a ring that is not full yet can be far larger.
        written = max(self._checkpoint.written, config.frame_stack + config.n_step + 1)
        capacity = min(config.replay_capacity, written)
        replay = make_replay(replace(config, replay_storage="ram"), self._env, capacity=capacity)
        state: dict[str, Any] = saved | {
            "generator": np.random.PCG64(seed).state,
            "settings": saved["settings"] | {"capacity": capacity},
        }
        replay.restore(self._checkpoint.records(), state)
        replay.one_step = one_step
        batch = config.agent.batch_size
        if len(replay) < batch:
            raise ValueError(
                f"the replay buffer of {self._folder} has {len(replay):,} transitions, fewer than "
                f"a batch of {batch:,}; train the run for longer"
            )
        return replay

    def pool(self, episodes: int, seed: int, played: Callable[[], None]) -> Pool:
        """Evaluation episodes of its agent, to measure embeddings on; kept for further methods.

        Args:
            episodes: How many, at least 2.
            seed: Of the episodes.
            played: Called after each.
        """
        if (episodes, seed) not in self._pools:
            environment, seeds = self.config.environment, yardstick_seeds(seed, episodes)
            clean = collect(environment, self._agent, seeds, played)
            self._pools[episodes, seed] = Pool(environment, self.config.discount, clean, seed)
        return self._pools[episodes, seed]

    @torch.no_grad()
    def policy_actions(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Actions of the trained actor, with its noise at that time, [B, A]."""
        agent = self._agent
        assert isinstance(agent, DrQV2)
        features = agent.parts.encoder(observations)
        mean = agent.parts.policy(agent.parts.readouts(features, "actor")[0])
        step = self._checkpoint.state["progress"]["agent_steps"]
        return noisy_action(mean, agent.deviation(step), generator, agent.settings.noise_clip)


@lru_cache(maxsize=1)  # the cells of a process share theirs
def source_of(folder: Path, identity: str) -> Source:
    """The run at the checkpoint with this identity.

    Raises:
        ValueError: If the run has another one by now.
    """
    source = Source(folder)
    if source.identity != identity:
        raise ValueError(f"{folder} has a newer checkpoint by now; repeat the command to use that")
    return source
