"""Runs of Dreamer-v3, where sheeprl is installed."""

import pytest
from tests.agents.dreamer import SMALL, dot_settings
from tests.agents.test_dreamerv3 import needs_sheeprl
from tests.runs import evaluations, stop_after

from revbis.runs.presets import preset_config
from revbis.runs.run import open_run, read_evaluations, train

pytestmark = needs_sheeprl
DOT = "tests.agents.dreamer:Dot"


def test_a_stopped_run_ends_as_one_that_was_not(tmp_path):
    few = {"frames": 60, "eval_every": 30, "eval_episodes": 1, "explore_steps": 30}
    few |= {"update_every": 5, "action_repeat": 1, "log_every": 10, "tensorboard": False}
    whole = preset_config("cpu", DOT, "dreamerv3").with_settings(
        **SMALL | few, replay_capacity=100, out=tmp_path / "whole"
    )
    assert train(whole)
    config = whole.with_settings(out=tmp_path / "parts")
    assert not train(config, **stop_after(47))  # within an episode, after updates
    assert train(config)
    assert evaluations(config) == evaluations(whole)
    assert [line["updates"] for line in evaluations(config)] == [0, 0, 6]
    read, agent, *_ = open_run(config.directory, trust=True)
    assert read == config and agent.settings == config.agent


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_it_learns_to_hold_the_dot_in_the_middle(tmp_path):
    config = preset_config("cpu", DOT, "dreamerv3").with_settings(**dot_settings(), out=tmp_path)
    assert train(config)
    untrained, trained = read_evaluations(config.directory)
    assert untrained["mean_return"] < 13.5
    assert trained["mean_return"] >= 15 and len(trained["returns"]) == 20
