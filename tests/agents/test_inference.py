"""Activations without gradients, beside PyTorch's in double precision."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from revbis.agents import inference
from revbis.agents.inference import elu_, elu_dot, normalised_tanh_

EDGES = [0.0, -0.0, 1e-30, -1e-30, -1e-7, -17.9, -18.1, -100.0, 88.0, 3e38, -3e38]
EXTREMES = [float("inf"), float("-inf"), float("nan")]


@pytest.fixture
def x():
    """Numbers of all sizes, [70, 37]."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(70, 37, generator=generator)
    return numbers * torch.logspace(-4, 1.5, 70)[:, None]


def test_elu(x):
    x[0, : len(EDGES)] = torch.tensor(EDGES)
    wanted = functional.elu(x.double())
    torch.testing.assert_close(elu_(x).double(), wanted, rtol=1e-6, atol=0)


def test_elu_of_what_is_not_finite():
    assert elu_(torch.tensor([EXTREMES]))[0, :2].tolist() == [float("inf"), -1]
    assert elu_(torch.tensor([EXTREMES]))[0, 2].isnan()


def test_elu_is_in_place(x):
    assert elu_(x) is x and (x >= -1).all()


def test_elu_and_a_product(x):
    weight, bias = torch.linspace(-1, 1, 37), torch.tensor([0.5])
    wanted = functional.elu(x.double()) @ weight.double() + 0.5
    torch.testing.assert_close(elu_dot(x, weight, bias).double(), wanted, rtol=1e-5, atol=1e-5)
    x[3, 4] = torch.nan
    assert elu_dot(x, weight, bias).isnan().nonzero().tolist() == [[3]]


def normalisation():
    norm = nn.LayerNorm(37)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-3, 9, 37))
        norm.bias.copy_(torch.linspace(1, -1, 37))
    return norm


def test_normalised_tanh(x):
    norm = normalisation()
    wanted = torch.tanh(normalisation().double()(x.double()))
    got = normalised_tanh_(x, norm)
    torch.testing.assert_close(got.double(), wanted.detach(), rtol=1e-4, atol=1e-5)
    assert got.abs().max() <= 1 and not got.requires_grad
    x[3, 4] = torch.nan
    assert normalised_tanh_(x, norm).isnan().any(dim=1).nonzero().tolist() == [[3]]


def test_elsewhere_they_are_those_of_pytorch(x, monkeypatch):
    """In double precision, and with many threads."""
    norm, weight, bias = normalisation(), torch.linspace(-1, 1, 37), torch.tensor([0.5])
    fast = elu_(x.clone()), elu_dot(x, weight, bias), normalised_tanh_(x.clone(), norm)
    monkeypatch.setattr(inference, "_compiled_is_faster", lambda _: False)
    slow = elu_(x.clone()), elu_dot(x, weight, bias), normalised_tanh_(x.clone(), norm)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    monkeypatch.undo()
    assert elu_(x.double()).dtype == torch.float64
