"""Distances between embeddings: all pairs by matrix products, or row by row.

They are computed in at least float32, whatever the type of the inputs, even under autocast, and
have finite values and gradients for equal, zero, opposite, huge and tiny inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# A direction's gradient is 1/length: below this length it would overflow the input's type.
_SHORTEST = {
    torch.float16: 1e-3,
    torch.bfloat16: 1e-30,
    torch.float32: 1e-30,
    torch.float64: 1e-290,
}
# Coordinates beyond it count as this large: their squares and gradients would overflow.
_FARTHEST = {torch.float16: 1e3, torch.bfloat16: 1e15, torch.float32: 1e15, torch.float64: 1e140}
_COSINE_LIMITS = (0.0001, 0.9999)  # of the paper's pseudocode


def mico_distance(x: Tensor, y: Tensor, beta: float = 0.1, *, rowwise: bool = False) -> Tensor:
    r"""MICo's distance \((‖x‖ + ‖y‖)/2 + β\,θ(x,y)\), θ the angle between x and y (Eq. 4).

    The cosine is clipped to [0.0001, 0.9999], as in the paper's pseudocode: angles beyond a right
    one count as right, and a vector is at an angle of 0.0141 to itself.

    Args:
        x: [N, D].
        y: [M, D].
        beta: Weight of the angle.
        rowwise: Compare row i of x with row i of y only (M = N).

    Returns:
        [N, M], or [N] rowwise.
    """
    with _full_precision(x):
        x_norm, x_direction = _polar(x)
        y_norm, y_direction = (x_norm, x_direction) if y is x else _polar(y)
        cosine = _cosine(x_direction, y_direction, rowwise).clamp(*_COSINE_LIMITS)
        half_x, half_y = x_norm / 2, y_norm / 2
        norms = half_x + half_y if rowwise else half_x[:, None] + half_y
        return torch.add(norms, torch.acos(cosine), alpha=beta)


def simsr_distance(x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
    r"""SimSR's distance \(1 − \cos(x, y)\) (Eq. 5); shapes as for `mico_distance`.

    It is in [0, 2], and 1 where a vector is zero.
    """
    with _full_precision(x):
        x_direction = _polar(x)[1]
        y_direction = x_direction if y is x else _polar(y)[1]
        return 1 - _cosine(x_direction, y_direction, rowwise).clamp(-1, 1)


def energy_distance(x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
    r"""The energy distance \((n(x) + n(y))/2 + ‖e(x) − e(y)‖²\); shapes as for `mico_distance`.

    e is all of an embedding but its last number, and n = softplus of that one: what x is away from
    itself. Every MICo and revised metric has this form exactly (docs/exact-metrics.md).
    """
    with _full_precision(x):
        x_place, x_half = _energy_parts(x)
        y_place, y_half = (x_place, x_half) if y is x else _energy_parts(y)
        if rowwise:
            return x_half + y_half + (x_place - y_place).square().sum(dim=1)
        squares = torch.addmm(y_place.square().sum(dim=1), x_place, y_place.T, alpha=-2)
        squares = squares + x_place.square().sum(dim=1)[:, None]
        return squares.clamp_min(0) + x_half[:, None] + y_half


def l1_distance(x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
    r"""\(‖x − y‖_1\), DBC's latent distance; shapes as for `mico_distance`."""
    with _full_precision(x):
        x, y = _upcast(x), _upcast(y)
        return (x - y).abs().sum(dim=1) if rowwise else torch.cdist(x, y, p=1)


def l2_distance(x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
    r"""\(‖x − y‖_2\), of embeddings without a metric; shapes as for `mico_distance`."""
    with _full_precision(x):
        farthest = _FARTHEST[x.dtype]
        x, y = (_upcast(each).clamp(-farthest, farthest) for each in (x, y))
        if rowwise:
            length: Tensor = torch.linalg.vector_norm(x - y, dim=1)
            return length
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def normalise(x: Tensor) -> Tensor:
    """Rows scaled to length 1, [N, D]; zero rows stay zero."""
    with _full_precision(x):
        return _polar(x)[1]


def _cosine(x_direction: Tensor, y_direction: Tensor, rowwise: bool) -> Tensor:
    return (x_direction * y_direction).sum(dim=1) if rowwise else x_direction @ y_direction.T


def _polar(x: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths [N] and directions [N, D]; scaled first, so that squares do not overflow."""
    shortest = _SHORTEST[x.dtype]
    x = _upcast(x)
    largest = x.detach().abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1.0)
    scaled = x / scale
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    direction = scaled / torch.where(length > 0, length, 1.0)
    norm = (x * direction.detach()).sum(dim=1)  # its gradient is the direction, whatever the scale
    return norm, torch.where(norm[:, None] > shortest, direction, direction.detach())


def _energy_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Places e, [N, D−1], and half of n, [N]."""
    farthest = _FARTHEST[x.dtype]
    x = _upcast(x).clamp(-farthest, farthest)
    return x[:, :-1], functional.softplus(x[:, -1]) / 2


def _upcast(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _full_precision(x: Tensor) -> torch.autocast:
    return torch.autocast(device_type=x.device.type, enabled=False)
