"""Dreamer-v3's presets, with the source of each value. Imports no torch."""

from __future__ import annotations

from typing import Any

CODE, OURS = "sheeprl's dreamer_v3_S", "ours"
Values = dict[str, tuple[Any, str]]

_PAPER: Values = {
    "pixels": (64, CODE),
    "frame_stack": (1, CODE),  # the recurrent state remembers
    "shift": (0, CODE),
    "n_step": (1, CODE),
    "discount": (0.997, CODE),  # to three digits
    "update_every": (1, CODE),
    "batch_size": (16, CODE),
    "explore_steps": (1024, CODE),
    "sequence_length": (64, CODE),
    "hidden": (512, CODE),
    "layers": (2, CODE),
    "channels": (32, CODE),
    "recurrent_dim": (512, CODE),
    "groups": (32, CODE),
    "classes": (32, CODE),
    "horizon": (15, CODE),
    "learning_rate": (1e-4, CODE),
    "actor_learning_rate": (3e-5, CODE),
    "critic_learning_rate": (3e-5, CODE),
    "entropy_weight": (3e-4, CODE),
}

_CPU: Values = _PAPER | {
    "pixels": (32, OURS),
    "discount": (0.985, OURS),  # per four frames
    "update_every": (2, OURS),
    "explore_steps": (500, OURS),
    "batch_size": (8, OURS),
    "sequence_length": (32, OURS),
    "hidden": (128, OURS),
    "layers": (1, OURS),
    "channels": (8, OURS),
    "recurrent_dim": (128, OURS),
    "groups": (16, OURS),
    "classes": (16, OURS),
    "learning_rate": (1e-3, OURS),
    "actor_learning_rate": (3e-4, OURS),
    "critic_learning_rate": (3e-4, OURS),
}

_PRESETS = {"paper": _PAPER, "cpu": _CPU}


def presets(name: str, task: str, observation: str) -> Values:  # noqa: ARG001
    """The settings that differ from other agents', each as value and source.

    Args:
        name: The preset.
        task: The task.
        observation: pixels or state.
    """
    return _PRESETS[name]
