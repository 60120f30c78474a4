"""A suite is one record: a toy one, added from outside the package, works wherever a task does."""

import sys
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.toys import run_python
from revbis.analysis.scores import measure_of, short_name
from revbis.analysis.stats import default_bounds
from revbis.cli import main
from revbis.envs import SUITES, Suite, check_task, make_env, missing, register, suite_of, task_names
from revbis.envs import suite as suite_module
from revbis.envs.gymnasium import CUSTOM as OWN
from revbis.envs.suite import Simulation, SimulationStep
from revbis.envs.suites import forms, packages
from revbis.io import plugins
from revbis.io.plugins import install_line
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
        ({"example": "slow"}, "must be one of its tasks, such as slides:NAME, got 'slow'"),
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
    own = {"dmc": ("mujoco", "dm_control"), "metaworld": ("mujoco", "metaworld")}
    assert suite.simulators == own.get(suite.name, ("gymnasium",))
    if suite.name:
        check_name = suite.local_name(suite.example)
        assert suite.example == f"{suite.name}:{check_name}"
        assert not suite.tasks or check_name in suite.tasks


@pytest.mark.env("dmc", "metaworld", gl=False)
@pytest.mark.parametrize("name", ["dmc", "metaworld"])
def test_the_names_are_the_installed_ones(name: str) -> None:
    suite = import_module(f"revbis.envs.{name}")
    assert list(suite.SUITE.tasks) == suite.installed_tasks()


def test_names_and_checks_import_no_simulator() -> None:
    slow = ["torch", "gymnasium", "mujoco", "dm_control", "metaworld", "PIL", "numba", "matplotlib"]
    code = (
        "import sys\nimport revbis.runs.presets, revbis.analysis.stats\n"
        "from revbis.envs import check_task, missing, task_names\n"
        "for suite in ('dmc', 'metaworld'):\n"
        "    try: check_task(task_names(suite)[0])\n"
        "    except ModuleNotFoundError: assert missing(suite)\n"
        "    else: assert missing(suite) is None\n"
        f"print([name for name in {slow} if name in sys.modules])"
    )
    done = run_python(code)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.env("gym", gl=False)
def test_registered_ids_are_looked_up() -> None:
    check_task("gym:CarRacing-v3")
    check_task("gym:some.module:Later-v0")  # registered by an import that has not happened
    with pytest.raises(ValueError, match="gym:CarRacing-v99 cannot be made"):
        check_task("gym:CarRacing-v99")


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ("def make(): ...", True),
        ("class make: ...", True),
        ("try:\n    from a import make\nexcept ImportError:\n    make = None", True),
        ("from a import b as make", True),
        ("from a import *", True),  # may bind any name
        ("def __getattr__(name): ...", True),
        ("globals()['make'] = 1", True),
        ("not python (", True),  # the import reports it, with its line
        ("def made(): ...", False),
        ("import a.make", False),
    ],
)
def test_a_factory_is_looked_for_in_the_source(
    source: str, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "user_tasks.py").write_text(f"raise_if_imported = 1 / 0\n{source}\n")
    if known:
        check_task("user_tasks:make")
    else:
        with pytest.raises(ValueError, match="has no function 'make'"):
            check_task("user_tasks:make")


@pytest.mark.parametrize("suite", ["dmc", "metaworld"])
def test_a_simulator_that_is_not_installed_is_told(
    suite: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite_module, "is_installed", lambda module: module not in ("mujoco",))
    monkeypatch.setattr(plugins, "unavailable", lambda extra: {})  # on any Python
    text = missing(suite)
    assert text is not None and text.startswith(f"a {suite}: task needs mujoco")
    assert "pip install" in text
    with pytest.raises(ModuleNotFoundError, match="needs mujoco"):
        check_task(task_names(suite)[0])
    main(["train", "--list"])
    printed = capsys.readouterr().out
    assert task_names(suite)[0] in printed and text in printed


def test_a_simulator_that_this_python_cannot_have_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its marker leaves 3.11 and 3.12, but for the one that runs the test."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    lines = [
        "gymnasium>=1.0; extra == 'dmc'",
        f"dm-control==1.0; python_version < '3.13' and python_version != '{here}' "
        "and extra == 'dmc'",
    ]
    monkeypatch.setattr(plugins, "requires", lambda name: lines)
    monkeypatch.setattr(plugins, "is_installed", lambda package: package != "dm_control")
    pythons = " or ".join(version for version in ("3.11", "3.12") if version != here)
    assert plugins.unavailable("dmc") == {"dm_control": pythons}
    assert plugins.unavailable("gym") == {}
    told = {"3.10": f"use Python {pythons}", here: "pip install --no-deps dm_control"}
    for alone, remedy in told.items():
        monkeypatch.setattr(plugins, "_ALONE", {alone: "dm_control"})
        text = plugins.missing_text("dm_control", "dmc", "a dmc: task")
        assert f"needs dm_control, which its extra does not install on Python {here} " in text
        assert remedy in text


def test_a_package_run_from_its_source_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("revbis.io.plugins.requires", requires)
    assert install_line("dmc") == 'pip install "revbis[dmc]"'


def test_a_folder_of_the_same_name_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from revbis.io.plugins import is_installed

    (tmp_path / "surely_not_installed").mkdir()  # as wandb makes in the working folder
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert not is_installed("surely_not_installed")
    assert is_installed("json")
