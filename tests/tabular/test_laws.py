import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import (
    FiniteMDP,
    MetricResult,
    ToleranceWarning,
    examples,
    policy_value,
    revised,
    reward_laws,
)
from revbis.tabular.krylov import Demand, krylov_lags
from revbis.tabular.laws import LawTable
from revbis.tabular.operators import reward_distribution, state_chain
from tabular.reference import chain, dense, kronecker
from tabular.strategies import GAMMAS, few, mdps

LEVELS = ("state", "state_action")
EXAMPLES = {
    "toy": examples.toy,
    "coins": examples.two_coins,
    "grid": lambda: examples.grid_world(5),
    "rooms": lambda: examples.four_rooms(7),
    "garnet": lambda: examples.garnet(12),
    "delay": lambda: examples.delay_chain(4),
}


def naive_laws(mdp, policy, level, lags):
    """F_k(s)(x) at every reward but the largest, (L, n, K): matrix powers of the definitions."""
    P, _ = chain(mdp, policy, level=level)
    on = mdp.available
    x = np.unique(mdp.rewards[on & (policy > 0)] if level == "state" else mdp.rewards[on])[:-1]
    below = (mdp.rewards[..., None] <= x).astype(float)
    F = np.einsum("sa,sak->sk", policy, below) if level == "state" else below[on]
    return np.stack([np.linalg.matrix_power(P, k) @ F for k in range(lags)]), x


def differ(a, b):
    """How far two metrics are apart beyond what their bounds allow."""
    return float(abs(a.matrix() - b.matrix()).max()) - a.error_bound - b.error_bound


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_horizon_from_one_solve(name, level):
    mdp, policy = EXAMPLES[name]()
    laws = reward_laws(mdp, policy, 0.99, level=level)
    for gamma in GAMMAS:
        read = laws.distance(gamma)
        assert read.error_bound <= 1e-6
        assert differ(read, revised(mdp, policy, gamma, level=level)) <= 0
    for c in (0.0, 0.3, 0.6, 0.9):
        read = laws.distance(c=c)
        assert (read.c, read.gamma, read.level, read.metric) == (c, c, level, "revised")
        assert read.error_bound <= 1e-6
        assert differ(read, revised(mdp, policy, 0.9, c=c, level=level)) <= 0


@few(30)
@given(
    case=mdps(),
    level=st.sampled_from(LEVELS),
    lags=st.sampled_from([None, 1, 7]),
    thresholds=st.sampled_from([None, 2, 4]),
)
def test_random_mdps_against_a_kronecker_solve(case, level, lags, thresholds):
    mdp, policy = case
    laws = reward_laws(mdp, policy, level=level, lags=lags, thresholds=thresholds)
    assert lags is None or laws.n_lags == lags
    P, gap = chain(mdp, policy, level=level)
    V = policy_value(mdp, policy, 0.9)
    if level == "state_action":
        V = (mdp.rewards + 0.9 * (dense(mdp) @ V))[mdp.available]
    value = laws.value(0.9)
    assert abs(value.values - V).max() <= value.error_bound + 1e-11
    for weight, discount, given_ in ((1, 0.9, {"gamma": 0.9}), (0.4, 0.6, {"c": 0.6})):
        read, exact = laws.distance(**given_), kronecker(P, weight * gap, discount)
        assert abs(read.matrix() - exact).max() <= read.error_bound + 1e-11
        own = np.diag(exact) / 2
        reduced = laws.reduced(**given_)
        assert abs(reduced.matrix() - (exact - own - own[:, None])).max() <= (
            reduced.error_bound + 1e-11
        )
        if lags is None and thresholds is None:
            assert read.error_bound <= 1e-6


@few(20)
@given(case=mdps(), level=st.sampled_from(LEVELS))
def test_laws_are_what_they_say(case, level):
    laws = reward_laws(*case, lags=5, level=level)
    naive, x = naive_laws(*case, level, 9)
    assert np.array_equal(laws.thresholds, x)
    for lag in range(5):
        assert abs(laws.at(lag) - naive[lag]).max(initial=0) <= laws.error_at(lag) + 1e-13
    low, high = laws.tail
    assert (naive[5:] >= low - 1e-13).all()
    assert (naive[5:] <= high + 1e-13).all()


@few(30)
@given(case=mdps(max_states=12), discount=st.sampled_from([0.5, 0.9, 0.99]))
def test_laws_in_a_basis_are_within_their_errors(case, discount):
    mdp, policy = case
    states = state_chain(mdp, policy)
    F, gaps = reward_distribution(states)
    demand = Demand(gaps, discount, 1e-6)
    lags = krylov_lags(states.P, F, demand, mdp.n_states + len(gaps) + 1, lambda _: None)
    assert lags is not None
    assert demand.allows(lags.errors)
    exact = F
    for k in range(len(lags.errors)):
        stored = lags.centres[k] + lags.basis @ lags.coordinates[:, k]
        assert (abs(stored - exact) <= lags.errors[k] + (k + 1) * 1e-15).all()
        assert (abs(exact - lags.centres[k]) <= lags.radii[k] + 1e-13).all()
        exact = states.P @ exact
    table = LawTable(np.unique(states.values), lags, 0.0, 0.0)
    read = table.read(1.0, discount, 1e-6)
    u, Z = read.factors
    U = kronecker(*chain(mdp, policy), discount)
    assert read.error_bound <= 1e-6
    assert abs(u + u[:, None] - 2 * Z @ Z.T - U).max() <= read.error_bound + 1e-12 / (1 - discount)


@pytest.mark.parametrize("level", LEVELS)
def test_large_chains_are_stored_in_few_columns(level):
    mdp, policy = examples.grid_world(20)
    laws = reward_laws(mdp, policy, 0.9, level=level)
    assert laws.rank is not None
    assert laws.rank < laws.n / 4
    for given_ in ({"gamma": 0.9}, {"gamma": 0.5}, {"c": 0.7}):
        read = laws.distance(**given_)
        assert read.rank < laws.rank
        assert read.error_bound <= 1e-6
        assert differ(read, revised(mdp, policy, **({"gamma": 0.9} | given_), level=level)) <= 0
    value = laws.value(0.9)
    if level == "state":
        assert abs(value.values - policy_value(mdp, policy, 0.9)).max() <= value.error_bound
    assert abs(read.embedding().matrix() - read.matrix()).max() < 1e-9


def test_a_basis_that_needs_too_many_columns_is_given_up():
    mdp, policy = examples.delay_chain(200)
    laws = reward_laws(mdp, policy, 0.99)
    assert laws.rank is None
    assert differ(laws.distance(0.99), revised(mdp, policy, 0.99)) <= 0


def test_the_grid_keeps_means_and_its_error_shrinks():
    mdp, policy = examples.garnet(20, seed=3)
    exact, V = revised(mdp, policy, 0.9), policy_value(mdp, policy, 0.9)
    spacing, errors = np.ptp(mdp.rewards), []
    for thresholds in (3, 9, 33):
        laws = reward_laws(mdp, policy, thresholds=thresholds)
        assert len(laws.thresholds) <= thresholds - 1  # levels that no reward is near are left out
        value = laws.value(0.9)
        assert abs(value.values - V).max() <= value.error_bound <= 1e-6
        read = laws.distance(0.9)
        excess = read.matrix() - exact.matrix()
        grid_cost = spacing / (thresholds - 1) / 2 / 0.1  # half the spacing over 1 − γ
        assert excess.min() >= -1e-5  # the grid moves distances upwards only
        assert excess.max() <= read.error_bound <= grid_cost + 1e-6
        errors.append(excess.max())
    assert errors[2] < errors[1] / 4 < errors[0] / 16
    few_rewards = reward_laws(*examples.toy(), thresholds=3)
    assert few_rewards.table.grid_error == 0.0


def test_constant_rewards():
    mdp = FiniteMDP(np.array([[1], [0]]), [[2.0], [2.0]])
    laws = reward_laws(mdp, [0, 0])
    assert laws.at(0).shape == (2, 0)
    assert not laws.distance(0.9).matrix().any()
    assert laws.value(0.9).values == pytest.approx([20, 20])


def test_reading_further_ahead_than_solved_warns_and_stays_certified():
    mdp, policy = examples.delay_chain(5)
    laws = reward_laws(mdp, policy, 0.5)
    with pytest.warns(ToleranceWarning, match="up to 0.5, read at 0.99: .* pass a larger gamma"):
        read = laws.distance(0.99)
    assert differ(read, revised(mdp, policy, 0.99)) <= 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # whoever asks for so many lags knows
        short = reward_laws(mdp, policy, lags=6).distance(0.99)
    assert short.error_bound > 1
    assert differ(short, revised(mdp, policy, 0.99)) <= 0
    assert "lags=6, thresholds=1, rank=None" in repr(reward_laws(mdp, policy, lags=6))


def test_results_work_like_those_of_a_solver():
    mdp, policy = examples.grid_world(4)
    read = reward_laws(mdp, policy, 0.9).distance(0.9)
    assert isinstance(read, MetricResult)
    assert read.solver == "laws"
    assert np.array_equal(read.pairs([0, 1], 2), read.matrix()[[0, 1], 2])
    reduced = reward_laws(mdp, policy, 0.9).reduced(0.9)
    assert np.allclose(reduced.pairs([0, 1], 2), reduced.matrix()[[0, 1], 2])
    with pytest.raises(ValueError, match="read-only"):
        read.matrix()[0] = 1


def test_what_does_not_fit_is_refused(free_memory):
    mdp, policy = examples.garnet(50)
    free_memory(10**5)
    with pytest.raises(MemoryError, match=r"laws of 50 states at \d+ thresholds .*thresholds=32"):
        reward_laws(mdp, policy)
    grid, uniform = examples.grid_world(40)
    with pytest.raises(MemoryError, match="laws of 1600 states at 2 thresholds"):
        reward_laws(grid, uniform)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda laws: laws.distance(), r"give gamma \(weights γ\^k\) or c"),
        (lambda laws: laws.distance(1.0), "gamma must be"),
        (lambda laws: laws.distance(c=1.0), "c must be"),
        (lambda laws: laws.value(-1), "gamma must be"),
        (lambda laws: laws.at(-1), "lag must be at least 0"),
        (lambda laws: laws.at(10**6), r"lag must be in 0..\d+, got 1000000"),
        (lambda _: reward_laws(*examples.toy(), lags=0), "lags must be at least 1"),
        (lambda _: reward_laws(*examples.toy(), thresholds=1), "thresholds must be at least 2"),
        (lambda _: reward_laws(*examples.toy(), level="pair"), "level must be one of"),
        (lambda _: reward_laws(examples.toy().mdp, None), "needs a policy"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(reward_laws(*examples.toy()))
