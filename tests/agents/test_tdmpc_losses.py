"""The losses, against loops over single steps, and the gradients of a whole update."""

import math

import pytest
import torch
from tests.agents.tdmpc import TINY, random_sequences, tiny_agent

from revbis.agents.tdmpc import (
    Predictions,
    Targets,
    importance_weights,
    policy_loss,
    sequence_losses,
)

torch.set_num_threads(1)


def naive_losses(predicted, target, decay):
    """Each sequence on its own, step by step, as the paper writes the sums."""
    steps, batch = target.reward.shape
    rows = []
    for b in range(batch):
        sums = [0.0, 0.0, 0.0, 0.0]
        for t in range(steps):
            errors = [q[t, b] - target.q[t, b] for q in (predicted.q1, predicted.q2)]
            away = predicted.z[t, b] - target.z[t, b]
            terms = (
                sum(x * x for x in away) / len(away),
                (predicted.reward[t, b] - target.reward[t, b]) ** 2,
                errors[0] ** 2 + errors[1] ** 2,
                abs(errors[0]) + abs(errors[1]),
            )
            sums = [total + decay**t * term for total, term in zip(sums, terms, strict=True)]
        rows.append([min(total, torch.tensor(1e4)) for total in sums])
    return torch.tensor(rows).T


@pytest.mark.parametrize("scale", [1.0, 300.0])  # with the second, some are cut at 10,000
def test_losses_are_the_naive_ones(scale):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return scale * torch.randn(4, 3, *shape, generator=generator)

    predicted = Predictions(draw(5), draw(), draw(), draw())
    target = Targets(draw(5), draw(), draw())
    got = torch.stack(sequence_losses(predicted, target, 0.5))
    wanted = naive_losses(predicted, target, 0.5)
    assert torch.allclose(got, wanted, rtol=1e-5)
    assert ((wanted == 1e4).any() and (wanted < 1e4).any()) == (scale == 300)


def test_priorities_have_no_gradient():
    q = torch.ones(1, 1, requires_grad=True)
    one = torch.zeros(1, 1)
    losses = sequence_losses(
        Predictions(one[..., None], one, q, q), Targets(one[..., None], one, one), 0.5
    )
    assert losses.value.requires_grad and not losses.priority.requires_grad


def test_policy_loss_by_hand():
    """Means 2 and 5; −(2 + 0.5 · 5)."""
    assert policy_loss(torch.tensor([[1.0, 3.0], [4.0, 6.0]]), 0.5).item() == -4.5


def test_importance_weights_by_hand():
    """Half as likely, and an exponent of 0.5: √2 times the weight; the largest is 1."""
    weights = importance_weights(torch.tensor([0.2, 0.4, 0.2]), 0.5)
    assert weights.tolist() == pytest.approx([1.0, 1 / math.sqrt(2), 1.0])
    assert importance_weights(torch.tensor([0.2, 0.4]), 0.0).tolist() == [1, 1]


def naive_update(agent, sequences, probability, discount):
    """An update's losses, transcribed: one step after the other, nothing taken together."""
    s, model, target = agent.settings, agent.model, agent.target
    steps, batch = s.horizon, len(sequences.obs)
    noise = 0.05 * torch.randn(steps * batch, agent.action_size, generator=agent._update_generator)
    noise = noise.clamp(-0.3, 0.3).reshape(steps, batch, -1)
    z = model.encoder(sequences.obs[:, 0])
    latents, consistency, reward_loss, value_loss, priority = [z], 0, 0, 0, 0
    for t in range(steps):
        action, reward = sequences.action[:, t], sequences.reward[:, t]
        q1, q2 = model.values(z, action)
        z, predicted = model.next(z, action)
        latents.append(z)
        with torch.no_grad():
            following = sequences.obs[:, t + 1]
            next_z = model.encoder(following)
            next_action = (torch.tanh(model.actor(next_z)) + noise[t]).clamp(-1 + 1e-6, 1 - 1e-6)
            next_value = torch.min(*target.values(next_z, next_action))
            wanted = reward + discount * sequences.discount[:, t] * next_value
            wanted_z = target.encoder(following)
        rho = s.loss_decay**t
        consistency = consistency + rho * (z - wanted_z).pow(2).mean(dim=1)
        reward_loss = reward_loss + rho * (predicted - reward).pow(2)
        value_loss = value_loss + rho * ((q1 - wanted).pow(2) + (q2 - wanted).pow(2))
        priority = priority + rho * ((q1 - wanted).abs() + (q2 - wanted).abs())
    weight = (batch * probability.float()) ** -s.importance_exponent
    weight = weight / weight.max()
    total = 2 * consistency + 0.5 * reward_loss + 0.1 * value_loss
    return (total * weight).mean(), priority, latents


@pytest.mark.parametrize("shape", [(5,), (6, 31, 31)])
def test_an_update_has_the_gradients_of_the_transcription(shape):
    options = {"gradient_clip": 1e9, "strides": (2, 2, 1, 1)}
    fast, slow = (tiny_agent(shape, **options) for _ in range(2))
    sequences, probability = random_sequences(shape)
    loss, priority, latents = naive_update(slow, sequences, probability, 0.9)
    (loss / TINY["horizon"]).backward()
    metrics, got = fast.learn(sequences, probability, 0.9, step=3)
    assert metrics["model_loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(got, priority, rtol=1e-4, atol=1e-6)
    pairs = zip(fast.model.learned(), slow.model.learned(), strict=True)
    for number, (mine, wanted) in enumerate(pairs):
        assert torch.allclose(mine.grad, wanted.grad, rtol=1e-3, atol=1e-6), number
    norm = torch.stack([p.grad.norm() for p in slow.model.learned()]).norm()
    assert metrics["gradient_norm"].item() == pytest.approx(norm.item(), rel=1e-4)
    # The policy's loss comes after the model's step, at the latent states from before it.
    slow.model.load_state_dict(
        {k: v for k, v in fast.model.state_dict().items() if not k.startswith("actor")}
        | {k: v for k, v in slow.model.state_dict().items() if k.startswith("actor")}
    )
    total, count = 0, len(latents) * len(latents[0])
    noise = 0.05 * torch.randn(count, 2, generator=slow._update_generator)
    noise = noise.clamp(-0.3, 0.3).reshape(len(latents), -1, 2)
    for t, latent in enumerate(latents):
        z = latent.detach()
        action = torch.tanh(slow.model.actor(z)) + noise[t]
        value = torch.min(*slow.model.values(z, action.clamp(-1 + 1e-6, 1 - 1e-6)))
        total = total - 0.5**t * value.mean()
    assert metrics["actor_loss"].item() == pytest.approx(total.item(), rel=1e-3, abs=1e-5)
