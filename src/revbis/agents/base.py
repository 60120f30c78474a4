"""Defaults for the part of the protocol that most agents share. Imports no torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from revbis.replay import Replay


class BaseAgent:
    """An agent without its learning: a subclass writes act, update, state_dict, load_state_dict.

    The defaults are those of an agent whose actions depend on the current observation only, and
    that has no embedding: `revbis neighbours` then compares observations.
    """

    @staticmethod
    def stopwatch(part: str) -> AbstractContextManager[None]:  # noqa: ARG004
        """Measures nothing; a benchmark replaces it."""
        return nullcontext()

    def begin_episode(self) -> None:
        """Does nothing."""

    def status(self) -> dict[str, float]:
        """Nothing to show."""
        return {}

    def embed(self, observations: Tensor) -> Tensor:
        """The observations themselves, as vectors, [B, D]."""
        return observations.flatten(1).float()

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """The Euclidean distance, [N, D] × [M, D] → [N, M]."""
        import torch

        return torch.cdist(x, y)

    def work(self, replay: Replay) -> dict[str, Callable[[], None]]:  # noqa: ARG002
        """No part of an update that could be measured alone."""
        return {}
