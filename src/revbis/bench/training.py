"""How fast a whole run is, and where its time goes."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from revbis.runs.run import train

if TYPE_CHECKING:
    from revbis.runs.config import Config
    from revbis.runs.records import Status

_EXPLORED = 10  # a run acts at random for this share of its frames
_NOT_TRAINING = ("evaluation", "saving")


def measure_training(config: Config, frames: int) -> dict[str, Any]:
    """Trains a short run in a folder of its own, which is deleted.

    Args:
        config: The run.
        frames: Its budget; a tenth of the frames act at random before updates start.

    Returns:
        Frames, updates, frames per second of training, and seconds by phase.
    """
    last: list[Status] = []
    with TemporaryDirectory() as folder:
        short = config.with_settings(
            frames=frames,
            explore_steps=frames // config.action_repeat // _EXPLORED,
            eval_every=frames,
            eval_episodes=1,
            checkpoint_every=frames,
            replay_capacity=frames,
            tensorboard=False,
            out=folder,
        )
        train(short, report=lambda status: last.__setitem__(slice(None), [status]))
    [status] = last
    seconds = {name: round(value, 3) for name, value in status.seconds.items()}
    training = sum(value for name, value in seconds.items() if name not in _NOT_TRAINING)
    return {
        "frames": status.progress.frames,
        "updates": status.progress.updates,
        "frames_per_second": round(status.progress.frames / training, 1),
        "seconds": seconds,
    }
