"""Videos of episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.envs import make_env
from revbis.system.extras import require
from revbis.system.files import naming
from revbis.training.evaluate import Episode, play

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from revbis.agents import Agent
    from revbis.config import Config
    from revbis.envs.rendering import Pixels

_SIDE = 256
_FRAMES_PER_SECOND = 25


def record_episode(
    config: Config, agent: Agent, seed: int, path: Path, side: int = _SIDE
) -> Episode:
    """Plays an episode and writes a video of it, larger than the agent's observations.

    A second environment with the same seed and actions renders the video.

    Args:
        config: The run.
        agent: The agent.
        seed: Seed of the episode.
        path: The mp4 to write.
        side: Side of the video, in pixels.
    """
    require("av", "video", "writing a video")
    seen = make_env(**config.environment, seed=seed, distractor_split="eval")
    shown = make_env(
        **config.environment
        | {"pixels": side, "frame_stack": 1, "observation": "pixels", "state_noise": 0},
        seed=seed,
        distractor_split="eval",
    )
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


def write_video(frames: Sequence[Pixels], path: Path, rate: int = _FRAMES_PER_SECOND) -> None:
    """Writes frames, [height, width, 3] with even sides, as an mp4 that browsers play.

    Raises:
        ModuleNotFoundError: If PyAV is not installed; with the command that installs it.
        OSError: If the file cannot be written.
    """
    av: Any = require("av", "video", "writing a video")
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=rate)
        stream.pix_fmt = "yuv420p"
        stream.height, stream.width = frames[0].shape[:2]
        for frame in frames:
            picture: NDArray[np.uint8] = np.ascontiguousarray(frame)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
