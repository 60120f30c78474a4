"""What agents, the probe and pictures know of an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from torch import Tensor, nn

    from revbis.objectives.output import ObjectiveOutput

Level = Literal["state", "state_action"]


@runtime_checkable
class Objective(Protocol):
    """A loss on embeddings that makes their distances a bisimulation metric.

    It owns its heads alone; the encoder φ stays with the agent. `BaseObjective` has defaults for
    everything but the loss and the distance.
    """

    @property
    def compares(self) -> Level:
        """What `embed` embeds: "state" or "state_action"."""

    @property
    def metric(self) -> str:
        """The exact metric it is meant to learn, one of `revbis.tabular.METRICS`."""

    @property
    def policy_actions(self) -> tuple[str, ...]:
        """Which of policy_action and next_policy_action a call must pass by name; often ()."""

    def __call__(
        self,
        z: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_z: Tensor,
        generator: torch.Generator | None = None,
        **policy_actions: Tensor,
    ) -> ObjectiveOutput:
        """The losses of one batch.

        Args:
            z: Embeddings φ(s), [B, D], with gradient.
            action: [B, A].
            reward: [B] or [B, 1]; for n-step transitions the discounted sum.
            discount: [B] or [B, 1]: γⁿ, and 0 where the episode terminated.
            next_z: Embeddings of the next states, [B, D]; no gradient reaches them.
            generator: Draws whatever is random.
            **policy_actions: Those that `policy_actions` names: actions of the current policy,
                [B, A], at the states of z (policy_action) and at the next (next_policy_action).
        """

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M], or [N] rowwise (M = N)."""

    def scale(self, z: Tensor) -> Tensor:
        """φ(s) as `distance` takes it, [B, D] → [B, D]: scaled to length 1, or as it is."""

    def embed(self, z: Tensor, action: Tensor) -> Tensor:
        """What is compared, [B, D]: ψ(φ(s), a), or the scaled φ(s) where there is no ψ."""

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `representation_loss` trains beside the encoder's."""

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `coefficient_loss` trains; none where there is no coefficient."""

    def status(self) -> dict[str, float]:
        """Numbers for progress lines and records.

        `c`, where it is among them, means weights (1−c, c) in the targets; else they are (1, γ).
        `reward_scale`: reward gaps are divided by it, so distances times it are in their unit.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> object:
        """Continues where the state was taken."""

    def to(self, device: torch.device, /) -> Self:
        """Moves it to a device."""
