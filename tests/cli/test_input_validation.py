"""Wrong values on the command line: one line that names the flag, and nothing is left behind."""

import os
from dataclasses import dataclass

import numpy as np
import pytest
import tyro
from tests.cli import fails

from revbis.cli.flags import finite_number, flag_rules, integer_flag


@dataclass(frozen=True)
class Flags:
    frames: int = 10
    seeds: tuple[int, ...] = (1,)
    size: int | None = None
    rate: float = 1
    c: float | None = None
    quick: bool = False


def read(words: str) -> Flags:
    with flag_rules():
        return tyro.cli(Flags, args=words.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", Flags()),
        ("--frames 1e5", Flags(frames=100_000)),
        ("--frames 2.5E3", Flags(frames=2500)),
        ("--frames 100_000", Flags(frames=100_000)),
        ("--frames=-3", Flags(frames=-3)),
        ("--seeds 1 2 3e0", Flags(seeds=(1, 2, 3))),
        ("--size 1e1", Flags(size=10)),
        ("--size None --c None", Flags()),
        ("--rate 1e-4 --c 1", Flags(rate=1e-4, c=1.0)),
        ("--quick", Flags(quick=True)),
    ],
)
def test_counts_may_be_written_with_an_exponent(words: str, expected: Flags) -> None:
    assert read(words) == expected


def test_help_shows_the_defaults(capsys) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    printed = capsys.readouterr().out
    assert "--frames INT" in printed and "None|INT" in printed and "default: 10" in printed


def test_the_rules_end_with_their_context(capsys) -> None:
    read("")
    with pytest.raises(SystemExit):
        tyro.cli(Flags, args=["--frames", "1e5"])


@pytest.mark.parametrize("text", ["1.5", "x", "", "nan", "inf", "1e-3", "1e-999999999", "1+1"])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number, got"):
        integer_flag(text)


@pytest.mark.parametrize("text", ["1e13", "-1e13", "1000000000001", "1e999999999"])
def test_counts_end_at_a_million_millions(text: str) -> None:
    assert integer_flag("1e12") == 10**12
    with pytest.raises(ValueError, match="must be at most 1,000,000,000,000"):
        integer_flag(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999"])
def test_what_is_no_finite_number(text: str) -> None:
    with pytest.raises(ValueError, match="must be a finite number, got"):
        finite_number(text)


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
