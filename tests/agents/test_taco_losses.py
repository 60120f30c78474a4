"""TACO's losses against their formulas, written out number by number in float64."""

import math

import pytest
import torch

from revbis.agents import TacoSettings
from revbis.agents.taco import (
    ActionTokens,
    TacoHeads,
    bilinear_logits,
    contrastive_accuracy,
    contrastive_loss,
    reward_loss,
)

torch.set_num_threads(1)
B, D, T, K, HIDDEN = 5, 4, 3, 2, 7


def numbers(tensor):
    return tensor.detach().double().tolist()


def affine(layer, x):
    """A linear layer of one vector."""
    rows = zip(numbers(layer.weight), numbers(layer.bias), strict=True)
    return [sum(w * v for w, v in zip(row, x, strict=True)) + bias for row, bias in rows]


def squashed(norm, x):
    """tanh(LayerNorm(x)) of one vector."""
    mean = sum(x) / len(x)
    scale = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + norm.eps)
    gains = zip(x, numbers(norm.weight), numbers(norm.bias), strict=True)
    return [math.tanh((v - mean) / scale * gain + bias) for v, gain, bias in gains]


def two_layers(layers, x):
    return affine(layers[1], [max(v, 0.0) for v in affine(layers[0], x)])


def cross_entropy(anchors, candidates, form):
    """−log of the softmax weight that each anchor gives to the candidate of its own row."""
    total = 0.0
    for i, anchor in enumerate(anchors):
        scores = [
            sum(a * form[p][q] * b for p, a in enumerate(anchor) for q, b in enumerate(other))
            for other in candidates
        ]
        total += math.log(sum(math.exp(score) for score in scores)) - scores[i]
    return total / len(anchors)


@pytest.fixture
def heads():
    torch.manual_seed(3)
    settings = TacoSettings(latent_dim=D, hidden=HIDDEN, action_steps=K)
    heads = TacoHeads(settings, T).double()
    for parameter in heads.parameters():  # biases and gains that are not 0 and 1
        parameter.data += 0.3 * torch.randn_like(parameter)
    return heads


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(4)
    draw = {"generator": generator, "dtype": torch.float64}
    z, following, positive = (torch.randn(B, D, **draw) for _ in range(3))
    return z, torch.randn(B, K * T, **draw), torch.randn(B, **draw), following, positive


def test_each_loss_is_its_formula(heads, inputs):
    out = heads(*inputs)
    rows = [numbers(each) for each in inputs]
    z, following, positive = (
        [squashed(heads.norm, row) for row in rows[place]] for place in (0, 3, 4)
    )
    sequences = [squashed(heads.sequence[1], affine(heads.sequence[0], row)) for row in rows[1]]
    given = [[*a, *b] for a, b in zip(z, sequences, strict=True)]
    predicted = [two_layers(heads.following, row) for row in given]
    form = numbers(heads.bilinear)
    wanted = {
        "taco_loss": cross_entropy(predicted, following, form),
        "curl_loss": cross_entropy(z, positive, form),
        "reward_loss": sum(
            (two_layers(heads.reward, row)[0] - reward) ** 2
            for row, reward in zip(given, rows[2], strict=True)
        )
        / B,
    }
    assert {name: loss.item() for name, loss in out.terms.items()} == pytest.approx(
        wanted, rel=1e-9
    )
    assert out.representation_loss.item() == pytest.approx(sum(wanted.values()), rel=1e-9)
    torch.testing.assert_close(out.embedding, torch.tensor(z, dtype=torch.float64))


def test_tokens_are_their_formula():
    torch.manual_seed(0)
    tokens = ActionTokens(2, T).double()
    action = torch.randn(B, 2, dtype=torch.float64)
    wanted = [
        affine(tokens.output, [math.tanh(v) for v in affine(tokens.hidden, row)])
        for row in numbers(action)
    ]
    torch.testing.assert_close(tokens(action), torch.tensor(wanted, dtype=torch.float64))


def test_gradients_reach_z_and_the_tokens_and_stop_at_what_is_compared(heads, inputs):
    inputs = [each.requires_grad_() for each in inputs]
    heads(*inputs).representation_loss.backward()
    z, tokens, reward, following, positive = (each.grad for each in inputs)
    assert z.abs().min() > 0 and tokens.abs().min() > 0 and reward is not None
    assert following is None and positive is None
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in heads.parameters())


@pytest.mark.parametrize("off", ["taco", "curl", "reward"])
def test_a_loss_that_is_off_is_not_there(inputs, off):
    torch.manual_seed(1)
    settings = TacoSettings(latent_dim=D, hidden=HIDDEN, action_steps=K, **{f"{off}_loss": False})
    out = TacoHeads(settings, T).double()(*inputs)
    assert list(out.terms) == [n for n in ("taco_loss", "curl_loss", "reward_loss") if off not in n]
    assert f"{off}_accuracy" not in out.metrics and f"{off}_loss" not in out.metrics


def test_bilinear_form_starts_uniform():
    torch.manual_seed(0)
    form = TacoHeads(TacoSettings(latent_dim=50, hidden=8), T).bilinear
    assert form.min() >= 0 and form.max() <= 1 and abs(form.mean().item() - 0.5) < 0.02


def test_contrast_by_hand():
    """x = (1, 0), (0, 1) and y = (1, 2), (3, 4) with W = (0 1; 1 0): xᵢᵀ W yⱼ swaps y's entries."""
    x, y = torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    logits = bilinear_logits(x, y, torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert logits.tolist() == [[2.0, 4.0], [1.0, 3.0]]
    wanted = [math.log(1 + math.exp(2)), math.log(1 + math.exp(-2))]
    assert contrastive_loss(logits).tolist() == pytest.approx(wanted)
    assert contrastive_accuracy(logits).tolist() == [0.0, 1.0]
    assert reward_loss(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0])).tolist() == [4.0, 0.0]


def test_metrics_are_of_the_losses(heads, inputs):
    out = heads(*inputs)
    assert set(out.losses) == {"representation_loss", "taco_loss", "curl_loss", "reward_loss"}
    added = {"taco_accuracy", "curl_accuracy", "embedding_norm", "effective_rank"}
    assert set(out.metrics) == set(out.losses) | added
    wanted = out.embedding.square().sum(dim=1).sqrt().mean()
    torch.testing.assert_close(out.metrics["embedding_norm"], wanted)
