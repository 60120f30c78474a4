"""Refuses a run that cannot be trained, before it starts; imports torch only to check GPUs."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import TYPE_CHECKING

from revbis.agents import resolve
from revbis.envs import EnvironmentSettings, make_background
from revbis.envs.distractors import GAUSSIAN
from revbis.envs.suites import check_task
from revbis.io.machine import check_bfloat16
from revbis.io.plugins import is_installed, load_factory, missing_text
from revbis.replay.storage import Layout
from revbis.runs.config import Change, Config, changes

if TYPE_CHECKING:
    from pathlib import Path

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")


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
    random = config.agent.explore_steps * config.action_repeat
    if random >= config.frames:
        raise ValueError(
            "the run would end before the first update: --explore-steps "
            f"{config.agent.explore_steps:,} x --action-repeat {config.action_repeat} = "
            f"{random:,} frames of random actions come first, but --frames is "
            f"{config.frames:,}; use more frames or fewer explore steps"
        )
    if not _DEVICE.fullmatch(config.device):
        raise ValueError(
            f"device must be auto, cpu, mps, cuda or cuda:N, got {config.device!r}; try auto"
        )
    EnvironmentSettings(**config.environment)
    config.agent.check(config.observation_shape)
    pixels = config.observation == "pixels"
    frame = (3, config.pixels, config.pixels) if pixels else (1,)
    stack = config.frame_stack if pixels else 1
    Layout(config.replay_capacity, frame, 1).check_sampling(stack, config.n_step, config.shift)
    if here:
        _check_machine(config)


def check_unchanged(
    before: Config, now: Config, folder: Path | str, advice: str | None = None
) -> list[Change]:
    """Refuses settings with which the run in a folder cannot resume; returns the other changes.

    Args:
        before: The run in the folder.
        now: What it is to resume with.
        folder: The folder, for the message.
        advice: What to do about it, for the message; None for the advice of `revbis train`.

    Raises:
        ValueError: With every such setting; if one is wrong in any run, with that.
    """
    differing = changes(before, now)
    unsafe = [str(change) for change in differing if not change.safe]
    if unsafe:
        check(now, here=False)
        advice = advice or (
            f"To resume it as it is: revbis train {shlex.quote(str(folder))}. To keep both, pass "
            "--name NAME for the new run; to discard it, --restart"
        )
        raise ValueError(f"{folder} was started with other settings: {'; '.join(unsafe)}. {advice}")
    return differing


def _check_machine(config: Config) -> None:
    method = resolve(config.method)
    for factory in filter(None, (method.factory, *config.agent.code)):
        load_factory(factory)
    if method.agent.requires is not None and not is_installed(method.agent.requires[0]):
        raise UnfitMachineError(missing_text(*method.agent.requires, config.method))
    try:
        check_task(config.task)
        if config.distractor not in (None, GAUSSIAN):
            make_background(config.environment, "train")
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
