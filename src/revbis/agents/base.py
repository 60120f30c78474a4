"""What an agent is: the protocol, defaults for most of it, and what of it is exported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from revbis.replay import Replay

Metrics = dict[str, "Tensor"]


class Agent(Protocol):
    """An agent that learns from a replay buffer."""

    def begin_episode(self) -> None:
        """Discards the state of the previous episode, such as a plan."""

    def act(self, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[np.float32]:
        """The action for one observation, [A] in [−1, 1].

        Args:
            observation: Of the agent's observation shape.
            step: Agent steps so far.
            explore: Act as in training; otherwise as in evaluation, which changes nothing that
                training depends on: it draws no random numbers, or from a generator of its own.
        """

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:
        """One update, on data that the agent samples from the replay buffer.

        Args:
            replay: The replay buffer, of transitions and sequences.
            step: Agent steps so far.
            with_metrics: Also return metrics that take time to compute.

        Returns:
            Losses and metrics as scalar tensors. Alarms watch `critic_q1` and `critic_q2` for
            values larger than rewards allow, and `objective/effective_rank` for collapse.
        """

    def status(self) -> dict[str, float]:
        """Numbers for the progress line and the evaluation records, such as the coefficient c."""

    def embed(self, observations: Tensor) -> Tensor:
        """Embeddings of a batch of observations, [B, D]."""

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M], on x's device.

        That is the agent's, or the CPU.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: tensors, numbers and names only."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned.

        Raises:
            ValueError: If the state is of another agent.
        """


class BaseAgent:
    """An agent without its learning: a subclass writes act, update, state_dict, load_state_dict.

    The defaults are those of an agent whose actions depend on the current observation only, and
    that has no embedding: `revbis neighbours` then compares observations.
    """

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


@dataclass(frozen=True)
class InferenceState:
    """What `act` without exploration and `embed` read of an agent, beside its settings and seed.

    Attributes:
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action.
        tensors: By name; the agent's own, not copies.
        discrete: Whether actions are a choice.
        numbers: Everything else, by name.
        restore: Sets the numbers; raises a ValueError for wrong ones.
    """

    observation_shape: tuple[int, ...]
    action_size: int
    tensors: dict[str, Tensor]
    numbers: Mapping[str, float] = field(default_factory=dict)
    restore: Callable[[Mapping[str, float]], None] = lambda _: None
    discrete: bool = False


def tensors_of(**modules: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of modules, named after them; not copies."""
    return {
        f"{name}.{key}": tensor
        for name, module in modules.items()
        for key, tensor in module.state_dict().items()
    }
