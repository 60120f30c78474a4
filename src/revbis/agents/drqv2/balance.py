"""The objective's say in what the encoder learns, and its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from revbis.agents.drqv2.auxiliary import AuxiliaryOutput
    from revbis.agents.protocol import Metrics


@torch.no_grad()
def feature_norm(gradient: Tensor, weight: Tensor) -> Tensor:
    """Norm of the gradient that a linear readout passes on to the features, ‖G W‖.

    It is the root of tr(G W Wᵀ Gᵀ): G W itself, one number for each feature of each image, need
    not exist.

    Args:
        gradient: G, at the readout's outputs, [B, N].
        weight: W, [N, F].
    """
    gradient, weight = gradient.float(), weight.float()
    return ((gradient @ (weight @ weight.T)) * gradient).sum().clamp_min(0).sqrt()


def balance(critic: Tensor, objective: Tensor, weight: float) -> Tensor:
    """The factor that makes the objective's gradient `weight` times as long as the critic's.

    It is 0 where the objective's gradient is 0, or too short for such a factor to exist.
    """
    factor = weight * critic / objective
    return torch.where(torch.isfinite(factor), factor, 0.0)


def gradient_share(critic: Tensor, objective: Tensor) -> dict[str, Tensor]:
    """The objective's share of two lengths, in [0, 1], as a metric."""
    total = (critic + objective).clamp_min(torch.finfo(objective.dtype).tiny)
    return {"objective/gradient_share": objective / total}


def feature_gradients(
    gradients: list[Tensor], weights: list[Tensor], weight: float | None
) -> tuple[list[Tensor], Metrics]:
    """Gradients at the readouts of critic and objective, and the objective's share.

    Args:
        gradients: The critic's and the objective's, [B, N] each.
        weights: Of the two readouts, [N, F] each.
        weight: Makes the objective's this many times as long at the features as the critic's; None
            leaves it as it is.
    """
    critic, objective = map(feature_norm, gradients, weights)
    if weight is not None:
        factor = balance(critic, objective, weight)
        gradients = [gradients[0], gradients[1] * factor]
        objective = objective * factor
    return gradients, gradient_share(critic, objective)


def objective_metrics(out: AuxiliaryOutput, every: bool) -> Metrics:
    """The losses of an objective, or every metric of it, under its name."""
    metrics = out.metrics if every else out.losses
    return {f"objective/{name}": value.detach() for name, value in metrics.items()}


class StepSizes:
    """How far the critic's and then the objective's step moved the encoder.

    Args:
        encoder: Whose parameters move; None to measure nothing.
    """

    def __init__(self, encoder: nn.Module | None) -> None:
        self._parameters = [] if encoder is None else list(encoder.parameters())
        self._place = [parameter.detach().clone() for parameter in self._parameters]
        self._sizes: list[Tensor] = []

    @torch.no_grad()
    def measure(self) -> None:
        """Takes the step since the last measurement."""
        if not self._parameters:
            return
        place = [parameter.detach().clone() for parameter in self._parameters]
        moved = [new - old for new, old in zip(place, self._place, strict=True)]
        self._sizes.append(torch.cat([each.flatten() for each in moved]).norm())
        self._place = place

    def share(self) -> dict[str, Tensor]:
        """The second step's share of the two, if they were measured."""
        return gradient_share(*self._sizes) if self._sizes else {}
