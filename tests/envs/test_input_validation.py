"""The border of the environments: what is refused, and how; one table for each."""

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from revbis.envs import check_task, make_env, task_names
from revbis.envs.check import check_environment
from revbis.envs.distractors import Distractor, PixelNoise
from revbis.envs.state_noise import StateNoise

FRAME, MASK = np.zeros((3, 16, 16), np.uint8), np.ones((16, 16), bool)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quality": "ful"}, "quality must be one of full, fast, got 'ful'; did you mean 'full'"),
        ({"pixels": 7}, "pixels must be at least 8, got 7"),
        ({"seed": 2**32}, "seed must be at most 4,294,967,295, got 4294967296"),
        ({"distractor_split": "test"}, "distractor_split must be one of train, eval, got 'test'"),
        ({"observation": "state", "distractor": "noise"}, "distractors require observation pixels"),
        ({"state_noise": 4}, "state_noise requires observation state; drop state_noise"),
        ({"distractor": "gaussian"}, "the distractor gaussian needs a distractor_strength"),
        ({"distractor_strength": 0.2}, "for the distractor gaussian, but the distractor is None"),
        ({"distractor": "noise"}, "draws its own images: drop distractor, or set it to gaussian"),
        ({"quality": "fast"}, "envs.toys:Good draws its own images: set quality to full"),
        ({"task": "dmc:cheetah_run", "distractor": "nois"}, "did you mean 'noise'"),
        ({"distractor": "nois"}, "did you mean 'noise'"),
        ({"observation": "state", "distractor": "noize"}, "did you mean 'noise'"),
        ({"distractor": "gausian", "distractor_strength": 0.3}, "did you mean 'gaussian'"),
    ],
)
def test_settings_of_make_env(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_env(**{"task": "envs.toys:Good", "seed": 1} | settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("nonsense", "a task must be dmc:NAME, .*got 'nonsense'"),
        ("gym:", "a task must be dmc:NAME, .*got 'gym:'"),
        (None, "a task must be"),
        ("metaworld:hammer-v3", r"did you mean metaworld:hammer( or |\?)"),
        ("cheetah_run", r"did you mean dmc:cheetah_run\?"),
        ("dmc:qqqqqqqqqqqqqq", "among the 63 of dmc$"),
        ("nowhere.at_all:make", "no module 'nowhere' .*package.module:factory"),
        ("envs.none:make", r"no module 'envs\.none'"),
        (".:make", "there is no module|must be named"),
        ("envs.toys:Godo", "module 'envs.toys' has no function 'Godo'"),
    ],
)
def test_tasks(task: Any, message: str) -> None:
    for check in (check_task, lambda task: make_env(task, seed=1)):
        with pytest.raises(ValueError, match=message):
            check(task)


def test_suites() -> None:
    with pytest.raises(ValueError, match="suite must be one of dmc, metaworld"):
        task_names("gym")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros(3), r"shape \(2,\), got \(3,\)"),
        (np.array([np.nan, 0]), "be finite"),
        (["left", "up"], "hold real numbers"),
    ],
)
def test_actions(action: Any, message: str) -> None:
    env = make_env("envs.toys:Clock", seed=1, pixels=8)
    env.reset()
    with pytest.raises(ValueError, match=f"^an action must .*{message}"):
        env.step(action)
    assert env.step(np.zeros(2))[4]["frames"] == 2  # and nothing was broken


def test_seeds_of_reset() -> None:
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        make_env("envs.toys:Clock", seed=1, pixels=8).reset(seed=-1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "nois",
            "shapes, instance, video:FOLDER, gaussian, got 'nois'; did you mean 'noise'?",
        ),
        ("gaussian", "gaussian is not a background: use PixelNoise"),
        ("vidio:/clips", "got 'vidio:/clips'; did you mean 'video'?"),
        ("noise:loud", "got 'noise:loud'; did you mean 'noise'?"),
        (None, "got None"),
        ("video: ", "distractor 'video: ' names no folder; write video:FOLDER"),
    ],
)
def test_backgrounds(spec: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Distractor(spec, 16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Distractor("noise", 16).paint(FRAME.copy(), MASK), "call reset(seed) first"),
        (lambda: PixelNoise(0.2, 16).add(FRAME.copy()), "call reset(seed) first"),
        (lambda: noise().observe(np.zeros(3)), "call reset(seed)"),
        (lambda: noise().observe(np.zeros(2)), "features must have shape (3,), got (2,)"),
    ],
)
def test_disturbances(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def noise() -> StateNoise:
    return StateNoise(5, "gaussian", 3, task="a")


def test_only_environments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"env must be a gymnasium.Env, got str"):
        check_environment("gym:Pendulum-v1")


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        pytest.param(
            "env preview dmc:cartpole_balance", "dmc", marks=pytest.mark.env("dmc", gl=False)
        ),
        ("env check package.module:factory", "gym"),
    ],
)
def test_without_gymnasium_the_extra_is_named(words: str, extra: str) -> None:
    code = (
        "import sys\n"
        "sys.modules['gymnasium'] = None  # as if it were not installed\n"
        "from revbis.cli import main\n"
        f"main({words.split()!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"it comes with the extra revbis[{extra}]; run: pip install" in done.stderr
