"""Names of tasks: those of the simulators, known without importing them."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from envs.toys import run_python
from revbis.cli import main
from revbis.envs import check_task, missing, task_names
from revbis.envs import suite as suite_module
from revbis.io.plugins import install_line

HEAVY = ("torch", "mujoco", "dm_control", "metaworld", "numba")


@pytest.mark.env("dmc", gl=False)
def test_the_names_of_dmc_are_the_installed_ones() -> None:
    from revbis.envs import dmc

    assert task_names("dmc") == [f"dmc:{name}" for name in dmc.installed_tasks()]


@pytest.mark.env("metaworld", gl=False)
def test_the_names_of_metaworld_are_the_installed_ones() -> None:
    from revbis.envs import metaworld

    assert task_names("metaworld") == [f"metaworld:{name}" for name in metaworld.installed_tasks()]


def test_names_and_checks_import_no_simulator() -> None:
    code = (
        "import sys\nfrom revbis.envs import check_task, missing, task_names\n"
        "for suite in ('dmc', 'metaworld'):\n"
        "    try: check_task(task_names(suite)[0])\n"
        "    except ModuleNotFoundError: assert missing(suite)\n"
        "    else: assert missing(suite) is None\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = run_python(code)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("dmc:walker_wlak", "did you mean dmc:walker_walk"),
        ("metaworld:hamer", "did you mean metaworld:hammer"),
        ("dmc:qqqqqqqqqqqqqq", "among the 63 of dmc$"),
        ("cheetah_run", "did you mean dmc:cheetah_run"),
        ("dmc:", "a task must be dmc:NAME"),
        (7, "a task must be dmc:NAME"),
        ("nowhere.at_all:make", "there is no module 'nowhere'"),
        (".:make", "there is no module"),
        ("envs.toys:Godo", "module 'envs.toys' has no function 'Godo'"),
    ],
)
def test_what_no_task_is_called_is_refused(task: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_task(task)


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
    text = missing(suite)
    assert text is not None and text.startswith(f"a {suite}: task needs mujoco")
    assert "pip install" in text
    with pytest.raises(ModuleNotFoundError, match="needs mujoco"):
        check_task(task_names(suite)[0])
    main(["train", "--list"])
    printed = capsys.readouterr().out
    assert task_names(suite)[0] in printed and text in printed


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
