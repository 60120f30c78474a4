import gymnasium
import numpy as np
import pytest

from revbis.tabular import FiniteMDP, bisimulation, policy_value
from tabular.reference import dense, values

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


@pytest.mark.parametrize("name", ["FrozenLak-v1", "NoSuchThing-v0", "not an id"])
def test_unknown_id(name):
    with pytest.raises(ValueError, match=f"Gymnasium cannot make '{name}'"):
        FiniteMDP.from_gymnasium(name)


@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1"])
def test_environment_without_a_table(name):
    with pytest.raises(ValueError, match=r"Env has no transition table env.unwrapped.P"):
        FiniteMDP.from_gymnasium(gymnasium.make(name))


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
    ],
    ids=["no environment", "no module"],
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
        ([0], [0], [1], [0, 0], {}, r"must have one length, got 1, 1, 1 and 2"),
        ([0], [0], [1, 2], [0], {}, r"r must have shape \(1,\), got \(2,\)"),
        ([0], [0], [np.nan], [0], {}, r"r must be finite.*r\[0\] = nan"),
        ([0.5], [0], [1], [0], {}, "s must be 1-D integers, got float64"),
        ([0], [[0]], [1], [0], {}, r"a must be 1-D integers, got int64 of shape \(1, 1\)"),
        ([0], [0], [1], [-1], {}, "s2 must hold indices from 0, got -1"),
        ([0], [0], [1], [3], {"n_states": 2}, "n_states is 2, but the data goes up to index 3"),
        ([0], [4], [1], [0], {"n_actions": 2}, "n_actions is 2, but the data goes up to index 4"),
    ],
)
def test_from_transitions_refuses(s, a, r, s2, sizes, message):
    with pytest.raises(ValueError, match=message):
        FiniteMDP.from_transitions(s, a, r, s2, **sizes)
