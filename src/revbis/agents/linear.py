"""Linear layers, and readouts of wide features at the speed of the convolutions.

On CPUs, PyTorch uses MKL for matrix products. With wide features and few outputs MKL reaches, on
some processors, half to three quarters of the speed of oneDNN, which convolutions use. PyTorch
exposes oneDNN's linear operator under a private name only. `functional.linear` is used instead
where that name is missing, where it is faster (narrow features), on other devices, for other types,
and under torch.compile.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Mapping


def _find_onednn() -> Any:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    operator = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if operator is None else operator.default


_ONEDNN = _find_onednn()
_WIDE = 4096  # inputs from which oneDNN is not slower than MKL


class Linear(nn.Linear):
    """A linear layer, optionally followed by ReLU; orthogonal weights, zero biases."""

    def __init__(
        self, inputs: int, outputs: int, activation: Literal["none", "relu"] = "none"
    ) -> None:
        super().__init__(inputs, outputs)
        self.activation = activation
        nn.init.orthogonal_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] → [B, outputs]."""
        y = functional.linear(x, self.weight, self.bias)
        return functional.relu(y, inplace=True) if self.activation == "relu" else y


class Readouts(nn.Module):
    """Several linear layers that read the same wide features, as rows of one matrix.

    Features of 84×84 images have 39,200 numbers, and reading them costs more than the arithmetic
    of 50 outputs. Adjacent layers in the matrix read them together, in the forward and in the
    backward pass; each is still a separate parameter and can have its own optimiser.

    Args:
        inputs: Width of the features.
        widths: Width of each layer by name, in the order of their rows.
        device: Device of the matrix; it cannot be moved later.
    """

    def __init__(self, inputs: int, widths: Mapping[str, int], device: torch.device) -> None:
        super().__init__()
        total = sum(widths.values())
        self._matrix = torch.zeros(total, inputs, device=device)
        self._bias = torch.zeros(total, device=device)
        self._rows: dict[str, slice] = {}
        self.weights, self.biases = nn.ParameterDict(), nn.ParameterDict()
        start = 0
        for name, width in widths.items():
            rows = self._rows[name] = slice(start, start + width)
            start = rows.stop
            # Parameters made of slices share the matrix's memory: optimisers write into it.
            self.weights[name] = nn.Parameter(self._matrix[rows])
            self.biases[name] = nn.Parameter(self._bias[rows])

    @torch.no_grad()
    def draw(self, *names: str) -> None:
        """Draws orthogonal weights for the named layers, which are 0 until then."""
        for name in names:
            weight = self.weights[name]
            weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape)))

    def forward(self, features: Tensor, *names: str) -> tuple[Tensor, ...]:
        """The outputs of the named layers, [B, inputs] → [B, width] each.

        Names must be in the order of their rows, without gaps.
        """
        weights = [self.weights[name] for name in names]
        biases = [self.biases[name] for name in names]
        if not _fast(features):
            return tuple(map(functional.linear, (features,) * len(names), weights, biases))
        rows = [self._rows[name] for name in names]
        assert all(a.stop == b.start for a, b in pairwise(rows)), names
        block = slice(rows[0].start, rows[-1].stop)
        matrix, bias = self._matrix[block], self._bias[block]
        assert weights[0].data_ptr() == matrix.data_ptr(), "readouts cannot be deep-copied"
        together: Tensor = _Stacked.apply(features, matrix, bias, *weights, *biases)  # type: ignore[no-untyped-call]
        return torch.split(together, [len(weight) for weight in weights], dim=1)

    def of(self, name: str) -> list[nn.Parameter]:
        """Weight and bias of one layer."""
        return [self.weights[name], self.biases[name]]

    def _apply(self, fn: object, recurse: bool = True) -> Readouts:  # noqa: ARG002
        raise RuntimeError("readouts cannot be moved or cast: create them on their device")


def _fast(x: Tensor) -> bool:
    return (
        _ONEDNN is not None
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.shape[1] >= _WIDE
        and not torch.compiler.is_compiling()
    )


def _times_transposed(x: Tensor, y: Tensor) -> Tensor:
    """The product x yᵀ; y may itself be a transposed view, which is not copied."""
    product: Tensor = _ONEDNN(x, y, None, "none", [], "")
    return product


class _Stacked(torch.autograd.Function):
    """An affine map whose matrix and bias are stacks of parameters.

    `matrix` and `bias` are what the parameters (first all weights, then all biases) look like in
    memory; gradients go to the parameters.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor, *parameters: Tensor) -> Tensor:
        weights = parameters[: len(parameters) // 2]
        y: Tensor = _ONEDNN(x, matrix, bias, "none", [], "")
        ctx.matrix = matrix
        # The weights are saved so that PyTorch notices if they change before the backward pass.
        ctx.save_for_backward(x, *weights)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        for_x = _times_transposed(gradient, ctx.matrix.t()) if ctx.needs_input_grad[0] else None
        for_parameters: list[Tensor | None] = [None] * (2 * len(weights))
        if any(ctx.needs_input_grad[3:]):
            widths = [len(weight) for weight in weights]
            for_weights = _times_transposed(gradient.t(), x.t())
            for_biases = gradient.sum(dim=0)
            for_parameters = [*torch.split(for_weights, widths), *torch.split(for_biases, widths)]
        return for_x, None, None, *for_parameters
