"""Alarms: what raises them, what does not, and that each names a flag."""

import inspect
import re

import pytest

from revbis.config import setting_names
from revbis.training import alarms
from revbis.training.alarms import (
    collapsed_embedding,
    exploding_critic,
    non_finite,
    silent_objective,
    stalled,
)


def test_non_finite() -> None:
    assert non_finite({"critic_loss": 1.0}) is None
    alarm = non_finite({"critic_loss": float("nan"), "actor_loss": float("inf"), "x": 1.0})
    assert alarm is not None
    assert "critic_loss, actor_loss is not finite" in alarm.text
    assert "--learning-rate" in alarm.text


def test_exploding_critic() -> None:
    # Rewards up to 2 at γ = 0.9 add up to 20; ten times that is 200.
    assert exploding_critic({"critic_q1": 199.0, "critic_q2": -199.0}, 2.0, 0.9) is None
    for name in ("critic_q1", "critic_q2"):
        alarm = exploding_critic({name: -201.0}, 2.0, 0.9)
        assert alarm is not None and "at most 20" in alarm.text and "--target-rate" in alarm.text
    assert exploding_critic({}, 0.0, 0.99) is None


def test_collapsed_embedding() -> None:
    assert collapsed_embedding({}) is None
    assert collapsed_embedding({"objective/effective_rank": 1.6}) is None
    alarm = collapsed_embedding({"objective/effective_rank": 1.2})
    assert alarm is not None and "1.20" in alarm.text and "--objective-weight" in alarm.text


def test_silent_objective() -> None:
    assert silent_objective({}) is None
    assert silent_objective({"objective/gradient_share": 0.01}) is None
    alarm = silent_objective({"objective/gradient_share": 0.0012})
    assert alarm is not None and "is 0.12%" in alarm.text and "--mode balanced" in alarm.text


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
    alarm = stalled(FRAMES, returns, 1000)
    assert (alarm is not None) == raised
    if alarm is not None:
        assert "--noise-steps" in alarm.text


def test_too_early_to_tell() -> None:
    assert stalled(FRAMES[:7], [1.0] * 7, 1000) is None
    assert stalled(FRAMES, [1.0] * 10, 1_000_000) is None


def test_flags_that_alarms_name_exist():
    named = set(re.findall(r"--([a-z][a-z-]+)", inspect.getsource(alarms)))
    assert named
    assert {name.replace("-", "_") for name in named} <= setting_names()
