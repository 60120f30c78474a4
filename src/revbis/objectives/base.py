"""The objective's skeleton: everything but its loss and its distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from revbis.objectives.distances import normalise
from revbis.objectives.inputs import Transitions, check_transitions, refuse_non_finite
from revbis.objectives.output import ObjectiveOutput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from revbis.objectives.protocol import Level


class BaseObjective(nn.Module):
    """Checks batches and losses; a subclass writes `compute` and `distance`.

    The defaults are those of an objective that compares states with weights (1, γ). A subclass
    with ψ sets `compares` and overrides `embed`; one with a coefficient overrides
    `coefficient_parameters` and `status`.

    Args:
        latent_dim: D, the width of the embeddings.
        action_dim: A, the width of the actions.
        normalisation: Scale embeddings to length 1.

    Attributes:
        compares: What `embed` embeds: "state" or "state_action".
        metric: The exact metric it is meant to learn, one of `revbis.tabular.METRICS`.
        policy_actions: Which of policy_action and next_policy_action a call must pass.
        steps: Batches so far.
    """

    compares: Level = "state"
    metric: str = "revised"
    policy_actions: tuple[str, ...] = ()
    steps: Tensor

    def __init__(self, latent_dim: int, action_dim: int, *, normalisation: bool = False) -> None:
        super().__init__()
        self.latent_dim, self.action_dim, self.normalisation = latent_dim, action_dim, normalisation
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:
        """The losses of a checked batch, whose rewards and discounts are [B]."""
        raise NotImplementedError(f"{type(self).__name__} must define compute(batch, generator)")

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M], or [N] rowwise."""
        raise NotImplementedError(f"{type(self).__name__} must define distance(x, y, rowwise)")

    def forward(
        self,
        z: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_z: Tensor,
        generator: torch.Generator | None = None,
        policy_action: Tensor | None = None,
        next_policy_action: Tensor | None = None,
    ) -> ObjectiveOutput:
        """The losses of one batch.

        Args:
            z: Embeddings φ(s), [B, D], with gradient.
            action: [B, A].
            reward: [B] or [B, 1]; for n-step transitions the discounted sum.
            discount: [B] or [B, 1]: γⁿ, and 0 where the episode terminated. Adaptive weights do
                not use it, as in Eq. 9.
            next_z: Embeddings of the next states, [B, D]; no gradient reaches them.
            generator: Draws the partners when pairs are permuted.
            policy_action: Actions of the current policy at the states of z, [B, A]; needed where
                `policy_actions` names it, and without gradient.
            next_policy_action: The same at the next states.

        Raises:
            ValueError: For wrong shapes, or an action of the policy that is missing.
            NonFiniteError: For NaN or infinity in an input or a loss, on a CPU.
        """
        given = Transitions(z, action, reward, discount, next_z, policy_action, next_policy_action)
        batch = check_transitions(given, self.latent_dim, self.action_dim, self.policy_actions)
        out = self.compute(batch, generator)
        if not isinstance(out, ObjectiveOutput):
            raise TypeError(f"compute must return an ObjectiveOutput, got {type(out).__name__}")
        refuse_non_finite(batch.tensors() | out.losses, self.steps)
        self.steps += 1
        return out

    def scale(self, z: Tensor) -> Tensor:
        """φ(s) as it is compared, [B, D]: scaled to length 1 with `normalisation`."""
        return normalise(z) if self.normalisation else z

    def embed(self, z: Tensor, action: Tensor) -> Tensor:  # noqa: ARG002
        """What is compared, [B, D]: φ(s); the action plays no part."""
        return self.scale(z)

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """The trainable parameters, except the coefficient's."""
        others = set(self.coefficient_parameters())
        return (p for p in self.parameters() if p.requires_grad and p not in others)

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """None: the weights are (1, γ)."""
        return iter(())

    def status(self) -> dict[str, float]:
        """Nothing: there is no coefficient."""
        return {}
