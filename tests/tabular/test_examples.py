import numpy as np
import pytest

from revbis.tabular import examples, mico, pi_bisimulation, policy_value, revised, reward_laws
from tabular.reference import dense, gaps

# The toy MDP, by hand, with the rewards as stated: in s1 the policy earns 0 and stays, or earns 1
# and goes to s3, with probability ½ each; s2 is the same with another action; s3 earns ½ and stays.
#   E|r1 − r2| = ½·½·(0 + 1 + 1 + 0) = ½ (also for two draws in s1), E|r1 − r3| = ½.
#   U33 = 0 + γ U33                               → U33 = 0
#   U13 = ½ + γ(½ U13 + ½ U33)                    → U13 = 1/(2−γ), and U23 alike
#   U12 = ½ + γ/4 (U12 + U13 + U32 + U33)         → U12 (1 − γ/4) = ½ + γ/(2(2−γ)) = 1/(2−γ)
#                                                 → U12 = 4/((2−γ)(4−γ)); U11 and U22 solve the same
#   ρ12 = U12 − ½(U11 + U22) = 0
#   ρ13 = U13 − ½ U11 = (1/(2−γ))·(1 − 2/(4−γ)) = 1/(4−γ)
# Every state earns ½ on average for ever: π-bisimulation and MICo see nothing.
# Distances are linear in the scale of the rewards: "printed" halves all of them.
GAMMAS = (0.0, 0.25, 0.5, 0.9, 0.99)
SCALES = {"stated": 1.0, "printed": 0.5}


@pytest.mark.parametrize("scaling", SCALES)
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("solver", ["auto", "doubling", "jacobi", "low_rank", "in_place"])
def test_toy_revised_metric(scaling, gamma, solver):
    result = revised(*examples.toy(scaling), gamma, tol=1e-10, solver=solver)
    U, rho = result.matrix(), result.reduced()
    near, far = 4 / ((2 - gamma) * (4 - gamma)), 1 / (2 - gamma)
    expected = [[near, near, far], [near, near, far], [far, far, 0]]
    assert np.allclose(U, SCALES[scaling] * np.array(expected), rtol=0, atol=1e-10)
    apart = SCALES[scaling] / (4 - gamma)
    assert np.allclose(rho, [[0, 0, apart], [0, 0, apart], [apart, apart, 0]], rtol=0, atol=3e-10)


@pytest.mark.parametrize("scaling", SCALES)
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("metric", [mico, pi_bisimulation])
def test_toy_metrics_of_mean_rewards_are_zero(scaling, gamma, metric):
    assert not metric(*examples.toy(scaling), gamma).matrix().any()


@pytest.mark.parametrize("gamma", GAMMAS)
def test_toy_values_are_equal(gamma):
    assert np.allclose(policy_value(*examples.toy(), gamma), 0.5 / (1 - gamma))


def test_grid_world_moves_and_rewards():
    mdp, policy = examples.grid_world(2, 3, slip=0.2, goal=(0, 2))
    assert (mdp.n_states, mdp.n_actions) == (6, 4)
    assert mdp.grid.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    up, right, down, left = dense(mdp)[1]
    assert np.allclose(up, [0.1, 0.8, 0.1, 0, 0, 0])
    assert np.allclose(right, [0, 0.1, 0.8, 0, 0.1, 0])
    assert np.allclose(down, [0.1, 0, 0.1, 0, 0.8, 0])
    assert np.allclose(left, [0.8, 0.1, 0, 0, 0.1, 0])
    assert mdp.rewards[1].tolist() == [-0.1, 1.0, 0.0, 0.0]
    assert mdp.rewards[2, 1] == 1.0  # aimed at the edge from the goal: it stays at the goal
    assert (policy == 0.25).all()


def test_grid_world_without_slip_is_deterministic_and_walls_are_no_states():
    mdp, _ = examples.grid_world(3, slip=0.0, walls=[(1, 1)])
    assert mdp.n_states == 8
    assert [1, 1] not in mdp.grid.tolist()
    assert mdp.successors[1].tolist() == [1, 2, 1, 0]


def test_four_rooms_are_connected_through_four_doors():
    mdp, _ = examples.four_rooms(11, slip=0.0)
    assert mdp.n_states == 11 * 11 - (21 - 4)
    reached, frontier = {0}, [0]
    while frontier:
        following = set(mdp.successors[frontier.pop()].tolist()) - reached
        reached |= following
        frontier += following
    assert len(reached) == mdp.n_states


@pytest.mark.parametrize("levels", [None, 2, 5])
def test_garnet_is_what_it_says(levels):
    mdp, policy = examples.garnet(20, 3, 4, reward_levels=levels, seed=7)
    assert (np.diff(mdp.transitions.indptr) == 4).all()
    assert np.allclose(policy.sum(axis=1), 1)
    assert mdp.rewards.min() >= 0
    assert mdp.rewards.max() <= 1
    assert levels is None or set(np.unique(mdp.rewards)) <= set(np.arange(levels) / (levels - 1))
    again = examples.garnet(20, 3, 4, reward_levels=levels, seed=7)
    assert np.array_equal(dense(again.mdp), dense(mdp))
    assert np.array_equal(again.policy, policy)
    assert not np.array_equal(examples.garnet(20, 3, 4, seed=8).policy, policy)


def test_delay_chain_has_the_value_gap_it_states():
    mdp, policy = examples.delay_chain(5)
    V = policy_value(mdp, policy, 0.9)
    assert gaps(V)[0, 6] == pytest.approx(0.9**5 / 0.1)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_two_coins_differ_only_in_when_chance_decides(gamma):
    # Two steps after either state the reward is 1 or 0, by a fair coin; all other rewards are 0.
    # U(0,1) = U(0,0) = U(1,1) = γ²·½. π-bisimulation: d(5,6) = 1, so d(2,3) = γ·½ = d(2,4), and
    # d(0,1) = γ·W1(2; 3 or 4) = γ²/2.
    mdp, policy = examples.two_coins()
    result = revised(mdp, policy, gamma, tol=1e-10)
    assert np.allclose(result.matrix()[:2, :2], gamma**2 / 2, rtol=0, atol=1e-10)
    assert np.allclose(result.reduced()[:2, :2], 0, rtol=0, atol=2e-10)
    assert np.allclose(mico(mdp, policy, gamma).reduced()[0, 1], 0, atol=1e-6)
    assert pi_bisimulation(mdp, policy, gamma).pairs(0, 1) == pytest.approx(gamma**2 / 2, abs=1e-6)
    laws = reward_laws(mdp, policy)
    assert laws.n_lags == 3  # later rewards are 0 for sure
    for lag in range(3):
        assert np.array_equal(laws.at(lag)[0], laws.at(lag)[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: examples.toy("printd"), "did you mean 'printed'"),
        (lambda: examples.grid_world(0), "rows must be at least 1, got 0"),
        (lambda: examples.grid_world(3, slip=1.5), r"slip must be in \[0, 1\], got 1.5"),
        (lambda: examples.grid_world(3, goal=(3, 0)), r"cell \(3, 0\) lies outside the 3×3 grid"),
        (lambda: examples.grid_world(3, walls=[(2, 2)]), r"the goal \(2, 2\) is a wall"),
        (lambda: examples.four_rooms(4), "size must be at least 5, got 4"),
        (lambda: examples.garnet(3, branching=4), r"branching must be in 1..3 \(n_states\), got 4"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
