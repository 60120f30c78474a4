"""What an agent acts and embeds with: the part of it that is exported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn


@dataclass(frozen=True)
class Acting:
    """What `act` without exploration and `embed` read of an agent, beside its settings and seed.

    Attributes:
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action.
        tensors: By name; the agent's own, not copies.
        numbers: Everything else, by name.
        restore: Sets the numbers; raises a ValueError for wrong ones.
    """

    observation_shape: tuple[int, ...]
    action_size: int
    tensors: dict[str, Tensor]
    numbers: Mapping[str, float] = field(default_factory=dict)
    restore: Callable[[Mapping[str, float]], None] = lambda _: None


def tensors_of(**modules: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of modules, named after them; not copies."""
    return {
        f"{name}.{key}": tensor
        for name, module in modules.items()
        for key, tensor in module.state_dict().items()
    }
