"""A suite is one record: a toy one, added from outside the package, works wherever a task does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.toys import run_python
from revbis.analysis.scores import measure_of, short_name
from revbis.analysis.stats import default_bounds
from revbis.cli import main
from revbis.envs import SUITES, Suite, check_task, make_env, register, suite_of, task_names
from revbis.envs import suite as suite_module
from revbis.envs.gymnasium import CUSTOM as OWN
from revbis.envs.suite import Simulation, SimulationStep
from revbis.envs.suites import forms, packages
from revbis.runs.preflight import check
from revbis.runs.presets import preset_config, preset_settings


class Slide:
    """A point on a line; the image is as bright as the point is far."""

    def __init__(self, name: str, *, size: int, quality: str) -> None:
        self.scale = {"slow": 1, "quick": 10}[name]
        self.low, self.high = np.full(1, -2.0), np.full(1, 2.0)
        self.horizon: int | None = 6
        self.feature_count = 1
        self.success_at_start: bool | None = False
        self.versions = {"slides": "1.0"}

    def reset(self, seed: int | None) -> None:
        self.place, self.time = 100.0, 0

    def step(self, action: np.ndarray) -> SimulationStep:
        self.place += self.scale * action[0]
        self.time += 1
        return SimulationStep(self.place, 1.0, self.time == self.horizon, self.place > 120)

    def draw(self, out: np.ndarray) -> None:
        out[...] = int(self.place)

    def background_mask(self) -> np.ndarray:
        raise NotImplementedError

    def state(self) -> np.ndarray:
        return np.array([self.place])

    def features(self) -> np.ndarray:
        return np.array([self.place], dtype=np.float32)

    def close(self) -> None:
        pass


TOY = Suite(
    name="slides",
    form="slides:NAME",
    description="a point on a line",
    make=Slide,
    example="slides:slow",
    modules=("gymnasium", "json"),
    tasks=("quick", "slow"),
    score="success",
    bounds=lambda name: (0.0, 5.0),
    presets={"cpu": {"action_repeat": (3, "a guess")}},
)


@pytest.fixture
def toy() -> Suite:
    register(TOY)  # tests/conftest.py removes it
    return TOY


def test_a_suite_from_outside_makes_environments(toy: Suite) -> None:
    env = make_env("slides:quick", seed=1, pixels=8, action_repeat=2)
    simulation: Simulation = env.simulation
    assert isinstance(simulation, Slide)
    observation, info = env.reset()
    assert observation.shape == (9, 8, 8) and observation.max() == 100
    observation, reward, _, truncated, info = env.step(np.ones(1, dtype=np.float32))
    assert (reward, truncated) == (120.0 + 140.0, False)
    assert info["success_any"] and info["frame"].max() == 140
    assert env.identity["versions"] == {"slides": "1.0"}
    vector, _ = make_env("slides:slow", seed=1, observation="state").reset()
    assert vector.tolist() == [100.0]


def test_it_is_listed(toy: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    assert task_names("slides") == ["slides:quick", "slides:slow"]
    main(["env", "list"])
    assert capsys.readouterr().out.endswith("slides:quick\nslides:slow\n")
    main(["train", "--list"])
    printed = capsys.readouterr().out
    assert "slides:NAME             a point on a line\n    slides:quick slides:slow\n" in printed
    assert forms() == "dmc:NAME, metaworld:NAME, gym:ID, slides:NAME or package.module:factory"
    assert list(packages().items())[-1] == ("json", "")
    register(replace(TOY, name="more", example="more:slow", modules=("gymnasium",)))
    assert packages()["gymnasium"] == "gym"  # and not of a suite without an extra


def test_it_passes_preflight_and_has_its_presets(toy: Suite) -> None:
    config = preset_config("cpu", "slides:slow")
    check(config)
    assert (config.action_repeat, config.quality) == (3, "full")
    assert preset_settings("cpu", "slides:slow")["action_repeat"].source == "a guess"
    assert preset_config("paper", "slides:slow").action_repeat == 2
    with pytest.raises(ValueError, match="among the 2 of slides; did you mean slides:slow"):
        check(replace(config, task="slides:slo"))
    with pytest.raises(ValueError, match="set quality to full"):
        check(replace(config, quality="fast"))


def test_its_results_are_scored_by_the_record(toy: Suite) -> None:
    assert measure_of("slides:slow") == "success"
    assert default_bounds("slides:slow") == (0.0, 5.0)
    assert short_name("slides:slow") == "slow"


def test_what_it_needs_is_named_without_an_extra(
    toy: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_module, "is_installed", lambda package: package != "json")
    message = 'a slides: task needs json, which is not installed; run: pip install "json"'
    with pytest.raises(ModuleNotFoundError, match=message):
        check_task("slides:slow")
    assert toy.install_line == 'pip install "gymnasium" "json"'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "dmc", "example": "dmc:slow"}, "there is a suite 'dmc' already"),
        ({"name": "my.suite"}, "lower-case letters"),
        ({"name": ""}, "lower-case letters"),
        ({"example": "slow"}, "must be one of its tasks, such as slides:NAME, got 'slow'"),
        ({"example": "slides:fast"}, "must be one of its tasks"),
    ],
)
def test_a_suite_that_cannot_be_added(change: dict[str, Any], message: str) -> None:
    before = dict(SUITES)
    with pytest.raises(ValueError, match=message):
        register(replace(TOY, **change))
    assert before == SUITES


@pytest.mark.parametrize(
    ("task", "name", "local"),
    [
        ("dmc:walker_run", "dmc", "walker_run"),
        ("metaworld:hammer", "metaworld", "hammer"),
        ("gym:module:Env-v0", "gym", "module:Env-v0"),
        ("package.dmc:make", "", "package.dmc:make"),
        ("dmc", "", "dmc"),
        ("", "", ""),
    ],
)
def test_the_suite_of_a_task(task: str, name: str, local: str) -> None:
    suite = suite_of(task)
    assert (suite.name, suite.local_name(task)) == (name, local)


@pytest.mark.parametrize("suite", [*SUITES.values(), OWN], ids=lambda suite: suite.name or "own")
def test_every_record_is_complete(suite: Suite) -> None:
    assert suite.install_line.startswith('pip install "')
    assert suite.tasks == tuple(sorted(suite.tasks))
    assert suite.tasks or (suite.check and suite.gymnasium_env)
    assert suite.packages[0] == "gymnasium"
    if suite.name:
        check_name = suite.local_name(suite.example)
        assert suite.example == f"{suite.name}:{check_name}"
        assert not suite.tasks or check_name in suite.tasks


def test_the_registry_imports_nothing_heavy() -> None:
    heavy = ("torch", "gymnasium", "mujoco", "dm_control", "metaworld", "PIL", "numba")
    code = (
        "import sys\nimport revbis.envs.suites, revbis.runs.presets, revbis.analysis.stats\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = run_python(code)
    assert done.stdout == "[]\n", done.stderr
