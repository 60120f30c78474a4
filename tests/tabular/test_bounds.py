import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import (
    METRICS,
    FiniteMDP,
    action_value,
    bounds,
    certify,
    examples,
    mico,
    policy_value,
    revised,
    solve,
    value_gap_bound,
)
from revbis.tabular.bounds import value_gaps
from tabular import reference
from tabular.strategies import few, mdps

LEVELS = [(metric, "state") for metric in METRICS] + [
    (metric, "state_action") for metric in ("revised", "mico", "pi_bisimulation")
]
HIDDEN = examples.toy()
GARNET = examples.garnet(8, 2, 3, seed=0)


def solved(metric, level, mdp, policy, gamma, c=None, tol=1e-8):
    return solve(metric, mdp, policy, gamma, tol, c, level)


def candidates(n, seed):
    """Random matrices: asymmetric, negative, symmetric with a diagonal, constant."""
    rng = np.random.default_rng(seed)
    half = rng.random((n, n))
    return [5 * rng.random((n, n)), rng.normal(size=(n, n)), half + half.T, np.ones((n, n))]


@pytest.mark.parametrize(("metric", "level"), LEVELS)
@few(12)
@given(case=mdps(max_states=5), gamma=st.sampled_from([0.0, 0.5, 0.9]), seed=st.integers(0, 99))
def test_certificates_contain_the_true_error(metric, level, case, gamma, seed):
    exact = solved(metric, level, *case, gamma)
    for d in [*candidates(exact.n, seed), exact.matrix()]:
        certificate = certify(*case, d, metric, gamma, level=level)
        missing, slack = exact.matrix() - d, exact.error_bound
        assert abs(missing).max() <= certificate.error_bound + slack
        assert missing.min() >= certificate.lower - slack
        assert missing.max() <= certificate.upper + slack
        assert certificate.residual <= (1 - gamma) * certificate.error_bound + 1e-12


@pytest.mark.parametrize("metric", METRICS)
def test_certificates_of_the_weighted_form(metric):
    exact = solved(metric, "state", *GARNET, 0.9, c=0.4)
    for d in candidates(8, 1):
        certificate = certify(*GARNET, d, metric, 0.9, c=0.4)
        assert abs(exact.matrix() - d).max() <= certificate.error_bound + exact.error_bound
    tight = certify(*GARNET, exact.matrix(), metric, 0.9, c=0.4)
    assert tight.error_bound <= 1e-7


@pytest.mark.parametrize("metric", ["revised", "mico", "pi_bisimulation", "lax_bisimulation"])
def test_the_interval_of_a_shifted_metric_is_the_shift(metric):
    exact = solved(metric, "state", *GARNET, 0.9)
    certificate = certify(*GARNET, exact.matrix() + 3.0, metric, 0.9)
    assert certificate.lower == pytest.approx(-3.0, abs=1e-7)
    assert certificate.upper == pytest.approx(-3.0, abs=1e-7)
    assert certificate.error_bound == pytest.approx(3.0, abs=1e-7)
    assert certificate.residual == pytest.approx(0.3, abs=1e-7)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_pairs_pinned_by_their_offers_are_certified(side):
    # A pinned pair is off by exactly its change, not by that over 1−γ as the others are.
    exact = solved("bisimulation", "state", HIDDEN.mdp, None, 0.5)
    d = exact.matrix() + side * np.where(np.eye(3) == 1, 1.0, 0.01)
    certificate = certify(HIDDEN.mdp, None, d, "bisimulation", 0.5)
    missing = exact.matrix() - d
    assert certificate.lower <= missing.min()
    assert missing.max() <= certificate.upper
    assert abs(missing).max() <= certificate.error_bound


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": np.zeros((3, 2))}, r"d must have shape \(8, 8\), got \(3, 2\)"),
        ({"d": np.zeros((8, 8)), "level": "state_action"}, r"d must have shape \(16, 16\)"),
        ({"metric": "bisimulation", "level": "state_action", "d": np.zeros((16, 16))}, "on states"),
    ],
)
def test_certify_refuses(changes, message):
    mdp, policy = GARNET
    arguments = {"d": np.zeros((8, 8)), "metric": "revised", "gamma": 0.9, "policy": policy}
    with pytest.raises(ValueError, match=message):
        certify(mdp, **{**arguments, **changes})


def true_gaps(result, gamma):
    """Gaps of the values that a metric is about."""
    if result.policy is None:
        return reference.gaps(reference.optimal_values(result.mdp, gamma))
    V = policy_value(result.mdp, result.policy, gamma)
    if result.level == "state_action":
        V = action_value(result.mdp, V, gamma)[result.mdp.available]
    return reference.gaps(V)


@pytest.mark.parametrize(("metric", "level"), LEVELS)
@pytest.mark.parametrize("c", [None, 0.3, 0.9])
@few(6)
@given(case=mdps(max_states=5), target=st.sampled_from([None, 0.0, 0.5, 0.95]))
def test_value_gap_bounds_hold(metric, level, c, case, target):
    result = solved(metric, level, *case, 0.7, c=c, tol=1e-6)
    bound = value_gap_bound(result, target)
    gamma = 0.7 if target is None else target
    assert bound.target_gamma == gamma
    assert bound.value == {"state": "V", "state_action": "Q"}[level] + "*" * (result.policy is None)
    assert (bound.repair > 0) <= (gamma > result.discount)
    gaps, matrix = true_gaps(result, gamma), bound.matrix()
    assert (gaps <= matrix + 1e-8).all()
    assert not np.diag(matrix).any()
    everyone = np.arange(result.n)
    assert np.allclose(bound.pairs(everyone[:, None], everyone), matrix, rtol=1e-9, atol=1e-12)


@few(8)
@given(mdps(max_states=5))
def test_value_gap_bounds_of_low_rank_results(case):
    low, full = (revised(*case, 0.9, tol=1e-9, solver=s) for s in ("low_rank", "doubling"))
    bound = value_gap_bound(low).matrix()
    assert (true_gaps(low, 0.9) <= bound + 1e-10).all()
    assert np.allclose(bound, value_gap_bound(full).matrix(), rtol=0, atol=1e-3)


def test_the_smaller_of_both_bounds_counts():
    result = revised(*GARNET, 0.9, tol=1e-9)
    spread = np.ptp(GARNET.mdp.rewards)
    cramer = np.sqrt(spread * result.reduced() / 0.1)
    expected = np.minimum(result.matrix(), cramer)
    np.fill_diagonal(expected, 0)
    assert np.allclose(value_gap_bound(result).matrix(), expected, rtol=0, atol=1e-3)


def test_a_short_horizon_needs_a_repair():
    # Two chains of 20 steps, a reward at every step after one of them: |ΔV| = γ²⁰/(1−γ), but
    # U_c/(1−c) = c²⁰/(1−c), smaller by 4e7.
    mdp, policy = examples.delay_chain(20)
    result = revised(mdp, policy, 0.99, c=0.5, tol=1e-12)
    gap = true_gaps(result, 0.99)[0, 21]
    naive = result.matrix()[0, 21] / (1 - 0.5)
    assert gap == pytest.approx(0.99**20 / 0.01)
    assert naive == pytest.approx(0.5**20 / 0.5, rel=1e-3)
    assert gap > 1e7 * naive
    bound = value_gap_bound(result)
    assert bound.repair == pytest.approx((0.99 - 0.5) / (1 - 0.5) * 100)  # span(V) = 1/(1−γ)
    assert gap <= bound.pairs(0, 21)
    assert (true_gaps(result, 0.99) <= bound.matrix()).all()
    for words in ("faster than the values' γ = 0.99", "λ = 0.5", "span(V)", "misses", "alone"):
        assert words in bound.explanation


def test_a_long_horizon_needs_none():
    bound = value_gap_bound(revised(*GARNET, 0.9, c=0.95))
    assert bound.repair == 0
    assert "U/(1−c)" in bound.explanation
    assert "no faster than the values' 0.9" in bound.explanation
    below = value_gap_bound(revised(*GARNET, 0.9), target_gamma=0.5)
    assert (below.repair, below.target_gamma) == (0, 0.5)
    assert "|ΔV| ≤ d" in below.explanation
    above = value_gap_bound(revised(*GARNET, 0.9), target_gamma=0.99)
    assert above.repair > 0


def test_a_sequence_bounds_by_its_last_coefficient():
    result = revised(*GARNET, 0.9, tol=9.0, c=[0.3, 0.95, 0.95])
    bound = value_gap_bound(result)
    assert bound.repair == 0
    assert (true_gaps(result, 0.9) <= bound.matrix() + 1e-9).all()


@pytest.mark.parametrize("metric", METRICS)
@few(10)
@given(case=mdps(max_states=5), target=st.sampled_from([None, 0.5, 0.95]))
def test_gaps_are_true_and_bounded(metric, case, target):
    result = solve(metric, *case, 0.7)
    if result.n < 2:
        return
    table = value_gaps(result, target)
    gamma = 0.7 if target is None else target
    if METRICS[metric].needs_policy:
        V = reference.values(*case, gamma)
    else:
        V = reference.optimal_values(case[0], gamma)
    assert table.complete and table.holds
    assert list(zip(table.i, table.j, strict=True)) == [
        (i, j) for i in range(result.n) for j in range(i + 1, result.n)
    ]
    assert np.allclose(table.gap, reference.gaps(V)[table.i, table.j], rtol=0, atol=1e-9)
    assert np.array_equal(table.distance, result.matrix()[table.i, table.j])
    assert 0 <= table.tightness <= 1 + 1e-9


def test_a_hand_made_case():
    # Two absorbing states that earn 0 and 1: ΔV = 1/(1−γ) = 2, and so is the distance.
    mdp = FiniteMDP(np.array([[0], [1]]), [[0.0], [1.0]])
    table = value_gaps(mico(mdp, [0, 0], 0.5))
    assert table.gap.tolist() == [2.0]
    assert table.bound[0] == pytest.approx(2, abs=1e-6)
    assert table.tightness == pytest.approx(1)
    assert table.largest(3).tolist() == [0]


def test_rounding_is_no_gap_and_no_bound_is_tight():
    # All three states of the toy have value ½/(1−γ); sums in different orders differ by rounding.
    table = value_gaps(mico(*examples.toy(), 0.9))
    assert table.gap.tolist() == [0, 0, 0]
    assert table.bound.tolist() == [0, 0, 0] and table.tightness == 1


def test_a_false_bound_is_noticed():
    table = value_gaps(revised(*examples.garnet(5, 2, 2), 0.9))
    assert table.holds
    assert not bounds.ValueGaps(**{**vars(table), "bound": 0.5 * table.gap}).holds


def test_many_pairs_are_sampled_with_a_seed(monkeypatch):
    monkeypatch.setattr(bounds, "_MOST_PAIRS", 40)
    result = revised(*examples.garnet(30, 2, 3, seed=0), 0.9)
    table, same, other = (value_gaps(result, seed=seed) for seed in (1, 1, 2))
    assert not table.complete and 30 <= len(table.gap) <= 40
    assert (table.i < table.j).all()
    assert len(set(zip(table.i, table.j, strict=True))) == len(table.i)
    assert np.array_equal(table.i, same.i) and not np.array_equal(table.i, other.i)
    assert table.holds
    assert (np.diff(table.gap[table.largest(10)]) <= 0).all()


def test_one_state_is_refused():
    result = revised(*examples.garnet(1, 2, 1), 0.9)
    with pytest.raises(ValueError, match="value gaps need at least two states"):
        value_gaps(result)
