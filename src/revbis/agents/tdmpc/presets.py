"""TD-MPC's presets, with the source of each value. Imports no torch."""

from __future__ import annotations

from typing import Any

CODE, OURS = "TD-MPC's code", "ours"
NOTES = "notes on TD-MPC's paper"  # second-hand: neither the paper nor the code was at hand for it
Values = dict[str, tuple[Any, str]]

_LONG_REPEATS = ("cartpole_",)
_SHORT_REPEATS = ("walker_", "dog_", "humanoid_")

_PAPER: Values = {
    "n_step": (1, CODE),
    "discount": (0.99, CODE),
    "update_every": (1, CODE),
    "shift": (4, CODE),
    "batch_size": (256, NOTES),
    "explore_steps": (5000, CODE),
    "latent_dim": (50, CODE),
    "hidden": (512, CODE),
    "encoder_hidden": (256, CODE),
    "channels": (32, CODE),
    "strides": ((2, 2, 2, 2), CODE),
    "learning_rate": (3e-4, NOTES),
    "horizon": (5, CODE),
    "horizon_steps": (25_000, CODE),
    "loss_decay": (0.5, CODE),
    "consistency_weight": (2.0, CODE),
    "reward_weight": (0.5, CODE),
    "value_weight": (0.1, CODE),
    "gradient_clip": (10.0, CODE),
    "target_rate": (0.01, CODE),
    "target_every": (2, CODE),
    "priority_exponent": (0.6, CODE),
    "importance_exponent": (0.4, CODE),
    "iterations": (8, CODE),
    "samples": (512, CODE),
    "policy_samples": (25, CODE),
    "elites": (64, CODE),
    "temperature": (0.5, CODE),
    "momentum": (0.1, CODE),
    "noise_start": (0.5, CODE),
    "noise_end": (0.05, CODE),
    "noise_steps": (25_000, CODE),
}
_PAPER_STATE: Values = _PAPER | {
    "batch_size": (512, CODE),
    "learning_rate": (1e-3, CODE),
    "iterations": (6, CODE),
}

_CPU: Values = _PAPER | {
    "frames": (80_000, OURS),
    "eval_every": (10_000, OURS),
    "discount": (0.97, OURS),  # as far ahead as 270 frames of cartpole
    "shift": (2, OURS),  # relative to 48 pixels as much as 4 of 84
    "batch_size": (64, OURS),
    "explore_steps": (500, OURS),
    "hidden": (256, OURS),
    "channels": (16, OURS),
    "strides": ((2, 2, 1, 1), OURS),  # with 2 everywhere, 48 pixels leave one place
    "learning_rate": (1e-3, OURS),
    "horizon": (3, OURS),
    "horizon_steps": (2000, OURS),
    "noise_steps": (2000, OURS),
    "iterations": (4, OURS),
    "samples": (256, OURS),
    "policy_samples": (12, OURS),
    "elites": (32, OURS),
}
_CPU_STATE: Values = _CPU | {
    "frames": (24_000, OURS),
    "eval_every": (8000, OURS),
    "discount": (0.99, CODE),
    "batch_size": (256, OURS),
    "horizon": (5, OURS),
}

_PRESETS = {
    ("paper", "pixels"): _PAPER,
    ("paper", "state"): _PAPER_STATE,
    ("cpu", "pixels"): _CPU,
    ("cpu", "state"): _CPU_STATE,
}


def presets(name: str, task: str, observation: str) -> Values:
    """The settings that differ from other agents', each as value and source.

    Args:
        name: The preset.
        task: The task; frames per action depend on it.
        observation: pixels or state.
    """
    return _PRESETS[name, observation] | {"action_repeat": _repeat(task)}


def _repeat(task: str) -> tuple[int, str]:
    """Frames per action, and the source."""
    suite, _, local = task.partition(":")
    if suite == "metaworld":
        return 1, CODE
    if suite != "dmc":
        return 2, OURS
    if local.startswith("finger_"):
        return 2, NOTES
    if local.startswith(_LONG_REPEATS):
        return 8, CODE
    return (2 if local.startswith(_SHORT_REPEATS) else 4), CODE
