import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.tabular import (
    METRICS,
    FiniteMDP,
    ToleranceWarning,
    bisimulation,
    examples,
    lax_bisimulation,
    linear,
    mico,
    pi_bisimulation,
    revised,
    solve,
)
from revbis.tabular.operators import reward_distribution
from revbis.tabular.solver import make_problem, make_query
from tabular.reference import apply, chain
from tabular.strategies import few, mdps

GARNET = examples.garnet(12, 2, 3, seed=0)
LINEAR = ("revised", "mico")


def deterministic(n):
    mdp, _ = examples.garnet(n, 2, 1, seed=0)
    return mdp, np.zeros(n, dtype=int)


@pytest.mark.parametrize(
    ("call", "chosen"),
    [
        (lambda: revised(*GARNET, 0.9), "doubling"),
        (lambda: mico(*GARNET, 0.9), "doubling"),
        (lambda: revised(*examples.garnet(301, 2, 3, reward_levels=3), 0.9), "low_rank"),
        (lambda: revised(*examples.grid_world(20), 0.9), "low_rank"),
        (lambda: revised(*examples.garnet(301, 3, 3, seed=1), 0.99), "doubling"),
        (lambda: revised(*examples.garnet(900, 1, 6, seed=1), 0.3), "jacobi"),
        (lambda: revised(*deterministic(20), 0.9), "pointer_doubling"),
        (lambda: pi_bisimulation(*deterministic(20), 0.9), "pointer_doubling"),
        (lambda: pi_bisimulation(*GARNET, 0.9), "policy_iteration"),
        (lambda: bisimulation(GARNET.mdp, 0.9), "policy_iteration"),
        (lambda: lax_bisimulation(GARNET.mdp, 0.9), "policy_iteration"),
        (lambda: bisimulation(deterministic(20)[0], 0.9), "gather"),
        (lambda: lax_bisimulation(deterministic(20)[0], 0.9), "gather"),
        (lambda: revised(*GARNET, 0.9, tol=9.0, c=[0.5, 0.6]), "sequence"),
    ],
)
def test_auto_says_what_it_chose(call, chosen):
    result = call()
    assert result.solver == chosen
    assert chosen in repr(result)
    assert result.error_bound <= result.tol


def test_auto_goes_on_when_low_rank_gives_up(monkeypatch):
    case = examples.garnet(301, 2, 3, reward_levels=3)
    monkeypatch.setattr(linear, "low_rank", lambda *_, max_rank: None)
    assert revised(*case, 0.9).solver in ("doubling", "jacobi")


def test_auto_without_room_sweeps_in_place(free_memory):
    case = examples.garnet(310, 2, 3, seed=0)
    expected = revised(*case, 0.5)
    free_memory(int(1.5 * 8 * 310**2))
    result = revised(*case, 0.5)
    assert result.solver == "in_place"
    assert np.allclose(result.matrix(), expected.matrix(), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("metric", "remedy"),
    [
        ("revised", "round the rewards to a few levels"),
        ("pi_bisimulation", "use revised or mico"),
        ("bisimulation", "use revised or mico"),
        ("lax_bisimulation", "use revised or mico"),
    ],
)
def test_what_cannot_fit_is_refused(free_memory, metric, remedy):
    free_memory(1000)
    with pytest.raises(MemoryError, match=f"on 12 states takes .* only 1 kB is free; {remedy}"):
        solve(metric, *GARNET, 0.9)


@pytest.mark.parametrize("name", ["doubling", "jacobi", "in_place"])
def test_a_named_solver_that_cannot_fit_is_refused(free_memory, name):
    free_memory(1000)
    with pytest.raises(MemoryError, match=f"the {name} solver on 12 states takes"):
        revised(*GARNET, 0.9, solver=name)


def test_a_sequence_that_cannot_fit_is_refused(free_memory):
    free_memory(1000)
    with pytest.raises(MemoryError, match="a sequence on 12 states takes"):
        revised(*GARNET, 0.9, c=[0.5])


@pytest.mark.parametrize(
    ("name", "metric", "case"),
    [
        ("doubling", "revised", examples.garnet(200, 2, 3, seed=0)),
        ("jacobi", "revised", examples.garnet(200, 2, 3, seed=0)),
        ("in_place", "revised", examples.garnet(200, 2, 3, seed=0)),
        ("low_rank", "revised", examples.garnet(200, 2, 3, reward_levels=3, seed=0)),
        ("pointer_doubling", "revised", deterministic(200)),
        ("gather", "bisimulation", deterministic(200)),
        ("gather", "lax_bisimulation", deterministic(200)),
        ("policy_iteration", "bisimulation", examples.garnet(60, 2, 3, seed=0)),
        ("policy_iteration", "lax_bisimulation", examples.garnet(60, 2, 3, seed=0)),
    ],
)
def test_memory_estimates_are_not_too_low(monkeypatch, name, metric, case):
    monkeypatch.setattr(linear, "_ROWS_PER_CALL", 1)  # else the block is as large as the matrix
    problem = make_problem(make_query(metric, *case, 0.5))
    tried = next(each for each in METRICS[metric].solvers if each.name == name)
    tried.run(problem, 1e-3, lambda *_: None)  # compiles
    tracemalloc.start()
    try:
        tried.run(problem, 1e-3, lambda *_: None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 1.2 * tried.memory(problem) + 50_000


def test_the_estimate_of_low_rank_counts_the_rewards():
    problem = make_problem(make_query("revised", *examples.garnet(200, 3, 3, seed=0), 0.5))
    F, _ = reward_distribution(problem.chain)
    assert F.nbytes <= next(s for s in METRICS["revised"].solvers if s.name == "low_rank").memory(
        problem
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mdp": "toy"}, "mdp must be a FiniteMDP, got"),
        ({"progress": 3}, "progress must be a function or None"),
        ({"metric": "revisd"}, "metric must be one of .*; did you mean 'revised'"),
        ({"solver": "doublin"}, "solver must be one of auto, doubling.*; did you mean 'doubling'"),
        ({"level": "states"}, "level must be one of state, state_action.*; did you mean 'state'"),
        ({"gamma": 1.0}, r"gamma must be in \[0, 1\), got 1"),
        ({"tol": 0}, "tol must be above 0, got 0"),
        ({"c": 1.0}, r"c must be in \[0, 1\), got 1"),
        ({"c": []}, "c is an empty sequence"),
        ({"c": [0.5, 1.5]}, r"c\[1\] must be in \[0, 1\), got 1.5"),
        ({"c": [0.5, 0.6], "solver": "doubling"}, "applied term by term: leave solver at 'auto'"),
        ({"solver": "pointer_doubling"}, "solver must be one of auto, doubling, .*got 'pointer_do"),
        ({"metric": "bisimulation", "solver": "gather"}, "one of auto, policy_iteration, got 'gat"),
        ({"policy": None}, r"revised needs a policy, for instance mdp.uniform_policy\(\)"),
        ({"policy": np.ones((2, 2))}, r"policy must have shape \(12, 2\), got \(2, 2\)"),
        ({"metric": "bisimulation", "level": "state_action"}, "bisimulation is a metric on states"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    mdp, policy = GARNET
    arguments = {"metric": "revised", "mdp": mdp, "policy": policy, "gamma": 0.9, **changes}
    with pytest.raises(ValueError, match=message):
        solve(**arguments)


def test_solver_that_needs_determinism_is_offered_only_there():
    mdp, policy = deterministic(6)
    assert revised(mdp, policy, 0.9, solver="pointer_doubling").solver == "pointer_doubling"
    assert bisimulation(mdp, 0.9, solver="gather").solver == "gather"
    with pytest.raises(ValueError, match="one of auto, policy_iteration, pointer_doubling, got"):
        pi_bisimulation(mdp, policy, 0.9, solver="gather")


def test_a_result_says_what_was_asked():
    result = revised(*GARNET, 0.9, tol=1e-4, c=0.3, level="state_action")
    assert (result.metric, result.level, result.gamma) == ("revised", "state_action", 0.9)
    assert (result.tol, result.c, result.discount, result.reward_weight) == (1e-4, 0.3, 0.3, 0.7)
    assert result.n == 24
    assert result.mdp is GARNET.mdp
    sequence = revised(*GARNET, 0.9, tol=9.0, c=np.array([0.2, 0.4]))
    assert (sequence.c, sequence.discount) == ((0.2, 0.4), 0.4)


def quietly(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ToleranceWarning)
        return solve(*arguments)


@pytest.mark.parametrize("metric", METRICS)
@few(8)
@given(case=mdps(max_states=4), terms=st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.8]), min_size=1))
def test_a_sequence_is_the_operator_applied_in_turn(metric, case, terms):
    d = np.zeros((case[0].n_states,) * 2)
    for c in terms:
        if metric in LINEAR:
            P, gap = chain(*case, metric)
            d = (1 - c) * gap + c * P @ d @ P.T
        else:
            d = apply(metric, *case, d, c, 1 - c)
    result = quietly(metric, *case, 0.9, 1e-6, terms)
    assert result.iterations == len(terms)
    assert np.allclose(result.matrix(), d, rtol=0, atol=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_a_convergent_sequence_converges_with_a_certified_error(metric):
    terms = [0.8 - 0.5 * 0.8**k for k in range(90)]
    fixed = solve(metric, *GARNET, 0.9, 1e-9, terms[-1])
    bounds = []
    for length in (1, 10, 30, 60, 90):
        part = quietly(metric, *GARNET, 0.9, 1e-6, [*terms[: length - 1], terms[-1]])
        error = abs(part.matrix() - fixed.matrix()).max()
        assert error <= part.error_bound + fixed.error_bound
        bounds.append(part.error_bound)
    assert (np.diff(bounds) < 0).all()
    assert bounds[-1] <= 1e-6


def test_a_short_sequence_is_warned_of():
    message = "not met, certified error .* fixed point at the last c; append more terms near it"
    with pytest.warns(ToleranceWarning, match=message):
        revised(*GARNET, 0.9, c=[0.5, 0.8])


def test_small_steps_alone_do_not_converge():
    # c_n = ½ + 0.4 sin √n takes steps below 0.2/√n → 0, all the paper assumes, and never settles.
    c = 0.5 + 0.4 * np.sin(np.sqrt(np.arange(1, 1100)))
    assert abs(np.diff(c[700:])).max() < 0.008
    high, low = 700 + c[700:].argmax(), 700 + c[700:].argmin()
    toy = examples.toy()
    ends = [quietly("revised", *toy, 0.9, 1e-6, c[: n + 1]).matrix() for n in (high, low)]
    assert abs(ends[0] - ends[1]).max() > 0.3


def test_a_constant_sequence_is_plain_iteration():
    mdp = FiniteMDP(np.array([[0], [1]]), [[0.0], [1.0]])
    result = revised(mdp, [0, 0], 0.9, tol=9.0, c=[0.5] * 3)
    assert result.matrix()[0, 1] == pytest.approx(0.5 + 0.25 + 0.125)
    assert result.error_bound == pytest.approx(0.125)  # the distance is 1 in the limit


def test_progress_of_a_sequence():
    seen = []
    revised(*GARNET, 0.9, tol=9.0, c=[0.2, 0.3], progress=lambda *x: seen.append(x))
    assert seen == [(1, np.inf), (2, np.inf)]
