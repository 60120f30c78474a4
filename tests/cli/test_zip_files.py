"""Commands read runs in a zip file as they read a folder, and write nothing to it."""

import shutil
from pathlib import Path

import pytest
import torch
from tests.cli import fails
from tests.runs import flags, tiny_config

from revbis.cli import main
from revbis.runs.config import Config
from revbis.runs.run import train

torch.set_num_threads(1)
WALK = {"task": "tests.runs:Walk", "observation": "state", "frames": 200, "method": "simsr"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = tiny_config(tmp_path_factory.mktemp("runs") / "plain", **WALK, checkpoint_every=100)
    assert train(config)
    return config


@pytest.fixture
def study(run: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the run in runs.zip; the working folder is another."""
    folder = tmp_path / "study"
    shutil.make_archive(str(folder / "runs"), "zip", run.out)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield folder
    assert [path.name for path in folder.iterdir()] == ["runs.zip"]


def within(study: Path, run: Config) -> str:
    return str(study / run.directory.relative_to(run.out))


def test_eval_and_export(run: Config, study: Path, capsys) -> None:
    options = ("--episodes", "2", "--out")
    main(["eval", "--trust", str(run.directory), *options, "plain.json"])
    main(["eval", "--trust", within(study / "runs.zip", run), *options, "zip.json"])
    assert Path("plain.json").read_text() == Path("zip.json").read_text()
    main(["export", "--trust", str(run.directory), "--out", "plain"])
    main(["export", "--trust", within(study, run), "--out", "zip"])
    name = "weights.safetensors"
    assert Path("plain", name).read_bytes() == Path("zip", name).read_bytes()
    for command in ("export", "neighbours"):
        error = fails(capsys, command, within(study, run))
        assert error.endswith("is in a zip file, which is only read: unzip it, or pass --out")
    error = fails(capsys, "eval", within(study / "runs.zip", run) + "-not")
    assert "runs.zip has no cpu/" in error


def test_yardstick(run: Config, study: Path, capsys) -> None:
    main(["yardstick", "--trust", str(run.directory), "--episodes", "2", "--out", "plain.csv"])
    assert "warning" not in capsys.readouterr().err
    main(["yardstick", "--trust", str(study), "--episodes", "2", "--out", "zip.csv"])
    assert Path("plain.csv").read_text() == Path("zip.csv").read_text()
    assert "zip files are only read: their runs are in zip.csv" in capsys.readouterr().err
    Path("bad").mkdir()
    Path("bad/runs.zip").write_text("")
    for path in ("bad", "bad/runs.zip"):
        error = fails(capsys, "yardstick", "--trust", path, "--episodes", "2")
        assert error == "revbis: error: bad/runs.zip cannot be unpacked: File is not a zip file"


def test_report(run: Config, study: Path, capsys) -> None:
    for path in (study, study / "runs.zip", within(study, run)):
        main(["report", str(path)])
        assert "open report/index.html" in capsys.readouterr().out
        page = Path("report/index.html").read_text()
        assert f"runs in {study}/runs.zip/" in page and "simsr" in page


def test_nothing_is_trained_in_a_zip_file(run: Config, study: Path, capsys) -> None:
    packed = Config.from_dict(run.as_dict() | {"out": str(study)})
    for again in ([], ["--restart"]):
        error = fails(capsys, "train", *flags(packed), *again)
        assert "seed-1 is in a zip file, which is only read: unzip it, or pass --out" in error
    words = ("sweep", "--preset", "cpu", "--tasks", run.task, "--methods", "simsr", "--seeds", "1")
    sweep = (*words, "--set", "observation=state", "--out", str(study), "--dry-run")
    assert "is in a zip file, which is only read" in fails(capsys, *sweep)
