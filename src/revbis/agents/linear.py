"""Linear layers: in float32 on a CPU by oneDNN, where that is faster than PyTorch's own product.

PyTorch multiplies matrices with MKL, which uses AVX-512 on Intel's processors only; oneDNN uses it
on all. So oneDNN is twice as fast on AMD's since Zen 5, and otherwise for wide features and weights
that are laid out for it. Results are those of PyTorch but for rounding.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from revbis.io.machine import mkl_lacks_avx512

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class _OneDNN(NamedTuple):
    """Operators of PyTorch that no public function calls."""

    apply: Callable[..., Tensor]
    pack: Callable[[Tensor, int], Tensor]


def _find_onednn() -> _OneDNN | None:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    names = ("_linear_pointwise", "_reorder_linear_weight")
    found = [getattr(torch.ops.mkldnn, name, None) for name in names]
    return None if None in found else _OneDNN(*(each.default for each in found if each))


_ONEDNN = _find_onednn()
_AHEAD = mkl_lacks_avx512()
_WIDE = 4096  # inputs from which oneDNN is nowhere slower than MKL
_WORTH = 2**20  # products in a batch; with fewer, the call from Python takes what oneDNN gains
_LARGE = 2**26  # with fewer, laying a weight out takes longer than a plan gains


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """[..., inputs], [outputs, inputs] and [outputs] → [..., outputs]."""
    if not _fast(x, weight):
        return functional.linear(x, weight, bias)
    rows = x.flatten(end_dim=-2)
    parameters = (weight,) if bias is None else (weight, bias)
    y = _affine(rows, weight.detach(), None if bias is None else bias.detach(), parameters)
    return y if x.ndim == 2 else y.view(*x.shape[:-1], len(weight))


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
        """[..., inputs] → [..., outputs]."""
        y = linear(x, self.weight, self.bias)
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
    def init_orthogonal(self, *names: str) -> None:
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
        rows = [self._rows[name] for name in names]
        assert all(a.stop == b.start for a, b in pairwise(rows)), names
        block = slice(rows[0].start, rows[-1].stop)
        matrix, bias = self._matrix[block], self._bias[block]
        if not _fast(features, matrix):
            return tuple(map(functional.linear, (features,) * len(names), weights, biases))
        assert weights[0].data_ptr() == matrix.data_ptr(), "readouts cannot be deep-copied"
        together = _affine(features, matrix, bias, (*weights, *biases))
        return torch.split(together, [len(weight) for weight in weights], dim=1)

    def of(self, name: str) -> list[nn.Parameter]:
        """Weight and bias of one layer."""
        return [self.weights[name], self.biases[name]]

    def _apply(self, fn: object, recurse: bool = True) -> Readouts:  # noqa: ARG002
        raise RuntimeError("readouts cannot be moved or cast: create them on their device")


class PackedLinear:
    """A linear layer with its weight at this moment, without gradient.

    For large batches the weight is laid out for oneDNN, which then is faster than MKL.

    Args:
        weight: [outputs, inputs], without gradient.
        bias: [outputs].
        rows: Size of most batches.
    """

    def __init__(self, weight: Tensor, bias: Tensor, rows: int) -> None:
        self._weight, self._bias, self._packed = weight, bias, None
        plain = weight.device.type == "cpu" and weight.dtype == torch.float32
        if _ONEDNN is not None and plain and rows * weight.numel() >= _LARGE:
            self._packed = _ONEDNN.pack(weight, rows)

    def __call__(self, x: Tensor) -> Tensor:
        """[B, inputs] → [B, outputs]."""
        if self._packed is None:
            return linear(x, self._weight, self._bias)
        return _product(x, self._packed, self._bias)


def _fast(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN multiplies them, and faster."""
    return (
        _ONEDNN is not None
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.ndim > 1
        and (_AHEAD or x.shape[-1] >= _WIDE)
        and x.numel() * len(weight) >= _WORTH
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def _affine(
    x: Tensor, matrix: Tensor, bias: Tensor | None, parameters: tuple[Tensor, ...]
) -> Tensor:
    x = x.contiguous()
    if not torch.is_grad_enabled():
        return _product(x, matrix, bias)
    y: Tensor = _Affine.apply(x, matrix, bias, *parameters)  # type: ignore[no-untyped-call]
    return y


def _product(x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product x yᵀ, plus a bias; both, or their transposes, are contiguous.

    With other strides oneDNN takes ten times as long.
    """
    assert _ONEDNN is not None
    return _ONEDNN.apply(x, y, bias, "none", [], "")


class _Affine(torch.autograd.Function):
    """An affine map whose matrix and bias are stacks of parameters.

    `matrix` and `bias` are what the parameters (first all weights, then all biases, if there are
    any) look like in memory; gradients go to the parameters.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor | None, *parameters: Tensor
    ) -> Tensor:
        weights = parameters if bias is None else parameters[: len(parameters) // 2]
        ctx.matrix, ctx.biased = matrix, bias is not None
        # The weights are saved so that PyTorch notices if they change before the backward pass.
        ctx.save_for_backward(x, *weights)
        return _product(x, matrix, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        gradient = gradient.contiguous()
        for_x = _product(gradient, ctx.matrix.t()) if ctx.needs_input_grad[0] else None
        needed = ctx.needs_input_grad[3:]
        for_parameters: list[Tensor | None] = [None] * len(needed)
        if any(needed):
            widths = [len(weight) for weight in weights]
            for_parameters = list(torch.split(_product(gradient.t(), x.t()), widths))
            if ctx.biased:
                for_parameters += torch.split(gradient.sum(dim=0), widths)
        return for_x, None, None, *for_parameters
