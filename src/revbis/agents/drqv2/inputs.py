"""Validates the agent's inputs (shapes, types) and moves tensors to its device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from revbis import checks
from revbis.agents.drqv2.settings import DrQV2Settings
from revbis.replay import Batch, OneStep, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

Shape = tuple[int, ...]
_LARGEST = 65_536


def as_shape(value: Any) -> Shape:
    """The shape of images, (C, H, W), or of vectors, (D,)."""
    try:
        shape = tuple(checks.whole(size, "a size", 1, _LARGEST) for size in value)
    except (TypeError, ValueError):
        shape = ()
    if len(shape) not in (1, 3):
        raise ValueError(
            "observation_shape must be (C, H, W) of images or (D,) of vectors, with sizes up to "
            f"{_LARGEST:,}, got {value!r:.80}"
        )
    return shape


def as_action_size(value: Any) -> int:
    """The dimension of an action."""
    return checks.whole(value, "action_size", 1, _LARGEST)


def as_settings(value: object) -> DrQV2Settings:
    """The settings, if they are this agent's."""
    if not isinstance(value, DrQV2Settings):
        raise ValueError(f"settings must be DrQV2Settings, got {value!r:.80}")
    return value


def as_device(value: object) -> torch.device:
    """The device with this name."""
    try:
        if isinstance(value, (str, torch.device)):
            return torch.device(value)
    except RuntimeError:
        pass
    raise ValueError(f"device must be cpu, cuda, cuda:1, mps or similar, got {value!r:.80}")


def check_observation(observation: object, shape: Shape) -> None:
    """Refuses an observation whose shape or type is not the agent's."""
    requirement = f"observation must be {_number_type(shape)} of shape {shape}"
    if not isinstance(observation, np.ndarray):
        raise ValueError(f"{requirement}, got {observation!r:.80}")
    if observation.shape != shape or str(observation.dtype) != _number_type(shape):
        raise ValueError(f"{requirement}, got {observation.dtype} of shape {observation.shape}")


def check_observations(observations: object, shape: Shape) -> None:
    """Refuses a batch of observations whose shape or type is not the agent's."""
    requirement = f"observations must be {_number_type(shape)} {['B', *shape]}"
    if not isinstance(observations, Tensor):
        raise ValueError(f"{requirement}, got {observations!r:.80}")
    if (
        observations.shape[1:] != shape
        or observations.dtype != getattr(torch, _number_type(shape))
        or not len(observations)
    ):
        raise ValueError(f"{requirement}, got {observations.dtype} {list(observations.shape)}")


def check_batch(batch: Batch, shape: Shape, action_size: int, device: torch.device) -> Batch:
    """The batch on the device, if its shapes and types are the agent's."""
    if not isinstance(batch, Batch):
        raise ValueError(f"batch must be a Batch, as Replay.sample returns, got {batch!r:.80}")
    if not isinstance(batch.one_step, OneStep | None):
        raise ValueError(f"one_step must be a OneStep or None, got {batch.one_step!r:.80}")
    tensors = (*batch[:5], *(batch.one_step or ()))
    if not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in tensors):
        raise ValueError("every part of a batch must be a tensor with one entry per transition")
    size = len(batch.obs)
    observations = [("obs", batch.obs), ("next_obs", batch.next_obs)]
    one_step = batch.one_step
    columns = [("reward", batch.reward), ("discount", batch.discount)]
    if one_step is not None:
        observations.append(("one_step.next_obs", one_step.next_obs))
        columns += [("one_step.reward", one_step.reward), ("one_step.discount", one_step.discount)]
    for name, tensor in observations:
        _check_images(tensor, (size, *shape), name)
    _check_floats(batch.action, (size, action_size), "action")
    for name, tensor in columns:
        _check_floats(tensor, (size,), name)
    if batch.window is not None:
        _check_window(batch.window, (size, *shape), action_size)
    return _moved(batch, device)


def _check_window(window: object, shape: Shape, action_size: int) -> None:
    """Refuses a window that does not belong to a batch with observations of this shape."""
    if not isinstance(window, Window):
        raise ValueError(f"window must be a Window or None, got {window!r:.80}")
    next_obs = window.obs if window.next_obs is None else window.next_obs
    if not all(isinstance(each, Tensor) for each in (window.action, window.obs, next_obs)):
        raise ValueError("every part of a window must be a tensor; next_obs may be None")
    steps = window.action.shape[1] if window.action.ndim > 1 else 1
    _check_floats(window.action, (shape[0], steps, action_size), "window.action")
    _check_images(window.obs, shape, "window.obs")
    _check_images(next_obs, shape, "window.next_obs")


def _check_images(tensor: Tensor, shape: Shape, name: str) -> None:
    """Refuses observations that are not of this shape, with its type."""
    dtype = getattr(torch, _number_type(shape[1:]))
    if tensor.shape != shape or tensor.dtype != dtype:
        raise ValueError(
            f"{name} must be {dtype} {list(shape)}, got {tensor.dtype} {list(tensor.shape)}"
        )


def check_state(state: object, **names: str) -> None:
    """Refuses anything but a state with these names in it."""
    if not isinstance(state, dict):
        raise ValueError(f"the state must be a dict, as state_dict returns, got {state!r:.80}")
    for name, expected in names.items():
        value = state.get(name)
        if not isinstance(value, str) or value != expected:
            raise ValueError(f"the state's {name} must be {expected!r}, got {value!r:.80}")


@contextmanager
def fitting() -> Iterator[None]:
    """Refuses a state in one line, however loading it fails."""
    try:
        yield
    except Exception as problem:  # noqa: BLE001 (a foreign state can fail in any way)
        reason = checks.reason(problem)
        raise ValueError(f"the state does not fit this agent: {reason}") from None


def _moved(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    one_step = batch.one_step
    if one_step is not None:
        one_step = one_step._replace(**_on(device, one_step._asdict()))
    window = batch.window
    if window is not None:
        there = {name: each for name, each in window._asdict().items() if each is not None}
        window = window._replace(**_on(device, there))
    tensors = {name: batch._asdict()[name] for name in Batch._fields[:5]}
    return batch._replace(one_step=one_step, window=window, **_on(device, tensors))


def _on(device: torch.device, tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}


def _check_floats(tensor: Tensor, shape: Shape, name: str) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name} must be {list(shape)}, got {list(tensor.shape)}")
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must hold floats, got {tensor.dtype}")


def _number_type(shape: Shape) -> str:
    return "uint8" if len(shape) == 3 else "float32"
