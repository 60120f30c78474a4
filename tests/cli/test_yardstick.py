"""`revbis yardstick`, as typed."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.cli import fails
from tests.runs import tiny_config

from revbis.cli import main
from revbis.runs.config import Config
from revbis.runs.run import open_run, train

torch.set_num_threads(1)
WALK = {"task": "tests.runs:Walk", "observation": "state", "frames": 200}
WALK |= {"checkpoint_every": 100}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Config]:
    """A run with noise and one without."""
    out = tmp_path_factory.mktemp("runs")
    configs = [
        tiny_config(out, **WALK, method="simsr", state_noise=4),
        tiny_config(out, **WALK, method="drqv2"),
    ]
    assert all(train(config) for config in configs)
    return configs


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_a_csv_and_a_file_in_each_run(runs: list[Config], here: Path, capsys) -> None:
    main(["yardstick", "--trust", str(runs[0].out), "--episodes", "2"])
    printed = capsys.readouterr().out
    for word in ("simsr", "drqv2", "φ", "critic's trunk", "gaussian", "written to yardsticks.csv"):
        assert word in printed
    none = [line for line in printed.splitlines() if "no denoising factor" in line]
    assert len(none) == 1 and none[0].startswith("tests.runs:Walk, drqv2, seed 1: no distract")
    with (here / "yardsticks.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert (rows["simsr"]["frames"], rows["simsr"]["seed"]) == ("200", "1")
    assert -1 <= float(rows["simsr"]["phi_denoising_ood"]) <= 1
    assert rows["drqv2"]["trunk_denoising_ood"] == rows["drqv2"]["phi_state_r2"] == ""
    content = json.loads((runs[0].directory / "yardsticks.json").read_text())
    assert (content["frames"], content["episodes"], content["seed"]) == (200, 2, 0)
    assert f"{content['yardsticks']['phi_value']:.6g}" == rows["simsr"]["phi_value"]


def test_the_same_command_measures_the_same(runs: list[Config], here: Path, capsys) -> None:
    for name in ("first", "second"):
        main(
            [
                "yardstick",
                "--trust",
                str(runs[0].directory),
                "--episodes",
                "2",
                "--out",
                f"{name}.csv",
            ]
        )
    assert (here / "first.csv").read_text() == (here / "second.csv").read_text()
    main(["yardstick", "--trust", str(runs[0].directory), "--episodes", "2", "--seed", "1"])
    assert (here / "yardsticks.csv").read_text() != (here / "first.csv").read_text()


def test_the_true_metric(runs: list[Config], here: Path, capsys) -> None:
    """Walk pays 1 − |place|, in [0, 1] for each of 8 repetitions, and has 5 actions."""
    main(["yardstick", "--trust", str(runs[0].directory), "--episodes", "4"])
    first = capsys.readouterr().out
    assert "ρ with U" in first and "U: over the rewards of " in first and "adds at most" in first
    content = json.loads((runs[0].directory / "yardsticks.json").read_text())["yardsticks"]
    assert f"{content['phi_true']:.2f} [{content['phi_true_low']:.2f}, " in " ".join(first.split())
    main(["yardstick", "--trust", str(runs[0].directory), "--episodes", "4", "--rollouts", "2"])
    again = json.loads((runs[0].directory / "yardsticks.json").read_text())["yardsticks"]
    assert again["phi_value"] == content["phi_value"] and again["phi_true"] != content["phi_true"]
    error = fails(capsys, "yardstick", str(runs[0].directory), "--rollouts", "-1")
    assert "--rollouts must be" in error


def test_runs_that_cannot_be_measured(runs: list[Config], here: Path, capsys) -> None:
    shutil.copytree(runs[0].directory, here / "bare")
    shutil.rmtree(here / "bare" / "checkpoints")
    error = fails(capsys, "yardstick", "--trust", "bare", "--episodes", "2")
    assert error.startswith("revbis: error: bare is finished, but its checkpoints are not here; ")
    assert not (here / "yardsticks.csv").exists()
    main(
        ["yardstick", "--trust", "bare", str(runs[1].directory), "--episodes", "2"]
    )  # the other is
    said = capsys.readouterr()
    assert "warning: not measured: bare is finished, but" in said.err
    assert "drqv2" in said.out


def test_a_run_whose_package_is_missing_does_not_stop_the_others(
    runs: list[Config], here: Path, capsys, monkeypatch
) -> None:
    def open_or_miss(folder: Path, *, trust):
        if folder == runs[0].directory:
            raise ModuleNotFoundError("No module named 'sheeprl'")
        return open_run(folder, trust=trust)

    monkeypatch.setattr("revbis.runs.run.open_run", open_or_miss)
    main(["yardstick", "--trust", *(str(each.directory) for each in runs), "--episodes", "2"])
    said = capsys.readouterr()
    assert "warning: not measured: No module named 'sheeprl'" in said.err
    assert "drqv2" in (here / "yardsticks.csv").read_text()


def test_frames_are_those_of_the_checkpoint_that_is_read(runs: list[Config], here: Path) -> None:
    shutil.copytree(runs[0].directory, here / "run")
    older, newest = sorted((here / "run" / "checkpoints").glob("frame-*"))
    (newest / "agent.pt").write_bytes(b"damaged")
    main(["yardstick", "--trust", "run", "--episodes", "2"])
    content = json.loads((here / "run" / "yardsticks.json").read_text())
    assert content["frames"] == int(older.name.removeprefix("frame-")) < 200


def test_restart_discards_the_measurements(runs: list[Config], tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **WALK, method="drqv2", seed=2)
    assert train(config)
    main(["yardstick", "--trust", str(config.directory), "--episodes", "2"])
    assert (config.directory / "yardsticks.json").exists()
    assert train(config, restart=True)
    assert not (config.directory / "yardsticks.json").exists()
