"""Builds the parts of a run from its settings: the replay buffer, the agent, the device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from revbis import agents
from revbis.replay import PrefetchingReplay, PrioritisedReplay, Replay
from revbis.training.evaluate import episode_seed

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.agents import Agent
    from revbis.config import Config
    from revbis.envs.environment import TaskEnv

_REPLAY = 2  # stream of the run's seeds


def make_replay(
    config: Config, env: TaskEnv, *, capacity: int | None = None, ahead_for: str | None = None
) -> Replay:
    """The replay buffer of a run, still empty.

    Args:
        config: The run.
        env: Its environment.
        capacity: Number of single frames; by default the run's.
        ahead_for: Device of the agent, if batches are to be gathered ahead. Sequences by priority
            are not.
    """
    shape = env.observation_space.shape
    pixels = config.observation == "pixels"
    kind: Callable[..., Replay] = Replay
    if config.agent.prioritised:
        kind = PrioritisedReplay
    elif ahead_for is not None:
        pinned = ahead_for.startswith("cuda")
        kind = partial(PrefetchingReplay, steps=config.update_every, pinned=pinned)
    return kind(
        config.replay_capacity if capacity is None else capacity,
        (3, *shape[1:]) if pixels else shape,
        int(env.action_space.shape[0]),
        stack=config.frame_stack if pixels else 1,
        n_step=config.n_step,
        discount=config.discount,
        shift=config.shift,
        seed=episode_seed(config.seed, _REPLAY),
        storage=config.replay_storage,
        directory=config.directory,
        one_step=config.agent.one_step,
    )


def make_agent(config: Config, env: TaskEnv, device: str) -> Agent:
    """The agent of a run, untrained."""
    return agents.make_agent(
        config.method,
        config.agent,
        env.observation_space.shape,
        int(env.action_space.shape[0]),
        seed=config.seed,
        device=device,
    )


def resolve_device(name: str) -> str:
    """The device with this name; `auto` is the best one available."""
    import torch

    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
