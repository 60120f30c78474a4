"""Alarms: what raises them, what does not, and that each names a flag."""

import inspect
import json
import re
from pathlib import Path

import pytest
from tests.runs import Walk, tiny_config

from revbis.agents.registry import methods
from revbis.io.files import read_records
from revbis.runs import alarms
from revbis.runs.alarms import (
    collapsed_embedding,
    constant_rewards,
    exploding_critic,
    non_finite,
    silent_objective,
    stalled,
)
from revbis.runs.config import setting_names
from revbis.runs.presets import preset_config
from revbis.runs.run import train
from revbis.runs.trainer import TrainingFailedError

FLAGS = setting_names()  # of every agent


def test_non_finite() -> None:
    assert non_finite({"critic_loss": 1.0}, FLAGS) is None
    bad = {"critic_loss": float("nan"), "actor_loss": float("inf"), "x": 1.0}
    alarm = non_finite(bad, FLAGS)
    assert alarm is not None
    assert "critic_loss, actor_loss is not finite" in alarm.text
    assert "--learning-rate" in alarm.text


def test_exploding_critic() -> None:
    # Rewards up to 2 at γ = 0.9 add up to 20; ten times that is 200.
    assert exploding_critic({"critic_q1": 199.0, "critic_q2": -199.0}, 2.0, 0.9, FLAGS) is None
    for name in ("critic_q1", "critic_q2"):
        alarm = exploding_critic({name: -201.0}, 2.0, 0.9, FLAGS)
        assert alarm is not None and "at most 20" in alarm.text and "--target-rate" in alarm.text
    assert exploding_critic({}, 0.0, 0.99, FLAGS) is None
    # While every reward was 0 nothing is known: an alarm would hide a later, true one.
    assert exploding_critic({"critic_q1": 5.0}, 0.0, 0.99, FLAGS) is None


def test_collapsed_embedding() -> None:
    assert collapsed_embedding({}, FLAGS) is None
    assert collapsed_embedding({"objective/effective_rank": 1.6}, FLAGS) is None
    alarm = collapsed_embedding({"objective/effective_rank": 1.2}, FLAGS)
    assert alarm is not None and "1.20" in alarm.text and "--objective-weight" in alarm.text


def test_silent_objective() -> None:
    assert silent_objective({}, FLAGS) is None
    assert silent_objective({"objective/gradient_share": 0.01}, FLAGS) is None
    alarm = silent_objective({"objective/gradient_share": 0.0012}, FLAGS)
    assert alarm is not None and "is 0.12%" in alarm.text and "--mode balanced" in alarm.text


def test_constant_rewards() -> None:
    equal = {"objective/reward_share": 0.0, "batch_reward": -1.0}
    assert constant_rewards({"batch_reward": 1.0}, 1.0, FLAGS) is None  # without an objective
    assert constant_rewards(equal | {"objective/reward_share": 0.01}, 1.0, FLAGS) is None
    assert constant_rewards(equal | {"batch_reward": 0.0}, 0.0, FLAGS) is None  # none so far
    assert constant_rewards(equal | {"batch_reward": 0.01}, 1.0, FLAGS) is None  # a rare one
    alarm = constant_rewards(equal, 1.0, FLAGS)
    assert alarm is not None and "learned to be 0; try a --task" in alarm.text
    assert alarm.text.endswith("or --method zp")


FRAMES = list(range(0, 1000, 100))  # ten evaluations of a budget of 1000


@pytest.mark.parametrize(
    ("returns", "raised"),
    [
        ([10.0 * i for i in range(10)], False),  # learns
        ([10.0] * 10, True),  # never learns
        ([10.0, 10.1] * 5, True),  # nor this: 1% is noise
        ([100.0, 900.0] + [880.0] * 8, False),  # learned soon, and stays there
        ([100.0, 900.0] + [90.0] * 8, True),  # learned and lost it
        ([0.0] * 8 + [0.0, 5.0], False),  # a sparse reward found at last
    ],
)
def test_stalled(returns: list[float], raised: bool) -> None:
    alarm = stalled(FRAMES, returns, 1000, FLAGS)
    assert (alarm is not None) == raised
    if alarm is not None:
        assert "--noise-steps" in alarm.text


def test_too_early_to_tell() -> None:
    assert stalled(FRAMES[:7], [1.0] * 7, 1000, FLAGS) is None
    assert stalled(FRAMES, [1.0] * 10, 1_000_000, FLAGS) is None


def _raised(flags):
    """Every alarm, as a run with these settings raises it."""
    metrics = {"critic_q1": 1e9, "objective/effective_rank": 1.0, "objective/gradient_share": 0.0}
    found = [
        non_finite({"critic_loss": float("nan")}, flags),
        exploding_critic(metrics, 1.0, 0.9, flags),
        collapsed_embedding(metrics, flags),
        silent_objective(metrics, flags),
        constant_rewards({"objective/reward_share": 0.0, "batch_reward": 1.0}, 1.0, flags),
        stalled(FRAMES, [1.0] * 10, 1000, flags),
    ]
    return {alarm.name: alarm.text for alarm in found if alarm is not None}


def _named(text):
    return {name.replace("-", "_") for name in re.findall(r"--([a-z][a-z-]+)", text)}


def test_every_alarm_is_among_those_below():
    own = [each for each in vars(alarms).values() if inspect.getmodule(each) is alarms]
    names = {each.__name__ for each in own if inspect.isfunction(each)}
    names -= {"_advice", "_has_nan", "divergence", "write_diagnosis"}
    assert _raised(FLAGS).keys() == names
    assert all(_named(text) for text in _raised(FLAGS).values())


@pytest.mark.parametrize("method", [*methods(), "agent:json:loads"])
def test_an_alarm_suggests_only_flags_that_the_run_has(method):
    flags = preset_config("cpu", "dmc:cheetah_run", method).as_dict().keys()
    raised = _raised(flags)
    assert len(raised) == 6
    for text in raised.values():
        assert _named(text) <= flags


def test_what_is_suggested_depends_on_the_agent():
    texts = {}
    for method in ("mico", "taco", "dreamerv3", "agent:json:loads"):
        texts[method] = _raised(preset_config("cpu", "dmc:cheetah_run", method).as_dict())
    end = {method: of["collapsed_embedding"].split("; ")[1:] for method, of in texts.items()}
    assert end["taco"] == ["try a smaller --objective-weight"]
    assert end["mico"] == [
        "try a smaller --objective-weight, a simsr method or --normalisation False for a mico one"
    ]
    assert end["dreamerv3"] == []
    stall = "try another --seed or a larger --explore-steps"
    assert texts["dreamerv3"]["stalled"].endswith(stall)
    nan = texts["agent:json:loads"]["non_finite"]
    assert nan == "critic_loss is not finite; check the task's rewards"


class Alive(Walk):
    """Like CartPole: every step has the reward 1, and walking too far ends the episode."""

    def step(self, action):
        observation, _, _, truncated, info = super().step(action)
        return observation, 1.0, abs(self.place) > 0.9, truncated, info


@pytest.mark.env("gym", gl=False)
def test_a_run_with_constant_rewards_says_so(tmp_path: Path) -> None:
    settings = {"task": "tests.runs.test_alarms:Alive", "observation": "state", "quality": "full"}
    settings |= {"method": "simsr-rev", "transition": "one_step", "frames": 400, "action_repeat": 1}
    config = tiny_config(tmp_path, **settings)
    train(config)
    raised = read_records(config.directory / "alarms.jsonl")
    assert "constant_rewards" in [alarm["name"] for alarm in raised]


DIVERGING = {"task": "tests.runs:Walk", "observation": "state", "quality": "full"}
DIVERGING |= {"learning_rate": 1e12, "log_every": 800, "frames": 400}


@pytest.mark.env("gym", gl=False)
@pytest.mark.parametrize(
    ("method", "changes", "part"),
    [
        ("drqv2", {}, "an action"),
        ("drqv2", {"eval_every": 96}, "an action"),  # in the evaluation after the first update
        ("tdmpc", {}, "a weight"),
        ("mrq", {}, "an action"),
    ],
)
def test_diverged_agents_stop_with_a_diagnosis(
    method: str, changes: dict, part: str, tmp_path: Path
) -> None:
    config = tiny_config(tmp_path, **DIVERGING | changes, method=method)
    with pytest.raises(TrainingFailedError, match=rf"{part}.* not finite.*--learning-rate"):
        train(config)
    facts = json.loads((config.directory / "diagnosis" / "facts.json").read_text())
    assert facts["alarm"]["name"] == "non_finite" and "critic_loss" in facts["metrics"]
    assert (config.directory / "diagnosis" / "agent.pt").exists()
    raised = read_records(config.directory / "alarms.jsonl")
    assert [alarm["name"] for alarm in raised] == ["non_finite"]
