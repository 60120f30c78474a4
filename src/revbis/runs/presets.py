"""Presets: settings that belong together, and the source of each value."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from revbis.agents.registry import resolve
from revbis.envs.suites import suite_of
from revbis.io import schema
from revbis.runs.config import RUN_SETTINGS, Config, RunSettings

PAPER, CODE, OURS = "the paper", "the authors' code", "ours"


class Setting(NamedTuple):
    """A value and its source: the paper's table or text, the authors' code, or this project."""

    value: Any
    source: str


_PAPER: dict[str, Setting] = {
    "frames": Setting(1_000_000, PAPER),
    "eval_every": Setting(10_000, PAPER),
    "eval_episodes": Setting(10, PAPER),
    "pixels": Setting(84, PAPER),
    "frame_stack": Setting(3, PAPER),
    "action_repeat": Setting(2, PAPER),
    "quality": Setting("full", PAPER),
    "batch_size": Setting(1024, PAPER),
    "n_step": Setting(3, PAPER),
    "discount": Setting(0.99, PAPER),
    "update_every": Setting(2, PAPER),
    "replay_capacity": Setting(1_000_000, PAPER),
    "explore_steps": Setting(2000, PAPER),
    "shift": Setting(4, CODE),
    "mode": Setting("alternating", PAPER),
    "feature_dim": Setting(50, PAPER),
    "latent_dim": Setting(50, PAPER),
    "hidden": Setting(1024, PAPER),
    "channels": Setting(32, CODE),
    "strides": Setting((2, 1, 1, 1), CODE),
    "learning_rate": Setting(1e-4, PAPER),
    "objective_learning_rate": Setting(1e-4, PAPER),
    "coefficient_learning_rate": Setting(1e-4, PAPER),
    "target_rate": Setting(0.01, PAPER),
    "action_penalty": Setting(0.0, CODE),
    "noise_clip": Setting(0.3, PAPER),
    "noise_start": Setting(1.0, PAPER),
    "noise_end": Setting(0.1, PAPER),
    "noise_steps": Setting(2_000_000, PAPER),
    "transition": Setting("n_step", PAPER),
    "checkpoint_every": Setting(50_000, OURS),
}

# Chosen by returns after equal CPU time; see docs/training.md.
_CPU: dict[str, Setting] = _PAPER | {
    "frames": Setting(60_000, OURS),
    "eval_every": Setting(5_000, OURS),
    "eval_episodes": Setting(5, OURS),
    "checkpoint_every": Setting(10_000, OURS),
    "pixels": Setting(48, OURS),
    "action_repeat": Setting(4, OURS),
    "update_every": Setting(1, OURS),
    "channels": Setting(16, OURS),
    "quality": Setting("fast", OURS),
    "batch_size": Setting(128, OURS),
    "discount": Setting(0.97, OURS),  # per four frames
    "shift": Setting(2, OURS),  # relative to 48 pixels as much as 4 of 84
    "replay_capacity": Setting(100_000, OURS),
    "mode": Setting("balanced", OURS),
    "objective_weight": Setting(0.1, OURS),
    "action_penalty": Setting(0.01, OURS),  # small actors saturate without it
    "hidden": Setting(256, OURS),
    "strides": Setting((2, 2, 1, 1), OURS),
    "learning_rate": Setting(3e-4, OURS),
    "objective_learning_rate": Setting(3e-4, OURS),
    "coefficient_learning_rate": Setting(3e-4, OURS),
    "noise_steps": Setting(5000, OURS),
    "explore_steps": Setting(500, OURS),
    "threads": Setting(1, OURS),  # networks this small gain nothing from more
}
_CPU_ITSELF = {"quality": Setting("full", OURS)}  # tasks that draw their own images

_SETTINGS = {"paper": _PAPER, "cpu": _CPU}
PRESETS = {
    "paper": "the paper's sizes and budgets, for a GPU",
    "cpu": "smaller in every dimension, for a few CPU cores",
}


def preset_settings(
    name: str, task: str, method: str = "drqv2", observation: str = "pixels"
) -> dict[str, Setting]:
    """The settings of a preset for a task and a method, without those its agent does not have.

    Some agents have other settings for pixels than for state vectors.

    Raises:
        ValueError: For an unknown preset or method.
    """
    schema.choice(name, PRESETS, "--preset")
    resolved, suite = resolve(method), suite_of(task)
    agent = resolved.agent
    theirs = {} if agent.presets is None else agent.presets(name, task, observation)
    agents_own = {key: Setting(*value) for key, value in theirs.items()}
    own = {key: Setting(*value) for key, value in suite.presets.get(name, {}).items()}
    itself = {} if name == "paper" or suite.drawn_by_mujoco else _CPU_ITSELF
    required = {key: Setting(value, OURS) for key, value in resolved.defaults.items()}
    settings = _SETTINGS[name] | agents_own | itself | own | required
    known = RUN_SETTINGS | agent.flags
    return {key: value for key, value in settings.items() if key in known}


def preset_config(
    name: str, task: str, method: str = "drqv2", observation: str = "pixels"
) -> Config:
    """The config of a preset for a task, a method and a kind of observation, with seed 1."""
    settings = preset_settings(name, task, method, observation)
    given = {"task": task, "method": method, "preset": name, "observation": observation}
    return Config.from_dict(given | {key: setting.value for key, setting in settings.items()})


def command_line(config: Config) -> str:
    """The command that trains a run, with a flag for each setting that differs from its preset."""
    usual = preset_config(config.preset, config.task, config.method, config.observation).as_dict()
    usual["observation"] = RunSettings.observation  # a flag, though the defaults follow from it
    words = ["revbis", "train", "--task", config.task, "--method", config.method]
    words += ["--preset", config.preset, "--seed", str(config.seed)]
    for name, value in config.effective().items():
        if name in ("task", "method", "preset", "seed") or value == usual[name]:
            continue
        flag = name.replace("_", "-")
        if isinstance(usual[name], bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)
