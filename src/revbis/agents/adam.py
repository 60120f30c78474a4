"""Adam as PyTorch computes it, without what PyTorch's class loads.

The first `torch.optim.Adam` of a process imports PyTorch's compiler, which takes as long as
importing PyTorch: a quarter of the time in which a run starts. Here the arithmetic is PyTorch's
(`torch.optim.adam.adam`), and so are the names in a checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch.optim.adam import adam

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_FUSED = ("cpu", "cuda")  # devices with a fused Adam


class Group(TypedDict):
    """Parameters with their learning rate."""

    params: Sequence[Tensor]
    lr: float


class Adam:
    """Adam with PyTorch's defaults: β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸, no weight decay.

    Args:
        groups: What it trains; all on one device.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.param_groups = list(groups)
        self._parameters = [each for group in self.param_groups for each in group["params"]]
        self._moments: dict[Tensor, dict[str, Tensor]] = {}
        self._device = self._parameters[0].device

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            trained = [each for each in group["params"] if each.grad is not None]
            moments = [self._moments_of(each) for each in trained]
            adam(
                trained,
                [each.grad for each in trained if each.grad is not None],
                [each["exp_avg"] for each in moments],
                [each["exp_avg_sq"] for each in moments],
                [],
                [each["step"] for each in moments],
                fused=self._fused,
                capturable=self._device.type == "cuda",
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=group["lr"],
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )

    @property
    def _fused(self) -> bool:
        return self._device.type in _FUSED

    def _moments_of(self, parameter: Tensor) -> dict[str, Tensor]:
        if parameter not in self._moments:
            self._moments[parameter] = self._none_yet(parameter)
        return self._moments[parameter]

    def _none_yet(self, parameter: Tensor) -> dict[str, Tensor]:
        return {
            "step": torch.zeros((), device=self._device if self._fused else "cpu"),
            "exp_avg": torch.zeros_like(parameter, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
        }

    def state_dict(self) -> dict[str, Any]:
        """The moments by the number of their parameter."""
        numbered = enumerate(self._parameters)
        return {"state": {n: self._moments[p] for n, p in numbered if p in self._moments}}

    def load(self, moments: dict[int, dict[str, Tensor]]) -> None:
        """Loads moments; the learning rates stay, which come from the settings.

        Raises:
            ValueError: If their shapes are not those of the parameters.
        """
        loaded = {}
        for number, given in moments.items():
            parameter = self._parameters[number]
            own = loaded[parameter] = self._none_yet(parameter)
            shapes = {name: tensor.shape for name, tensor in given.items()}
            if shapes != {name: tensor.shape for name, tensor in own.items()}:
                raise ValueError(f"the moments of parameter {number} have shapes {shapes}")
            for name, tensor in own.items():
                tensor.copy_(given[name])
        self._moments = loaded
