"""The settings of DrQ-v2: defaults, options of objectives, what is refused."""

import pytest

from revbis.agents import DrQV2Settings, methods, resolve
from revbis.objectives import OBJECTIVES


def test_defaults_are_the_papers():
    s = DrQV2Settings()
    assert (s.objective, s.mode, s.transition) == (None, "alternating", "n_step")
    assert (s.feature_dim, s.latent_dim, s.hidden, s.channels) == (50, 50, 1024, 32)
    assert s.strides == (2, 1, 1, 1)
    assert s.learning_rate == s.objective_learning_rate == s.coefficient_learning_rate == 1e-4
    assert (s.target_rate, s.noise_clip, s.explore_steps) == (0.01, 0.3, 2000)
    assert (s.noise_start, s.noise_end, s.noise_steps) == (1.0, 0.1, 2_000_000)


def test_methods_are_the_agents_and_all_objectives_of_drqv2():
    agents = ["drqv2", "taco", "tdmpc", "mrq", "dreamerv3"]
    assert list(methods()) == [*agents, *OBJECTIVES]
    assert [resolve(method).objective for method in methods()] == [None] * 5 + [*OBJECTIVES]
    assert {resolve(method).agent.name for method in OBJECTIVES} == {"drqv2"}
    assert [resolve(agent).agent.name for agent in agents] == agents
    assert resolve("mine:make").objective == "mine:make"


@pytest.mark.parametrize(("given", "kept"), [("0.9", 0.9), (0.5, 0.5), ("discount", "discount")])
def test_the_coefficient_is_a_name_or_a_number(given, kept):
    settings = DrQV2Settings(objective="simsr-rev", coefficient=given, reward_scale="running")
    assert settings.objective_options == {"coefficient": kept, "reward_scale": "running"}


def test_without_objective_a_batch_may_be_one_transition():
    assert DrQV2Settings(batch_size=1).batch_size == 1


def test_only_options_that_were_set_reach_the_objective():
    assert DrQV2Settings(objective="mico").objective_options == {}
    same = {"normalisation": False, "pairing": "permuted", "beta": 0.2}
    settings = DrQV2Settings(objective="mico", objective_loss="squared", objective_hidden=7, **same)
    assert settings.objective_options == same | {"loss": "squared", "hidden": 7}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "mico-rew"}, "objective must be one of .* did you mean 'mico-rev'"),
        ({"coefficient": "gamma", "objective": "simsr-rev"}, "must be one of learned, discount"),
        ({"coefficient": 1.0, "objective": "simsr-rev"}, "a number above 0 and below 1, got 1.0"),
        ({"coefficient": 0.9, "objective": "simsr"}, r"weights \(1-c, c\), which simsr does not"),
        ({"reward_scale": "running"}, "reward_scale is an option of .* which drqv2 does not have"),
        ({"beta": 0.1, "objective": "simsr"}, "beta is an option of MICo's distance, which simsr"),
        ({"normalisation": True, "objective": "energy"}, "energy needs the length of embeddings"),
        ({"pairing": "all", "objective": "zp"}, "zp compares no pairs: leave --pairing out"),
        ({"batch_size": 1, "objective": "simsr"}, "batch_size must be at least 2 to form pairs"),
        ({"objective": "zp"}, "zp predicts what follows one action: transition must be one_step"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DrQV2Settings(**options)
