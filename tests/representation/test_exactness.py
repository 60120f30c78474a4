"""One method on one problem: trained, and compared with its exact metric."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from revbis.objectives import make_objective
from revbis.objectives.registry import OBJECTIVES
from revbis.representation.exactness import BENCHMARK, ExactnessSettings, Training, make, measure
from revbis.representation.problems import SCENARIOS, Problem, build, exact_distances

OWN = "tests.objectives.own_objectives"
SHORT = ExactnessSettings(steps=200, batch=64)
TINY = ExactnessSettings(steps=2, batch=16, transitions=200)


@pytest.fixture(scope="module")
def rooms() -> Problem:
    return build("rooms", 5, 0.9)


@pytest.mark.parametrize("method", ["energy", "simsr", "simsr-rev-no-sa"])
def test_learning_brings_the_metric_near_its_exact_fixed_point(method: str, rooms) -> None:
    result = measure(rooms, method, 0, SHORT)
    assert result.psi is None and result.phi.behaviour is None and result.denoising is None
    assert result.phi.target.spearman > 0.7
    assert result.phi.target.spearman > result.phi.untrained + 0.3


def test_the_complete_objective_learns_both_metrics_of_the_target_policy() -> None:
    problem = build("rooms-off-policy", 5, 0.9)
    settings = ExactnessSettings(steps=600, batch=64, learning_rate=1e-3)
    result = measure(problem, "energy-rev-full-no-c", 0, settings)
    assert result.claims == "target" and result.c == 0.9
    assert result.phi.target.spearman > 0.9 and result.psi.target.spearman > 0.9
    assert result.phi.target.spearman > result.phi.behaviour.spearman
    assert result.phi.target.error < 0.4  # in the unit of rewards
    states = measure(problem, "energy", 0, settings)
    assert states.claims == "behaviour"
    assert states.phi.behaviour.spearman > states.phi.target.spearman


def test_one_seed_one_result(rooms) -> None:
    a, b = (measure(rooms, "simsr-rev", 3, TINY) for _ in range(2))
    assert np.array_equal(a.psi.learned, b.psi.learned) and a.c == b.c
    assert a.psi.learned.shape == (len(rooms.mdp.state_actions),) * 2
    other = measure(rooms, "simsr-rev", 4, TINY)
    assert not np.array_equal(a.psi.learned, other.psi.learned)


def test_each_method_is_compared_with_its_own_fixed_point(rooms) -> None:
    for name, metric, psi, weighted in (
        ("mico", "revised", False, False),
        ("mico-rev", "revised", True, True),
        ("mico-rev-no-c", "revised", True, False),
        ("simsr-rev-no-sa", "revised", False, True),
        ("dbc", "pi_bisimulation", False, False),
        ("zp", "revised", False, False),
        ("deepmdp", "revised", False, False),
    ):
        result = measure(rooms, name, 0, TINY)
        c = result.c if weighted else None
        assert (result.metric, result.psi is not None) == (metric, psi)
        assert (result.c != 0.9) == weighted
        exact = exact_distances(rooms, "target", metric, "state", 0.9, c)
        assert np.array_equal(result.phi.exact, exact)


def test_learned_distances_are_in_the_unit_of_rewards(rooms) -> None:
    """A method that divides reward gaps by a running scale learns smaller distances."""
    training = Training(rooms, "energy-rev-full-no-c", 0, TINY)
    training.run(lambda _: None)
    unit = training.objective.status()["reward_scale"]
    with torch.no_grad():
        z = training.encoder(rooms.images)
        raw = training.objective.distance(training.objective.scale(z), training.objective.scale(z))
    result = measure(rooms, "energy-rev-full-no-c", 0, TINY)
    assert unit != 1.0
    assert np.allclose(result.phi.learned, unit * raw.numpy(), rtol=1e-5)


def test_noisy_pixels_are_compared_over_many_observations() -> None:
    problem = build("rooms-noisy", 5, 0.9)
    result = measure(problem, "simsr", 0, ExactnessSettings(steps=400, batch=64))
    assert result.denoising > result.untrained_denoising
    assert result.phi.target.spearman > 0.4
    assert result.phi.learned.diagonal().min() > 0  # two observations of a state are not the same


def test_policy_actions_are_the_target_policy_s() -> None:
    problem = build("rooms-off-policy", 5, 0.9)
    greedy = np.eye(4)[problem.target.argmax(axis=1)]
    training = Training(replace(problem, target=greedy), "simsr-rev-full", 0, TINY)
    rows = torch.arange(50)
    here = training._draw("policy_action", rows)
    following = training._draw("next_policy_action", rows)
    assert np.array_equal(here.numpy(), greedy[training.data.s[rows]])
    assert np.array_equal(following.numpy(), greedy[training.data.s2[rows]])


def test_normalisation_is_the_objective_s_own_unless_given(rooms) -> None:
    for given, expected in ((None, True), (False, False)):
        objective = make("simsr", 4, replace(TINY, normalisation=given))
        assert objective.normalisation is expected
    assert make("dbc", 4, TINY).normalisation is make_objective("dbc", 4, 4).normalisation
    make("energy", 4, replace(TINY, normalisation=True))  # has no such option: left as it is


def test_progress_counts_every_step(rooms) -> None:
    steps = []
    measure(rooms, "simsr", 0, replace(TINY, steps=120), steps.append)
    assert sum(steps) == 120 and len(steps) > 1


def test_an_own_objective_learns_the_metric_it_names(rooms) -> None:
    result = measure(rooms, f"{OWN}:make", 0, SHORT)
    assert (result.metric, result.psi, result.c) == ("revised", None, 0.9)
    assert result.phi.target.spearman > result.phi.untrained + 0.3


def test_an_own_metric_level_and_coefficient(rooms) -> None:
    result = measure(rooms, f"{OWN}:Weighted", 0, TINY)
    assert result.metric == "mico" and result.psi is not None
    assert 0 < result.c < 0.5  # its loss makes c small


def test_whatever_an_objective_raises_is_one_line(rooms, monkeypatch) -> None:
    training = Training(rooms, "simsr", 0, TINY)

    def fail(*_: object, **__: object) -> None:
        raise KeyError("head\nof two lines")

    monkeypatch.setattr(training.objective, "forward", fail)
    with pytest.raises(ValueError, match=r"calling the objective raised KeyError.*of two lines"):
        training.run(lambda _: None)


# The mean learned distance and c, by benchmark's version and objective's. Whoever changes one of
# these numbers raises the version of that objective or benchmark, and adds the new number.
PINNED = {
    (1, "mico", 1): (980.136, 0.9),
    (1, "simsr", 1): (33.304, 0.9),
    (1, "mico-rev", 1): (1547.39, 0.505178),
    (1, "simsr-rev", 1): (111.871, 0.503483),
    (1, "mico-rev-no-c", 1): (15409.2, 0.9),
    (1, "simsr-rev-no-c", 1): (2036.03, 0.9),
    (1, "mico-rev-no-sa", 1): (135.776, 0.505189),
    (1, "simsr-rev-no-sa", 1): (0.451773, 0.503685),
    (1, "mico-rev-released", 1): (1547.48, 0.505207),
    (1, "mico-rev-full", 1): (106.811, 0.504172),
    (1, "mico-rev-full-no-c", 1): (14586.5, 0.9),
    (1, "simsr-rev-full", 1): (39.4038, 0.503967),
    (1, "simsr-rev-full-no-c", 1): (791.773, 0.9),
    (1, "energy", 1): (795.56, 0.9),
    (1, "energy-rev-full", 1): (109.398, 0.504247),
    (1, "energy-rev-full-no-c", 1): (18056.1, 0.9),
    (1, "mico-rev-pairs", 1): (238.285, 0.504218),
    (1, "simsr-rev-pairs", 1): (59.3896, 0.503741),
    (1, "dbc", 1): (822.595, 0.9),
    (1, "zp", 1): (105.589, 0.9),
    (1, "deepmdp", 1): (101.912, 0.9),
    (1, "means-pairs", 1): (11923.7, 0.9),
    (1, "laws", 1): (6654.95, 0.9),
    (1, "laws-zp", 1): (6571.46, 0.9),
    (1, "means", 1): (27.7756, 0.9),
}
PINNED_SCENARIOS = {
    (1, "rooms"): (23.5518, 0.503981),
    (1, "rooms-off-policy"): (39.4038, 0.503967),
    (1, "rooms-noisy"): (28.6253, 0.504603),
    (1, "slip"): (588.36, 0.504329),
    (1, "garnet"): (2513.32, 0.504916),
    (1, "garnet-off-policy"): (1874.65, 0.504919),
    (1, "factors"): (29670.7, 0.5044),
    (1, "factors-mixed"): (28832.3, 0.504396),
}


@pytest.mark.parametrize("method", OBJECTIVES)
def test_numbers_change_with_a_version_of_the_objective(method: str) -> None:
    found = pinned("rooms-off-policy", method)
    assert found == pytest.approx(PINNED[BENCHMARK, method, OBJECTIVES[method].version], rel=1e-3)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_numbers_change_with_a_version_of_the_benchmark(scenario: str) -> None:
    found = pinned(scenario, "simsr-rev-full")
    assert found == pytest.approx(PINNED_SCENARIOS[BENCHMARK, scenario], rel=1e-3)


def pinned(scenario: str, method: str) -> tuple[float, float]:
    """A number of all distances, which is sensitive to each, and c."""
    result = measure(build(scenario, 5, 0.9), method, 0, replace(TINY, steps=20))
    last = result.psi or result.phi
    return float((last.learned * last.exact).sum()), result.c


def test_a_bound_is_said_where_the_objective_has_one(rooms: Problem) -> None:
    result = measure(rooms, "laws", 0, replace(TINY, steps=60))
    assert result.bound is not None
    assert np.abs(result.phi.learned - result.phi.exact).max() <= result.bound
    assert measure(rooms, "simsr", 0, TINY).bound is None
