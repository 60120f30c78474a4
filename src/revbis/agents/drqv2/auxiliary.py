"""What DrQ-v2 knows of a loss that trains its encoder beside the critic's.

Every `revbis.objectives.Objective` is one; what only the probe asks of those is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from torch import Tensor, nn


class AuxiliaryOutput(Protocol):
    """The losses of one batch."""

    @property
    def representation_loss(self) -> Tensor:
        """Scalar that trains the embeddings and the loss's own heads."""

    @property
    def coefficient_loss(self) -> Tensor | None:
        """Scalar that trains a coefficient alone; None without one."""

    @property
    def losses(self) -> dict[str, Tensor]:
        """Every loss by name."""

    @property
    def metrics(self) -> dict[str, Tensor]:
        """Every loss and metric by name, detached."""


class Auxiliary(Protocol):
    """A loss on embeddings with heads of its own; the encoder stays with the agent."""

    @property
    def policy_actions(self) -> tuple[str, ...]:
        """Which of policy_action and next_policy_action a call must pass by name."""

    def __call__(
        self,
        z: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_z: Tensor,
        generator: torch.Generator | None = None,
        **policy_actions: Tensor,
    ) -> AuxiliaryOutput:
        """The losses of one batch; only z carries a gradient to the encoder."""

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M]."""

    def scale(self, z: Tensor) -> Tensor:
        """The embedding as `distance` takes it, from the projection's output, [B, D]."""

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `representation_loss` trains beside the encoder's."""

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `coefficient_loss` trains."""

    def status(self) -> dict[str, float]:
        """Numbers for progress lines and records."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> object:
        """Continues where the state was taken."""

    def to(self, device: torch.device, /) -> Self:
        """Moves it to a device."""
