"""A run that has diverged: which errors come of it, and what is kept."""

from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING, Any

import torch

from revbis.objectives import NonFiniteError
from revbis.system.files import write_whole
from revbis.training.alarms import Alarm, non_finite
from revbis.training.evaluate import NonFiniteActionError
from revbis.training.folder import AGENT, FACTS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from revbis.agents import Agent


class TrainingFailedError(ValueError):
    """The run cannot continue; the message says why and what to try."""


def divergence(
    problem: Exception, agent: Agent, metrics: Mapping[str, float], flags: Collection[str]
) -> Alarm | None:
    """The alarm, if an error came of numbers that are not finite and has not been raised yet.

    Args:
        problem: The error.
        agent: The agent.
        metrics: Those of the last updates.
        flags: Names of the run's settings.
    """
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
    write_whole(folder / AGENT, buffer.getvalue())
    write_whole(folder / FACTS, json.dumps(facts, indent=2).encode())
