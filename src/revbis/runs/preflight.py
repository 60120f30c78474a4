"""Refuses a run that cannot be trained, before it starts; imports torch only to check GPUs."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from revbis.agents import resolve
from revbis.envs.distractors import GAUSSIAN, Distractor, check_strength
from revbis.envs.suites import check_name, check_task, suite_of
from revbis.io.machine import check_bfloat16
from revbis.io.plugins import is_installed, load_factory, missing_text
from revbis.runs.config import Change, Config, changes

if TYPE_CHECKING:
    from pathlib import Path

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")
_LEAST_PIXELS = 8


class UnfitMachineError(ValueError):
    """This machine cannot train the run, but another one may."""


def check(config: Config, *, here: bool = True) -> None:
    """Refuses a run that cannot be trained, or that would not make any update.

    Args:
        config: The run.
        here: Whether the run trains on this machine; then its device and packages are checked too.

    Raises:
        ValueError: With the requirement, the value and what to do.
        UnfitMachineError: The same, if another machine might train the run.
    """
    _check_budget(config.frames, config.agent.explore_steps, config.action_repeat)
    if not _DEVICE.fullmatch(config.device):
        raise ValueError(
            f"device must be auto, cpu, mps, cuda or cuda:N, got {config.device!r}; try auto"
        )
    check_name(config.task)
    stack = _check_observation(config)
    config.agent.check(config.observation_shape)
    least = stack + config.n_step + 1
    if config.replay_capacity < least:
        raise ValueError(
            f"replay_capacity must be at least frame_stack + n_step + 1 = {least} to hold a "
            f"transition, got {config.replay_capacity}; increase it"
        )
    background = _background(config)
    if background is not None and (here or not background.startswith("video:")):
        _check_background(background, config.pixels)
    if here:
        _check_machine(config)


def check_unchanged(
    before: Config, now: Config, folder: Path | str, discard: str = "--restart"
) -> list[Change]:
    """Refuses settings with which the run in a folder cannot resume; returns the other changes.

    Args:
        before: The config that the run was started with.
        now: The requested config.
        folder: The run's folder, for the message.
        discard: How to discard the run, for the message.

    Raises:
        ValueError: With every such setting.
    """
    differing = changes(before, now)
    unsafe = [str(change) for change in differing if not change.safe]
    if unsafe:
        raise ValueError(
            f"{folder} was started with other settings: {'; '.join(unsafe)}. Pass the same "
            f"settings to resume it, another --out for a new run, or {discard} to discard it"
        )
    return differing


def _check_budget(frames: int, explore_steps: int, action_repeat: int) -> None:
    random = explore_steps * action_repeat
    if random >= frames:
        raise ValueError(
            f"the run would end before the first update: --explore-steps {explore_steps:,} x "
            f"--action-repeat {action_repeat} = {random:,} frames of random actions come first, "
            f"but --frames is {frames:,}; use more frames or fewer explore steps"
        )


def _check_observation(config: Config) -> int:
    """Refuses sizes that do not match; returns the number of frames in an observation."""
    check_strength(config.distractor, config.distractor_strength)
    if config.observation == "state":
        if config.distractor is not None:
            raise ValueError(
                "distractors require observation pixels; drop the distractor or use pixels"
            )
        return 1
    if config.state_noise:
        raise ValueError("state_noise requires observation state; drop state_noise or use state")
    if config.pixels < _LEAST_PIXELS:
        raise ValueError(f"pixels must be at least {_LEAST_PIXELS}, got {config.pixels}")
    if config.shift >= config.pixels:
        raise ValueError(f"shift must be less than pixels, {config.pixels}, got {config.shift}")
    if not suite_of(config.task).drawn_by_mujoco:
        if _background(config) is not None:
            raise ValueError(
                f"{config.task} draws its own images: drop distractor, or set it to gaussian"
            )
        if config.quality != "full":
            raise ValueError(f"{config.task} draws its own images: set quality to full")
    return config.frame_stack


def _background(config: Config) -> str | None:
    """The distractor, if it is a moving background."""
    return None if config.distractor == GAUSSIAN else config.distractor


def _check_background(spec: str, pixels: int) -> None:
    try:
        Distractor(spec, pixels)
    except ModuleNotFoundError as absent:
        raise UnfitMachineError(str(absent)) from None


def _check_machine(config: Config) -> None:
    method = resolve(config.method)
    if method.factory is not None:
        load_factory(method.factory)
    if method.agent.requires is not None and not is_installed(method.agent.requires[0]):
        raise UnfitMachineError(missing_text(*method.agent.requires, config.method))
    try:
        check_task(config.task)
    except ModuleNotFoundError as absent:
        raise UnfitMachineError(str(absent)) from None
    if config.wandb and not is_installed("wandb"):
        raise UnfitMachineError("wandb is set but not installed; run: pip install wandb")
    if config.agent.half_precision:
        from revbis.runs.trainer import resolve_device

        try:
            check_bfloat16(resolve_device(config.device))
        except ValueError as absent:
            raise UnfitMachineError(str(absent)) from None
    if config.device not in ("auto", "cpu"):
        problem = _device_problem(config.device)
        if problem:
            raise UnfitMachineError(
                f"device {config.device} cannot be used: {problem}; use auto or cpu"
            )


@cache
def _device_problem(name: str) -> str:
    """Why a GPU cannot be used; empty if it can."""
    import torch

    kind, _, number = name.partition(":")
    if kind == "mps":
        return "" if torch.backends.mps.is_available() else "PyTorch finds no Apple GPU"
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA GPU"
    count = torch.cuda.device_count()
    return "" if int(number or 0) < count else f"there are {count} GPUs, numbered from 0"
