"""What is true of the metrics, as properties; what only seems so, with counterexamples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import (
    METRICS,
    FiniteMDP,
    bisimulation,
    mico,
    pi_bisimulation,
    policy_value,
    revised,
)
from revbis.tabular.operators import (
    reward_distribution,
    state_action_distance,
    state_chain,
    state_distance,
)
from revbis.tabular.solver import make_problem, make_query
from tabular import reference
from tabular.reference import gaps
from tabular.strategies import few, mdps

TOL = 1e-8
SLACK = 5e-8  # what a few errors of that size can add up to
discounts = st.sampled_from([0.0, 0.5, 0.9, 0.99])


@few(20)
@given(mdps(), st.sampled_from([0.0, 0.5, 0.9]))
def test_reduced_distance_is_the_discounted_cramer_distance(case, gamma):
    F, w = reward_distribution(state_chain(*case))
    P, _ = reference.chain(*case)
    rho, weight = np.zeros((len(P), len(P))), 1.0
    while weight > 1e-12:
        rho += weight * (((F[:, None] - F) ** 2) * w).sum(axis=2)
        F, weight = P @ F, weight * gamma
    assert np.allclose(revised(*case, gamma, tol=TOL).reduced(), rho, rtol=0, atol=1e-7)


def two_matrices(n, seed):
    return np.random.default_rng(seed).normal(size=(2, n, n)) * 3


def distance(a, b):
    return abs(a - b).max()


@few(20)
@given(mdps(), discounts, st.integers(0, 999))
def test_lipschitz_factors_of_the_two_halves(case, gamma, seed):
    mdp, policy = case
    X, Y = two_matrices(mdp.n_states, seed)
    up = [state_action_distance(mdp, Z, 1.0, gamma) for Z in (X, Y, X + 1)]
    assert distance(up[0], up[1]) <= gamma * distance(X, Y) + 1e-12
    assert distance(up[0], up[2]) == pytest.approx(gamma)  # attained by a constant
    A, B = two_matrices(len(mdp.state_actions), seed)
    down = [state_distance(mdp, policy, Z) for Z in (A, B, A + 1)]
    assert distance(down[0], down[1]) <= distance(A, B) + 1e-12
    assert distance(down[0], down[2]) == pytest.approx(1)  # no contraction
    composed = [state_distance(mdp, policy, Z) for Z in up]
    assert distance(composed[0], composed[1]) <= gamma * distance(X, Y) + 1e-12
    assert distance(composed[0], composed[2]) == pytest.approx(gamma)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("c", [None, 0.4])
@few(8)
@given(case=mdps(max_states=5), seed=st.integers(0, 999))
def test_every_operator_contracts(metric, c, case, seed):
    problem = make_problem(make_query(metric, *case, 0.7, c=c))
    factor = 0.7 if c is None else c
    X, Y = two_matrices(problem.n, seed)
    (TX, x), (TY, y), (shifted, _) = (problem.apply(Z) for Z in (X, Y, X + 1))
    assert distance(TX, TY) <= factor * distance(X, Y) + x + y
    assert (shifted - TX).max() == pytest.approx(factor, abs=1e-9)
    (low, _), (high, _) = (problem.apply(Z) for Z in (np.minimum(X, Y), np.maximum(X, Y)))
    assert (low <= TX + x).all()
    assert (high + x >= TX).all()


def test_the_reduced_distance_does_not_bound_value_gaps():
    # One step, rewards 0 or 1, drawn with probabilities ½ and 0.6: ΔV = 0.1, but ρ = 0.1².
    mdp = FiniteMDP(np.zeros((2, 2), dtype=int), [[0.0, 1.0], [0.0, 1.0]])
    policy = [[0.5, 0.5], [0.4, 0.6]]
    rho = revised(mdp, policy, 0.0, tol=1e-12).reduced()
    assert rho[0, 1] == pytest.approx(0.01)
    assert gaps(policy_value(mdp, policy, 0.0))[0, 1] == pytest.approx(0.1)


# Two states with the same two actions, which earn 0 and 1 and stay.
TWINS = FiniteMDP(np.array([[0, 0], [1, 1]]), [[0.0, 1.0], [0.0, 1.0]])
# The same, but action 1 earns 2 in the second.
HALF_TWINS = FiniteMDP(np.array([[0, 0], [1, 1]]), [[0.0, 1.0], [0.0, 2.0]])


def test_bisimulation_does_not_bound_the_values_of_a_policy():
    assert bisimulation(TWINS, 0.5).matrix()[0, 1] == 0
    assert gaps(policy_value(TWINS, [0, 1], 0.5))[0, 1] == pytest.approx(2)


def test_bisimulation_and_revised_are_incomparable():
    assert bisimulation(TWINS, 0.5).matrix()[0, 1] == 0
    assert revised(TWINS, [0, 1], 0.5).matrix()[0, 1] == pytest.approx(2, abs=1e-6)
    assert bisimulation(HALF_TWINS, 0.5).matrix()[0, 1] == pytest.approx(2, abs=1e-6)
    assert revised(HALF_TWINS, [0, 0], 0.5).matrix()[0, 1] == 0


@pytest.mark.parametrize("metric", [revised, mico, pi_bisimulation])
def test_successive_differences_are_no_error_bound(metric):
    # One reward at every step for ever: after k sweeps the change is γᵏ, the error γᵏ/(1−γ).
    mdp = FiniteMDP(np.array([[0], [1]]), [[0.0], [1.0]])
    iterates = [metric(mdp, [0, 0], 0.9, tol=99.0, c=[0.99] * k) for k in (200, 201)]
    change = distance(iterates[0].matrix(), iterates[1].matrix())
    error = 1.0 - iterates[1].matrix()[0, 1]
    assert error == pytest.approx(99 * change)
    assert error <= iterates[1].error_bound + 1e-12
