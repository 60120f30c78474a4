"""What a run will take, before it is started: time, memory and disk. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from revbis.config import Config
from revbis.replay.storage import Layout

_PROCESS_BYTES = 800_000_000  # Python, PyTorch and a simulator, as measured
_ACTIONS = 32  # more numbers than any action has
_FEATURES = 64  # more than most tasks' own vectors have


@dataclass(frozen=True)
class Speed:
    """What the parts of a run take, in seconds.

    Attributes:
        step: An agent step of the environment, drawing included.
        act: The choice of an action by the networks.
        update: An update.
        episode: Agent steps of an episode, where that is known: evaluations play whole ones.
    """

    step: float
    act: float
    update: float
    episode: int | None = None


def memory_bytes(config: Config) -> int:
    """Memory of a run: the replay buffer, the activations of an update, and the process."""
    layout = _layout(config)
    frames = layout.frame_bytes if config.replay_storage == "ram" else 0
    activations = activation_bytes(config, config.agent.batch_size)
    return _PROCESS_BYTES + frames + layout.other_bytes + activations


def disk_bytes(config: Config) -> int:
    """Disk of a run's folder: mostly the replay buffer, which checkpoints contain."""
    layout = _layout(config)
    copies = 2 if config.replay_storage == "disk" else 1  # the buffer's own file, and checkpoints
    return copies * layout.frame_bytes + layout.other_bytes


def activation_bytes(config: Config, batch: int) -> int:
    """Memory of an update with a batch of this size, beside the replay buffer."""
    return config.agent.activation_bytes(config.observation_shape, batch)


def seconds_left(config: Config, done: int, speed: Speed) -> float:
    """Time a run will still take. Its first steps are random: they need no network and no update.

    Args:
        config: The run.
        done: Frames it has made.
        speed: What its parts take.
    """
    first = done // config.action_repeat
    steps = max(-(-config.frames // config.action_repeat) - first, 0)
    learning = max(steps - max(config.agent.explore_steps - first, 0), 0)
    training = steps * speed.step + learning * (speed.act + speed.update / config.update_every)
    if not steps or speed.episode is None:
        return training
    evaluations = config.frames // config.eval_every - done // config.eval_every + (done == 0)
    played = evaluations * config.eval_episodes * speed.episode
    return training + played * (speed.step + speed.act)


def _layout(config: Config) -> Layout:
    """The replay buffer as far as it is filled; what is never written takes no memory."""
    records = max(min(config.replay_capacity, config.frames // config.action_repeat), 1)
    side = config.pixels
    shape = (3, side, side) if config.observation == "pixels" else (_FEATURES,)
    return Layout.checked(records, shape, _ACTIONS)
