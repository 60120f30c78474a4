"""Signs that a run is going wrong, and what is kept of one that has diverged."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from revbis.io.files import atomic_write
from revbis.objectives import NonFiniteError
from revbis.runs.evaluate import NonFiniteActionError
from revbis.runs.folder import AGENT, FACTS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from revbis.agents import Agent

_EXPLODED = 10.0  # times the largest return that the observed rewards allow
_COLLAPSED_RANK = 1.5
_SILENT = 0.01  # share of the objective in the encoder's gradient
_STALL_SHARE = 0.4  # of the budget
_STALL_EVALUATIONS = 8


@dataclass(frozen=True)
class Alarm:
    """A warning about a run.

    Attributes:
        name: Its kind.
        text: What was observed, and the flag to change, if there is one.
    """

    name: str
    text: str


def non_finite(metrics: Mapping[str, float], flags: Collection[str]) -> Alarm | None:
    """A loss or value that is NaN or infinite: the run cannot continue."""
    bad = [name for name, value in metrics.items() if not math.isfinite(value)]
    if not bad:
        return None
    remedies = [("learning_rate", "a smaller --learning-rate")]
    return Alarm(
        "non_finite",
        f"{', '.join(bad)} is not finite; check the task's rewards{_advice(remedies, flags)}",
    )


def exploding_critic(
    metrics: Mapping[str, float], largest_reward: float, discount: float, flags: Collection[str]
) -> Alarm | None:
    """Values larger than the largest discounted return that the observed rewards allow.

    None while every reward was 0: on a sparse task that tells nothing about the return.
    """
    value = max(abs(metrics.get("critic_q1", 0.0)), abs(metrics.get("critic_q2", 0.0)))
    bound = largest_reward / (1 - discount)
    if largest_reward == 0 or value <= _EXPLODED * max(bound, 1e-3):
        return None
    remedies = [
        ("learning_rate", "a smaller --learning-rate"),
        ("target_rate", "a smaller --target-rate"),
    ]
    return Alarm(
        "exploding_critic",
        f"the critic estimates {value:.3g}, but rewards up to {largest_reward:.3g} sum to at most "
        f"{bound:.3g}{_advice(remedies, flags)}",
    )


def collapsed_embedding(metrics: Mapping[str, float], flags: Collection[str]) -> Alarm | None:
    """The objective maps all states to nearly the same embedding."""
    rank = metrics.get("objective/effective_rank")
    if rank is None or rank >= _COLLAPSED_RANK:
        return None
    remedies = [
        ("objective_weight", "a smaller --objective-weight"),
        ("normalisation", "a simsr method"),
        ("normalisation", "--normalisation False for a mico one"),
    ]
    return Alarm(
        "collapsed_embedding",
        f"the objective's embeddings have collapsed: their effective rank is {rank:.2f}"
        f"{_advice(remedies, flags)}",
    )


def silent_objective(metrics: Mapping[str, float], flags: Collection[str]) -> Alarm | None:
    """The objective has next to no say in what the encoder learns."""
    share = metrics.get("objective/gradient_share")
    if share is None or share >= _SILENT:
        return None
    remedies = [("mode", "--mode balanced"), ("objective_weight", "a larger --objective-weight")]
    return Alarm(
        "silent_objective",
        f"the objective's share of the encoder's gradient is {share:.2%}, so another loss "
        f"trains it all but alone{_advice(remedies, flags)}",
    )


def constant_rewards(
    metrics: Mapping[str, float], largest_reward: float, flags: Collection[str]
) -> Alarm | None:
    """All rewards are the same and not 0, so a metric of rewards has nothing to learn.

    None while every reward was 0: on a sparse task that may change.
    """
    share, reward = metrics.get("objective/reward_share"), metrics.get("batch_reward", 0.0)
    if share != 0 or abs(reward) < max(largest_reward / 2, 1e-9):  # else it may be a rare reward
        return None
    remedies = [
        ("task", "a --task whose rewards differ"),
        ("method", "--method simsr-rev-full if episodes terminate"),
        ("method", "--method zp"),
    ]
    return Alarm(
        "constant_rewards",
        "all rewards of a batch are equal: the metric compares rewards, so all distances are "
        f"learned to be 0{_advice(remedies, flags)}",
    )


def stalled(
    frames: Sequence[int], returns: Sequence[float], budget: int, flags: Collection[str]
) -> Alarm | None:
    """No improvement for a large share of the budget, or none since the first evaluation.

    `frames` and `returns` are those of the evaluations, `budget` is the frames of the whole run.
    """
    if len(returns) < _STALL_EVALUATIONS:
        return None
    best = max(range(len(returns)), key=returns.__getitem__)
    spread = max(returns) - min(returns)
    learned = returns[best] - returns[0] > 0.05 * max(abs(returns[0]), abs(returns[best]), 1e-9)
    waited = frames[-1] - frames[best] >= _STALL_SHARE * budget
    if learned and not (waited and returns[-1] < returns[0] + 0.5 * spread):
        return None
    if not learned and frames[-1] - frames[0] < _STALL_SHARE * budget:
        return None
    remedies = [
        ("seed", "another --seed"),
        ("noise_steps", "a slower decay of the noise (--noise-steps)"),
        ("explore_steps", "a larger --explore-steps"),
    ]
    return Alarm(
        "stalled",
        f"no evaluation beat {returns[best]:.4g} (frame {frames[best]:,}) in the last "
        f"{frames[-1] - frames[best]:,} frames{_advice(remedies, flags)}",
    )


def _advice(remedies: Sequence[tuple[str, str]], flags: Collection[str]) -> str:
    """The remedies whose setting the run has, as the end of a sentence; empty if it has none."""
    known = [text for name, text in remedies if name in flags]
    if not known:
        return ""
    *most, last = known
    return f"; try {', '.join(most)} or {last}" if most else f"; try {last}"


class TrainingFailedError(ValueError):
    """The run cannot continue; the message says why and what to try."""


def divergence(
    problem: Exception, agent: Agent, metrics: Mapping[str, float], flags: Collection[str]
) -> Alarm | None:
    """The alarm, if an error came of numbers that are not finite and has not been raised yet."""
    if isinstance(problem, NonFiniteError):
        return Alarm("non_finite", str(problem))
    if isinstance(problem, NonFiniteActionError):
        return non_finite({"an action": math.nan, **metrics}, flags)
    if isinstance(problem, TrainingFailedError) or not _has_nan(agent.state_dict()):
        return None
    return non_finite({"a weight": math.nan, **metrics}, flags)


def _has_nan(state: Any) -> bool:
    """Whether a tensor somewhere in an agent's state has a NaN."""
    if isinstance(state, torch.Tensor):
        return bool(state.isnan().any())
    if isinstance(state, dict):
        return any(map(_has_nan, state.values()))
    return isinstance(state, (list, tuple)) and any(map(_has_nan, state))


def write_diagnosis(folder: Path, agent: dict[str, Any], facts: dict[str, Any]) -> None:
    """Writes the agent's state and the facts about its failure."""
    buffer = io.BytesIO()
    torch.save(agent, buffer)
    atomic_write(folder / AGENT, buffer.getvalue())
    atomic_write(folder / FACTS, json.dumps(facts, indent=2).encode())
