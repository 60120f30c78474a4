import copy

import pytest
import torch
from torch.nn import functional

from revbis.agents import linear as module
from revbis.agents.linear import Linear, Readouts, linear

torch.set_num_threads(1)
WIDTHS = {"a": 3, "b": 5, "c": 4}


def _readouts() -> Readouts:
    made = Readouts(11, WIDTHS, torch.device("cpu"))
    made.draw(*WIDTHS)
    return made


@pytest.fixture(params=["onednn", "plain"])
def way(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(module, "_ONEDNN", None)
    elif module._ONEDNN is None:
        pytest.skip("this PyTorch has no oneDNN")
    return request.param


@pytest.mark.parametrize("activation", ["none", "relu"])
def test_linear_and_its_gradients_are_those_of_pytorch(way, activation):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(7, 5), torch.randn(4, 5), torch.randn(4)
    ours = [t.clone().requires_grad_() for t in (x, weight, bias)]
    theirs = [t.clone().requires_grad_() for t in (x, weight, bias)]
    out = linear(*ours, activation)
    reference = functional.linear(*theirs)
    if activation == "relu":
        reference = functional.relu(reference)
    torch.testing.assert_close(out, reference)
    gradient = torch.randn(7, 4)
    out.backward(gradient)
    reference.backward(gradient)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


def test_linear_of_a_frozen_weight_sends_the_gradient_on(way):
    x, weight, bias = torch.randn(7, 5).requires_grad_(), torch.randn(4, 5), torch.randn(4)
    linear(x, weight, bias).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(dim=0).expand(7, 5))
    assert weight.grad is None and bias.grad is None


def test_layer_starts_orthogonal_with_zero_bias():
    layer = Linear(6, 4, "relu")
    torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(4))
    assert not layer.bias.any()
    assert (layer(torch.randn(9, 6)) >= 0).all()


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


def test_copies_are_refused():
    if module._ONEDNN is None:
        pytest.skip("this PyTorch has no oneDNN")
    readouts = copy.deepcopy(_readouts())
    with pytest.raises(AssertionError, match="cannot be deep-copied"):
        readouts(torch.randn(7, 11), "b")


def test_gap_between_readouts_is_refused():
    if module._ONEDNN is None:
        pytest.skip("this PyTorch has no oneDNN")
    with pytest.raises(AssertionError):
        _readouts()(torch.randn(7, 11), "a", "c")
