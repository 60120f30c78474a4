"""TACO: its losses, which pass trains what, and DrQ-v2 where all of it is off."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.agents.conftest import ACTION, PIXELS, SMALL, VECTOR, tensors

from revbis.agents import DrQV2, DrQV2Settings, Taco, TacoSettings
from revbis.agents.taco import (
    ActionTokens,
    TacoHeads,
    bilinear_logits,
    contrastive_accuracy,
    contrastive_loss,
    n_step_return,
    reward_loss,
    sample_batch,
)
from revbis.replay import Replay

# TACO's losses against their formulas, written out number by number in float64


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


# TACO: DrQ-v2 without its losses and tokens; which pass trains what with them


MODES = ["joint", "alternating", "balanced"]
OFF = {"taco_loss": False, "curl_loss": False, "reward_loss": False}


def filled(shape=PIXELS, episodes=4, steps=12, **options):
    """A replay buffer of random episodes, the last of which terminate."""
    rng, frame = np.random.default_rng(0), (shape[0] // 2, *shape[1:]) if len(shape) == 3 else shape
    stack = 2 if len(shape) == 3 else 1
    replay = Replay(100, frame, ACTION, stack=stack, shift=2, **options)

    def draw():
        if len(shape) == 3:
            return rng.integers(0, 256, frame, dtype=np.uint8)
        return rng.normal(size=frame).astype(np.float32)

    for _ in range(episodes):
        replay.begin(draw())
        for step in range(steps):
            last = step == steps - 1
            action = rng.uniform(-1, 1, ACTION)
            replay.add(action, rng.normal(), 0.0 if last else 1.0, draw(), last=last)
    return replay


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [PIXELS, VECTOR])
def test_without_losses_and_tokens_it_is_drqv2_bit_for_bit(shape, mode):
    settings = SMALL | {"mode": mode, "batch_size": 6, "action_penalty": 0.01}
    plain = DrQV2(shape, ACTION, DrQV2Settings(**settings), seed=3)
    taco = Taco(shape, ACTION, TacoSettings(tokens="identity", **OFF, **settings), seed=3)
    mine, other = filled(shape), filled(shape)
    for step in range(5):
        expected = plain.update(mine, step, with_metrics=True)
        metrics = taco.update(other, step, with_metrics=True)
        assert metrics.keys() == expected.keys()
        assert all(torch.equal(metrics[name], expected[name]) for name in expected)
        observation = mine.sample(1).obs[0].numpy()
        other.sample(1)
        actions = [agent.act(observation, step, explore=True) for agent in (plain, taco)]
        assert np.array_equal(*actions)
    states = [agent.state_dict() for agent in (plain, taco)]
    assert states[0].pop("method") == "drqv2" and states[1].pop("method") == "taco"
    assert len(tensors(states[0])) > 20
    assert all(map(torch.equal, *map(tensors, states)))


def test_losses_do_not_change_the_critics_own_step(make_agent, make_batch):
    """The losses train the encoder and the tokens; the critic's loss is the same."""
    on, off = make_agent("taco", "joint"), make_agent("taco", "joint", **OFF)
    for agent in (on, off):
        agent.learn(make_batch(), 0)
    own = [[*a.parts.readouts.of("critic"), *a.parts.critic.parameters()] for a in (on, off)]
    assert all(map(torch.equal, *own))
    for name in ("encoder", "tokens"):
        pairs = zip(*(a.parts.modules()[name].parameters() for a in (on, off)), strict=True)
        assert not any(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    ("action_size", "token_dim", "wanted"), [(1, None, 2), (6, None, 8), (6, 5, 5)]
)
def test_critics_read_tokens(action_size, token_dim, wanted):
    settings = TacoSettings(token_dim=token_dim, **SMALL)
    agent = Taco(VECTOR, action_size, settings, seed=0)
    assert agent.parts.tokens(torch.zeros(4, action_size)).shape == (4, wanted)
    for critic in (agent.parts.critic, agent.parts.target):
        assert critic.q1[0].weight.shape[1] == SMALL["feature_dim"] + wanted
    assert agent.act(np.zeros(VECTOR, np.float32), 9, explore=True).shape == (action_size,)


@pytest.mark.parametrize("mode", ["joint", "balanced"])
def test_shared_losses_compare_with_the_second_shift_and_the_next_images(
    make_agent, make_batch, monkeypatch, mode
):
    agent, batch = make_agent("taco", mode), make_batch()
    seen = spy_on_losses(agent, monkeypatch)
    views = {"z": batch.obs, "following": batch.next_obs, "positive": batch.window.obs}
    expected = {name: projected(agent, images) for name, images in views.items()}
    agent.learn(batch, 0)
    for name, z in expected.items():
        torch.testing.assert_close(seen[name].detach(), z)
    assert torch.equal(seen["reward"], batch.reward)
    assert seen["z"].requires_grad


def test_losses_of_their_own_step_compare_with_the_critics_passes(
    make_agent, make_batch, monkeypatch
):
    """z is of the second shift, by the encoder after the critic's step; the rest is from before."""
    agent, batch = make_agent("taco", "alternating", learning_rate=0.01), make_batch()
    seen = spy_on_losses(agent, monkeypatch)
    following, positive, stale = (
        projected(agent, images) for images in (batch.next_obs, batch.obs, batch.window.obs)
    )
    twin = copy.deepcopy(agent.state_dict())
    agent.learn(batch, 0)
    torch.testing.assert_close(seen["following"], following)
    torch.testing.assert_close(seen["positive"], positive)
    other = make_agent("taco", "alternating", learning_rate=0.01)
    other.load_state_dict(twin)
    other.critic_and_actor(batch, other.deviation(0))
    torch.testing.assert_close(seen["z"].detach(), projected(other, batch.window.obs))
    assert not torch.allclose(seen["z"].detach(), stale)


def test_their_own_step_trains_encoder_tokens_and_heads(make_agent, make_batch, changed):
    agent, batch = make_agent("taco", "alternating"), make_batch()
    given = [projected(agent, images) for images in (batch.next_obs, batch.obs)]
    step, heads = agent.objective_step, agent.parts.objective
    wanted = {"encoder", "tokens", "projection", "heads"}
    assert changed(agent, lambda: step(batch, batch.window, heads, *given)) == wanted


@pytest.mark.parametrize("mode", MODES)
def test_encoder_passes_are_shared(make_agent, make_batch, monkeypatch, mode):
    """Three passes, of which one has a gradient, or two where the losses have their own step."""
    agent, calls = make_agent("taco", mode), []
    forward = agent.parts.encoder.forward

    def spy(observations):
        calls.append(torch.is_grad_enabled())
        return forward(observations)

    monkeypatch.setattr(agent.parts.encoder, "forward", spy)
    agent.learn(make_batch(), 0)
    assert sorted(calls) == ([False, True, True] if mode == "alternating" else [False, False, True])


@pytest.mark.parametrize("mode", MODES)
def test_other_numbers_of_steps_than_the_critics(make_agent, monkeypatch, mode):
    agent = make_agent("taco", mode, action_steps=2, batch_size=6)
    replay = filled()
    batch = sample_batch(replay, 6, 2)
    assert batch.window.next_obs is not None
    seen = spy_on_losses(agent, monkeypatch)
    expected = projected(agent, batch.window.next_obs)
    agent.learn(batch, 0)
    assert (seen["following"].shape, seen["tokens"].shape) == ((6, 6), (6, 2 * 3))
    if mode != "alternating":
        torch.testing.assert_close(seen["following"], expected)
    assert set(agent.update(replay, 1)) >= {"objective/taco_loss", "objective/curl_loss"}


def test_embeddings_are_the_losses_own(make_agent, make_batch):
    agent, batch = make_agent("taco"), make_batch()
    z = agent.embed(batch.obs)
    assert z.shape == (12, SMALL["latent_dim"]) and z.abs().max() < 1
    distances = agent.distance(z, z)
    assert distances.shape == (12, 12) and distances.diagonal().abs().max() < 1e-6
    assert agent.status() == {}
    assert make_agent("taco", **OFF).embed(batch.obs).shape == (12, SMALL["feature_dim"])


# Batches


@pytest.mark.parametrize(("n_step", "steps"), [(3, 3), (3, 2), (2, 4), (1, 1)])
@pytest.mark.parametrize("shape", [PIXELS, VECTOR])
def test_batches_are_the_replays_transitions_with_what_follows(shape, n_step, steps):
    replay = filled(shape, n_step=n_step, discount=0.9)
    replay.shift = 0
    batch = sample_batch(replay, 40, steps)
    plain = replay.gather(np.arange(len(replay)))
    longer = replay.gather_sequences(
        np.arange(replay.count_sequences(max(n_step, steps))), max(n_step, steps), shift="image"
    )
    for row in range(40):
        place = same_row(plain.obs, batch.obs[row])
        for name in ("action", "reward", "discount", "next_obs"):
            wanted = getattr(plain, name)[place]
            torch.testing.assert_close(getattr(batch, name)[row], wanted, rtol=1e-6, atol=1e-6)
        start = same_row(longer.obs[:, 0], batch.obs[row])
        assert torch.equal(batch.window.action[row], longer.action[start, :steps])
        assert torch.equal(batch.window.obs[row], batch.obs[row])
        following = batch.next_obs if n_step == steps else batch.window.next_obs
        assert torch.equal(following[row], longer.obs[start, steps])


def test_both_views_are_shifted_by_themselves():
    batch = sample_batch(filled(), 30, 3)
    alike = [torch.equal(a, b) for a, b in zip(batch.obs, batch.window.obs, strict=True)]
    assert not all(alike)


def test_n_step_return_by_hand():
    """1 + 0.5·2 + 0.25·4 with γ = ½; a termination at the second step ends both."""
    reward = torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]])
    discount = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    total, after = n_step_return(reward, discount, 0.5)
    assert total.tolist() == [3.0, 2.0] and after.tolist() == [0.125, 0.0]


# Doors


def test_what_is_refused(make_agent, make_batch):
    agent, batch = make_agent("taco"), make_batch()
    with pytest.raises(ValueError, match=r"must have a window of 3 steps, .* got 0 steps"):
        agent.learn(batch._replace(window=None), 0)
    window = batch.window
    with pytest.raises(ValueError, match=r"must have a window of 3 steps, .* got 2 steps"):
        agent.learn(batch._replace(window=window._replace(action=window.action[:, :2])), 0)
    with pytest.raises(ValueError, match="the state's method must be 'taco', got 'drqv2'"):
        agent.load_state_dict(make_agent("drqv2").state_dict())
    with pytest.raises(ValueError, match="token_dim is of learned tokens"):
        TacoSettings(token_dim=3, tokens="identity")
    with pytest.raises(ValueError, match="explore_steps must be at least action_steps, 5"):
        TacoSettings(action_steps=5, explore_steps=4)


def spy_on_losses(agent, monkeypatch):
    """What the losses were last given."""
    seen, forward = {}, agent.parts.objective.forward

    def spy(*given):
        names = ("z", "tokens", "reward", "following", "positive")
        seen.update(zip(names, given, strict=True))
        return forward(*given)

    monkeypatch.setattr(agent.parts.objective, "forward", spy)
    return seen


@torch.no_grad()
def projected(agent, images):
    return agent.parts.readouts(agent.parts.encoder(images), "projection")[0]


def same_row(rows, row):
    (place,) = (i for i, each in enumerate(rows) if torch.equal(each, row))
    return place
