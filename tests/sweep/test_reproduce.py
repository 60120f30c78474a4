"""The paper's artefacts from run folders, and from a sweep that makes them."""

import shutil
from pathlib import Path

import pytest
from tests.analysis.runs import write_run
from tests.cli import fails
from tests.sweep.grids import small_grid

from revbis.analysis.paper import SYSTEMS
from revbis.cli import main
from revbis.sweep import grid

FIGURES = ("figure-dmc", "figure-metaworld", "figure-ablation", "figure-c")


def _reproduce(*words: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *words])
    assert stop.value.code == 0


def _fake_runs(name: str, out: Path) -> None:
    for number, config in enumerate(grid.read_grid(name).configs(out)):
        scores = [0.1, 0.2, 0.5 + 0.01 * number]
        scale = 1 if config.task.startswith("metaworld") else 100
        write_run(
            out,
            [scale * score for score in scores],
            task=config.task,
            method=config.method,
            seed=config.seed,
            preset=config.preset,
            c={1: 0.5, 5: 0.6, 10: 0.7} if config.method.endswith("-rev") else None,
        )


def test_a_table_from_runs_that_are_there(tmp_path, capsys):
    _fake_runs("table1-cpu", tmp_path)
    _reproduce("table1", "--no-sweep", "--out", str(tmp_path))
    printed = capsys.readouterr().out
    assert "simsr-rev (measured)" in printed and "(reported)" in printed
    for method, name in SYSTEMS.items():
        assert f"{method} (measured)" in printed and f"{name} (reported)" in printed
    names = sorted(path.name for path in (tmp_path / "reproduced").iterdir())
    assert names == ["table1-cpu.csv", "table1-cpu.md", "table1-cpu.tex"]
    written = (tmp_path / "reproduced" / "table1-cpu.md").read_text()
    assert "**" in written and "(best)" in printed
    table = printed[: printed.index(str(tmp_path))]
    assert max(map(len, table.splitlines())) <= 80


def test_a_table_from_runs_in_a_zip_file(tmp_path, capsys):
    _fake_runs("table1-cpu", tmp_path / "plain")
    shutil.make_archive(str(tmp_path / "packed" / "runs"), "zip", tmp_path / "plain")
    for name in ("plain", "packed"):
        _reproduce("table1", "--no-sweep", "--out", str(tmp_path / name))
    one, two = (tmp_path / name / "reproduced/table1-cpu.csv" for name in ("plain", "packed"))
    assert one.read_text() == two.read_text()
    error = fails(capsys, "reproduce", "table1", "--out", str(tmp_path / "packed"))
    assert "is in a zip file, which is only read" in error


@pytest.mark.parametrize("name", FIGURES)
def test_figures_from_runs_that_are_there(name, tmp_path, capsys):
    grids = {"figure-dmc": "table1", "figure-c": "c-curves"}
    _fake_runs(f"{grids.get(name, name.removeprefix('figure-'))}-cpu", tmp_path)
    _reproduce(name, "--no-sweep", "--out", str(tmp_path))
    kinds = {path.suffix for path in (tmp_path / "reproduced").glob(f"{name}-cpu.*")}
    assert kinds == {".png", ".svg", ".pdf"}


def test_a_part_of_the_runs(tmp_path, capsys):
    words = ["reproduce", "table1", "--dry-run", "--out", str(tmp_path / "runs")]
    part = ["--tasks", "dmc:cartpole_balance", "--methods", "drqv2", "simsr-rev", "--seeds", "1"]
    main([*words, *part])
    printed = capsys.readouterr().out
    assert "2 runs" in printed and "drqv2/seed-1" in printed and "each run: " in printed
    assert not list(tmp_path.iterdir())
    write_run(tmp_path, [1.0, 2.0], task="dmc:cartpole_balance", method="drqv2", seed=1)
    _reproduce("table1", *part, "--no-sweep", "--out", str(tmp_path))
    assert "1 of 2 runs" in capsys.readouterr().err


def test_missing_runs_are_told(tmp_path, capsys, caplog):
    assert "leave out --no-sweep" in fails(
        capsys, "reproduce", "table1", "--no-sweep", "--out", str(tmp_path)
    )
    write_run(tmp_path, [1.0, 2.0], task="dmc:cartpole_balance", method="simsr")
    _reproduce("table1", "--no-sweep", "--out", str(tmp_path))
    assert "47 of 48 runs are missing" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.env("gym", gl=False)
def test_missing_runs_are_made(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grid, "read_grid", lambda name: small_grid())
    _reproduce("figure-c", "--methods", "simsr-rev", "--out", str(tmp_path))
    assert "1 finished" in capsys.readouterr().out
    assert (tmp_path / "reproduced" / "figure-c-cpu.png").stat().st_size > 5000
