"""Signs that a run is going wrong, and the flag to change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        text: What was observed, and the flag to change.
    """

    name: str
    text: str


def non_finite(metrics: Mapping[str, float]) -> Alarm | None:
    """A loss or value that is NaN or infinite: the run cannot continue."""
    bad = [name for name, value in metrics.items() if not math.isfinite(value)]
    if not bad:
        return None
    return Alarm(
        "non_finite",
        f"{', '.join(bad)} is not finite; try a smaller --learning-rate and check the task's "
        "rewards",
    )


def exploding_critic(
    metrics: Mapping[str, float], largest_reward: float, discount: float
) -> Alarm | None:
    """Values larger than the largest discounted return that the observed rewards allow."""
    value = max(abs(metrics.get("critic_q1", 0.0)), abs(metrics.get("critic_q2", 0.0)))
    bound = largest_reward / (1 - discount)
    if value <= _EXPLODED * max(bound, 1e-3):
        return None
    return Alarm(
        "exploding_critic",
        f"the critic estimates {value:.3g}, but rewards up to {largest_reward:.3g} sum to at most "
        f"{bound:.3g}; try a smaller --learning-rate or --target-rate",
    )


def collapsed_embedding(metrics: Mapping[str, float]) -> Alarm | None:
    """The objective maps all states to nearly the same embedding."""
    rank = metrics.get("objective/effective_rank")
    if rank is None or rank >= _COLLAPSED_RANK:
        return None
    return Alarm(
        "collapsed_embedding",
        f"the objective's embeddings have collapsed: their effective rank is {rank:.2f}; "
        "try a smaller --objective-weight, a simsr method, or --normalisation False for a mico one",
    )


def silent_objective(metrics: Mapping[str, float]) -> Alarm | None:
    """The objective has next to no say in what the encoder learns."""
    share = metrics.get("objective/gradient_share")
    if share is None or share >= _SILENT:
        return None
    return Alarm(
        "silent_objective",
        f"the objective's share of the encoder's gradient is {share:.2%}, so the critic trains it "
        "all but alone; use --mode balanced or a larger --objective-weight",
    )


def stalled(frames: Sequence[int], returns: Sequence[float], budget: int) -> Alarm | None:
    """No improvement for a large share of the budget, or none since the first evaluation.

    Args:
        frames: Frames of the evaluations.
        returns: Their mean returns.
        budget: Frames of the whole run.
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
    return Alarm(
        "stalled",
        f"no evaluation beat {returns[best]:.4g} (frame {frames[best]:,}) in the last "
        f"{frames[-1] - frames[best]:,} frames; try another --seed, a slower decay of the noise "
        "(--noise-steps), or a larger --explore-steps",
    )
