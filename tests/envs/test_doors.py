"""Wrong arguments to an environment, and a core without Gymnasium, are answered in words."""

import subprocess
import sys
from typing import Any

import pytest

from revbis.envs import make_env
from revbis.envs.check import check_environment


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pixels", [0, -84, 7, 1.5, "x", None, 10**23, [84]]),
        ("frame_stack", [0, -1, 1.5, "x", None, 10**23]),
        ("action_repeat", [0, -1, 1.5, "x", None, 10**23]),
        ("seed", [-1, 1.5, "x", None, 2**32]),
        ("quality", [0, None, "best", ["full"]]),
        ("observation", [0, None, "picture"]),
        ("distractor", [3, ["noise"], 1.5]),
        ("distractor_strength", [0, -0.1, 1.5, "x", float("nan"), [0.2], True]),
        ("distractor_split", [None, "test"]),
        ("state_noise", [-1, 1.5, "x", None, 10_001, [4]]),
        ("state_noise_kind", [0, None, "white", ["walk"]]),
    ],
)
def test_wrong_arguments_are_named(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            make_env("gym:Pendulum-v1", **{"seed": 0} | {name: value})


@pytest.mark.parametrize("action", [["left"], [True], [1j], None, [[0.0], [0.0, 1.0]], object()])
def test_actions_are_real_numbers(action: Any) -> None:
    env = make_env("gym:Pendulum-v1", seed=0, observation="state")
    env.reset()
    with pytest.raises(ValueError, match=r"^an action must (hold real numbers|be an array)"):
        env.step(action)
    env.close()


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
