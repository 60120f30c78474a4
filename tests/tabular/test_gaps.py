import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import METRICS, FiniteMDP, bounds, examples, mico, revised, solve
from revbis.tabular.bounds import value_gaps
from tabular import reference
from tabular.strategies import few, mdps


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
