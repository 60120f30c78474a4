import contextlib
import gc
import warnings
import zipfile

import gymnasium
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from revbis.tabular import (
    METRICS,
    FiniteMDP,
    bisimulation,
    certify,
    examples,
    policy_value,
    solve,
    value_gap_bound,
)
from revbis.tabular.mdp import as_policy
from tabular.reference import dense, values
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
    ("arguments", "message"),
    [
        ({"P": np.ones((3, 2))}, r"P must be .*; got shape \(3, 2\), dtype float64"),
        ({"P": 1.0}, r"got shape \(\)"),
        ({"P": [sp.eye(3), sp.eye(2)]}, r"P\[1\] must have shape \(3, 3\), got \(2, 2\)"),
        ({"P": np.ones((0, 2, 0))}, r"P is empty \(S=0, A=2\)"),
        ({"P": P.astype(complex)}, "P .* must hold real numbers, got complex numbers"),
        ({"P": [sp.eye(3, dtype=bool)]}, r"P\[0\] must hold real numbers, got dtype bool"),
        ({"P": np.where(STEPS == 1, 3, STEPS)}, r"P\[0, 1\] = 3 is not a state; .* in 0..2"),
        ({"P": np.full((3, 2), 2**63, np.uint64)}, "is not a state"),
        ({"R": R.T}, r"R must have shape \(3, 2\), got \(2, 3\)"),
        ({"R": with_entry(R, (2, 1), np.nan)}, r"the first is R\[2, 1\] = nan"),
        ({"R": 1e200 * R}, r"R\[0, 1\] = 1e\+200 is larger than 1e\+100"),
        ({"mask": [[True], [True, False]]}, "mask must be booleans"),
        ({"mask": MASK.T}, r"mask must be booleans of shape \(3, 2\), got bool of \(2, 3\)"),
        ({"mask": MASK & [[1, 1], [0, 0], [1, 1]] == 1}, r"mask\[1\] has no available action"),
        ({"grid": [[0, 0]]}, r"grid must be \(3, 2\) integers from 0 .*got int64 of \(1, 2\)"),
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
        ([0, 1], r"policy must have shape \(3, 2\), got \(2,\)"),
        ([[0.5, 0.5], [1.5, -0.5], [0, 1]], r"policy\[1, 1\] = -0.5 is negative"),
        ([[1, 0], [0.5, 0.4], [0, 0.5]], r"policy\[1\] sums to 0.9, expected 1 \(2 of 3 rows are"),
        ([[1, 0], [np.nan, 0.4], [0, 1]], r"the first is policy\[1, 0\] = nan"),
        ([[0.5, 0.5], [1, 0], [0, 1]], r"policy\[0, 1\] = 0.5 is above 0, but that action is not"),
    ],
)
def test_as_policy_refuses(policy, message):
    with pytest.raises(ValueError, match=message):
        as_policy(FiniteMDP(STEPS, R, mask=MASK), policy)


IDS = {
    "lake": ("FrozenLake-v1", {"is_slippery": True}),
    "dry lake": ("FrozenLake-v1", {"is_slippery": False}),
    "large lake": ("FrozenLake8x8-v1", {}),
    "taxi": ("Taxi-v4", {}),
    "cliff": ("CliffWalking-v1", {}),
    "slippery cliff": ("CliffWalkingSlippery-v1", {}),
}


@pytest.fixture(params=IDS)
def env(request):
    name, options = IDS[request.param]
    return gymnasium.make(name, **options)


def by_hand(table, policy, gamma, n):
    """V from env.P directly: an episode that has ended earns nothing more."""
    P, r = np.zeros((n, n)), np.zeros(n)
    for s, actions in table.items():
        for a, outcomes in actions.items():
            for p, t, reward, done in outcomes:
                r[s] += policy[s, a] * p * reward
                P[s, t] += policy[s, a] * p * (not done)
    return np.linalg.solve(np.eye(n) - gamma * P, r)


def ends(table):
    outcomes = [o for actions in table.values() for row in actions.values() for o in row]
    return sorted({t for p, t, _, done in outcomes if done and p > 0})


def reachable(env):
    """States an episode can be in: Taxi's table has others, from which no start leads."""
    table, states = env.unwrapped.P, set(np.flatnonzero(env.unwrapped.initial_state_distrib))
    frontier = set(states)
    while frontier:
        s = frontier.pop()
        following = {t for row in table[s].values() for p, t, _, done in row if p > 0 and not done}
        frontier |= following - states
        states |= following
    return sorted(states)


def test_toy_text_environments(env):
    mdp = FiniteMDP.from_gymnasium(env)
    n, m = env.observation_space.n, env.action_space.n
    assert (mdp.n_states, mdp.n_actions) == (n, m)
    assert mdp.available.all()
    assert np.allclose(mdp.transitions.sum(axis=1), 1)
    for s in ends(env.unwrapped.P):
        assert (dense(mdp)[s, :, s] == 1).all()
        assert (mdp.rewards[s] == 0).all()
    policy = np.random.default_rng(0).dirichlet(np.ones(m), size=n)
    expected = by_hand(env.unwrapped.P, policy, 0.9, n)
    live = reachable(env)
    assert np.allclose(policy_value(mdp, policy, 0.9)[live], expected[live], rtol=0, atol=1e-9)
    assert np.allclose(values(mdp, policy, 0.9)[live], expected[live], rtol=0, atol=1e-9)


def test_an_id_is_enough_and_grids_are_known():
    mdp = FiniteMDP.from_gymnasium("FrozenLake-v1")
    assert mdp.grid[5].tolist() == [1, 1]
    assert mdp.successors is None
    cliff = FiniteMDP.from_gymnasium("CliffWalking-v1")
    assert cliff.grid[13].tolist() == [1, 1]
    assert cliff.successors is not None
    assert FiniteMDP.from_gymnasium("Taxi-v4").grid is None


def test_holes_of_the_lake_are_bisimilar():
    result = bisimulation(FiniteMDP.from_gymnasium("FrozenLake-v1"), 0.9)
    assert result.matrix()[5, 7] == 0
    assert result.matrix()[5, 14] > 0


def test_the_environments_a_message_suggests_exist():
    with pytest.raises(ValueError, match="no transition table") as caught:
        FiniteMDP.from_gymnasium("CartPole-v1")
    named = [w.strip(",") for w in str(caught.value).split() if w.strip(",")[-3:-1] == "-v"]
    assert named
    assert [name for name in named if name not in gymnasium.registry] == []


class Table:
    """The least an environment needs."""

    def __init__(self, P, start=None):
        self.P, self.unwrapped, self.initial_state_distrib = P, self, start


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (object(), "no transition table"),
        ("no_such_module:Thing-v0", "Gymnasium cannot make"),
        ("FrozenLak-v1", "Gymnasium cannot make 'FrozenLak-v1'"),
    ],
    ids=["no environment", "no module", "a typo"],
)
def test_odd_sources_are_refused_clearly(env, message):
    with pytest.raises(ValueError, match=message):
        FiniteMDP.from_gymnasium(env)


GO_ON, END = [(1.0, 1, 0.0, False)], [(1.0, 1, 1.0, True)]
STAY = [(1.0, 1, 0.0, True)]


def test_a_state_that_ends_and_does_not_is_refused():
    with pytest.raises(ValueError, match="state 1 ends the episode on some transitions and not"):
        FiniteMDP.from_gymnasium(Table({0: {0: GO_ON, 1: END}, 1: {0: STAY, 1: STAY}}))


def test_nothing_but_ends():
    mdp = FiniteMDP.from_gymnasium(Table({0: {0: [(1.0, 0, 5.0, True)]}}))
    assert mdp.successors.tolist() == [[0]]
    assert mdp.rewards.tolist() == [[0.0]]


def test_impossible_outcomes_do_not_count():
    table = {0: {0: [(0.0, 1, 0.0, False), *END]}, 1: {0: STAY}}
    mdp = FiniteMDP.from_gymnasium(Table(table))
    assert mdp.successors.tolist() == [[1], [1]]
    assert mdp.rewards.tolist() == [[1.0], [0.0]]


def test_ambiguity_out_of_reach_is_no_ambiguity():
    table = {0: {0: END}, 1: {0: STAY}, 2: {0: GO_ON}}
    assert FiniteMDP.from_gymnasium(Table(table, start=[1, 0, 0])).successors is not None
    with pytest.raises(ValueError, match="state 1 ends"):
        FiniteMDP.from_gymnasium(Table(table, start=[1, 0, 1]))


def test_frequencies_and_mean_rewards():
    mdp = FiniteMDP.from_transitions(
        [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 0], [1, 2, 3, 4, 5, 6], [0, 1, 1, 1, 0, 1]
    )
    assert dense(mdp)[0, 0].tolist() == [0.25, 0.75]
    assert dense(mdp)[1].tolist() == [[0, 1], [1, 0]]
    assert mdp.available.tolist() == [[True, False], [True, True]]
    assert mdp.rewards.tolist() == [[2.5, 0.0], [6.0, 5.0]]


def test_logged_transitions_converge_to_the_mdp():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), size=(3, 2))
    s, a = rng.integers(3, size=30000), rng.integers(2, size=30000)
    s2 = (P[s, a].cumsum(axis=1) > rng.random((30000, 1))).argmax(axis=1)
    mdp = FiniteMDP.from_transitions(s, a, (s + a) / 3, s2)
    assert np.allclose(dense(mdp), P, atol=0.03)
    assert np.allclose(mdp.rewards, (np.arange(3)[:, None] + np.arange(2)) / 3)


def test_states_never_left_are_terminal():
    with pytest.warns(UserWarning, match=r"2 of 4 states were never left .*the first is state 1\)"):
        mdp = FiniteMDP.from_transitions([0, 2], [0, 1], [1.0, 2.0], [1, 1], n_states=4)
    assert mdp.available.tolist() == [[True, False], [True, True], [False, True], [True, True]]
    assert mdp.successors.tolist() == [[1, -1], [1, 1], [-1, 1], [3, 3]]
    assert mdp.rewards.tolist() == [[1, 0], [0, 0], [0, 2], [0, 0]]


def test_counts_can_be_given():
    mdp = FiniteMDP.from_transitions([0], [0], [1.0], [0], n_states=1, n_actions=3)
    assert mdp.available.tolist() == [[True, False, False]]


@pytest.mark.parametrize(
    ("s", "a", "r", "s2", "sizes", "message"),
    [
        ([], [], [], [], {}, "are empty: at least one transition is needed"),
        ([0, 0], [0], [1, 1], [0, 0], {}, r"must have one length, got 2, 1, 2 and 2"),
        ([0], [0], [np.nan], [0], {}, r"r must be finite.*r\[0\] = nan"),
        ([0.5], [0], [1], [0], {}, "s must be 1-D integers, got float64"),
        ([0], [0], [1], [-1], {}, "s2 must hold indices from 0, got -1"),
        ([0], [0], [1], [3], {"n_states": 2}, "n_states is 2, but the data goes up to index 3"),
    ],
)
def test_from_transitions_refuses(s, a, r, s2, sizes, message):
    with pytest.raises(ValueError, match=message):
        FiniteMDP.from_transitions(s, a, r, s2, **sizes)


def test_transitions_that_would_fill_memory():
    with pytest.raises(MemoryError, match="number them consecutively from 0"):
        FiniteMDP.from_transitions([10**15], [0], [0.0], [0])


@few(10)
@given(case=mdps())
def test_round_trip_of_random_mdps(case, tmp_path_factory):
    path = tmp_path_factory.mktemp("mdp") / "mdp.npz"
    case[0].save(path)
    loaded = FiniteMDP.load(path)
    assert np.allclose(
        loaded.transitions.toarray(), case[0].transitions.toarray(), rtol=1e-15, atol=0
    )
    assert np.array_equal(loaded.rewards, case[0].rewards)
    assert np.array_equal(loaded.available, case[0].available)


def test_round_trip_keeps_mask_and_grid(tmp_path):
    mdp = FiniteMDP(STEPS, R, mask=MASK, grid=[[0, 0], [1, 2], [3, 4]])
    mdp.save(str(tmp_path / "mdp.npz"))
    assert_same(FiniteMDP.load(str(tmp_path / "mdp.npz")), mdp)


def test_save_overwrites_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "any name"
    examples.toy().mdp.save(path)
    FiniteMDP(STEPS, R).save(path)
    assert_same(FiniteMDP.load(path), FiniteMDP(STEPS, R))
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "mdp.npz"
    FiniteMDP(STEPS, R).save(path)

    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="no space left"):
        examples.toy().mdp.save(path)
    assert_same(FiniteMDP.load(path), FiniteMDP(STEPS, R))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", [P, STEPS])
@pytest.mark.parametrize(
    "more", [{}, {"mask": MASK}, {"grid": np.array([[0, 0], [0, 1], [0, 2]]), "mask": MASK}]
)
def test_plain_arrays_are_read(tmp_path, form, more):
    np.savez(tmp_path / "mdp.npz", P=form, R=R, **more)
    assert_same(FiniteMDP.load(tmp_path / "mdp.npz"), FiniteMDP(STEPS, R, **more))


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.npz: no such file"):
        FiniteMDP.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_truncated_file(tmp_path, share):
    path = tmp_path / "x.npz"
    FiniteMDP(STEPS, R).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ValueError, match="is not a readable"):
        FiniteMDP.load(path)


def test_a_truncated_file_is_closed(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 cut off")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(ValueError):
            FiniteMDP.load(tmp_path / "x.npz")
        gc.collect()
    assert [str(w.message) for w in caught] == []


def test_flipped_bits(tmp_path):
    path = tmp_path / "x.npz"
    examples.garnet(30, seed=0).mdp.save(path)
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("probabilities.npy").header_offset
    raw[start + 100 : start + 400] = bytes(b ^ 0xFF for b in raw[start + 100 : start + 400])
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="is not a readable"):
        FiniteMDP.load(path)


def test_any_flipped_byte_of_the_directory(tmp_path):
    path = tmp_path / "x.npz"
    FiniteMDP(STEPS, R).save(path)
    raw = path.read_bytes()
    for where in range(raw.index(b"PK\x01\x02"), len(raw)):
        path.write_bytes(raw[:where] + bytes([raw[where] ^ 0xFF]) + raw[where + 1 :])
        try:
            assert_same(FiniteMDP.load(path), FiniteMDP(STEPS, R))
        except ValueError as error:
            assert "x.npz" in str(error)  # noqa: PT017 - some bytes do not matter


def test_a_policy_is_kept_beside_the_mdp(tmp_path):
    mdp, policy = examples.toy()
    mdp.save(tmp_path / "x.npz", policy)
    with np.load(tmp_path / "x.npz") as file:
        assert file["policy"].tolist() == policy.tolist()
    assert FiniteMDP.load(tmp_path / "x.npz").rewards.tolist() == mdp.rewards.tolist()
    with pytest.raises(ValueError, match="policy must have shape"):
        mdp.save(tmp_path / "y.npz", policy[:2])
    assert not (tmp_path / "y.npz").exists()


def test_the_error_lists_what_a_foreign_npz_holds(tmp_path):
    np.savez(tmp_path / "x.npz", weights=np.ones(3), bias=np.ones(1))
    with pytest.raises(
        ValueError, match=r"holds \['bias', 'weights'\]; expected the output of FiniteMDP"
    ):
        FiniteMDP.load(tmp_path / "x.npz")


def test_invalid_plain_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", P=P / 2, R=R)
    with pytest.raises(ValueError, match=r"P\[s=0, a=0, :\] sums to 0.5"):
        FiniteMDP.load(tmp_path / "x.npz")


def resaved(tmp_path, **changes):
    """A saved MDP with some of its arrays replaced, or left out when None."""
    path = tmp_path / "x.npz"
    FiniteMDP(STEPS, R, mask=MASK).save(path)
    with np.load(path) as file:
        arrays = {**dict(file), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_wrong_format_number(tmp_path):
    with pytest.raises(ValueError, match="has MDP format 7; this version reads format 1"):
        FiniteMDP.load(resaved(tmp_path, format=np.int64(7)))


@pytest.mark.parametrize(
    "changes",
    [
        {"rewards": R[0]},
        {"rewards": None},
        {"indptr": np.array([0, 5])},
        {"indices": np.array([0, 99, 0, 0])},
        {"indices": np.array([0, -1, 0, 0])},
        {"probabilities": np.ones(9)},
        {"indptr": np.array([0, 3, 1, 2, 3, 4, 4])},
    ],
)
def test_damaged_parts(tmp_path, changes):
    with pytest.raises(ValueError, match="is a damaged MDP file"):
        FiniteMDP.load(resaved(tmp_path, **changes))
