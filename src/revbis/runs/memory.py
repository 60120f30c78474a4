"""What a run takes: memory of its process, disk space, and memory of a GPU. Imports no torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from revbis.replay.storage import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from revbis.agents import Agent
    from revbis.runs.config import Config

PROCESS_BYTES = 800_000_000  # Python, PyTorch and a simulator, as measured
ACTIONS = 12  # numbers in an action; tasks have 1 to 38, beside the thousands of a frame
_FEATURES = 64  # more than most tasks' own vectors have


def stored_records(config: Config) -> int:
    """Records of the replay buffer that a run ever fills; the others take no memory."""
    return max(min(config.replay_capacity, config.frames // config.action_repeat), 1)


def memory_bytes(config: Config) -> int:
    """Memory of a run's process: the replay buffer, the activations of an update, and the rest."""
    activations = activation_bytes(config, config.agent.batch_size)
    return PROCESS_BYTES + replay_bytes(config) + activations


def replay_bytes(config: Config) -> int:
    """Memory of a run's replay buffer when the budget is spent."""
    layout = _layout(config)
    frames = layout.frame_bytes if config.replay_storage == "ram" else 0
    return frames + layout.other_bytes


def disk_bytes(config: Config) -> int:
    """Disk space of a run's folder: mostly the replay buffer, which checkpoints contain."""
    layout = _layout(config)
    copies = 2 if config.replay_storage == "disk" else 1  # the buffer's own file, and checkpoints
    return copies * layout.frame_bytes + layout.other_bytes


def activation_bytes(config: Config, batch: int) -> int:
    """Memory of an update with a batch of this size, beside the replay buffer."""
    return config.agent.activation_bytes(config.observation_shape, batch)


def gpu_bytes(config: Config, agent: Agent) -> dict[str, int] | None:
    """An estimate of the GPU's memory that a run takes, by part, without CUDA's own.

    Networks, gradients and Adam's moments are counted; activations are the estimate of
    `activation_bytes`. It was not compared with a GPU.

    Args:
        config: The run.
        agent: Its agent, on any device.

    Returns:
        Bytes by part; None for agents of which it is not known what they train.
    """
    optimisers = getattr(agent, "optimisers", None)
    networks = agent.state_dict().get("networks")
    if optimisers is None or networks is None:
        return None
    trained = [
        parameter
        for adam in optimisers.values()
        for group in adam.param_groups
        for parameter in group["params"]
    ]
    gradients = {id(each): each for each in trained}  # a parameter in two optimisers has one
    images = 3 if config.agent.one_step else 2  # of a transition: the last, the next, one step on
    return {
        "networks": sum(map(_bytes, _tensors(networks))),
        "gradients": sum(map(_bytes, gradients.values())),
        "Adam": sum(2 * _bytes(each) + each.element_size() for each in trained),  # moments, steps
        "activations": activation_bytes(config, config.agent.batch_size),
        "batch": images * config.agent.batch_size * _observation_bytes(config),
    }


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _tensors(state: Any) -> Iterator[Tensor]:
    """The tensors in nested dictionaries."""
    if isinstance(state, dict):
        for part in state.values():
            yield from _tensors(part)
    elif hasattr(state, "element_size"):
        yield state


def _observation_bytes(config: Config) -> int:
    numbers = math.prod(config.observation_shape)
    return numbers if config.observation == "pixels" else 4 * numbers


def _layout(config: Config) -> Layout:
    """The replay buffer as far as it is filled."""
    side = config.pixels
    shape = (3, side, side) if config.observation == "pixels" else (_FEATURES,)
    return Layout(stored_records(config), shape, ACTIONS)
