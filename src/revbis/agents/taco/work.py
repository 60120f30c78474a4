"""Parts of an update alone, for benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.agents.drqv2.parts import Parts
    from revbis.agents.taco.networks import TacoHeads
    from revbis.replay import Batch, Window


def parts_of_the_work(
    parts: Parts, heads: TacoHeads, batch: Batch, window: Window, *, alternating: bool
) -> dict[str, Callable[[], None]]:
    """The encoder passes of an update on this batch, and the losses given embeddings.

    Args:
        parts: The networks.
        heads: The losses.
        batch: Transitions.
        window: Their first K steps.
        alternating: Whether the losses have a backward pass of their own.
    """
    encoder, size = parts.encoder, len(batch.obs)
    gradient = torch.randn(size, encoder.size) / encoder.size
    without = [batch.next_obs, *([] if window.next_obs is None else [window.next_obs])]
    with_gradient = [batch.obs]
    (with_gradient if alternating else without).append(window.obs)

    def encode() -> None:
        with torch.no_grad():
            for observations in without:
                encoder(observations)
        for observations in with_gradient:
            for parameter in encoder.parameters():
                parameter.grad = None
            encoder(observations).backward(gradient)

    width = len(parts.readouts.weights["projection"])
    z, following, positive = (torch.randn(size, width) for _ in range(3))
    trained = [*heads.parameters(), *parts.tokens.parameters()]

    def compare() -> None:
        x = z.clone().requires_grad_()
        tokens = parts.tokens(window.action.flatten(0, 1)).reshape(size, -1)
        loss = heads(x, tokens, batch.reward, following, positive).representation_loss
        torch.autograd.grad(loss, [x, *trained], allow_unused=True)

    return {"encoder": encode, "objective": compare}
