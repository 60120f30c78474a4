"""Plays episodes with the mean action, and films them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from revbis.envs import make_env
from revbis.io.files import naming
from revbis.io.plugins import require

if TYPE_CHECKING:
    from pathlib import Path

    from revbis.agents import Agent
    from revbis.envs.environment import TaskEnv
    from revbis.envs.rendering import Pixels

_SIDE = 256  # of a video
_FRAMES_PER_SECOND = 25

Watch = Callable[[NDArray[Any], dict[str, Any]], None]


class NonFiniteActionError(ValueError):
    """An agent's action is NaN or infinite, as when training has diverged."""


class StoppedError(Exception):
    """Somebody asked to stop in the middle of what is played; it is played again later."""


@dataclass(frozen=True)
class Episode:
    """The outcome of one episode.

    Attributes:
        total: Sum of rewards.
        frames: Its length in simulator steps.
        success_any: The goal was met at some step; None if the task does not define success.
        success_last: The goal was met at the last step.
    """

    total: float
    frames: int
    success_any: bool | None
    success_last: bool | None


def act(agent: Agent, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[Any]:
    """An agent's action, which must be finite.

    Raises:
        NonFiniteActionError: If it is not.
    """
    action = agent.act(observation, step, explore=explore)
    if not np.isfinite(action).all():
        raise NonFiniteActionError(f"the agent's action must be finite, got {action}")
    return action


def play(agent: Agent, env: TaskEnv, seed: int, watch: Watch | None = None) -> Episode:
    """Plays one episode with the mean action; the agent draws no random numbers.

    After every step, `watch` is called with the action and the step's info.
    """
    observation, info = env.reset(seed=seed)
    agent.begin_episode()
    total, over = 0.0, False
    while not over:
        action = act(agent, observation, 0, explore=False)
        observation, reward, terminated, truncated, info = env.step(action)
        total += reward
        over = terminated or truncated
        if watch is not None:
            watch(action, info)
    return Episode(total, info["frames"], info["success_any"], info["success_last"])


def evaluate(agent: Agent, env: TaskEnv, seeds: Iterable[int]) -> list[Episode]:
    """Plays one episode for each seed."""
    return [play(agent, env, seed) for seed in seeds]


def evaluate_splits(
    agent: Agent,
    envs: Mapping[str, TaskEnv],
    seeds: Sequence[int],
    report: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, list[Episode]]:
    """Plays the same seeds on each split.

    Args:
        agent: Acts.
        envs: By split.
        seeds: One for each episode.
        report: Called before the first and after every step of an episode, with its number and
            their count. It may raise `StoppedError`.
    """
    episodes: dict[str, list[Episode]] = {split: [] for split in envs}
    count = len(envs) * len(seeds)
    for number, (split, seed) in enumerate(product(envs, seeds), 1):
        report(number, count)
        watch: Watch = lambda *_, n=number: report(n, count)  # noqa: E731
        episodes[split].append(play(agent, envs[split], seed, watch))
    return episodes


def outcome(episodes: Sequence[Episode], prefix: str = "") -> dict[str, Any]:
    """What a line of eval.jsonl says of some episodes, each name after the prefix."""
    returns = [episode.total for episode in episodes]
    values = {
        "mean_return": float(np.mean(returns)),
        "returns": returns,
        "success_any": [episode.success_any for episode in episodes],
        "success_last": [episode.success_last for episode in episodes],
    }
    return {f"{prefix}{name}": value for name, value in values.items()}


def record_episode(environment: Mapping[str, Any], agent: Agent, seed: int, path: Path) -> Episode:
    """Plays an episode and writes a video of it, larger than the agent's observations.

    A second environment with the same seed and actions renders the video. `environment` has the
    arguments of `make_env`, except for the seed.
    """
    require("av", "video", "writing a video")
    large = {"pixels": _SIDE, "frame_stack": 1, "observation": "pixels", "state_noise": 0}
    large |= {"reward_gate": False}
    seen = make_env(**environment, seed=seed, distractor_split="eval")
    shown = make_env(**{**environment, **large}, seed=seed, distractor_split="eval")
    try:
        first, _ = shown.reset(seed=seed)
        frames = [first]
        # `play` resets the agent's environment with the same seed; both take the same actions.
        episode = play(agent, seen, seed, lambda action, _: frames.append(shown.step(action)[0]))
    finally:
        seen.close()
        shown.close()
    write_video([frame.transpose(1, 2, 0) for frame in frames], path)
    return episode


def write_video(frames: Sequence[Pixels], path: Path) -> None:
    """Writes frames, [height, width, 3] with even sides, as an mp4 that browsers play.

    Raises:
        ModuleNotFoundError: If PyAV is not installed; with the command that installs it.
        OSError: If the file cannot be written.
    """
    av: Any = require("av", "video", "writing a video")
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=_FRAMES_PER_SECOND)
        stream.pix_fmt = "yuv420p"
        stream.height, stream.width = frames[0].shape[:2]
        for frame in frames:
            picture: NDArray[np.uint8] = np.ascontiguousarray(frame)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
