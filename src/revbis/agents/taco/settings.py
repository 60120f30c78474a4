"""The settings of TACO. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from revbis.agents.drqv2.settings import ActorCriticSettings, DrQV2Settings
from revbis.schema import Few, Size


@dataclass(frozen=True, kw_only=True)
class TacoSettings(ActorCriticSettings):
    """TACO; the defaults are those of its public code.

    Raises:
        ValueError: If a value is out of range, or settings contradict each other.
    """

    action_steps: Few = 3
    """Actions in a sequence, K: the losses look this many agent steps ahead."""
    tokens: Literal["learned", "identity"] = "learned"
    """What the critic and the losses read of an action: a learned embedding, or the action."""
    token_dim: Size | None = None
    """Width of a learned token; None for int(1.25 A) + 1, with A numbers in an action."""
    taco_loss: bool = True
    """Tell what follows an action sequence from what follows the others of the batch."""
    curl_loss: bool = True
    """Tell another shift of the same image from the other images of the batch."""
    reward_loss: bool = True
    """Predict the n-step reward from the embedding and the action sequence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.token_dim is not None and self.tokens == "identity":
            raise ValueError("token_dim is of learned tokens: drop it, or use tokens learned")
        if self.has_losses and self.explore_steps < self.action_steps:
            raise ValueError(
                f"explore_steps must be at least action_steps, {self.action_steps}, so that there "
                f"is a sequence to learn from; got {self.explore_steps}"
            )

    @property
    def has_losses(self) -> bool:
        """Whether any of the three losses is on."""
        return self.taco_loss or self.curl_loss or self.reward_loss

    @property
    def least_steps(self) -> int:
        """Those of an action sequence."""
        return self.action_steps if self.has_losses else 1

    @property
    def drqv2(self) -> DrQV2Settings:
        """The settings of the DrQ-v2 that it is built on."""
        names = [each.name for each in fields(ActorCriticSettings)]
        return DrQV2Settings(**{name: getattr(self, name) for name in names})

    def token_size(self, action_size: int) -> int:
        """Width of what the critic reads of an action of this size."""
        if self.tokens == "identity":
            return action_size
        return int(1.25 * action_size) + 1 if self.token_dim is None else self.token_dim
