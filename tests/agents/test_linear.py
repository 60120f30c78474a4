"""Linear layers by oneDNN are PyTorch's but for rounding, on every processor."""

import copy

import pytest
import torch
from torch.nn import functional

from revbis.agents import linear as module
from revbis.agents.linear import Linear, PackedLinear, Readouts, linear

WIDTHS = {"a": 3, "b": 5, "c": 4}


def _readouts() -> Readouts:
    made = Readouts(11, WIDTHS, torch.device("cpu"))
    made.init_orthogonal(*WIDTHS)
    return made


@pytest.fixture
def onednn(monkeypatch):
    """oneDNN's operator whatever the processor and the sizes."""
    if module._ONEDNN is None:
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(module, "_AHEAD", True)
    monkeypatch.setattr(module, "_WORTH", 1)


@pytest.fixture(params=["onednn", "plain"])
def way(request, monkeypatch):
    if request.param == "onednn":
        request.getfixturevalue("onednn")
    else:
        monkeypatch.setattr(module, "_AHEAD", False)


def calls_of(layer, monkeypatch) -> int:
    """How often a layer calls oneDNN."""
    calls, operators = [], module._ONEDNN
    counted = operators._replace(apply=lambda *args: calls.append(1) or operators.apply(*args))
    monkeypatch.setattr(module, "_ONEDNN", counted)
    layer()
    monkeypatch.setattr(module, "_ONEDNN", operators)
    return len(calls)


@pytest.mark.parametrize(
    ("ahead", "inputs", "rows", "called"),
    [(False, 4095, 100, 0), (False, 4096, 100, 1), (True, 64, 2048, 1), (True, 64, 2047, 0)],
)
def test_onednn_is_called_where_it_is_faster(monkeypatch, ahead, inputs, rows, called):
    if module._ONEDNN is None:
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(module, "_AHEAD", ahead)
    layer, x = Linear(inputs, 8), torch.randn(rows, inputs)
    assert calls_of(lambda: layer(x), monkeypatch) == called
    assert calls_of(lambda: layer.double()(x.double()), monkeypatch) == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert calls_of(lambda: layer.float()(x), monkeypatch) == 0
        assert layer(x).dtype == torch.bfloat16


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 7)])
def test_results_and_gradients_are_those_of_pytorch(onednn, monkeypatch, shape, biased):
    """Whatever the strides, and of what has gradients alone."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape[:-1], 2 * shape[-1], generator=generator)[..., ::2].transpose(0, -2)
    weight = torch.randn(6, 7, generator=generator)
    bias = torch.randn(6, generator=generator) if biased else None
    outer = torch.randn(functional.linear(x, weight).mT.shape, generator=generator)
    for trained in ((True, True), (True, False), (False, True)):
        found = []
        for function in (linear, functional.linear):
            given = x.detach().requires_grad_(trained[0]), weight.clone().requires_grad_(trained[1])
            offset = None if bias is None else bias.clone().requires_grad_(trained[1])
            y = function(*given, offset)
            (y.mT * outer).sum().backward()  # its gradient is a transposed view
            leaves = (*given, *([] if offset is None else [offset]))
            found.append([y.detach(), *(each.grad for each in leaves)])
        for mine, wanted in zip(*found, strict=True):
            assert (mine is None) == (wanted is None)
            if mine is not None:
                torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(linear(x, weight, bias), functional.linear(x, weight, bias))
        assert calls_of(lambda: linear(x, weight, bias), monkeypatch) == 1


def test_onednn_sees_no_other_strides(onednn, monkeypatch):
    """With those it takes ten times as long."""
    seen, operators = [], module._ONEDNN

    def checked(x, y, *rest):
        seen.append(all(each.is_contiguous() or each.t().is_contiguous() for each in (x, y)))
        return operators.apply(x, y, *rest)

    monkeypatch.setattr(module, "_ONEDNN", operators._replace(apply=checked))
    layer, x = Linear(7, 6), torch.randn(5, 14)[:, ::2].requires_grad_()
    layer(x).sum().backward()  # the gradient is one number, everywhere
    assert seen == [True] * 3


def test_products_of_single_vectors_are_pytorchs(onednn):
    layer = Linear(4, 3)
    x = torch.ones(4)
    assert torch.equal(layer(x), functional.linear(x, layer.weight, layer.bias))


def test_layer_starts_orthogonal_with_zero_bias():
    layer = Linear(6, 4, "relu")
    torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(4))
    assert not layer.bias.any()
    x = torch.randn(9, 6)
    expected = functional.relu(functional.linear(x, layer.weight))
    assert torch.equal(layer(x), expected) and not expected.all()


def test_readouts_are_separate_layers(way):
    torch.manual_seed(0)
    readouts = _readouts()
    with torch.no_grad():
        for name in WIDTHS:
            readouts.biases[name].normal_()
    features = torch.randn(7, 11).requires_grad_()
    copies = {n: [p.detach().clone().requires_grad_() for p in readouts.of(n)] for n in WIDTHS}
    twin = features.detach().clone().requires_grad_()
    outputs = readouts(features, "b", "c")
    expected = [functional.linear(twin, *copies[name]) for name in "bc"]
    for output, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, wanted)
    (outputs[0].square().sum() + outputs[1].sin().sum()).backward()
    (expected[0].square().sum() + expected[1].sin().sum()).backward()
    torch.testing.assert_close(features.grad, twin.grad)
    for name in "bc":
        for mine, other in zip(readouts.of(name), copies[name], strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
    assert all(p.grad is None for p in readouts.of("a"))


def test_what_an_optimiser_writes_is_read(way):
    readouts = _readouts()
    features = torch.randn(7, 11)
    before = [t.clone() for t in readouts(features, *WIDTHS)]
    adam = torch.optim.Adam(readouts.of("b"), lr=0.1, fused=True)
    readouts(features, "b")[0].square().sum().backward()
    adam.step()
    after = readouts(features, *WIDTHS)
    assert torch.equal(before[0], after[0]) and torch.equal(before[2], after[2])
    torch.testing.assert_close(after[1], functional.linear(features, *readouts.of("b")))
    assert not torch.equal(before[1], after[1])


def test_readouts_start_orthogonal():
    readouts = _readouts()
    for name, width in WIDTHS.items():
        weight, bias = readouts.of(name)
        torch.testing.assert_close(weight @ weight.T, torch.eye(width))
        assert not bias.any()


def test_change_between_passes_is_noticed(way):
    readouts = _readouts()
    (out,) = readouts(torch.randn(7, 11).requires_grad_(), "a")
    with torch.no_grad():
        readouts.weights["a"].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_what_readouts_cannot_do(onednn):
    """They cannot move, be copied, or be read with a gap between them."""
    with pytest.raises(RuntimeError, match="create them on their device"):
        _readouts().double()
    with pytest.raises(AssertionError, match="cannot be deep-copied"):
        copy.deepcopy(_readouts())(torch.randn(7, 11), "b")
    with pytest.raises(AssertionError):
        _readouts()(torch.randn(7, 11), "a", "c")


@pytest.mark.parametrize("rows", [1, 2**20])  # few, and enough to lay the weight out
def test_packed_layers_are_linear(rows):
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(80, 70, generator=generator), torch.randn(80, generator=generator)
    layer = PackedLinear(weight, bias, rows)
    for size in (1, 12, 300):
        x = torch.randn(size, 70, generator=generator)
        torch.testing.assert_close(
            layer(x), functional.linear(x, weight, bias), rtol=1e-4, atol=1e-4
        )


def test_packed_layers_do_without_onednn(monkeypatch):
    monkeypatch.setattr(module, "_ONEDNN", None)
    weight, bias, x = torch.ones(3, 2), torch.zeros(3), torch.ones(4, 2)
    assert torch.equal(PackedLinear(weight, bias, 2**26)(x), torch.full((4, 3), 2.0))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert module._find_onednn() is None
