"""Wrong values on the command line: one line that names the flag, and nothing is left behind."""

import os

import numpy as np
import pytest
from tests.cli import fails

WALK = ("train", "--task", "tests.runs:Walk")
SWEEP = ("sweep", "--dry-run", "--tasks", "tests.runs:Walk", "--methods", "mico")
URL = "s3://bucket/runs"
NO_PATH = f"must be a path, got '{URL}'; only revbis sweep --on ray takes a URL"
GRID = ("tabular", "solve", "--example", "grid")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The working folder, where nothing may be left."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*WALK, "--explore-steps", "15000"), "before the first update: --explore-steps 15,000"),
        ((*WALK, "--frames", "1e23"), "--frames: must be at most 1,000,000,000,000, got 1e23"),
        ((*WALK, "--frames", "true"), "--frames: must be a whole number, got 'true'"),
        ((*WALK, "--learning-rate", "nan"), "--learning-rate: must be a finite number, got 'nan'"),
        ((*WALK, "--strides", "2", "2", "1", "x"), "--strides: must be whole numbers, got ['2',"),
        ((*WALK, "--strides", "5"), "'--strides'. Expected 4 values"),
        ((*WALK, "--normalisation", "maybe"), "invalid choice 'maybe' for argument"),
        ((*SWEEP, "--gpus", "nan"), "--gpus: must be a finite number, got 'nan'"),
        ((*SWEEP, "--seeds", "1", "x"), "--seeds: must be whole numbers, got ['1', 'x']"),
        ((*SWEEP, "--set", "frames=true"), "frames must be a whole number, got True"),
        ((*SWEEP, "--set", "frames=1e23"), "frames must be at most 1,000,000,000,000, got '1e23'"),
        ((*GRID, "--size", "0"), "--size must be at least 1, got 0"),
        ((*GRID, "--size", "1e23"), "--size: must be at most 1,000,000,000,000, got 1e23"),
        ((*GRID, "--gamma", "1"), "gamma must be in [0, 1), got 1"),
        ((*GRID, "--tol", "0", "--out", "a/b"), "tol must be above 0, got 0"),
        ((*GRID, "--metric", "bisimulation", "--level", "state_action"), "level"),
        (("eval", "none", "--episodes", "1e9"), "--episodes must be at most 100,000"),
        (("eval", "none", "--seed", "-1"), "--seed must be at least 0, got -1"),
        (("neighbours", "none", "--queries", "0"), "--queries must be at least 1, got 0"),
        (("neighbours", "none", "--neighbours", "1e9"), "--neighbours must be at most 100"),
        (("neighbours", "none", "--episodes", "1e9"), "--episodes must be at most 1,000"),
        (("yardstick", "none", "--episodes", "1"), "--episodes must be at least 2, got 1"),
        (("yardstick", "none", "--episodes", "1e9"), "--episodes must be at most 1,000"),
        (("yardstick", "none"), "none does not exist; pass a run's folder"),
        (("yardstick",), "pass the folder of at least one run"),
        (("exactness", "--size", "1e9"), "--size must be at most 20"),
        (("exactness", "--steps", "0"), "--steps must be at least 1, got 0"),
        ((*WALK, "--out", URL), f"--out: {NO_PATH}"),
        ((*GRID, f"--out={URL}"), f"--out: {NO_PATH}"),
        (("reproduce", "table1", "--out", URL), f"--out: {NO_PATH}"),
        (("report", "runs", "-o", URL), f"--out: {NO_PATH}"),
        (("report", "runs", URL), NO_PATH),
        (("export", URL), NO_PATH),
    ],
)
def test_wrong_values_are_named_and_leave_nothing(words, message, here, capsys):
    error = fails(capsys, *words)
    assert message in error and len(error.splitlines()) == 1
    assert os.listdir(here) == []


def test_a_refused_solve_keeps_a_folder_that_was_there(here, capsys):
    (here / "mine").mkdir()
    fails(capsys, *GRID, "--tol", "0", "--out", "mine/new/results")
    assert os.listdir(here) == ["mine"] and os.listdir(here / "mine") == []


@pytest.mark.parametrize("name", ["P", "R", "policy"])
def test_complex_arrays_of_an_mdp_are_refused(name, here, capsys):
    arrays = {"P": np.ones((1, 1, 1)), "R": np.ones((1, 1)), "policy": np.ones((1, 1))}
    np.savez(here / "mdp.npz", **arrays | {name: arrays[name] + 1j})
    error = fails(capsys, "tabular", "solve", "--mdp", "mdp.npz")
    assert name in error and "must hold real numbers, got complex numbers" in error
    assert os.listdir(here) == ["mdp.npz"]
