"""Encoders that an objective alone trains, on one stored replay buffer: `revbis offline`."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from revbis.agents.common import descent
from revbis.agents.drqv2 import ActorCritic, Parts, noisy_action
from revbis.agents.registry import resolve
from revbis.agents.settings import DrQV2Settings
from revbis.envs import make_env
from revbis.io.files import digest
from revbis.objectives.registry import OBJECTIVES
from revbis.representation.cells import (
    Record,
    calling_objective,
    code_key,
    read_cell,
    stored_keys,
    write_cell,
)
from revbis.representation.episodes import collect_episodes
from revbis.representation.yardsticks import Pool
from revbis.runs.checkpoint import Checkpoint, read_checkpoint
from revbis.runs.folder import CHECKPOINTS, MANIFEST
from revbis.runs.run import open_run
from revbis.runs.seeds import Stream, episode_seeds
from revbis.runs.trainer import make_replay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from revbis.objectives import Objective, ObjectiveOutput
    from revbis.replay import Batch, Replay
    from revbis.runs.config import Config

BENCHMARK = 1  # its version: raised when numbers change, so that other results are not read

_LOG = logging.getLogger("revbis")
# Every objective has its own defaults, whatever the run's method was given.
_OWN = dict.fromkeys(
    ("objective_loss", "normalisation", "pairing", "beta", "coefficient", "reward_scale")
    + ("objective_hidden",)
)
_REPORT_EVERY = 10  # steps
_WITH_POLICY = 0.4  # how much longer a step takes with a pass of the actor


class ReplaySource:
    """A run at its newest checkpoint.

    Args:
        folder: The run's folder.
        trust: Whether code that the folder names may be imported.

    Attributes:
        config: The run.
        observation_shape: Of its agent.
        action_size: Dimension of an action.

    Raises:
        ValueError: If it is not a run, has no intact checkpoint, or names code without trust.
    """

    def __init__(self, folder: Path, *, trust: bool = False) -> None:
        opened = open_run(folder, trust=trust)
        self.config, self._agent = opened.config, opened.agent
        self.observation_shape, self.action_size = opened.observation_shape, opened.action_size
        checkpoint = read_checkpoint(folder / CHECKPOINTS)
        assert checkpoint is not None  # open_run has read one
        self._checkpoint: Checkpoint = checkpoint
        self._agent.load_state_dict(checkpoint.agent)  # of an older one, if the newest is damaged
        self._env = make_env(**self.config.environment, seed=self.config.seed)
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
        return isinstance(self._agent, ActorCritic)

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
            environment = self.config.environment
            seeds = episode_seeds(seed, Stream.YARDSTICKS, episodes)
            clean = collect_episodes(environment, self._agent, seeds, played)
            self._pools[episodes, seed] = Pool(environment, self.config.discount, clean, seed)
        return self._pools[episodes, seed]

    @torch.no_grad()
    def policy_actions(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Actions of the trained actor, with its noise at that time, [B, A]."""
        agent = self._agent
        assert isinstance(agent, ActorCritic)
        features = agent.parts.encoder(observations)
        mean = agent.parts.policy(agent.parts.readouts(features, "actor")[0])
        step = self._checkpoint.state["progress"]["agent_steps"]
        return noisy_action(mean, agent.deviation(step), generator, agent.settings.noise_clip)


@lru_cache(maxsize=1)  # the cells of a process share theirs
def source_of(folder: Path, identity: str, trust: bool) -> ReplaySource:
    """The run at the checkpoint with this identity.

    Raises:
        ValueError: If the run has another one by now.
    """
    source = ReplaySource(folder, trust=trust)
    if source.identity != identity:
        raise ValueError(f"{folder} has a newer checkpoint by now; repeat the command to use that")
    return source


def settings_of(config: Config, method: str) -> DrQV2Settings:
    """Settings of an agent with this objective, of the run's sizes and rates.

    Raises:
        ValueError: If the method has no objective.
    """
    if resolve(method).objective is None:
        raise ValueError(f"{method} has no objective that could train an encoder alone")
    agent = config.with_settings(method=method, mode="alternating", **_OWN).agent.for_inference()
    assert isinstance(agent, DrQV2Settings)
    return agent


class PolicyNeededError(ValueError):
    """An objective needs actions that the run's policy cannot give."""


class OfflineTraining:
    """An encoder, its projection and an objective, untrained.

    Args:
        source: The run whose replay buffer it is trained on.
        method: The objective.
        seed: Of initialisation and batches.

    Raises:
        ValueError: If the objective cannot be made, or needs what the run does not have.
    """

    def __init__(self, source: ReplaySource, method: str, seed: int) -> None:
        self._source, self._settings = source, settings_of(source.config, method)
        shape, actions = source.observation_shape, source.action_size
        with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw from its global generator
            torch.manual_seed(seed)
            self._parts = Parts(shape, actions, self._settings, torch.device("cpu"))
        assert self._parts.objective is not None
        self.objective: Objective = self._parts.objective
        if self.objective.policy_actions and not source.acts_in_batches:
            raise PolicyNeededError(
                f"{method} needs actions of the run's policy, which only DrQ-v2 runs can give; "
                f"the run's method is {source.config.method}; name others with --methods"
            )
        self._optimisers = self._parts.make_optimisers()
        self._generator = torch.Generator().manual_seed(seed)
        self._seed = seed

    def run(self, steps: int, progress: Callable[[int], None]) -> None:
        """Trains; progress is called with a number of further steps.

        Raises:
            ValueError: If the objective raises one, or anything else.
            NonFiniteError: If training diverges.
        """
        replay = self._source.replay(self._seed, one_step=self._settings.one_step)
        for step in range(1, steps + 1):
            out = self._compare(replay.sample(self._settings.batch_size))
            with descent(self._optimisers, "objective", "coefficient"):
                out.loss.backward()  # type: ignore[no-untyped-call]
            if step % _REPORT_EVERY == 0:
                progress(_REPORT_EVERY)
        progress(steps % _REPORT_EVERY)

    @torch.no_grad()
    def embeddings(self, observations: Tensor) -> dict[str, Tensor]:
        """φ of a batch as `distance` compares it, [B, latent_dim]."""
        return {"phi": self.objective.scale(self._embed(observations))}

    @torch.no_grad()
    def distance(self, _: str, z: Tensor) -> Tensor:
        """The objective's distances, [N, D] → [N, N]."""
        return self.objective.distance(z, z)

    def _embed(self, observations: Tensor) -> Tensor:
        projected = self._parts.readouts(self._parts.encoder(observations), "projection")[0]
        z: Tensor = self._parts.norm(projected)
        return z

    def _compare(self, batch: Batch) -> ObjectiveOutput:
        """The objective's losses of a batch."""
        reward, discount, next_obs = batch.reward, batch.discount, batch.next_obs
        if batch.one_step is not None:
            reward, discount, next_obs = batch.one_step
        with torch.no_grad():
            next_z = self._embed(next_obs)
        places = {"policy_action": batch.obs, "next_policy_action": next_obs}
        actions = {
            name: self._source.policy_actions(places[name], self._generator)
            for name in self.objective.policy_actions
        }
        with calling_objective():
            return self.objective(
                self._embed(batch.obs),
                batch.action,
                reward,
                discount,
                next_z,
                generator=self._generator,
                **actions,
            )


@dataclass(frozen=True)
class OfflineSettings:
    """How long is trained, and what is measured on.

    Attributes:
        steps: Gradient steps.
        episodes: Episodes of the run's agent that embeddings are measured on.
        seed: Seed of those episodes.
    """

    steps: int = 3000
    episodes: int = 10
    seed: int = 0


@dataclass(frozen=True)
class OfflineCell:
    """One cell.

    Attributes:
        run: The folder of the run with the replay buffer; None if it is gone.
        checkpoint: The identity of its checkpoint.
        method: An objective's name, or package.module:factory.
        seed: Of initialisation and batches.
        settings: How long is trained, and what is measured on.
        trust: Whether code that the run's folder names may be imported.
    """

    run: Path | None
    checkpoint: str
    method: str
    seed: int
    settings: OfflineSettings
    trust: bool = False

    @property
    def title(self) -> str:
        """The cell in a few words."""
        return f"{self.method}, seed {self.seed}"

    @property
    def steps(self) -> int:
        """Gradient steps."""
        return self.settings.steps

    @property
    def label(self) -> str:
        """What its files are named after."""
        return f"{self.method}.{self.seed}"

    @property
    def key(self) -> Record:
        """Everything that the result depends on; wherever the run's folder is."""
        return {
            "checkpoint": self.checkpoint,
            "method": self.method,
            "seed": self.seed,
            "settings": asdict(self.settings),
            **code_key(self.method, BENCHMARK),
        }


def plan(
    run: Path,
    methods: Sequence[str],
    seeds: int,
    settings: OfflineSettings,
    *,
    trust: bool = False,
) -> dict[OfflineCell, float]:
    """The cells, seed by seed, and how much work each is.

    Args:
        run: The run's folder.
        methods: The objectives; if there are none, all that the run can train.
        seeds: Number of seeds.
        settings: Of every cell.
        trust: Whether code that the run's folder names may be imported.

    Raises:
        ValueError: If the run has no replay buffer to train on, or an objective cannot be made;
            before time is spent on others.
    """
    source = ReplaySource(run, trust=trust)
    source.replay(0, one_step=False)
    cost, left_out = {}, []
    for method in dict.fromkeys(methods or OBJECTIVES):
        try:
            objective = OfflineTraining(source, method, 0).objective
        except PolicyNeededError:
            if methods:
                raise
            left_out.append(method)
            continue
        cost[method] = settings.steps * (1 + _WITH_POLICY * len(objective.policy_actions))
    if left_out:
        _LOG.warning("left out, as they need actions of a DrQ-v2 run: %s", ", ".join(left_out))
    return {
        OfflineCell(run, source.identity, method, seed, settings, trust): cost[method]
        for seed in range(seeds)
        for method in cost
    }


def plan_stored(
    out: Path, methods: Sequence[str], seeds: int, settings: OfflineSettings
) -> dict[OfflineCell, float]:
    """The cells that a folder has results of, for when their run is gone; there is no work left.

    Args:
        out: The folder, with results of one replay buffer.
        methods: The objectives; if there are none, all of the registry.
        seeds: Number of seeds.
        settings: Of every cell.

    Raises:
        ValueError: If it has none of these, or results of several buffers.
    """
    checkpoints = sorted({key["checkpoint"] for key in stored_keys(out) if "checkpoint" in key})
    if len(checkpoints) > 1:
        raise ValueError(f"{out} has results of {len(checkpoints)} buffers: name one by --replay")
    cells = [
        OfflineCell(None, checkpoint, method, seed, settings)
        for checkpoint in checkpoints
        for seed in range(seeds)
        for method in methods or OBJECTIVES
    ]
    finished = {cell: 0.0 for cell in cells if read_cell(cell, out) is not None}
    if not finished:
        raise ValueError(f"{out} has no such results: pass the run to train on by --replay")
    return finished


def run_cell(out: Path, cell: OfflineCell, progress: Callable[[int], None]) -> None:
    """Trains and measures a cell, and writes its result.

    Raises:
        ValueError: If the objective cannot be made, or raises, or the run has gone on.
        NonFiniteError: If training diverges.
        OSError: If the result cannot be written.
    """
    assert cell.run is not None
    source = source_of(cell.run, cell.checkpoint, cell.trust)
    training = OfflineTraining(source, cell.method, cell.seed)
    pool = source.pool(cell.settings.episodes, cell.settings.seed, lambda: progress(0))
    before = pool.measure(training.embeddings, training.distance)
    training.run(cell.settings.steps, progress)
    row: Record = {
        "task": source.config.task,
        "method": cell.method,
        "seed": cell.seed,
        **pool.measure(training.embeddings, training.distance),
        **{f"{name}_untrained": value for name, value in before.items() if name[:3] == "phi"},
        "c": training.objective.status().get("c"),
    }
    write_cell(cell, out, row)
