"""What every agent's settings have in common. Imports no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from revbis import schema
from revbis.schema import Batch, CountOrZero, Text

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of an agent: flags, defaults and checks. Subclasses add their own.

    Raises:
        ValueError: If a value is not of its type or out of range.
    """

    batch_size: Batch = 1024
    """Transitions in an update."""
    explore_steps: CountOrZero = 2000
    """Agent steps with uniformly random actions at the start."""

    def __post_init__(self) -> None:
        schema.settle(self)

    @property
    def one_step(self) -> bool:
        """Whether batches must also include the one-step transition."""
        return False

    @property
    def least_steps(self) -> int:
        """Steps of the shortest episode that an update can learn from."""
        return 1

    @property
    def half_precision(self) -> bool:
        """Whether the networks run in bfloat16, which not every processor can."""
        return False

    @property
    def prioritised(self) -> bool:
        """Whether the replay buffer must draw sequences by priority."""
        return False

    def check(self, observation_shape: Shape) -> None:
        """Refuses settings from which no agent can be built, before anything is built.

        Args:
            observation_shape: (C, H, W) of stacked frames, or (D,) of vectors.

        Raises:
            ValueError: With the requirement, the value and what to do.
        """

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:  # noqa: ARG002
        """Approximate memory of an update, in bytes.

        Args:
            observation_shape: (C, H, W) of stacked frames, or (D,) of vectors.
            batch: Transitions in the update.
        """
        return 0

    def for_reading(self) -> Self:
        """Settings with the same networks, for reading a trained agent on any machine."""
        return self


@dataclass(frozen=True, kw_only=True)
class OwnSettings(AgentSettings):
    """Settings of a user's own agent, whose options only its factory knows.

    Raises:
        ValueError: If a value is not of its type or out of range.
    """

    agent_options: tuple[Text, ...] = ()
    """NAME=VALUE for the factory of your own agent; a VALUE is a number, true, a [list] or text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.options  # noqa: B018 (refuses words that are no options)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of the factory by name."""
        options: dict[str, Any] = {}
        for word in self.agent_options:
            name, equals, value = word.partition("=")
            if not equals or not name.isidentifier():
                raise ValueError(f"agent_options must be NAME=VALUE, got {word!r:.80}")
            if name in options:
                raise ValueError(f"agent_options has {name} more than once")
            try:
                options[name] = json.loads(value)
            except (ValueError, RecursionError):
                options[name] = value
        return options
