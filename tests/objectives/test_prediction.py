"""The baselines: self-prediction and DeepMDP, against loops that know nothing of the code."""

import math

import pytest
import torch
from tests.objectives.test_bisimulation import A, B, D, batch, build, run

from revbis.objectives import make_objective
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
    expected = naive_loss(objective, inputs, loss, normalisation)
    got = run(objective, inputs).representation_loss
    assert float(got.detach()) == pytest.approx(expected, rel=1e-12)


def test_the_loss_of_unit_vectors_is_the_cosine() -> None:
    objective, inputs = build("zp", normalisation=True), batch()
    x = torch.cat([torch.nn.functional.normalize(inputs["z"]), inputs["action"]], dim=1)
    cosine = torch.cosine_similarity(objective.dynamics(x), inputs["next_z"])
    loss = run(objective, inputs).representation_loss
    assert torch.allclose(loss, (2 - 2 * cosine).mean(), atol=1e-6)


def test_deepmdp_is_zp_and_the_reward() -> None:
    zp, deepmdp = build("zp"), build("deepmdp")
    zp.dynamics.load_state_dict(deepmdp.dynamics.state_dict())
    out, inputs = run(deepmdp, batch()), batch()
    guess, actual = out.predicted["reward"]
    assert torch.equal(actual, inputs["reward"])
    reward_loss = (guess - actual).square().mean()
    expected = run(zp, batch()).representation_loss + reward_loss
    assert torch.allclose(out.representation_loss, expected)


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


@pytest.mark.parametrize("name", BASELINES)
def test_a_model_of_what_follows_is_learned(name: str) -> None:
    """The next embedding is a rotation of this one, pushed by the action; the reward its first."""
    torch.manual_seed(0)
    objective = make_objective(name, D, A, hidden=64, normalisation=False)
    adam = torch.optim.Adam(objective.parameters(), lr=3e-3)
    push = torch.randn(A, D)
    for _ in range(300):
        z, action = torch.randn(64, D), torch.rand(64, A)
        next_z, reward = z.roll(1, dims=1) + action @ push, z[:, 0]
        out = objective(z, action, reward, torch.full((64,), 0.9), next_z)
        adam.zero_grad()
        out.representation_loss.backward()
        adam.step()
    assert all(out.metrics[f"{each}_error"] < 0.1 for each in out.predicted)
    assert len(out.predicted) == 1 + (name == "deepmdp")


def test_relative_error_by_hand() -> None:
    actual = torch.tensor([0.0, 2.0])  # mean 1: V is 1 + 1
    assert relative_error(actual, actual) == 0
    assert relative_error(torch.ones(2), actual) == 0.5  # the mean: E is as large
    assert relative_error(torch.tensor([0.0, 8.0]), actual) == pytest.approx(36 / 38)
    same = torch.full((4, 3), 2.0)
    assert relative_error(same, same) == 0 and relative_error(same + 1, same) == 1


def test_they_learn_from_single_steps() -> None:
    assert [name for name in OBJECTIVES if needs_one_step(name)] == BASELINES
    assert not needs_one_step("somebodys.module:make")
