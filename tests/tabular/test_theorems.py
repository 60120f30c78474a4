import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import FiniteMDP, examples, theorems
from revbis.tabular.theorems import check_theorems
from tabular.strategies import few, mdps


@few(20)
@given(mdps(max_states=5), st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from([0.3, 0.9]))
def test_theorems_hold_on_random_mdps(case, gamma, c):
    failed = [s.text for s in check_theorems(*case, gamma, c=c) if s.proved and not s.holds]
    assert failed == []


def test_what_people_expect_fails_somewhere():
    broken = set()
    for seed in range(6):
        case = examples.garnet(6, 2, 2, seed=seed)
        broken |= {s.text for s in check_theorems(*case, 0.9) if not s.holds}
    twins = FiniteMDP(np.array([[0, 0], [1, 1]]), [[0.0, 1.0], [0.0, 1.0]])
    # The gaps of the rewards are the path lengths of the graph K_{2,3}: not of negative type.
    paths = [[0, 2, 1, 1, 1], [2, 0, 1, 1, 1], [1, 1, 0, 2, 2], [1, 1, 2, 0, 2], [1, 1, 2, 2, 0]]
    graph = FiniteMDP(np.zeros((5, 5), dtype=int), paths)
    own = ((twins, np.eye(2)), (graph, np.eye(5)))
    for case in (examples.toy(), *own, examples.delay_chain(20)):
        results = check_theorems(*case, 0.99)
        assert all(s.holds for s in results if s.proved)
        broken |= {s.text for s in results if not s.holds}
    expected = {s.text for s in results if not s.proved}
    assert len(expected) == 8
    assert broken == expected


def test_a_theorem_knows_its_margin():
    violated = theorems.Theorem("1 ≤ 2", True, margin=-0.5, allowance=0.1)
    assert not violated.holds
    assert theorems.Theorem("1 ≤ 2", True, margin=-0.05, allowance=0.1).holds


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(theorems, "_MOST_PAIRS", 3)
    with pytest.raises(ValueError, match="there are 5; at most 3 are supported"):
        check_theorems(*examples.toy(), 0.9)
