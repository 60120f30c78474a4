"""The baselines: self-prediction and DeepMDP, against loops that know nothing of the code."""

import math

import pytest
import torch
from tests.objectives.test_bisimulation import B, batch, build, run

from revbis.objectives.base import relative_error
from revbis.objectives.registry import OBJECTIVES, needs_one_step

BASELINES = ["zp", "deepmdp"]


def naive_model(model, x: list[float]) -> list[float]:
    """An MLP with one hidden layer of ReLUs, a number at a time."""
    (w1, b1, w2, b2) = (p.tolist() for p in model.parameters())
    hidden = [
        max(0.0, sum(w * v for w, v in zip(row, x, strict=True)) + b)
        for row, b in zip(w1, b1, strict=True)
    ]
    return [
        sum(w * v for w, v in zip(row, hidden, strict=True)) + b
        for row, b in zip(w2, b2, strict=True)
    ]


def unit(x: list[float]) -> list[float]:
    length = math.sqrt(sum(v * v for v in x))
    return [v / length for v in x]


def penalty(gap: float, loss: str) -> float:
    if loss == "squared":
        return gap**2
    return 0.5 * gap**2 if abs(gap) < 1 else abs(gap) - 0.5


def naive_loss(objective, inputs, loss: str, normalisation: bool) -> float:
    scaled = unit if normalisation else (lambda x: x)
    total = 0.0
    for i in range(B):
        x = scaled(inputs["z"][i].tolist()) + inputs["action"][i].tolist()
        wanted = scaled(inputs["next_z"][i].tolist())
        guess = scaled(naive_model(objective.dynamics, x))
        total += sum(penalty(g - w, loss) for g, w in zip(guess, wanted, strict=True))
        if objective.reward is not None:
            (reward,) = naive_model(objective.reward, x)
            total += penalty(reward - float(inputs["reward"][i]), loss)
    return total / B


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("normalisation", [True, False])
def test_the_loss_is_a_loops(name: str, loss: str, normalisation: bool) -> None:
    objective = build(name, loss=loss, normalisation=normalisation).double()
    inputs = {k: 2 * v.detach().double() for k, v in batch().items()}
    inputs["discount"] /= 2
    expected = naive_loss(objective, inputs, loss, normalisation)
    got = run(objective, inputs).representation_loss
    assert float(got.detach()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", BASELINES)
def test_metrics_are_of_the_model_and_of_no_distance(name: str) -> None:
    """No c, no shares, no distances: nothing of the kind is in the loss."""
    out = run(build(name), batch())
    errors = {"next_error"} | ({"reward_error"} if name == "deepmdp" else set())
    known = {"representation_loss", "embedding_norm", "effective_rank"}
    assert set(out.metrics) == known | errors
    assert out.prediction is None and out.coefficient_loss is None
    assert not any(t.requires_grad for pair in out.predicted.values() for t in pair)
    assert build(name).status() == {}


def test_relative_error_by_hand() -> None:
    actual = torch.tensor([0.0, 2.0])  # mean 1: V is 1 + 1
    assert relative_error(actual, actual) == 0
    assert relative_error(torch.ones(2), actual) == 0.5  # the mean: E is as large
    assert relative_error(torch.tensor([0.0, 8.0]), actual) == pytest.approx(36 / 38)
    same = torch.full((4, 3), 2.0)
    assert relative_error(same, same) == 0 and relative_error(same + 1, same) == 1


def test_they_learn_from_single_steps() -> None:
    of_windows = ["laws", "laws-zp", "means"]
    assert [name for name in OBJECTIVES if needs_one_step(name)] == [*BASELINES, *of_windows]
    assert not needs_one_step("somebodys.module:make")
