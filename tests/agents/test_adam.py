"""Adam against PyTorch's own, to the last bit."""

import pytest
import torch

from revbis.agents.common import Adam

RATES = (3e-4, 1e-2)


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(1)
    filters = torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)
    return [torch.nn.Parameter(each) for each in (torch.randn(5, 4), torch.randn(5), filters)]


def groups(trained: list[torch.nn.Parameter]) -> list[dict]:
    return [{"params": trained[:1], "lr": RATES[0]}, {"params": trained[1:], "lr": RATES[1]}]


def gradients(step: int, trained: list[torch.nn.Parameter]) -> list[torch.Tensor | None]:
    """Random ones; the second parameter has none in the first steps, the third none in some."""
    generator = torch.Generator().manual_seed(step)
    found = [torch.randn(each.shape, generator=generator) for each in trained]
    return [found[0], found[1] if step > 2 else None, found[2] if step % 2 else None]


def train(adam: Adam | torch.optim.Adam, trained: list[torch.nn.Parameter], steps: range) -> None:
    for step in steps:
        adam.zero_grad()
        assert all(each.grad is None for each in trained)
        for each, gradient in zip(trained, gradients(step, trained), strict=True):
            each.grad = gradient
        adam.step()


def test_steps_and_moments_are_those_of_pytorch() -> None:
    ours, theirs = parameters(), parameters()
    adam, reference = Adam(groups(ours)), torch.optim.Adam(groups(theirs), fused=True)
    for step in range(6):
        train(adam, ours, range(step, step + 1))
        train(reference, theirs, range(step, step + 1))
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine, other)
        moments, expected = adam.state_dict()["state"], reference.state_dict()["state"]
        assert moments.keys() == expected.keys()
        for number, moment in moments.items():
            assert moment.keys() == expected[number].keys()
            assert all(torch.equal(moment[name], expected[number][name]) for name in moment)


def test_moments_of_pytorch_are_loaded_and_copied() -> None:
    ours, theirs = parameters(), parameters()
    reference = torch.optim.Adam(groups(theirs), fused=True)
    train(reference, theirs, range(4))
    adam = Adam(groups(ours))
    adam.load(reference.state_dict()["state"])
    with torch.no_grad():
        for mine, other in zip(ours, theirs, strict=True):
            mine.copy_(other)
    train(adam, ours, range(4, 7))
    train(reference, theirs, range(4, 7))
    assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs, strict=True))


def test_moments_that_do_not_fit_change_nothing() -> None:
    trained = parameters()
    adam = Adam(groups(trained))
    train(adam, trained, range(3))
    before = adam.state_dict()
    wrong = {0: before["state"][0], 2: before["state"][2] | {"exp_avg": torch.zeros(1)}}
    with pytest.raises(ValueError, match="the moments of parameter 2 have shapes"):
        adam.load(wrong)
    assert adam.state_dict() == before
