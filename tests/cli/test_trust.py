"""Folders that name code: nothing is imported unless the user says so."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.cli import fails
from tests.runs import tiny_config

from revbis.cli import main
from revbis.runs.config import Config
from revbis.runs.run import open_run, train

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"observation": "state", "frames": 200}
EVIL = """
from pathlib import Path
Path("imported").touch()
def f(*arguments, **options):
    Path("called").touch()
"""
READERS = ("eval", "yardstick", "neighbours", "offline --replay")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A finished run with an agent and a task of the user's own."""
    settings = {"task": "tests.runs:Walk", "method": "agent:own_agent:make"}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        config = tiny_config(tmp_path_factory.mktemp("own"), **SMALL | settings)
        assert train(config)
    return config


@pytest.fixture
def forged(own: Config, tmp_path, monkeypatch):
    """Makes a copy of the run whose config has other values, beside evil.py."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(EVIL)
    copy = shutil.copytree(own.directory, tmp_path / "run")

    def forge(**values: str) -> str:
        config = own.as_dict() | values
        if not config["method"].startswith("agent:"):
            config.pop("agent_options")
        (copy / "config.json").write_text(json.dumps(config))
        return "run"

    yield forge
    assert not Path("imported").exists() and "evil" not in sys.modules


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"task": "evil:f"}, "evil:f and own_agent:make"),
        ({"task": "os:abort"}, "os:abort"),
        ({"task": "gym:evil:Some-v0"}, "evil:Some-v0"),
        ({"task": "dmc:cartpole_balance", "method": "agent:evil:f"}, "evil:f"),
    ],
)
def test_it_is_refused_in_one_line(command, values, named, forged, capsys):
    run = forged(**values)
    error = fails(capsys, *command.split(), run)
    assert f"{run} names code of its author's, {named}" in error
    assert "--trust" in error and error.count("\n") == 0


@pytest.mark.parametrize("values", [{"task": "evil:f"}, {"method": "agent:evil:f"}])
def test_resuming_a_folder_imports_nothing(values, forged, own, capsys, tmp_path):
    config = Config.from_dict(own.as_dict() | values)
    folder = tmp_path / config.directory.relative_to(own.out)
    folder.parent.mkdir(parents=True)
    shutil.move(forged(**values), folder)
    assert "names code of its author's, " in fails(capsys, "train", str(folder))
    assert "--trust is for the folder of a run" in fails(
        capsys, "train", "--task", "dmc:cartpole_balance", "--trust"
    )


def test_resuming_a_trusted_folder(own, capsys, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    main(["train", str(own.directory), "--trust"])
    assert "is finished: it has 200 frames" in capsys.readouterr().out


def test_an_export_does_not_import_the_task(forged, capsys):
    run = forged(task="evil:f", method="drqv2")
    assert "names code of its author's, evil:f," in fails(capsys, "export", run)
    assert "cannot be exported" in fails(capsys, "export", forged(method="agent:evil:f"))


def test_an_objective_is_code_too(forged):
    run = forged(task="gym:Pendulum-v1", method="evil:f")
    with pytest.raises(ValueError, match=r"code of its author's, evil:f,.* \(trust=True in"):
        open_run(Path(run))


@pytest.mark.parametrize("task", ["evil:f", "os:abort", "gym:evil:Some-v0"])
@pytest.mark.parametrize("flags", [[], ["--videos"]])
def test_a_report_imports_nothing(task, flags, forged, capsys):
    main(["report", forged(task=task), *flags, "--out", "page"])
    assert Path("page/index.html").exists()
    assert "which a report does not import" in capsys.readouterr().err


def test_with_trust_it_works(own, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    run = str(own.directory)
    main(["eval", "--trust", run, "--episodes", "1"])
    main(["yardstick", "--trust", run, "--episodes", "2"])
    short = ["--methods", "simsr", "--steps", "2", "--episodes", "2"]
    main(["offline", "--trust", "--replay", run, *short])
    assert "tests.runs:Walk" in capsys.readouterr().out


def test_an_objective_named_on_the_command_line_is_trusted(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    config = tiny_config(
        tmp_path, **SMALL, task="gym:Pendulum-v1", method="own_objective:make", quality="full"
    )
    assert train(config)
    run, short = str(config.directory), ["--steps", "2", "--episodes", "2"]
    error = fails(capsys, "offline", "--replay", run, "--methods", "simsr", *short)
    assert "names code of its author's, own_objective:make," in error
    main(["offline", "--replay", run, "--objective", "own_objective:make", *short])
    main(["eval", "--trust", run, "--episodes", "1"])
    assert "own_objective:make" in capsys.readouterr().out
