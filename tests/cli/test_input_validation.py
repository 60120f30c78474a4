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


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The working folder, where nothing may be left."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN, WALK = "train --task dmc:cheetah_run", "train --task tests.runs:Walk"
SWEEP = "sweep --dry-run --tasks tests.runs:Walk --methods mico"
GRID, TOY, SOLVE = "sweep table1-cpu", "tabular solve --example toy", "tabular solve"
VALUES, AGGREGATE = "tabular values --example", "tabular aggregate --example"
URL = "s3://bucket/runs"
NO_PATH = f"must be a path, got '{URL}'; only revbis sweep --on ray takes a URL"
# One row for each rule: what a type refuses is tested with the types.
MISTAKES = [
    ("nonsense", "unknown command 'nonsense'; the commands are: tabular, "),
    ("trian", "unknown command 'trian'; did you mean 'train'?"),
    ("probe --quick", "revbis: error: revbis probe is now revbis exactness"),
    ("isolate", "revbis: error: revbis isolate is now revbis offline"),
    ("bench update", "python benchmarks/update.py"),
    ("report --wtach", "unknown flag --wtach; did you mean --watch? (see"),
    ("eval --sede 3", "unknown flag --sede; did you mean --seed?"),
    ("env preview dmc:cheetah_run --pixel=3", "unknown flag --pixel; did you mean --pixels?"),
    ("reproduce --scal cpu", "unknown flag --scal; did you mean --scale?"),
    ("report .", ". contains no run"),
    (f"report runs -o {URL}", f"--out: {NO_PATH}"),
    (f"report runs {URL}", NO_PATH),
    ("eval .", ". is not a run"),
    ("eval none --episodes 1e9", "--episodes must be at most 100,000"),
    (f"export {URL}", NO_PATH),
    ("neighbours .", ". is not a run"),
    ("neighbours none --neighbours 1e9", "--neighbours must be at most 100"),
    ("yardstick none --episodes 1", "--episodes must be at least 2, got 1"),
    ("yardstick none", "none does not exist; pass a run's folder"),
    ("yardstick", "pass the folder of at least one run"),
    ("offline --replay none", "none does not exist"),
    ("offline --methods drqv2", "--methods must be one of"),
    ("exactness --methods simrs", "did you mean 'simsr'"),
    ("exactness --objective simsr", "must be package.module:factory, got 'simsr'; pass names to"),
    ("exactness --objective nowhere:make", "nowhere:make: there is no module 'nowhere'"),
    ("exactness --scenarios room", "; did you mean 'rooms'"),
    ("exactness --steps 1000001", "--steps must be at most 1,000,000, got 1000001"),
    ("exactness --workers 0", "--workers must be at least 1"),
    ("exactness --gamma 1", "--gamma must be in [0, 1)"),
    ("exactness --size 3", "size must be at least 5"),
    ("exactness --size 1e3", "--size must be at most 20, got 1000"),
    ("exactness --normalisation both", "--normalisation"),
    ("tabular", "Expected one of {solve, values, aggregate, bounds, horizons} (see"),
    ("tabular sovle", "sovle"),
    (SOLVE, "give one of --example, --mdp and --gym"),
    (f"{TOY} --gym Taxi-v3", "give one of"),
    (f"{SOLVE} --examples toy", "unknown flag --examples; did you mean --example?"),
    (f"{SOLVE} --metric micro", "got 'micro'; did you mean 'mico'?"),
    (f"{SOLVE} --gym Nonsense-v9", "Gymnasium cannot make"),
    (f"{SOLVE} --gym CartPole-v1", "no transition table"),
    (f"{SOLVE} --mdp missing.npz", "no such file"),
    (f"{SOLVE} --gamma x", "--gamma: must be a number, got 'x'"),
    (f"{SOLVE} --c=-inf", "--c: must be a finite number, got '-inf'"),
    (f"{SOLVE} --size 1.5", "--size: must be a whole number, got '1.5'"),
    (f"{SOLVE} --size 1e23", "--size: must be at most 1,000,000,000,000, got 1e23"),
    (f"{SOLVE} --example grid --slip 2", "slip must be in [0, 1]"),
    (f"{SOLVE} --example grid --size 0", "--size must be at least 1, got 0"),
    (f"{TOY} --gamma 1", "gamma must be in [0, 1), got 1"),
    (f"{TOY} --c 2", "c must be in [0, 1)"),
    (f"{TOY} --tol 0 --out a/b", "tol must be above 0, got 0"),
    (f"{TOY} --origin 3", "--origin must be a state"),
    (f"{TOY} --solver gather", "solver must be one of"),
    (f"{TOY} --policy best", "no file 'best'"),
    (f"{TOY} --out={URL}", f"--out: {NO_PATH}"),
    ("tabular bounds --example grid --size 40", "at most 4000"),
    (f"{VALUES} toy --size 5", "--size is for --example grid, rooms, garnet, delay"),
    (f"{VALUES} garnet --slip 0.5", "--slip is for --example grid, rooms; drop it"),
    (f"{VALUES} garnet --size 1", "value gaps need at least two states"),
    (f"{VALUES} toy --target-gamma 1", "--target-gamma must be in [0, 1), got 1"),
    (f"{VALUES} toy --metric bisimulation --level state_action", "is a metric on states"),
    ("tabular aggregate --gym FrozenLake-v1 --seed 1", "--seed is for --example garnet; drop it"),
    (f"{AGGREGATE} toy --eps -0.1", "eps must be at least 0, got -0.1"),
    (f"{AGGREGATE} toy --metric lax_bisimulation", "its classes have no common actions"),
    ("train", "--task is required"),
    ("train --tsk dmc:cheetah_run", "unknown flag --tsk; did you mean --task?"),
    (f"{TRAIN} --method taco --acton-steps 2", "did you mean --action-steps?"),
    ("train --task dmc:cheeta_run", "did you mean dmc:cheetah_run"),
    (f"{TRAIN} --preset gpu", "--preset must be one of paper, cpu"),
    (f"{TRAIN} --method simsr-re", "names, got 'simsr-re'; did you mean 'simsr-rev'?"),
    (f"{TRAIN} --fames 1", "did you mean --frames"),
    pytest.param(
        f"{TRAIN} --device cuda:7",
        "device cuda:7 cannot be used",
        marks=pytest.mark.env("dmc", gl=False),
    ),
    (f"{WALK} --explore-steps 60000", "before the first update: --explore-steps 60,000"),
    (f"{WALK} --strides 2 2 1 x", "--strides: must be whole numbers, got ['2',"),
    (f"{WALK} --strides 5", "'--strides'. Expected 4 values"),
    (f"{WALK} --normalisation maybe", "invalid choice 'maybe' for argument"),
    (f"{WALK} --out {URL}", f"--out: {NO_PATH}"),
    (f"reproduce table1 --out {URL}", f"--out: {NO_PATH}"),
    ("sweep", "give a grid"),
    ("sweep table9", "names, got 'table9'; did you mean 'table1'?"),
    ("sweep missing.yaml", "missing.yaml cannot be read"),
    (f"{SWEEP} --seeds 1 x", "--seeds: must be whole numbers, got ['1', 'x']"),
    (f"{SWEEP} --set frames=true", "frames must be a whole number, got True"),
    (f"{GRID} --out s3://x/y", "--on ray"),
    (f"{GRID} --address auto", "--address is for --on ray"),
    (f"{GRID} --gpus 1", "--gpus is for --on ray"),
    (f"{GRID} --on ray --gpus 1.5", "--gpus must be a share from 0 to 1"),
    (f"{GRID} --on ray --workers 2", "--workers is for --on local"),
    (f"{GRID} --workers 0", "--workers must be a whole number from 1 to 4096"),
    pytest.param(
        f"{GRID} --workers 4000", "use fewer --workers", marks=pytest.mark.env("dmc", gl=False)
    ),
    (f"{GRID} --threads 4097", "--threads must be a whole number from 1 to 4096"),
    (f"{GRID} --seeds {2**32}", "must be at most 4,294,967,295"),
    (f"{GRID} --set framse=3", "framse"),
    (f"{GRID} --set device=gpu", "device must be auto"),
    (f"{GRID} --on ray --tasks dmc:walker_rum", "did you mean dmc:walker_run"),
    (f"{GRID} --tasks walker_run", "a task must be"),
    ("sweep ablation-cpu --set frames=2000", "would end before the first update"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_mistakes_get_one_line_and_leave_nothing(words, message, here, capsys, monkeypatch):
    for module in ("sweep.backend", "runs.preflight"):  # whatever is installed here
        monkeypatch.setattr(f"revbis.{module}.is_installed", lambda module: True)
    error = fails(capsys, *words.split())
    assert message in error and len(error.splitlines()) == 1
    assert os.listdir(here) == []


def test_a_refused_solve_keeps_a_folder_that_was_there(here, capsys):
    (here / "mine").mkdir()
    fails(capsys, *f"{TOY} --tol 0 --out mine/new/results".split())
    assert os.listdir(here) == ["mine"] and os.listdir(here / "mine") == []


@pytest.mark.parametrize("name", ["P", "R", "policy"])
def test_complex_arrays_of_an_mdp_are_refused(name, here, capsys):
    arrays = {"P": np.ones((1, 1, 1)), "R": np.ones((1, 1)), "policy": np.ones((1, 1))}
    np.savez(here / "mdp.npz", **arrays | {name: arrays[name] + 1j})
    error = fails(capsys, "tabular", "solve", "--mdp", "mdp.npz")
    assert name in error and "must hold real numbers, got complex numbers" in error
    assert os.listdir(here) == ["mdp.npz"]
