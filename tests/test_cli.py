import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.commands import fails

from revbis import tabular
from revbis.cli import main


def test_solves_the_toy_as_the_readme_says(tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "toy")
    main(
        ["tabular", "solve", "--example", "toy", "--metric", "revised", "--gamma", "0.9", "--out"]
        + [out]
    )
    printed = capsys.readouterr().out
    assert "doubling" in printed and "1.173021" in printed
    with np.load(tmp_path / "toy" / "revised.npz", allow_pickle=False) as file:
        matrix, bound = file["matrix"], float(file["error_bound"])
    assert abs(matrix[0, 1] - 4 / (1.1 * 3.1)) <= bound <= 1e-6
    rows = (tmp_path / "toy" / "revised.csv").read_text().splitlines()
    assert rows[0] == ",0,1,2"
    assert [float(x) for x in rows[1].split(",")[1:]] == matrix[0].tolist()
    assert (tmp_path / "toy" / "revised.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["toy-printed", "grid", "rooms", "garnet", "delay"])
def test_every_example_and_metric(name: str, tmp_path: Path, capsys) -> None:
    size = [] if name == "toy-printed" else ["--size", "6"]
    main(["tabular", "solve", "--example", name, *size, "--metric", "all", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    for metric in tabular.METRICS:
        assert metric in printed
        assert {f"{metric}.{end}" for end in ("npz", "csv", "png")} <= {
            path.name for path in tmp_path.iterdir()
        }


def test_state_action_level_and_policies(tmp_path: Path, capsys) -> None:
    policy = tmp_path / "policy.npy"
    np.save(policy, np.zeros(16, dtype=int))
    for choice in ("uniform", "optimal", str(policy)):
        main(
            ["tabular", "solve", "--gym", "FrozenLake-v1", "--metric", "all", "--policy", choice]
            + ["--level", "state_action", "--out", str(tmp_path)]
        )
    header = (tmp_path / "revised.csv").read_text().splitlines()[0]
    assert header.startswith(",0:0,0:1")
    assert "bisimulation.csv" not in {path.name for path in tmp_path.iterdir()}


def test_solves_an_npz_with_its_own_policy(tmp_path: Path, capsys) -> None:
    mdp, _ = tabular.examples.toy()
    plain = tmp_path / "plain.npz"
    P = np.array(
        [[[1.0, 0, 0], [0, 0, 1.0]], [[0, 1.0, 0], [0, 0, 1.0]], [[0, 0, 1.0], [0, 0, 1.0]]]
    )
    np.savez(plain, P=P, R=np.array([[0, 1.0], [0, 1.0], [0.5, 0.5]]), policy=np.full((3, 2), 0.5))
    saved = tmp_path / "saved.npz"
    mdp.save(saved)
    for path in (plain, saved):
        main(["tabular", "solve", "--mdp", str(path), "--out", str(tmp_path)])
        with np.load(tmp_path / "revised.npz", allow_pickle=False) as file:
            assert abs(file["matrix"][0, 1] - 4 / (1.1 * 3.1)) < 1e-6


def test_large_low_rank_results_write_factors(tmp_path: Path, capsys) -> None:
    main(["tabular", "solve", "--example", "grid", "--size", "80", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert "low_rank" in said.out and "is not written" in said.err
    with np.load(tmp_path / "revised.npz", allow_pickle=False) as file:
        points, own = file["embedding"], file["self_distance"]
    exact = tabular.revised(*tabular.examples.grid_world(80), 0.9)
    rho = ((points[7] - points[4000]) ** 2).sum()
    assert np.isclose(rho + own[7] / 2 + own[4000] / 2, exact.pairs(7, 4000), atol=1e-6)


def test_bounds_prints_theorems_and_the_rest(capsys) -> None:
    main(["tabular", "bounds", "--example", "delay", "--gamma", "0.99"])
    printed = capsys.readouterr().out
    assert "NO" not in printed.split("not theorems")[0]
    last = [line for line in printed.splitlines() if "for c < γ" in line]
    assert len(last) == 1 and " no " in last[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "unknown command 'nonsense'"),
        (["tabular", "solve"], "give one of --example, --mdp and --gym"),
        (["tabular", "solve", "--example", "toy", "--gym", "Taxi-v3"], "give one of"),
        (["tabular", "solve", "--example", "toy", "--gamma", "1"], "gamma must be in [0, 1)"),
        (["tabular", "solve", "--example", "toy", "--tol", "0"], "tol must be"),
        (["tabular", "solve", "--example", "toy", "--c", "2"], "c must be in [0, 1)"),
        (["tabular", "solve", "--example", "toy", "--origin", "3"], "--origin must be a state"),
        (["tabular", "solve", "--example", "toy", "--solver", "gather"], "solver must be one of"),
        (["tabular", "solve", "--example", "grid", "--slip", "2"], "slip must be in [0, 1]"),
        (["tabular", "solve", "--example", "grid", "--size", "-1"], "must be at least 1"),
        (["tabular", "solve", "--gym", "Nonsense-v9"], "Gymnasium cannot make"),
        (["tabular", "solve", "--gym", "CartPole-v1"], "no transition table"),
        (["tabular", "solve", "--mdp", "missing.npz"], "no such file"),
        (["tabular", "solve", "--example", "toy", "--policy", "best"], "no file 'best'"),
        (["tabular", "bounds", "--example", "grid", "--size", "40"], "at most 4000"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(
    words: list[str], said: str, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = fails(capsys, *words)
    assert said in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "tabular solve --examples toy",
            "options: --examples, toy; did you mean --example?",
        ),
        ("tabular solve --metric micro", "invalid choice 'micro' for argument '--metric'"),
        ("tabular solve --gamma x", "--gamma: could not convert string to float: 'x'"),
        ("tabular", "Expected one of {solve, bounds} (see revbis tabular --help)"),
        ("tabular sovle", "sovle"),
        ("probe --steps many", "--steps"),
    ],
)
def test_flags_that_cannot_be_read_get_one_line_too(words: str, said: str, capsys) -> None:
    error = fails(capsys, *words.split())
    assert said in error
    assert len(error.splitlines()) == 1


def test_an_unwritable_folder_is_one_line(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    where = str(tmp_path / "file" / "out")
    assert where in fails(capsys, "tabular", "solve", "--example", "toy", "--out", where)


@pytest.mark.filterwarnings("always")
def test_unmet_tolerance_is_a_line_not_a_traceback(tmp_path: Path, capsys) -> None:
    main(["tabular", "solve", "--example", "garnet", "--tol", "1e-15", "--out", str(tmp_path)])
    assert "revbis: warning: revised: tolerance 1.0e-15 not met" in capsys.readouterr().err


def test_help_and_version(capsys) -> None:
    main(["--version"])
    assert capsys.readouterr().out.startswith("revbis 0.")
    for words in (["--help"], ["tabular", "--help"], ["tabular", "solve", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0
        assert "usage" in capsys.readouterr().out


def loaded_by(code: str) -> set[str]:
    code = f"import sys\n{code}\nprint(*sys.modules)"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=400)
    return set(done.stdout.split())


def test_help_loads_nothing_heavy() -> None:
    code = "from revbis.cli import main\ntry:\n    main(['tabular', '-h'])\nexcept SystemExit: pass"
    assert loaded_by(code) & {"torch", "numba", "scipy", "matplotlib", "numpy"} == set()


def test_exact_metrics_need_neither_torch_nor_a_simulator() -> None:
    code = (
        "from revbis import tabular\n"
        "tabular.revised(*tabular.examples.toy(), 0.9).matrix()\n"
        "tabular.pi_bisimulation(*tabular.examples.grid_world(3), 0.9).matrix()\n"
    )
    assert loaded_by(code) & {"torch", "gymnasium", "mujoco", "dm_control", "ray"} == set()
