import logging

import numpy as np
import pytest

from revbis.tabular import examples, mico, pi_bisimulation, revised

CASE = examples.garnet(25, 2, 3, reward_levels=3, seed=2)


@pytest.fixture(scope="module", params=["revised", "mico", "pairs"])
def both(request):
    """A low-rank and a dense result of one metric."""
    metric = mico if request.param == "mico" else revised
    level = "state_action" if request.param == "pairs" else "state"
    return [metric(*CASE, 0.9, tol=1e-9, level=level, solver=s) for s in ("low_rank", "doubling")]


def near(a, b, both):
    return np.allclose(a, b, rtol=0, atol=4 * sum(r.error_bound for r in both))


@pytest.mark.parametrize(
    "view",
    [
        lambda r: r.matrix(),
        lambda r: r.pairs(4, [1, 2, 3]),
        lambda r: r.pairs(4, 7),
        lambda r: r.reduced_pairs(np.arange(25)[:, None], [2, 3]),
        lambda r: r.embedding().matrix(),
    ],
)
def test_views_agree_between_forms(both, view):
    low, full = both
    assert view(low).shape == view(full).shape
    assert near(view(low), view(full), both)


def test_views_agree_with_the_matrix(both):
    for result in both:
        U, everyone = result.matrix(), np.arange(result.n)
        own = np.diag(U)
        rho = np.maximum(U - (own[:, None] + own) / 2, 0)
        assert U.shape == (result.n, result.n)
        assert near(result.pairs(everyone[:, None], everyone), U, both)
        assert near(result.row(3), U[3], both)
        assert near(result.self_distance(), own, both)
        assert near(result.reduced(), rho, both)
        assert near(result.reduced_pairs(everyone[:, None], everyone), rho, both)


def test_rank_is_known_of_low_rank_results_only(both):
    low, full = both
    assert 0 < low.rank <= low.n
    assert full.rank is None


def test_w1_metrics_have_no_self_distance():
    result = pi_bisimulation(*CASE, 0.9)
    assert not result.self_distance().any()
    assert np.array_equal(result.reduced(), result.matrix())


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        (-1, 0, r"i must be in 0\.\."),
        (0, [1, 999], r"j must be in 0\.\.\d+, got 1\.\.999"),
        (0.5, 0, "i must hold integers, got float64"),
        (0, [True], "j must hold real numbers, got booleans"),
    ],
)
def test_wrong_indices_are_refused(both, i, j, message):
    for result in both:
        with pytest.raises(ValueError, match=message):
            result.pairs(i, j)
        with pytest.raises(ValueError, match=message[1:]):  # it may call either of them i
            result.reduced_pairs(i, j)


def test_empty_indices_are_allowed(both):
    for result in both:
        nobody = np.array([], dtype=int)
        assert result.pairs(nobody, nobody).shape == (0,)


def test_matrix_is_read_only_or_fresh(both):
    low, full = both
    with pytest.raises(ValueError, match="read-only"):
        full.matrix()[0, 0] = 1.0
    low.matrix()[:] = -1.0
    assert low.matrix().min() > -1e-6


@pytest.mark.parametrize("view", ["row", "reduced", "self_distance"])
def test_views_can_be_written_without_harm(both, view):
    for result in both:
        arguments = (3,) if view == "row" else ()
        before = getattr(result, view)(*arguments).copy()
        getattr(result, view)(*arguments)[:] = 7.0
        assert np.array_equal(getattr(result, view)(*arguments), before)


def test_a_matrix_that_cannot_fit_is_refused(both, free_memory):
    low, full = both
    free_memory(8 * low.n**2 - 1)
    message = rf"a {low.n} × {low.n} matrix takes .* is free; use \.pairs\(\) or \.embedding\(\)"
    with pytest.raises(MemoryError, match=message):
        low.matrix()
    with pytest.raises(MemoryError, match="matrix takes"):
        low.reduced()
    assert low.pairs(0, 1).shape == ()
    assert low.reduced_pairs(0, 1).shape == ()
    assert full.matrix().shape == (full.n, full.n)


def test_a_large_matrix_is_announced(both, caplog, monkeypatch):
    low = both[0]
    monkeypatch.setattr("revbis.io.machine._SAY_ABOVE", 8 * low.n**2)
    with caplog.at_level(logging.WARNING, "revbis"):
        low.matrix()
    assert len(caplog.messages) == 1
    assert f"a {low.n} × {low.n} matrix takes" in caplog.messages[0]


def test_results_cannot_be_changed(both):
    with pytest.raises(AttributeError):
        both[0].error_bound = 0.0


def test_the_policy_of_a_result_cannot_be_written(both):
    with pytest.raises(ValueError, match="read-only"):
        both[0].policy[0] = both[0].policy[0]


def test_repr_is_one_line(both):
    text = repr(both[1])
    assert text.startswith("MetricResult(")
    assert "solver=doubling" in text
    assert "\n" not in text
