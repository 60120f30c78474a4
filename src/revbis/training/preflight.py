"""Refuses a run that cannot be made, before anything is started; imports torch for GPUs alone."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from revbis.agents import resolve
from revbis.config import Change, Config, changes
from revbis.envs.distractors import Distractor
from revbis.envs.suites import suite_of
from revbis.envs.tasks import check_name, check_task
from revbis.system.extras import is_installed
from revbis.system.factories import is_factory_name, load_factory

if TYPE_CHECKING:
    from pathlib import Path

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")
_LEAST_PIXELS = 8


class UnfitMachineError(ValueError):
    """This machine cannot make the run; another one may."""


def check(config: Config, *, here: bool = True) -> None:
    """Refuses a run that cannot be made, or that would learn nothing.

    Args:
        config: The run.
        here: Whether this machine makes the run. If so, its device and packages are checked too.

    Raises:
        ValueError: With what was wanted, what came and what to do.
        UnfitMachineError: The same, if only this machine is in the way.
    """
    _check_budget(config.frames, config.agent.explore_steps, config.action_repeat)
    if not _DEVICE.fullmatch(config.device):
        raise ValueError(
            f"device must be auto, cpu, mps, cuda or cuda:N, got {config.device!r}; try auto"
        )
    check_name(config.task)
    stack = _check_observation(config)
    config.agent.check(config.observation_shape, config.device)
    least = stack + config.n_step + 1
    if config.replay_capacity < least:
        raise ValueError(
            f"replay_capacity must be at least frame_stack + n_step + 1 = {least} to hold a "
            f"transition, got {config.replay_capacity}; use a larger one"
        )
    if config.distractor is not None and (here or not config.distractor.startswith("video:")):
        _check_distractor(config.distractor, config.pixels)
    if here:
        _check_machine(config)


def check_unchanged(
    before: Config, now: Config, folder: Path | str, discard: str = "--restart"
) -> list[Change]:
    """Refuses settings with which the run in a folder cannot resume; returns the other changes.

    Args:
        before: What the run was started with.
        now: What is asked for.
        folder: Where the run is, for the message.
        discard: How the user gets rid of it, for the message.

    Raises:
        ValueError: With every setting that differs.
    """
    differing = changes(before, now)
    unsafe = [str(change) for change in differing if not change.safe]
    if unsafe:
        raise ValueError(
            f"{folder} was started with other settings: {'; '.join(unsafe)}. Pass the same "
            f"ones to resume it, another --out for a new run, or {discard} to discard it"
        )
    return differing


def _check_budget(frames: int, explore_steps: int, action_repeat: int) -> None:
    random = explore_steps * action_repeat
    if random >= frames:
        raise ValueError(
            f"nothing would be learned: explore_steps {explore_steps:,} x action_repeat "
            f"{action_repeat} = {random:,} frames of random actions come first, and frames is "
            f"{frames:,}; use more frames or fewer explore_steps"
        )


def _check_observation(config: Config) -> int:
    """Refuses sizes that do not fit; returns the frames in an observation."""
    if config.observation == "state":
        if config.distractor is not None:
            raise ValueError("a distractor is seen in pixels only; leave it out with state")
        return 1
    if config.pixels < _LEAST_PIXELS:
        raise ValueError(f"pixels must be at least {_LEAST_PIXELS}, got {config.pixels}")
    if config.shift >= config.pixels:
        raise ValueError(f"shift must be less than pixels, {config.pixels}, got {config.shift}")
    if not suite_of(config.task).drawn_by_mujoco:
        if config.distractor is not None:
            raise ValueError(f"{config.task} draws its own pictures: leave distractor out")
        if config.quality != "full":
            raise ValueError(f"{config.task} draws its own pictures: quality must be full")
    return config.frame_stack


def _check_distractor(spec: str, pixels: int) -> None:
    try:
        Distractor(spec, pixels)
    except ModuleNotFoundError as absent:
        raise UnfitMachineError(str(absent)) from None


def _check_machine(config: Config) -> None:
    objective = resolve(config.method).objective
    if objective is not None and is_factory_name(objective):
        load_factory(objective)
    try:
        check_task(config.task)
    except ModuleNotFoundError as absent:
        raise UnfitMachineError(str(absent)) from None
    if config.wandb and not is_installed("wandb"):
        raise UnfitMachineError("wandb is set, but not installed; type: pip install wandb")
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
        return "" if torch.backends.mps.is_available() else "there is no Apple GPU"
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA GPU"
    count = torch.cuda.device_count()
    return "" if int(number or 0) < count else f"there are only {count} GPUs, counted from 0"
