"""What presets set for each agent, with the source of each value. Imports no torch."""

from __future__ import annotations

from typing import Any

DRQV2, TACO = "DrQ-v2's code", "TACO's code"
Values = dict[str, tuple[Any, str]]

# The paper trains on no humanoid; on its own domains its table holds. docs/deviations.md, 22.
_HUMANOIDS = ("humanoid_run", "humanoid_stand", "humanoid_walk")
_HUMANOID: Values = {"learning_rate": (8e-5, DRQV2), "feature_dim": (100, DRQV2)}


def _control_task(task: str) -> str:
    """The name of a task of DeepMind Control; empty for any other."""
    suite, _, name = task.partition(":")
    return name if suite == "dmc" else ""


def drqv2_presets(name: str, task: str, observation: str) -> Values:  # noqa: ARG001
    """The settings that depend on the task, the same with and without an objective."""
    return _HUMANOID if name == "paper" and _control_task(task) in _HUMANOIDS else {}


_TACO_LOSSES: Values = {
    "action_steps": (3, TACO),
    "tokens": ("learned", TACO),
    "token_dim": (None, TACO),  # int(1.25 A) + 1
    "taco_loss": (True, TACO),
    "curl_loss": (True, TACO),
    "reward_loss": (True, TACO),
}
_TACO_PAPER: Values = _TACO_LOSSES | {
    "pixels": (84, TACO),
    "frame_stack": (3, TACO),
    "action_repeat": (2, TACO),
    "batch_size": (1024, TACO),
    "n_step": (3, TACO),
    "discount": (0.99, TACO),
    "update_every": (2, TACO),
    "replay_capacity": (1_000_000, TACO),
    "explore_steps": (2000, TACO),
    "mode": ("alternating", TACO),
    "feature_dim": (50, TACO),
    "latent_dim": (50, TACO),
    "hidden": (1024, TACO),
    "channels": (32, TACO),
    "strides": ((2, 1, 1, 1), TACO),
    "shift": (4, TACO),
    "learning_rate": (1e-4, TACO),
    "objective_learning_rate": (1e-4, TACO),
    "target_rate": (0.01, TACO),
    "action_penalty": (0.0, TACO),
    "noise_clip": (0.3, TACO),
    "noise_start": (1.0, TACO),
    "noise_end": (0.1, TACO),
}

# TACO's code builds on DrQ-v2's. Of its own files for tasks only four could be read: medium, hard,
# acrobot_swingup_sparse and manipulator_bring_ball. The others' values are from DrQ-v2's files.
_EASY = (
    *("ball_in_cup_catch", "cartpole_balance", "cartpole_balance_sparse", "cartpole_swingup"),
    *("finger_spin", "hopper_stand", "pendulum_swingup", "walker_stand", "walker_walk"),
)
_MEDIUM = (
    *("acrobot_swingup", "cartpole_swingup_sparse", "cheetah_run", "finger_turn_easy"),
    *("finger_turn_hard", "hopper_hop", "quadruped_run", "quadruped_walk", "reach_duplo"),
    *("reacher_easy", "reacher_hard", "walker_run"),
)
_TACO_NOISE: dict[str, tuple[int, str]] = {
    **dict.fromkeys(_EASY, (100_000, DRQV2)),
    **dict.fromkeys(_MEDIUM, (500_000, DRQV2)),
    **dict.fromkeys(_HUMANOIDS, (2_000_000, DRQV2)),
    "acrobot_swingup_sparse": (500_000, TACO),
    "manipulator_bring_ball": (2_000_000, TACO),
}
_TACO_TASKS: dict[str, Values] = {
    "walker_run": {"n_step": (1, DRQV2)},
    "walker_stand": {"n_step": (1, DRQV2)},
    "walker_walk": {"n_step": (1, DRQV2)},
    "quadruped_run": {"replay_capacity": (100_000, DRQV2)},
    # In TACO's code one size is that of the trunks and of z.
    **{task: _HUMANOID | {"latent_dim": (100, DRQV2)} for task in _HUMANOIDS},
}


def taco_presets(name: str, task: str, observation: str) -> Values:  # noqa: ARG001
    """The settings in which a preset differs from DrQ-v2's, or has another source."""
    if name != "paper":
        return _TACO_LOSSES
    local = _control_task(task)
    noise = _TACO_NOISE.get(local, (500_000, OURS))  # of medium tasks, where no file was found
    return _TACO_PAPER | {"noise_steps": noise} | _TACO_TASKS.get(local, {})


TDMPC, OURS = "TD-MPC's code", "ours"
NOTES = "notes on TD-MPC's paper"  # second-hand: neither the paper nor the code was at hand for it

# Of the file for pixels only the first version could be read: eight iterations, no batch size, no
# learning rate. Its authors announced new values on 27 March 2022; copies of their code have these.
COPIES = "copies of TD-MPC's code"

_LONG_REPEATS = ("cartpole_",)
_SHORT_REPEATS = ("walker_", "dog_", "humanoid_")

_TDMPC_PAPER: Values = {
    "n_step": (1, TDMPC),
    "discount": (0.99, TDMPC),
    "update_every": (1, TDMPC),
    "shift": (4, TDMPC),
    "batch_size": (256, COPIES),
    "explore_steps": (5000, TDMPC),
    "latent_dim": (50, TDMPC),
    "hidden": (512, TDMPC),
    "encoder_hidden": (256, TDMPC),
    "channels": (32, TDMPC),
    "strides": ((2, 2, 2, 2), TDMPC),
    "learning_rate": (3e-4, COPIES),
    "horizon": (5, TDMPC),
    "horizon_steps": (25_000, TDMPC),
    "loss_decay": (0.5, TDMPC),
    "consistency_weight": (2.0, TDMPC),
    "reward_weight": (0.5, TDMPC),
    "value_weight": (0.1, TDMPC),
    "gradient_clip": (10.0, TDMPC),
    "target_rate": (0.01, TDMPC),
    "target_every": (2, TDMPC),
    "priority_exponent": (0.6, TDMPC),
    "importance_exponent": (0.4, TDMPC),
    "iterations": (6, COPIES),  # none for pixels, so the general value
    "samples": (512, TDMPC),
    "policy_samples": (25, TDMPC),
    "elites": (64, TDMPC),
    "temperature": (0.5, TDMPC),
    "momentum": (0.1, TDMPC),
    "noise_start": (0.5, TDMPC),
    "noise_end": (0.05, TDMPC),
    "noise_steps": (25_000, TDMPC),
}
_TDMPC_PAPER_STATE: Values = _TDMPC_PAPER | {
    "batch_size": (512, TDMPC),
    "learning_rate": (1e-3, TDMPC),
    "iterations": (6, TDMPC),
}

_TDMPC_CPU: Values = _TDMPC_PAPER | {
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
_TDMPC_CPU_STATE: Values = _TDMPC_CPU | {
    "frames": (24_000, OURS),
    "eval_every": (8000, OURS),
    "discount": (0.99, TDMPC),
    "batch_size": (256, OURS),
    "horizon": (5, OURS),
}

_TDMPC_PRESETS = {
    ("paper", "pixels"): _TDMPC_PAPER,
    ("paper", "state"): _TDMPC_PAPER_STATE,
    ("cpu", "pixels"): _TDMPC_CPU,
    ("cpu", "state"): _TDMPC_CPU_STATE,
}


def tdmpc_presets(name: str, task: str, observation: str) -> Values:
    """The settings that differ from other agents'; frames per action depend on the task."""
    return _TDMPC_PRESETS[name, observation] | {"action_repeat": _tdmpc_repeat(task)}


def _tdmpc_repeat(task: str) -> tuple[int, str]:
    """Frames per action, and the source."""
    suite, _, local = task.partition(":")
    if suite == "metaworld":
        return 1, TDMPC
    if suite != "dmc":
        return 2, OURS
    if local.startswith("finger_"):
        return 2, NOTES
    if local.startswith(_LONG_REPEATS):
        return 8, TDMPC
    return (2 if local.startswith(_SHORT_REPEATS) else 4), TDMPC


MRQ = "MR.Q's code"

_MRQ_PAPER: Values = {
    "representation": (("model",), MRQ),
    "objective_weight": (0.1, OURS),
    "coefficient_learning_rate": (1e-4, OURS),
    "n_step": (3, MRQ),
    "discount": (0.99, MRQ),
    "action_repeat": (2, MRQ),
    "update_every": (1, MRQ),
    "replay_capacity": (1_000_000, MRQ),
    "shift": (4, MRQ),
    "batch_size": (256, MRQ),
    "explore_steps": (10_000, MRQ),
    "latent_dim": (512, MRQ),
    "action_dim": (256, MRQ),
    "hidden": (512, MRQ),
    "channels": (32, MRQ),
    "strides": ((2, 2, 2, 1), MRQ),
    "centre_images": (False, MRQ),
    "learning_rate": (3e-4, MRQ),
    "encoder_learning_rate": (1e-4, MRQ),
    "weight_decay": (1e-4, MRQ),
    "horizon": (5, MRQ),
    "consistency_weight": (1.0, MRQ),
    "reward_weight": (0.1, MRQ),
    "termination_weight": (0.1, MRQ),
    "gradient_clip": (20.0, MRQ),
    "target_every": (250, MRQ),
    "priority_exponent": (0.4, MRQ),
    "action_penalty": (1e-5, MRQ),
    "noise": (0.2, MRQ),
    "target_noise": (0.2, MRQ),
    "noise_clip": (0.3, MRQ),
    "precision": ("float32", MRQ),
}

# Smaller where that costs little, for runs of some 20,000 steps; see docs/mrq.md.
_MRQ_CPU: Values = _MRQ_PAPER | {
    "frames": (80_000, OURS),
    "action_repeat": (4, OURS),
    "replay_capacity": (100_000, OURS),
    "shift": (2, OURS),  # relative to 48 pixels as much as 4 of 84
    "batch_size": (128, OURS),
    "explore_steps": (5000, OURS),  # as many frames as MR.Q's, and no time: nothing is learned yet
    "latent_dim": (128, OURS),
    "action_dim": (64, OURS),
    "hidden": (256, OURS),
    "channels": (16, OURS),
    "strides": ((2, 2, 1, 1), OURS),
    "encoder_learning_rate": (3e-4, OURS),
    "horizon": (3, OURS),
    "action_penalty": (0.01, OURS),  # small actors saturate without it
}

# φ learns from images what a reward depends on; see docs/mrq.md.
_MRQ_CPU_PIXELS: Values = {
    "frames": (250_000, OURS),
    "pixels": (32, OURS),
    "centre_images": (True, OURS),
    "shift": (0, OURS),
    "encoder_learning_rate": (1e-3, OURS),
    "reward_weight": (1.0, OURS),
}


def mrq_presets(name: str, task: str, observation: str) -> Values:
    """The settings that differ from other agents'; frames per action depend on the task."""
    values = {"paper": _MRQ_PAPER, "cpu": _MRQ_CPU}[name]
    if name == "cpu" and observation == "pixels":
        values = values | _MRQ_CPU_PIXELS
    return values | {"action_repeat": (1, MRQ)} if task.startswith("gym:") else values


SHEEPRL = "sheeprl's dreamer_v3_S"

_DREAMER_PAPER: Values = {
    "pixels": (64, SHEEPRL),
    "frame_stack": (1, SHEEPRL),  # the recurrent state remembers
    "shift": (0, SHEEPRL),
    "n_step": (1, SHEEPRL),
    "discount": (0.997, SHEEPRL),  # to three digits
    "update_every": (1, SHEEPRL),
    "batch_size": (16, SHEEPRL),
    "explore_steps": (1024, SHEEPRL),
    "sequence_length": (64, SHEEPRL),
    "hidden": (512, SHEEPRL),
    "layers": (2, SHEEPRL),
    "channels": (32, SHEEPRL),
    "recurrent_dim": (512, SHEEPRL),
    "groups": (32, SHEEPRL),
    "classes": (32, SHEEPRL),
    "horizon": (15, SHEEPRL),
    "learning_rate": (1e-4, SHEEPRL),
    "actor_learning_rate": (3e-5, SHEEPRL),
    "critic_learning_rate": (3e-5, SHEEPRL),
    "entropy_weight": (3e-4, SHEEPRL),
}

# For as many updates as an hour of one core has room for; see docs/dreamerv3.md.
_DREAMER_CPU: Values = _DREAMER_PAPER | {
    "pixels": (32, OURS),
    "discount": (0.985, OURS),  # per four frames
    "explore_steps": (500, OURS),
    "batch_size": (8, OURS),
    "sequence_length": (16, OURS),
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


def dreamerv3_presets(name: str, task: str, observation: str) -> Values:  # noqa: ARG001
    """The settings that differ from other agents'."""
    return {"paper": _DREAMER_PAPER, "cpu": _DREAMER_CPU}[name]
