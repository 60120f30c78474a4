"""What the trainer, evaluation, pictures and benchmarks know of an agent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from revbis.replay import Replay

Metrics = dict[str, "Tensor"]
Stopwatch = Callable[[str], AbstractContextManager[None]]


class Agent(Protocol):
    """An agent that learns from a replay buffer.

    Attributes:
        stopwatch: Called with the name of each part of an update; what it returns is entered for
            as long as the part takes. It does nothing unless someone measures.
    """

    stopwatch: Stopwatch

    def begin_episode(self) -> None:
        """Forgets what belongs to the episode before, such as a plan."""

    def act(self, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[np.float32]:
        """The action for one observation, [A] in [−1, 1].

        Args:
            observation: Of the agent's observation shape.
            step: Agent steps so far.
            explore: Act as in training. Else as in evaluation, where no random number is drawn.
        """

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:
        """One update from what the agent asks the replay buffer for.

        Args:
            replay: Transitions and sequences.
            step: Agent steps so far.
            with_metrics: Also return metrics that take time to compute.

        Returns:
            Losses and metrics as scalar tensors. `critic_q1` and `critic_q2` are watched for
            values beyond what rewards allow, `objective/effective_rank` for collapse.
        """

    def status(self) -> dict[str, float]:
        """Numbers for the progress line and the evaluation records, such as the coefficient c."""

    def embed(self, observations: Tensor) -> Tensor:
        """What the agent makes of a batch of observations, [B, D]."""

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M]."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: tensors, numbers and names only."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken.

        Raises:
            ValueError: If it is another agent's.
        """

    def work(self, replay: Replay) -> dict[str, Callable[[], None]]:
        """Parts of an update that can be run alone, by name, for benchmarks.

        `encoder`: its passes through the encoder, the least that an update must take.
        `objective`: the representation objective from embeddings on.
        """
