import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from revbis.tabular import METRICS, FiniteMDP, certify, examples, solve, value_gap_bound
from revbis.tabular.mdp import as_policy
from tabular.reference import dense
from tabular.strategies import few, mdps

STEPS = np.array([[0, 1], [2, 2], [1, 0]])
P = np.eye(3)[STEPS]
R = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
MASK = np.array([[True, False], [True, True], [False, True]])


def forms(array):
    """Any P of shape (S, A, S) in all the forms it can be given in."""
    columns = [array[:, a] for a in range(array.shape[1])]
    return {
        "dense": array,
        "csr": [sp.csr_matrix(p) for p in columns],
        "csc array": tuple(sp.csc_array(p) for p in columns),
        "coo": [sp.coo_matrix(p) for p in columns],
        "nested lists": array.tolist(),
    }


def assert_same(a, b):
    assert np.array_equal(a.transitions.toarray(), b.transitions.toarray())
    assert np.array_equal(a.rewards, b.rewards)
    assert np.array_equal(a.available, b.available)
    assert np.array_equal(a.grid, b.grid) if a.grid is not None else b.grid is None


@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("form", forms(P))
def test_successors_and_matrices_give_the_same_mdp(form, mask):
    assert_same(FiniteMDP(forms(P)[form], R, mask=mask), FiniteMDP(STEPS, R, mask=mask))


@few(15)
@given(mdps())
def test_forms_agree_on_random_mdps(case):
    mdp, _ = case
    for form in forms(dense(mdp)).values():
        other = FiniteMDP(form, mdp.rewards, mask=mdp.available)
        assert np.allclose(dense(other), dense(mdp), rtol=0, atol=1e-15)
        assert_same(FiniteMDP(dense(other), mdp.rewards, mask=mdp.available), other)


def test_shape_and_pairs():
    mdp = FiniteMDP(STEPS, R, mask=MASK, grid=[[0, 0], [0, 1], [2, 0]])
    assert (mdp.n_states, mdp.n_actions) == (3, 2)
    assert mdp.state_actions.tolist() == [[0, 0], [1, 0], [1, 1], [2, 1]]
    assert mdp.successors.tolist() == [[0, -1], [2, 2], [-1, 0]]
    assert mdp.rewards.tolist() == [[0, 0], [2, 3], [0, 5]]
    assert mdp.uniform_policy().tolist() == [[1, 0], [0.5, 0.5], [0, 1]]
    assert mdp.grid.tolist() == [[0, 0], [0, 1], [2, 0]]
    assert repr(mdp) == "FiniteMDP(n_states=3, n_actions=2, deterministic)"


def test_random_transitions_have_no_successors():
    mdp = examples.garnet(4, 2, 2).mdp
    assert mdp.successors is None
    assert repr(mdp) == "FiniteMDP(n_states=4, n_actions=2)"


def test_rows_are_normalised_and_zeros_dropped():
    rows = np.array([[[0.5 + 4e-7, 0.5]], [[0.0, 1.0]]])
    mdp = FiniteMDP(rows, [[0.0], [0.0]])
    assert np.allclose(mdp.transitions.sum(axis=1), 1, rtol=0, atol=1e-16)
    assert mdp.transitions.nnz == 3


def test_duplicate_entries_of_a_sparse_matrix_add_up():
    twice = sp.coo_matrix(([0.5, 0.5, 1.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert FiniteMDP([twice], [[0.0], [0.0]]).successors.tolist() == [[1], [0]]


@pytest.mark.parametrize("name", ["transitions", "rewards", "available", "grid", "n_states", "new"])
def test_attributes_cannot_be_set(name):
    mdp = FiniteMDP(STEPS, R)
    with pytest.raises(AttributeError, match=f"immutable.*'{name}'|no setter"):
        setattr(mdp, name, None)


def test_attributes_cannot_be_deleted():
    mdp = FiniteMDP(STEPS, R)
    with pytest.raises(AttributeError, match="immutable"):
        del mdp.rewards


ARRAYS = {
    "data": lambda mdp: mdp.transitions.data,
    "indices": lambda mdp: mdp.transitions.indices,
    "indptr": lambda mdp: mdp.transitions.indptr,
    "rewards": lambda mdp: mdp.rewards,
    "available": lambda mdp: mdp.available,
    "grid": lambda mdp: mdp.grid,
    "state_actions": lambda mdp: mdp.state_actions,
    "successors": lambda mdp: mdp.successors,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_cannot_be_written(name):
    array = ARRAYS[name](FiniteMDP(STEPS, R, grid=[[0, 0], [0, 1], [0, 2]]))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = array[0]


@pytest.mark.parametrize("form", forms(P))
def test_the_callers_arrays_are_neither_changed_nor_shared(form):
    given_P, given_R, given_mask = forms(P.copy())[form], R.copy(), MASK.copy()
    grid = np.array([[0, 0], [0, 1], [0, 2]])
    mdp = FiniteMDP(given_P, given_R, mask=given_mask, grid=grid)
    before = (dense(mdp).copy(), mdp.rewards.copy(), mdp.available.copy(), mdp.grid.copy())
    rows = [p.toarray() for p in given_P] if sp.issparse(given_P[0]) else np.asarray(given_P)
    assert np.array_equal(np.stack(rows, axis=1) if isinstance(rows, list) else rows, P)
    assert np.array_equal(given_R, R)
    assert np.array_equal(given_mask, MASK)
    for array in (given_R, given_mask, grid):
        assert array.flags.writeable
        array[...] = 0
    for part in given_P if not isinstance(given_P, np.ndarray) else [given_P]:
        if sp.issparse(part):
            part.data[:] = 0
        elif isinstance(part, np.ndarray):
            part[:] = 0
    for array, old in zip((dense(mdp), mdp.rewards, mdp.available, mdp.grid), before, strict=True):
        assert np.array_equal(array, old)


@pytest.mark.parametrize("metric", METRICS)
def test_no_metric_changes_the_policy_or_the_mdp(metric):
    mdp, policy = examples.garnet(6, 2, 3, reward_levels=3, seed=1)
    policy, d = policy.copy(), np.ones((6, 6))
    kept = policy.copy(), dense(mdp).copy(), mdp.rewards.copy()
    result = solve(metric, mdp, policy, 0.9)
    solve(metric, mdp, policy, 0.9, 1e3, [0.2, 0.5])
    value_gap_bound(result, 0.95).matrix()
    certify(mdp, policy, d, metric, 0.9)
    if result.policy is not None:
        assert not np.shares_memory(result.policy, policy)
    for array, old in zip((policy, dense(mdp), mdp.rewards), kept, strict=True):
        assert np.array_equal(array, old)
    assert policy.flags.writeable
    assert (d == 1).all()


def with_entry(array, where, value):
    array = array.astype(float)
    array[where] = value
    return array


@pytest.mark.parametrize("form", forms(P))
@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ((1, 0, 2), 0.75, r"P\[s=1, a=0, :\] sums to 0.75, expected 1 \(1 of 6 rows are off\)"),
        ((2, 1, 0), 0.0, r"P\[s=2, a=1, :\] sums to 0, expected 1"),
        ((1, 1, 0), -0.25, r"P\[s=1, a=1, s'=0\] = -0.25 is negative"),
        ((0, 1, 2), np.nan, r"P\[s=0, a=1, s'=2\] = nan is not finite"),
        ((0, 1, 2), np.inf, r"P\[s=0, a=1, s'=2\] = inf is not finite"),
    ],
)
def test_bad_rows_are_named(form, where, value, message):
    with pytest.raises(ValueError, match=message):
        FiniteMDP(forms(with_entry(P, where, value))[form], R)


@pytest.mark.parametrize(
    ("successors", "message"),
    [
        ([[0, 3], [2, 2], [1, 0]], r"P\[0, 1\] = 3 is not a state; successors must be in 0..2"),
        ([[0, 1], [2, 2], [-1, 0]], r"P\[2, 0\] = -1 is not a state"),
    ],
)
def test_successors_out_of_range_are_named(successors, message):
    with pytest.raises(ValueError, match=message):
        FiniteMDP(np.array(successors), R)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"P": np.ones((3, 2))}, r"P must be .*; got shape \(3, 2\), dtype float64"),
        ({"P": np.ones((3, 2, 4))}, r"got shape \(3, 2, 4\)"),
        ({"P": 1.0}, r"got shape \(\)"),
        ({"P": np.full((3, 2, 3), "x")}, "P .* must hold real numbers, got texts"),
        ({"P": [sp.eye(3), sp.eye(2)]}, r"P\[1\] must have shape \(3, 3\), got \(2, 2\)"),
        ({"P": [sp.csr_matrix((3, 2))]}, r"P\[0\] must have shape \(3, 3\), got \(3, 2\)"),
        ({"P": np.ones((0, 2, 0))}, r"P is empty \(S=0, A=2\)"),
        ({"P": np.ones((3, 0, 3))}, r"P is empty \(S=3, A=0\)"),
        ({"P": np.ones((0, 0), dtype=int)}, r"P is empty \(S=0, A=0\)"),
        ({"P": []}, "P must be .* array"),
        ({"R": R.T}, r"R must have shape \(3, 2\), got \(2, 3\)"),
        ({"R": R[:, 0]}, r"R must have shape \(3, 2\), got \(3,\)"),
        ({"R": with_entry(R, (2, 1), np.nan)}, r"the first is R\[2, 1\] = nan"),
        ({"R": with_entry(R, (0, 1), -np.inf)}, r"the first is R\[0, 1\] = -inf"),
        ({"R": [["a", "b"]] * 3}, r"R, of shape \(3, 2\), must hold real numbers, got texts"),
        ({"mask": MASK.T}, r"mask must be booleans of shape \(3, 2\), got bool of \(2, 3\)"),
        ({"mask": MASK.astype(int)}, r"mask must be booleans of shape \(3, 2\), got int64"),
        ({"mask": MASK & [[1, 1], [0, 0], [1, 1]] == 1}, r"mask\[1\] has no available action"),
        ({"grid": [[0, 0]]}, r"grid must be \(3, 2\) integers from 0 .*got int64 of \(1, 2\)"),
        ({"grid": np.zeros((3, 2))}, "grid must be .*got float64"),
        ({"grid": [[0, 0], [0, 1], [0, -1]]}, "grid must be .*from 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FiniteMDP(**{"P": STEPS, "R": R, **arguments})


@pytest.mark.parametrize("form", forms(P))
def test_rows_of_hidden_actions_are_ignored(form):
    hidden = ~MASK
    odd_P, odd_R = P.astype(float), R.copy()
    odd_P[hidden], odd_R[hidden] = np.nan, np.inf
    assert_same(FiniteMDP(forms(odd_P)[form], odd_R, mask=MASK), FiniteMDP(STEPS, R, mask=MASK))


def test_successors_of_hidden_actions_are_ignored():
    assert_same(FiniteMDP(np.where(MASK, STEPS, -7), R, mask=MASK), FiniteMDP(STEPS, R, mask=MASK))


def test_as_policy_accepts_actions_and_probabilities():
    mdp = FiniteMDP(STEPS, R)
    assert as_policy(mdp, [0, 1, 1]).tolist() == [[1, 0], [0, 1], [0, 1]]
    assert as_policy(mdp, np.eye(2, dtype=int)[[0, 1, 1]]).tolist() == [[1, 0], [0, 1], [0, 1]]
    nearly = as_policy(mdp, [[0.5, 0.5 + 1e-7], [1, 0], [0, 1]])
    assert np.allclose(nearly.sum(axis=1), 1, rtol=0, atol=1e-16)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 1, 2], "policy must name actions 0 to 1"),
        ([0, -1, 1], "policy must name actions 0 to 1"),
        ([0, 1], r"policy must have shape \(3, 2\), got \(2,\)"),
        ([0.0, 1.0, 1.0], r"policy must have shape \(3, 2\), got \(3,\)"),
        ([[0.5, 0.5], [1.5, -0.5], [0, 1]], r"policy\[1, 1\] = -0.5 is negative"),
        ([[1, 0], [0.5, 0.4], [0, 0.5]], r"policy\[1\] sums to 0.9, expected 1 \(2 of 3 rows are"),
        ([[1, 0], [np.nan, 0.4], [0, 1]], r"the first is policy\[1, 0\] = nan"),
        ([[0.5, 0.5], [1, 0], [0, 1]], r"policy\[0, 1\] = 0.5 is above 0, but that action is not"),
        ([0, 0, 0], r"policy\[2, 0\] = 1.0 is above 0, but that action is not available"),
    ],
)
def test_as_policy_refuses(policy, message):
    with pytest.raises(ValueError, match=message):
        as_policy(FiniteMDP(STEPS, R, mask=MASK), policy)
