"""Reward laws, learned: windows, levels, targets and readings against naive and exact twins."""

import logging
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.objectives.test_oracle import END, ending_world, every_transition
from torch.nn import functional

from revbis import tabular
from revbis.objectives import NonFiniteError, Transitions, base, make_objective
from revbis.objectives.laws import (
    follow,
    nearest_level,
    reward_levels,
    window_lags,
    window_leaks,
    window_weights,
)

GAMMA = 0.9
LEAKS = window_leaks()
NAMES = ["laws", "laws-zp", "means"]


def test_the_first_windows_are_single_lags_and_later_ones_grow() -> None:
    κ = window_lags(LEAKS, 5000)
    assert np.array_equal(κ[:8, :8], np.eye(8))
    assert np.allclose(κ.sum(axis=1), 1)
    lags = np.arange(5000)
    mean = κ @ lags
    spread = np.sqrt(κ @ lags**2 - mean**2)
    assert (np.diff(mean) > 0).all() and (np.diff(spread[7:]) > 0).all()
    # A window waits where the one before was, then a geometric time of mean 1/(1 − λ).
    assert np.allclose(np.diff(mean), 1 / (1 - LEAKS[1:]))


@pytest.mark.parametrize(("gamma", "most"), [(0.0, 1e-9), (0.5, 1e-4), (0.9, 2e-3), (0.99, 1.0)])
def test_windows_reproduce_a_discount(gamma, most) -> None:
    found = window_weights(tuple(LEAKS), gamma)
    κ, wanted = window_lags(LEAKS, 1 << 13), gamma ** np.arange(1 << 13)
    assert (found.weights >= 0).all()
    assert np.abs(found.weights @ κ - wanted).sum() <= found.missed + 1e-9 <= most + 2e-9
    assert found.weights.sum() == pytest.approx(1 / (1 - gamma), rel=0.01)


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=40),
    st.integers(2, 12),
    st.sampled_from([1.0, 1e-3, 1e4]),
)
@settings(max_examples=60, deadline=None)
def test_levels_are_rewards_in_order_from_the_least_to_the_largest(rewards, count, unit) -> None:
    x = torch.tensor(rewards, dtype=torch.float64)
    levels = reward_levels(x, count)
    assert levels.shape == (count,) and torch.isin(levels, x).all()
    assert (levels.diff() >= 0).all()
    assert levels[0] == x.min() and levels[-1] == x.max()
    nearest = levels[nearest_level(x, levels)]
    assert torch.allclose((x - nearest).abs(), (x[:, None] - levels).abs().min(dim=1).values)
    assert torch.allclose(reward_levels(unit * x, count), unit * levels, atol=unit * 100)


def test_few_values_are_all_levels_and_rare_ones_are_not_lost() -> None:
    rewards = torch.tensor([0.0] * 900 + [1.0] * 90 + [5.0] * 9 + [-2.0])
    levels = reward_levels(rewards, 33)
    assert set(levels.tolist()) == {-2.0, 0.0, 1.0, 5.0}
    assert (reward_levels(torch.full((5,), 3.0), 33) == 3).all()
    # Half of uniform rewards are below the middle level; of an exponential law far more are.
    uniform = torch.linspace(0, 1, 1001)
    assert reward_levels(uniform, 33)[16] == pytest.approx(0.5, abs=0.02)
    heavy = -torch.log1p(-torch.linspace(0, 0.999, 1000))
    assert (heavy < reward_levels(heavy, 33)[16]).float().mean() > 0.7


def test_targets_against_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    first, following = (
        torch.rand(3, 5, generator=generator),
        torch.rand(3, 4, 5, generator=generator),
    )
    leaks = torch.tensor([0.0, 0.0, 0.25, 0.5])
    found = follow(first, following, leaks)
    for b in range(3):
        assert torch.equal(found[b, 0], first[b])
        for j in range(1, 4):
            wanted = (1 - leaks[j]) * following[b, j - 1] + leaks[j] * following[b, j]
            assert torch.allclose(found[b, j], wanted)


def rows_of(mdp, policy):
    """All (s, a, s') as a batch without embeddings, and how to average over them."""
    _, s, a, t, p = every_transition(mdp)
    s, a, t, p = (torch.from_numpy(np.asarray(x)) for x in (s, a, t, p))
    reward = torch.from_numpy(mdp.rewards.copy())[s, a]
    pairs = functional.one_hot(s * mdp.n_actions + a).T * p
    pairs = pairs[pairs.sum(dim=1) > 0]
    states = functional.one_hot(s).T * p * torch.from_numpy(policy)[s, a]
    return (s, a, t, reward), pairs.double(), states.double()


def tabular_batch(mdp, rows, embedding, discount=GAMMA):
    s, a, t, reward = rows
    action = torch.eye(mdp.n_actions, dtype=embedding.dtype)[a]
    discounts = torch.full_like(reward, discount)
    return Transitions(embedding[s], action, reward, discounts, embedding[t], action)


def made(name, mdp, *, scale=1.0, width=8, seed=0):
    """An objective that has seen the rewards, with laws as far from their start as `scale`."""
    torch.manual_seed(seed)
    objective = make_objective(name, width, mdp.n_actions, hidden=16).double()
    embedding = torch.randn(mdp.n_states, width, dtype=torch.float64)
    with torch.no_grad():
        objective.head.weight.normal_(0, scale)
    return objective, embedding


def call(objective, batch):
    return objective(*batch[:5], policy_action=batch.policy_action)


@pytest.mark.parametrize("name", ["laws", "means"])
def test_the_mean_target_is_the_exact_recursion(name) -> None:
    mdp, policy = tabular.examples.garnet(6, 3, 3, seed=1)
    rows, pairs, states = rows_of(mdp, policy)
    objective, embedding = made(name, mdp)
    batch = tabular_batch(mdp, rows, embedding)
    call(objective, batch)
    F = objective.read(embedding).detach()
    targets = objective._targets(batch, F[rows[2]])
    found = torch.tensordot(pairs, targets, dims=1)
    P = torch.from_numpy(mdp.transitions.toarray())
    own = objective.of_reward(torch.from_numpy(mdp.rewards.flatten()))
    wanted = [own]
    for j in range(1, len(LEAKS)):
        mixed = (1 - LEAKS[j]) * F[:, j - 1] + LEAKS[j] * F[:, j]
        wanted.append(torch.tensordot(P, mixed, dims=1))
    assert torch.allclose(found, torch.stack(wanted, dim=1), atol=1e-12)
    # The tie's target is the mean over the policy's actions of what pairs read.
    of_pairs = objective.read(objective.embed(batch.z, batch.action)).detach()
    tied = torch.tensordot(states, of_pairs, dims=1)
    by_pair = of_pairs[[int(row.argmax()) for row in pairs]].reshape(6, 3, *of_pairs.shape[1:])
    weights = torch.from_numpy(policy).reshape(6, 3, *[1] * (of_pairs.ndim - 1))
    assert torch.allclose(tied, (weights * by_pair).sum(dim=1), atol=1e-12)


def test_readings_against_double_sums_over_levels() -> None:
    mdp, policy = tabular.examples.garnet(4, 2, 2, seed=3)
    rows, _, _ = rows_of(mdp, policy)
    objective, z = made("laws", mdp)
    call(objective, tabular_batch(mdp, rows, z))
    laws, levels = objective.read(z).detach(), objective.levels.double()
    gaps = (levels[:, None] - levels).abs()
    for reading, weights, unit in (
        (objective.at(gamma=0.7), window_weights(objective.windows, 0.7).weights, 1.0),
        (objective.at(c=0.7), window_weights(objective.windows, 0.7).weights, 0.3),
        (objective.at(gamma=0), np.eye(24)[0], 1.0),
    ):
        U = torch.zeros(4, 4, dtype=torch.float64)
        for i in range(4):
            for j in range(4):
                for w in range(24):
                    U[i, j] += unit * weights[w] * (laws[i, w] @ gaps @ laws[j, w])
        assert torch.allclose(reading.distance(z, z), U, atol=1e-5)
        assert torch.allclose(reading.distance(z, z.flip(0), rowwise=True), U.flip(1).diagonal())
        own = U.diagonal()
        reduced = U - (own[:, None] + own) / 2
        assert torch.allclose(reading.reduced(z, z), reduced, atol=1e-5)
        both = reading.reduced(z, z.flip(0), rowwise=True)
        assert torch.allclose(both, reduced.flip(1).diagonal(), atol=1e-5)
        V = unit * torch.from_numpy(weights) @ (laws @ levels).T
        assert torch.allclose(reading.value(z), V, atol=1e-5)
    assert torch.equal(objective.distance(z, z), objective.at(gamma=GAMMA).distance(z, z))
    assert torch.equal(objective.value(z), objective.at(gamma=GAMMA).value(z))


def test_a_horizon_is_gamma_or_c() -> None:
    objective = make_objective("laws", 4, 2, hidden=8)
    for wrong in ({}, {"gamma": 0.9, "c": 0.5}):
        with pytest.raises(ValueError, match=r"pass either gamma= or c="):
            objective.at(**wrong)
    for wrong in ({"gamma": 1.0}, {"c": -0.1}, {"c": float("nan")}):
        with pytest.raises(ValueError, match=r"(gamma|c) must be"):
            objective.at(**wrong)


def learned(mdp, policy, name="laws", *, steps=1500, ends=None, seed=0):
    """An objective trained on all transitions, with an embedding of its own for each state."""
    rows, _, _ = rows_of(mdp, policy)
    _, s, a, _, p = every_transition(mdp)
    s, a = torch.from_numpy(s), torch.from_numpy(a)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    objective = make_objective(name, 16, mdp.n_actions, hidden=64).double()
    table = torch.nn.Parameter(torch.randn(mdp.n_states, 16, dtype=torch.float64))
    optimiser = torch.optim.Adam([table, *objective.parameters()], lr=1e-2)
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    taken = torch.from_numpy(policy)
    for _ in range(steps):
        chosen = torch.multinomial(torch.from_numpy(p), 128, True, generator=generator)
        batch = tabular_batch(mdp, tuple(x[chosen] for x in rows), table)
        drawn = torch.multinomial(taken[s[chosen]], 1, generator=generator)[:, 0]
        discount = batch.discount
        if ends is not None:
            discount = torch.where(rows[2][chosen] == ends, 0.0, discount)
        one_hot = torch.eye(mdp.n_actions, dtype=torch.float64)[drawn]
        out = objective(*batch[:3], discount, batch.next_z, policy_action=one_hot)
        optimiser.zero_grad()
        out.loss.backward()
        optimiser.step()
        rate.step()
    return objective, table.detach()


def error(found, exact):
    return float(np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()))


@cache
def learned_off_policy():
    """Data of the uniform policy, laws of another: the MDP, that policy, and what was learned."""
    mdp, policy = tabular.examples.garnet(8, 3, 2, seed=5)
    wanted = np.eye(3)[policy.argmax(axis=1)] * 0.8 + 0.2 / 3
    return mdp, wanted, *learned(mdp, wanted)


def test_one_training_knows_the_metric_of_every_horizon() -> None:
    """The exact metric at γ and at other c."""
    mdp, wanted, objective, z = learned_off_policy()
    with torch.no_grad():
        for horizon in ({"gamma": GAMMA}, {"c": 0.5}, {"c": 0.8}):
            exact = tabular.revised(mdp, wanted, horizon.get("gamma", 0.5), c=horizon.get("c"))
            found = objective.at(**horizon).distance(z, z).numpy()
            assert error(found, exact.matrix()) < 0.05
        V = tabular.policy_value(mdp, wanted, GAMMA)
        assert error(objective.value(z).numpy(), V) < 0.03
        s, a = torch.from_numpy(mdp.state_actions.copy()).T
        pairs = objective.embed(z[s], torch.eye(3, dtype=torch.float64)[a])
        G = tabular.revised(mdp, wanted, GAMMA, level="state_action").matrix()
        assert error(objective.distance(pairs, pairs).numpy(), G) < 0.05


def test_after_the_end_of_an_episode_rewards_are_0() -> None:
    """The exact twin has the end as a state; rewards are all 1, so only ends tell states apart."""
    mdp, policy = ending_world()
    ones = np.where(np.arange(END + 1)[:, None] < END, 1.0, 0.0) * mdp.available
    mdp = tabular.FiniteMDP(mdp.transitions.toarray().reshape(6, 3, 6), ones, mdp.available)
    objective, z = learned(mdp, policy, ends=END, steps=800)
    exact = tabular.revised(mdp, policy, GAMMA).matrix()[:END, :END]
    found = objective.distance(z[:END], z[:END]).detach().numpy()
    assert exact.max() > 1 and error(found, exact) < 0.05
    assert set(objective.levels.tolist()) == {0.0, 1.0}


def test_a_terminated_transition_does_not_look_at_what_follows() -> None:
    mdp, policy = tabular.examples.garnet(5, 2, 2, seed=2)
    rows, _, _ = rows_of(mdp, policy)
    objective, z = made("laws", mdp)
    batch = tabular_batch(mdp, rows, z)
    discount = batch.discount.clone()
    discount[0] = 0
    batch = batch._replace(discount=discount)
    call(objective, batch)
    targets = objective._targets(batch, objective.read(batch.next_z))
    nothing = nearest_level(torch.zeros(1), objective.levels)
    assert objective.levels[nothing] == 0
    assert (targets[0, 1:, nothing] == 1).all() and (targets[1, 1:, nothing] < 1).all()


@pytest.mark.parametrize("seed", range(4))
def test_residuals_bound_the_error(seed) -> None:
    """Untrained laws are wrong by far, by less than the bound; means over outcomes tighten it."""
    mdp, policy = tabular.examples.garnet(6, 3, 2 if seed % 2 else 1, seed=seed)
    rows, pairs, states = rows_of(mdp, policy)
    objective, z = made("laws", mdp, scale=0.5 * seed, seed=seed)
    batch = tabular_batch(mdp, rows, z)
    call(objective, batch)
    exact = {c: tabular.revised(mdp, policy, c).matrix() for c in (0.2, 0.6, GAMMA)}
    for gamma, U in exact.items():
        reading = objective.at(gamma=gamma)
        largest = np.abs(reading.distance(z, z).detach().numpy() - U).max()
        means = objective.error_bound(batch, reading, pairs=pairs, states=states)
        plain = objective.error_bound(batch, reading)
        assert largest <= means.total <= plain.total <= plain.largest
        assert means.rounding == 0  # few rewards: each is a level
        weighted = objective.error_bound(batch, objective.at(c=gamma), pairs=pairs, states=states)
        assert weighted.total == pytest.approx((1 - gamma) * means.total)


def test_the_bound_of_learned_laws_says_something() -> None:
    mdp, wanted, objective, z = learned_off_policy()
    rows, pairs, states = rows_of(mdp, wanted)
    batch = tabular_batch(mdp, rows, z)
    U = tabular.revised(mdp, wanted, 0.5).matrix()
    reading = objective.at(gamma=0.5)
    bound = objective.error_bound(batch, reading, pairs=pairs, states=states)
    largest = np.abs(reading.distance(z, z).detach().numpy() - U).max()
    assert largest <= bound.total < U.max()
    # Rewards between the levels count, too.
    moved = batch._replace(reward=batch.reward + 0.01)
    assert objective.error_bound(moved, reading).rounding == pytest.approx(2 * 0.01 * 2, rel=0.01)


def random_batch(seed=0, size=16, unit=1.0):
    generator = torch.Generator().manual_seed(seed)
    z, next_z = torch.randn(2, size, 4, generator=generator)
    action, policy = torch.rand(2, size, 2, generator=generator)
    reward = unit * torch.randn(size, generator=generator)
    discount = torch.full((size,), 0.97)
    return Transitions(z.requires_grad_(), action, reward, discount, next_z, policy)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", [1e-4, 1e5, -3.0])
def test_the_unit_of_rewards_is_the_unit_of_distances(name, unit) -> None:
    torch.manual_seed(0)
    objectives = [make_objective(name, 4, 2, hidden=8) for _ in range(2)]
    objectives[1].load_state_dict(objectives[0].state_dict())
    if unit > 0:
        losses = [
            [float(call(objective, random_batch(seed, unit=u)).loss.detach()) for seed in range(3)]
            for objective, u in zip(objectives, (1.0, unit), strict=True)
        ]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    else:
        for seed in range(3):
            call(objectives[0], random_batch(seed))
            call(objectives[1], random_batch(seed, unit=unit))
    z = random_batch(9).z.detach()
    U = [objective.distance(z, z.flip(0)).detach() for objective in objectives]
    assert torch.allclose(abs(unit) * U[0], U[1], rtol=2e-2, atol=abs(unit) * 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_what_they_train(name) -> None:
    objective, batch = make_objective(name, 4, 2, hidden=8), random_batch()
    next_z, policy = batch.next_z.requires_grad_(), batch.policy_action.requires_grad_()
    call(objective, batch).loss.backward()
    assert next_z.grad is None and policy.grad is None
    assert all(p.grad is not None for p in objective.parameters())
    call(objective, batch).loss.backward()  # the head's start of 0 lets nothing else through
    assert batch.z.grad.abs().sum() > 0 and objective.head.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_owners_psi_is_read_and_stays_the_owners(name) -> None:
    psi = torch.nn.Bilinear(4, 2, 4)
    objective, batch = make_objective(name, 4, 2, psi=psi), random_batch()
    assert torch.equal(objective.embed(batch.z, batch.action), psi(batch.z, batch.action))
    owned = {id(p) for p in psi.parameters()}
    assert not owned & {id(p) for p in objective.parameters()}
    assert not any("psi" in key for key in objective.state_dict())
    call(objective, batch).loss.backward()
    assert psi.weight.grad is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_objective_goes_on_as_it_was(name) -> None:
    torch.manual_seed(0)
    whole = make_objective(name, 4, 2, hidden=8)
    for step in range(3):
        call(whole, random_batch(step))
    resumed = make_objective(name, 4, 2, hidden=8)
    resumed.load_state_dict(whole.state_dict())
    for step in range(3, 12):
        losses = [call(objective, random_batch(step)).loss for objective in (whole, resumed)]
        assert torch.equal(*losses)
    z = random_batch().z
    assert torch.equal(*(objective.distance(z, z) for objective in (whole, resumed)))


@pytest.mark.parametrize("name", NAMES)
def test_without_a_look_at_numbers_it_is_the_same(name, monkeypatch) -> None:
    """As on a GPU, where the host decides nothing by what a tensor holds."""
    torch.manual_seed(0)
    looking, blind = (make_objective(name, 4, 2, hidden=8) for _ in range(2))
    blind.load_state_dict(looking.state_dict())
    for step in range(7):
        batch = random_batch(step)
        loss = call(looking, batch).loss
        with monkeypatch.context() as patch:
            patch.setattr(base, "_LOOKED_AT", ())
            assert torch.equal(call(blind, batch).loss, loss)
    assert all(torch.equal(a, b) for a, b in zip(looking.buffers(), blind.buffers(), strict=True))


def test_rewards_of_another_range_are_levels_at_once() -> None:
    objective = make_objective("laws", 4, 2, hidden=8)
    for step in range(3):
        call(objective, random_batch(step))
    first = objective.levels.clone()
    call(objective, random_batch(3))  # the fourth batch: neither due nor outside
    assert torch.equal(objective.levels, first)
    batch = random_batch(5)
    call(objective, batch._replace(reward=batch.reward + 100 * (torch.arange(16) == 3)))
    assert objective.levels[-1] > 90 and objective.levels[0] == first[0]


def test_constant_rewards_have_no_distances_and_are_told(caplog) -> None:
    objective = make_objective("laws", 4, 2, hidden=8)
    with caplog.at_level(logging.WARNING, logger="revbis"):
        for step in range(100):
            batch = random_batch(step)
            call(objective, batch._replace(reward=torch.ones(16)))
    z = random_batch().z
    assert (objective.distance(z, z) == 0).all()
    assert torch.allclose(objective.value(z), torch.tensor(1 / 0.03), rtol=0.05)
    assert "all rewards are equal and none terminated" in caplog.text
    ends = random_batch()._replace(reward=torch.ones(16), discount=torch.zeros(16))
    call(objective, ends)
    assert set(objective.levels.tolist()) == {0.0, 1.0}


def test_horizons_that_windows_do_not_reach_are_refused() -> None:
    objective, batch = make_objective("laws", 4, 2, hidden=8), random_batch()
    call(objective, batch._replace(discount=torch.full_like(batch.discount, 0.999)))
    z = batch.z
    assert torch.equal(objective.distance(z, z), objective.at(gamma=0.995).distance(z, z))
    for horizon in ({"gamma": 0.996}, {"c": 0.999}):
        with pytest.raises(ValueError, match=r"must be at most 0.995, got 0.99.: the windows"):
            objective.at(**horizon)
    weights = window_weights(objective.windows, 0.995).weights
    assert 0.92 < 0.005 * weights.sum() < 0.94


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_may_have_any_float_type(name) -> None:
    objective, batch = make_objective(name, 4, 2, hidden=8), random_batch()
    call(objective, batch)
    z = batch.z.detach()
    torch.testing.assert_close(
        objective.distance(z.double(), z.double()), objective.distance(z, z), check_dtype=False
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_reward_that_is_not_a_number_is_refused_and_not_kept(name, monkeypatch) -> None:
    objective, batch = make_objective(name, 4, 2, hidden=8), random_batch()
    call(objective, batch)
    bad = batch.reward.clone()
    bad[3] = torch.inf
    with pytest.raises(NonFiniteError, match="reward has 1 non-finite"):
        call(objective, batch._replace(reward=bad))
    discount = torch.where(bad.isinf(), torch.inf, batch.discount)
    with monkeypatch.context() as patch:
        patch.setattr(base, "_LOOKED_AT", ())  # as on a GPU
        assert not call(objective, batch._replace(reward=bad)).loss.isfinite()
        assert not call(objective, batch._replace(discount=discount)).loss.isfinite()
    assert objective.rewards.isfinite().all() and objective.levels.isfinite().all()
    assert objective.gamma <= 1
    assert call(objective, random_batch(1)).loss.isfinite()


@pytest.mark.parametrize("size", [2, 5000])
def test_batches_of_any_size(size) -> None:
    objective = make_objective("laws", 4, 2, hidden=8)
    for seed in range(2):
        assert call(objective, random_batch(seed, size)).loss.isfinite()
    assert objective.levels[0] < objective.levels[-1]


def test_beside_laws_the_direction_of_the_next_embedding_is_predicted() -> None:
    torch.manual_seed(0)
    both, batch = make_objective("laws-zp", 4, 2, hidden=8), random_batch()
    alone = make_objective("laws", 4, 2, hidden=8)
    alone.load_state_dict(both.state_dict(), strict=False)
    following = both.dynamics(both.embed(batch.z, batch.action))
    cosine = functional.cosine_similarity(following, batch.next_z)
    losses = [call(objective, batch).loss for objective in (both, alone)]
    assert torch.allclose(losses[0] - losses[1], (1 - cosine).mean(), atol=1e-4)
    assert "next_error" in call(both, batch).metrics


def test_integer_actions() -> None:
    batch = random_batch()
    action = torch.arange(16) % 2
    objective = make_objective("laws", 4, 2, hidden=8, discrete=True)
    one_hot = functional.one_hot(action, 2).float()
    losses = [
        objective(*batch[:1], each, *batch[2:5], policy_action=each).loss
        for each in (action, one_hot)
    ]
    assert torch.equal(*losses)
    assert torch.equal(objective.embed(batch.z, action), objective.embed(batch.z, one_hot))
