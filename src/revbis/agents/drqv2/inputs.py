"""The door of the agent: shapes and types checked, tensors moved to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from revbis.replay import Batch

Shape = tuple[int, ...]


def check_shape(observation_shape: Shape, action_size: int) -> None:
    """Refuses observations that are neither images nor vectors, and empty actions."""
    if len(observation_shape) not in (1, 3) or min(observation_shape) < 1:
        raise ValueError(
            "observation_shape must be (C, H, W) of images or (D,) of vectors, "
            f"got {observation_shape}"
        )
    if action_size < 1:
        raise ValueError(f"action_size must be at least 1, got {action_size}")


def check_observation(observation: NDArray[Any], shape: Shape) -> None:
    """Refuses an observation of another shape or type than the agent was made for."""
    wanted = _number_type(shape)
    if observation.shape != shape or str(observation.dtype) != wanted:
        raise ValueError(
            f"observation must be {wanted} of shape {shape}, "
            f"got {observation.dtype} of shape {observation.shape}"
        )


def check_batch(batch: Batch, shape: Shape, action_size: int, device: torch.device) -> Batch:
    """The batch on the device, if its shapes and types are the agent's."""
    size = len(batch.obs)
    wanted = getattr(torch, _number_type(shape))
    seen = [("obs", batch.obs), ("next_obs", batch.next_obs)]
    one_step = batch.one_step
    columns = [("reward", batch.reward), ("discount", batch.discount)]
    if one_step is not None:
        seen.append(("one_step.next_obs", one_step.next_obs))
        columns += [("one_step.reward", one_step.reward), ("one_step.discount", one_step.discount)]
    for name, tensor in seen:
        if tensor.shape != (size, *shape) or tensor.dtype != wanted:
            raise ValueError(
                f"{name} must be {wanted} {[size, *shape]}, got {tensor.dtype} {list(tensor.shape)}"
            )
    _wants(batch.action, (size, action_size), "action")
    for name, tensor in columns:
        _wants(tensor, (size,), name)
    return _moved(batch, device)


def _moved(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    one_step = batch.one_step
    if one_step is not None:
        one_step = one_step._replace(**_on(device, one_step._asdict()))
    tensors = {name: value for name, value in batch._asdict().items() if name != "one_step"}
    return batch._replace(one_step=one_step, **_on(device, tensors))


def _on(device: torch.device, tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}


def _wants(tensor: Tensor, shape: Shape, name: str) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name} must be {list(shape)}, got {list(tensor.shape)}")


def _number_type(shape: Shape) -> str:
    return "uint8" if len(shape) == 3 else "float32"
