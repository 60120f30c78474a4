"""TACO's presets, with the source of each value. Imports no torch."""

from __future__ import annotations

from typing import Any

CODE = "TACO's code"
Values = dict[str, tuple[Any, str]]

_LOSSES: Values = {
    "action_steps": (3, CODE),
    "tokens": ("learned", CODE),
    "token_dim": (None, CODE),  # int(1.25 A) + 1
    "taco_loss": (True, CODE),
    "curl_loss": (True, CODE),
    "reward_loss": (True, CODE),
}
_PAPER: Values = _LOSSES | {
    "pixels": (84, CODE),
    "frame_stack": (3, CODE),
    "action_repeat": (2, CODE),
    "batch_size": (1024, CODE),
    "n_step": (3, CODE),
    "discount": (0.99, CODE),
    "update_every": (2, CODE),
    "replay_capacity": (1_000_000, CODE),
    "explore_steps": (2000, CODE),
    "mode": ("alternating", CODE),
    "feature_dim": (50, CODE),
    "latent_dim": (50, CODE),
    "hidden": (1024, CODE),
    "channels": (32, CODE),
    "strides": ((2, 1, 1, 1), CODE),
    "shift": (4, CODE),
    "learning_rate": (1e-4, CODE),
    "objective_learning_rate": (1e-4, CODE),
    "target_rate": (0.01, CODE),
    "action_penalty": (0.0, CODE),
    "noise_clip": (0.3, CODE),
    "noise_start": (1.0, CODE),
    "noise_end": (0.1, CODE),
    "noise_steps": (500_000, CODE),  # of its "medium" tasks
}


def presets(name: str, task: str, observation: str) -> Values:  # noqa: ARG001
    """The settings in which a preset differs from DrQ-v2's, or has another source."""
    return _PAPER if name == "paper" else _LOSSES
