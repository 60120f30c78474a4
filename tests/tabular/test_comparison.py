import numpy as np
import pytest
from scipy import stats

from revbis.tabular import (
    METRICS,
    FiniteMDP,
    certify,
    compare,
    comparison,
    examples,
    policy_value,
    revised,
    solve,
)
from tabular.reference import gaps

CASE = examples.garnet(15, 2, 3, seed=0)
EXACT = revised(*CASE, 0.9, tol=1e-10)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("c", [None, 0.6])
def test_identical_distances_are_perfect(metric, c):
    exact = solve(metric, *CASE, 0.9, 1e-8, c)
    for learned in (exact, exact.matrix(), exact.matrix().tolist()):
        scores = compare(learned, exact)
        assert scores.spearman == pytest.approx(1)
        assert scores.kendall == pytest.approx(1)
        assert scores.neighbour_overlap == 1
        assert scores.scale == pytest.approx(1)
        assert scores.stress == pytest.approx(0, abs=1e-12)
        assert scores.residual <= 2 * exact.error_bound
        assert scores.error_bound <= 1e-6
        assert scores.violations == 0
        assert scores.worst_violation <= exact.error_bound
        assert scores.collapsed == 0
        assert scores.self_distance == scores.exact_self_distance
        assert scores.pairs == 15 * 14 / 2


@pytest.mark.parametrize("level", ["state", "state_action"])
def test_scaled_distances_have_no_stress(level):
    exact = revised(*CASE, 0.9, level=level)
    scores = compare(exact.matrix() * 4, exact)
    assert scores.scale == pytest.approx(0.25)
    assert scores.stress == pytest.approx(0, abs=1e-12)
    assert scores.spearman == pytest.approx(1)
    assert scores.violations == 0
    assert scores.residual > 0.1


def test_scores_against_their_definitions():
    rng = np.random.default_rng(0)
    d = EXACT.matrix() * rng.uniform(0.2, 1.0, (15, 15))
    scores = compare(d, EXACT, neighbours=4)
    i, j = np.triu_indices(15, 1)
    both, truth = (d[i, j] + d[j, i]) / 2, EXACT.matrix()[i, j]
    assert scores.spearman == pytest.approx(stats.spearmanr(both, truth).statistic)
    assert scores.kendall == pytest.approx(stats.kendalltau(both, truth).statistic)
    fit = np.linalg.lstsq(both[:, None], truth, rcond=None)[0][0]
    assert scores.scale == pytest.approx(fit)
    assert scores.stress == pytest.approx(
        np.linalg.norm(fit * both - truth) / np.linalg.norm(truth)
    )
    gap = gaps(policy_value(*CASE, 0.9))[i, j]
    assert scores.worst_violation == pytest.approx(max(0, (gap - both).max()))
    assert scores.violations == pytest.approx((gap > both + EXACT.error_bound).mean())
    assert scores.self_distance == pytest.approx(np.diag(d).mean())
    certificate = certify(*CASE, d, "revised", 0.9)
    assert scores.residual == certificate.residual
    assert scores.error_bound == certificate.error_bound
    shared = [
        len(set(np.argsort(off(d, s))[:4]) & set(np.argsort(off(EXACT.matrix(), s))[:4]))
        for s in range(15)
    ]
    assert scores.neighbour_overlap == pytest.approx(np.mean(shared) / 4)


def off(d, s):
    row = d[s].copy()
    row[s] = np.inf
    return row


def test_violations_are_counted():
    scores = compare(np.zeros((15, 15)), EXACT)
    gap = gaps(policy_value(*CASE, 0.9))
    assert scores.violations == scores.collapsed == 1.0
    assert scores.worst_violation == pytest.approx(gap.max())


@pytest.mark.parametrize("constant", [0.0, 5.0])
def test_constant_distances_have_no_ranks(constant):
    scores = compare(np.full((15, 15), constant), EXACT)
    assert np.isnan(scores.spearman)
    assert np.isnan(scores.kendall)
    assert 0 < scores.stress <= 1
    assert 0 <= scores.neighbour_overlap <= 1


def test_constant_exact_distances_have_no_ranks():
    mdp = FiniteMDP(np.array([[0], [1], [2]]), np.ones((3, 1)))
    exact = revised(mdp, [0, 0, 0], 0.9)
    scores = compare(np.random.default_rng(0).random((3, 3)), exact)
    assert np.isnan(scores.spearman)
    assert scores.stress == 0 or scores.scale == 0
    assert compare(np.zeros((3, 3)), exact).stress == 0


def test_collapse_is_the_share_of_merged_pairs():
    d = EXACT.matrix().copy()
    d[:5, :5] = 0.0
    scores = compare(d, EXACT)
    assert scores.collapsed == pytest.approx(10 / 105)
    assert compare(EXACT, EXACT).collapsed == 0


def test_neighbours_are_at_most_all_others():
    scores = compare(np.random.default_rng(0).random((15, 15)), EXACT, neighbours=99)
    assert scores.neighbours == 14
    assert scores.neighbour_overlap == 1


def test_many_pairs_are_sampled_by_seed(monkeypatch):
    monkeypatch.setattr(comparison, "_MOST_PAIRS", 40)
    d = EXACT.matrix() * np.random.default_rng(0).uniform(0.2, 1.0, (15, 15))
    first, again, other = (compare(d, EXACT, seed=s) for s in (1, 1, 2))
    assert first.pairs == 40
    assert first == again
    assert first.spearman != other.spearman
    assert first.stress == other.stress


@pytest.mark.parametrize(
    ("learned", "options", "message"),
    [
        (np.zeros((3, 3)), {}, r"learned must have shape \(15, 15\), got \(3, 3\)"),
        (np.zeros((15, 15)), {"neighbours": 0}, "neighbours must be at least 1, got 0"),
        (revised(*examples.toy(), 0.9), {}, r"learned must have shape \(15, 15\), got \(3, 3\)"),
    ],
)
def test_compare_refuses(learned, options, message):
    with pytest.raises(ValueError, match=message):
        compare(learned, EXACT, **options)


def test_one_state_cannot_be_compared():
    exact = revised(FiniteMDP(np.array([[0]]), [[1.0]]), [0], 0.9)
    with pytest.raises(ValueError, match="at least two states"):
        compare(np.zeros((1, 1)), exact)
