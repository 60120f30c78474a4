"""`revbis env check`: each way to break an environment is reported in words."""

import re

import pytest

from revbis.cli import main

GOOD = ("Good", "TerminatesAtTheGoal", "Moving", "Rendered", "DictOfObservations")
WRONG = {
    "ResetRaises": "raised RuntimeError: no place",
    "RenderRaises": "raised RuntimeError: no brush",
    "StepRaisesLate": "raised RuntimeError: the motor is worn out",
    "RendersFourChannels": r"render\(\) must return",
    "OneActionOnly": "low below high",
    "WholeActions": "continuous",
    "OneChoice": "there must be a choice of actions",
    "GridOfActions": "actions must be continuous.*one-dimensional",
    "InfiniteBounds": "finite bounds.*low and high",
    "Unseeded": "same seed and actions gave a different episode.*self.np_random",
    "UnseededSteps": "same seed and actions gave a different episode",
    "ReusedBuffer": "reused for the next one.*return a copy",
    "NanReward": "NaN or infinite",
    "ArrayReward": "single number, got array",
    "WordReward": "single number, got 'much'",
    "OutsideItsSpace": "float32 .* is not in the observation space",
    "OtherType": "float64 .* is not in the observation space",
    "RendersNothing": r"render\(\) must return uint8 \[height, width, 3\], got.*NoneType",
    "RendersNumbers": r"render\(\) must return uint8 .*float64",
    "RendersOneColour": r"one plain colour \(7\)",
    "NoEffect": "actions have no effect",
    "StepRaises": "playing it raised RuntimeError: the motor is broken",
    "FourAnswers": "playing it raised ValueError",
    "FlagsOfNumbers": "must be True or False, got 0",
    "NoInfo": r"reset\(\) must return \(observation, info\)",
}
ADVICE = {
    "TerminatesAtTheLimit": "terminates after exactly 20 steps.*truncated instead",
    "Endless": "did not end within 2000 steps.*TimeLimit",
    "LargeReward": r"rewards reach 1e\+06.*scale them",
    "NoReward": "never receives a reward",
    "NoPicture": 'render_mode is None.*render_mode="rgb_array"',
    "SameStart": "every seed starts with the same observation",
}


def run_check(capsys: pytest.CaptureFixture[str], factory: str) -> tuple[int, list[str], str]:
    """Exit code, the violations and the last line of the command."""
    code = 0
    try:
        main(["env", "check", f"envs.toys:{factory}"])
    except SystemExit as stop:
        code = stop.code
    output = capsys.readouterr()
    assert output.err == ""
    *violations, last = output.out.splitlines()
    return code, violations, last


@pytest.mark.parametrize("factory", GOOD)
def test_good_environments_give_no_finding(capsys, factory: str) -> None:
    code, violations, last = run_check(capsys, factory)
    assert (code, violations) == (0, [])
    task = f"envs.toys:{factory}"
    assert last.startswith(f"{task}: nothing wrong, 0 to consider; train with: revbis train --")


@pytest.mark.parametrize(
    ("factory", "text"),
    WRONG.items(),
)
def test_what_is_wrong_is_found(capsys, factory: str, text: str) -> None:
    code, violations, last = run_check(capsys, factory)
    wrong = [line for line in violations if line.startswith("  wrong: ")]
    assert any(re.search(text, line) for line in wrong), violations
    assert code == 1
    assert last.startswith(f"envs.toys:{factory}: {len(wrong)} to fix")


@pytest.mark.parametrize(("factory", "text"), ADVICE.items())
def test_what_may_be_meant_is_mentioned(capsys, factory: str, text: str) -> None:
    code, violations, last = run_check(capsys, factory)
    assert len(violations) == 1 and re.search(f"^ advice: .*{text}", violations[0]), violations
    assert code == 0 and "nothing wrong, 1 to consider" in last


def test_a_registered_environment(capsys) -> None:
    main(["env", "check", "gym:Pendulum-v1"])
    assert "gym:Pendulum-v1: nothing wrong," in capsys.readouterr().out
    main(["env", "check", "gym:CartPole-v1"])
    printed = capsys.readouterr().out
    assert "actions are discrete, which only one agent has: train with --method mrq" in printed
    assert "gym:CartPole-v1: nothing wrong," in printed


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("dmc:walker_run", "must be package.module:factory or gym:ID, got 'dmc:walker_run'"),
        ("envs.toys:absent", "has no function 'absent'"),
        ("gym:NoSuchTask-v0", "gym:NoSuchTask-v0 cannot be made"),
    ],
)
def test_a_task_that_cannot_be_checked(capsys, task: str, message: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["env", "check", task])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("revbis: error: ") and message in error


def test_the_command_that_it_ends_with_can_be_run(capsys) -> None:
    """Pixels are the default of `train`, and there are none without a render mode."""
    main(["env", "check", "gym:Pendulum-v1"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("; train with: revbis train --task gym:Pendulum-v1")
    _, [advice], last = run_check(capsys, "NoPicture")
    assert "or train with --observation state" in advice
    assert last.endswith("revbis train --task envs.toys:NoPicture --observation state")


def test_a_wrapper_that_the_registry_cannot_make_again_is_no_problem(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run calls the factory; Gymnasium's check of close() would make it by its registry."""
    code, violations, last = run_check(capsys, "wrapped_pendulum")
    assert code == 0 and not any("wrong" in each for each in violations)
    assert "nothing wrong" in last
