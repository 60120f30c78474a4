import copy

import pytest
import torch
from torch.nn import functional

from revbis.agents import common as module
from revbis.agents.common import Linear, Readouts

torch.set_num_threads(1)
WIDTHS = {"a": 3, "b": 5, "c": 4}


def _readouts() -> Readouts:
    made = Readouts(11, WIDTHS, torch.device("cpu"))
    made.init_orthogonal(*WIDTHS)
    return made


@pytest.fixture
def onednn(monkeypatch):
    """oneDNN's operator whatever the width of the features."""
    if module._ONEDNN is None:
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(module, "_WIDE", 1)


@pytest.fixture(params=["onednn", "plain"])
def way(request):
    return request.getfixturevalue("onednn") if request.param == "onednn" else None


@pytest.mark.parametrize(("width", "fast"), [(4095, False), (4096, True)])
def test_only_wide_features_are_read_by_onednn(monkeypatch, width, fast):
    calls = []
    if module._ONEDNN is None:
        pytest.skip("this PyTorch has no oneDNN")
    operator = module._ONEDNN
    monkeypatch.setattr(module, "_ONEDNN", lambda *args: calls.append(1) or operator(*args))
    readouts = Readouts(width, WIDTHS, torch.device("cpu"))
    readouts.init_orthogonal(*WIDTHS)
    features = torch.randn(7, width)
    for name, output in zip(WIDTHS, readouts(features, *WIDTHS), strict=True):
        torch.testing.assert_close(output, functional.linear(features, *readouts.of(name)))
    assert bool(calls) == fast


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


def test_loaded_readouts_are_read():
    readouts, other = (_readouts() for _ in range(2))
    features = torch.randn(7, 11)
    readouts.load_state_dict(other.state_dict())
    torch.testing.assert_close(readouts(features, "a", "b"), other(features, "a", "b"))


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


def test_readouts_do_not_move():
    readouts = _readouts()
    with pytest.raises(RuntimeError, match="create them on their device"):
        readouts.double()


def test_copies_are_refused(onednn):
    readouts = copy.deepcopy(_readouts())
    with pytest.raises(AssertionError, match="cannot be deep-copied"):
        readouts(torch.randn(7, 11), "b")


def test_gap_between_readouts_is_refused(onednn):
    with pytest.raises(AssertionError):
        _readouts()(torch.randn(7, 11), "a", "c")
