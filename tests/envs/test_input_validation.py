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

NAN = float("nan")
FRAME, MASK = np.zeros((3, 16, 16), np.uint8), np.ones((16, 16), bool)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pixels", [0, -84, 7, 1.5, "x", None, 10**23, [84]]),
        ("frame_stack", [0, -1, 1.5, "x", None, 10**23]),
        ("action_repeat", [0, -1, 1.5, "x", None, 10**23]),
        ("seed", [-1, 1.5, "x", None, 2**32, True]),
        ("quality", [0, None, "best", ["full"]]),
        ("observation", [0, None, "picture"]),
        ("distractor", [3, ["noise"], 1.5]),
        ("distractor_strength", [0, 0.0009, 1.01, -0.1, 1.5, "x", NAN, [0.2], True]),
        ("distractor_split", [None, "test"]),
        ("state_noise", [-1, 1.5, "x", None, 10_001, [4], True]),
        ("state_noise_kind", [0, None, "white", ["walk"]]),
    ],
)
def test_values_of_make_env(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} must be") as caught:
            make_env("gym:Pendulum-v1", **{"seed": 0} | {name: value})
        assert "\n" not in str(caught.value)


GAUSSIAN = {"distractor": "gaussian", "distractor_strength": 0.2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quality": "ful"}, "quality must be one of full, fast, got 'ful'; did you mean 'full'"),
        ({"observation": "pixel"}, "did you mean 'pixels'"),
        ({"observation": "state", "distractor": "noise"}, "distractors require observation pixels"),
        ({"observation": "state", **GAUSSIAN}, "distractors require observation pixels"),
        ({"state_noise": 4}, "state_noise requires observation state; drop state_noise"),
        ({"state_noise_kind": "wlak"}, "must be one of gaussian, walk, got 'wlak'; did you mean"),
        ({"distractor": "gaussian"}, "the distractor gaussian needs a distractor_strength"),
        ({"distractor_strength": 0.2}, "for the distractor gaussian, but the distractor is None"),
        ({"distractor": "noise", "distractor_strength": 0.2}, "the distractor is noise; drop"),
        ({"distractor": "noise"}, "draws its own images: drop distractor, or set it to gaussian"),
        ({"quality": "fast"}, "envs.toys:Good draws its own images: set quality to full"),
        ({"task": "dmc:cheetah_run", "distractor": "nois"}, "did you mean 'noise'"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_env(**{"task": "envs.toys:Good", "seed": 1} | settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("", "a task must be dmc:NAME, .*got ''"),
        ("nonsense", "a task must be dmc:NAME, .*got 'nonsense'"),
        ("gym:", "a task must be dmc:NAME, .*got 'gym:'"),
        ("dmc:", "a task must be dmc:NAME"),
        (":make", "a task must be"),
        (None, "a task must be"),
        (7, "a task must be dmc:NAME"),
        ("dmc:cheetah-run", r"did you mean dmc:cheetah_run( or |\?)"),
        ("dmc:reach_duplo_vision", r"did you mean dmc:reach_duplo( or |\?)"),
        ("dmc:walker_wlak", r"did you mean dmc:walker_walk( or |\?)"),
        ("metaworld:hammer-v3", r"did you mean metaworld:hammer( or |\?)"),
        ("metaworld:drawer_close", r"did you mean metaworld:drawer-close( or |\?)"),
        ("cheetah_run", r"did you mean dmc:cheetah_run\?"),
        ("hammer", r"did you mean metaworld:hammer\?"),
        ("dmc:qqqqqqqqqqqqqq", "among the 63 of dmc$"),
        ("metaworld:qqqqqqqqqqqqqqqqqqqq", r"among the \d+ of metaworld$"),
        ("nowhere.at_all:make", "there is no module 'nowhere'"),
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
        (np.zeros((1, 2)), r"shape \(2,\), got \(1, 2\)"),
        (0.0, r"shape \(2,\), got \(\)"),
        (np.array([np.nan, 0]), "be finite"),
        (np.array([0, np.inf]), "be finite"),
        (["left", "up"], "hold real numbers"),
        ([True, False], "hold real numbers"),
        ([1j, 0], "hold real numbers"),
        (None, "hold real numbers"),
        (object(), "hold real numbers"),
        ([[0.0], [0.0, 1.0]], "be an array"),
    ],
)
def test_actions(action: Any, message: str) -> None:
    env = make_env("envs.toys:Clock", seed=1, pixels=8)
    env.reset()
    with pytest.raises(ValueError, match=f"^an action must .*{message}"):
        env.step(action)
    assert env.step(np.zeros(2))[4]["frames"] == 2  # and nothing was broken


@pytest.mark.parametrize("seed", [-1, 1.5, "one", True, 2**32])
def test_seeds_of_reset(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed must be"):
        make_env("envs.toys:Clock", seed=1, pixels=8).reset(seed=seed)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nois", "one of noise, shapes, video:FOLDER, gaussian, got 'nois'; did you mean 'noise'?"),
        ("gausian", "got 'gausian'; did you mean 'gaussian'?"),
        ("gaussian", "gaussian is not a background: use PixelNoise"),
        ("shape", "did you mean 'shapes'?"),
        ("vidio:/clips", "got 'vidio:/clips'; did you mean 'video'?"),
        ("noise:loud", "got 'noise:loud'; did you mean 'noise'?"),
        ("", "got ''"),
        (None, "got None"),
        ("video", "distractor 'video' names no folder; write video:FOLDER"),
        ("video:", "distractor 'video:' names no folder"),
        ("video: ", "names no folder"),
    ],
)
def test_backgrounds(spec: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Distractor(spec, 16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Distractor("noise", 0), "size must be at least 1, got 0"),
        (lambda: Distractor("noise", None), "size must be a whole number, got None"),
        (lambda: Distractor("noise", 16, split="test"), "split must be one of train, eval"),
        (lambda: Distractor("noise", 16).reset(-1), "seed must be at least 0, got -1"),
        (lambda: Distractor("noise", 16).reset(0.5), "seed must be a whole number, got 0.5"),
        (lambda: PixelNoise(1.01, 16), "distractor_strength must be at most 1, got 1.01"),
        (lambda: PixelNoise(NAN, 16), "distractor_strength must be at least 0.001, got nan"),
        (lambda: PixelNoise(0.2, 0), "size must be at least 1"),
        (lambda: PixelNoise(0.2, 16, split="test"), "split must be one of train, eval"),
        (lambda: PixelNoise(0.2, 16).reset(-1), "seed must be at least 0"),
        (lambda: PixelNoise(0.2, 16).add(FRAME.copy()), "call reset(seed) first"),
        (lambda: PixelNoise(0.2, 16).add(MASK), "frame must be uint8 (3, 16, 16), got bool"),
        (lambda: noise(count=-1), "state_noise must be at least 0"),
        (lambda: noise(kind="white"), "state_noise_kind must be one of"),
        (lambda: noise(split="test"), "split must be one of"),
        (lambda: noise(features=-1), "features must be at least 0"),
        (lambda: noise().observe(np.zeros(3)), "call reset(seed)"),
        (lambda: noise().reset(-1), "seed must be at least 0"),
        (lambda: noise().observe(np.zeros(2)), "features must have shape (3,), got (2,)"),
    ],
)
def test_disturbances(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def noise(**settings: Any) -> StateNoise:
    return StateNoise(**{"count": 5, "kind": "gaussian", "features": 3, "task": "a"} | settings)


@pytest.mark.parametrize(
    ("frame", "mask", "message"),
    [
        (FRAME.transpose(1, 2, 0), MASK, "frame must be uint8 (3, 16, 16), got uint8"),
        (np.zeros((3, 16, 16)), MASK, "got float64 (3, 16, 16)"),
        (None, MASK, "frame must be uint8 (3, 16, 16), got None"),
        (FRAME, np.ones((16, 16)), "background_mask must be bool (16, 16), got"),
        (FRAME, MASK[:4], "got bool (4, 16)"),
    ],
)
def test_arrays_to_paint(frame: Any, mask: Any, message: str) -> None:
    distractor = Distractor("noise", 16)
    distractor.reset(0)
    with pytest.raises(ValueError, match=re.escape(message)):
        distractor.paint(frame, mask)


@pytest.mark.parametrize("env", [None, "gym:Pendulum-v1", 3])
def test_only_environments_are_checked(env: Any) -> None:
    with pytest.raises(ValueError, match=r"env must be a gymnasium.Env, got"):
        check_environment(env)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("env preview dmc:cartpole_balance", "dmc"),
        ("env preview metaworld:hammer", "metaworld"),
        ("env preview gym:Pendulum-v1", "gym"),
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
