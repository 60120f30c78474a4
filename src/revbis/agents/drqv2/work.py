"""Parts of an update alone, for benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.agents.drqv2.parts import Parts
    from revbis.replay import Batch


def parts_of_the_work(parts: Parts, batch: Batch) -> dict[str, Callable[[], None]]:
    """The encoder passes of an update on this batch, and the objective given embeddings."""
    encoder, objective = parts.encoder, parts.objective
    gradient = torch.randn(len(batch.obs), encoder.size) / encoder.size

    def encode() -> None:
        for parameter in encoder.parameters():
            parameter.grad = None
        with torch.no_grad():
            encoder(batch.next_obs)
        encoder(batch.obs).backward(gradient)

    if objective is None:
        return {"encoder": encode}
    width = len(parts.readouts.weights["projection"])
    z, next_z = (torch.randn(len(batch.obs), width) for _ in range(2))
    actions: dict[str, Any] = dict.fromkeys(objective.policy_actions, batch.action)
    trained = [*objective.representation_parameters(), *objective.coefficient_parameters()]

    def compare() -> None:
        x = z.clone().requires_grad_()
        out = objective(x, batch.action, batch.reward, batch.discount, next_z, **actions)
        loss = out.representation_loss
        if out.coefficient_loss is not None:
            loss = loss + out.coefficient_loss
        torch.autograd.grad(loss, [x, *trained])

    return {"encoder": encode, "objective": compare}
