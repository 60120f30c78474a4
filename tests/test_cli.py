import logging
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli import fails

from revbis import tabular
from revbis.cli import main
from revbis.io.files import digest
from revbis.runs.folder import SupersededError
from revbis.tabular import jobs


@pytest.fixture
def _undrawn(monkeypatch) -> None:
    """Names and numbers without the pictures, which take most of the time."""
    monkeypatch.setattr(jobs, "draw_metric", lambda *_: None)


def test_solves_the_toy_as_the_readme_says(tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "toy")
    main(
        ["tabular", "solve", "--example", "toy", "--metric", "revised", "--gamma", "0.9", "--out"]
        + [out]
    )
    printed = capsys.readouterr().out
    assert "doubling" in printed and "1.173021" in printed
    path = tmp_path / "toy" / "toy-revised-gamma-0.9"
    with np.load(f"{path}.npz", allow_pickle=False) as file:
        matrix, bound = file["matrix"], float(file["error_bound"])
        assert str(file["mdp"]) == "toy" and str(file["solver"]) == "doubling"
    assert abs(matrix[0, 1] - 4 / (1.1 * 3.1)) <= bound <= 1e-6
    rows = Path(f"{path}.csv").read_text().splitlines()
    assert rows[0] == ",0,1,2"
    assert [float(x) for x in rows[1].split(",")[1:]] == matrix[0].tolist()
    assert Path(f"{path}.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["toy-printed", "coins", "grid", "rooms", "garnet", "delay"])
def test_every_example_and_metric(name: str, tmp_path: Path, capsys) -> None:
    fixed = name in ("toy-printed", "coins")
    size = [] if fixed else ["--size", "6e0"]
    mdp = name if fixed else f"{name}-6"
    words, metrics = ["--metric", "all"], list(tabular.METRICS)
    if name != "grid":
        words, metrics = [], ["revised"]
    main(["tabular", "solve", "--example", name, *size, *words, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    for metric in metrics:
        assert metric in printed
        assert {f"{mdp}-{metric}-gamma-0.9.{end}" for end in ("npz", "csv", "png")} <= {
            path.name for path in tmp_path.iterdir()
        }


@pytest.mark.usefixtures("_undrawn")
def test_state_action_level_and_policies(tmp_path: Path, capsys) -> None:
    policy = tmp_path / "policy.npy"
    np.save(policy, np.zeros(16, dtype=int))
    for choice in ("uniform", "optimal", str(policy)):
        main(
            ["tabular", "solve", "--gym", "FrozenLake-v1", "--metric", "all", "--policy", choice]
            + ["--level", "state_action", "--out", str(tmp_path)]
        )
    names = {path.name for path in tmp_path.iterdir() if path.suffix == ".csv"}
    assert names == {
        f"FrozenLake-v1-{choice}-{metric}-state_action-gamma-0.9.csv"
        for choice in ("uniform", "optimal", f"policy-{digest(policy)[:6]}")
        for metric in ("revised", "mico", "pi_bisimulation")
    }
    header = (tmp_path / sorted(names)[0]).read_text().splitlines()[0]
    assert header.startswith(",0:0,0:1")


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
        [written] = tmp_path.glob(f"{path.stem}-??????-revised-gamma-0.9.npz")
        with np.load(written) as file:
            assert abs(file["matrix"][0, 1] - 4 / (1.1 * 3.1)) < 1e-6


@pytest.mark.usefixtures("_undrawn")
def test_no_mdp_writes_over_another(tmp_path: Path, capsys) -> None:
    grid, garnet = ("--example grid", "--example garnet --size 14")
    for words in (
        *(f"{grid} --size {size}" for size in (4, 5)),
        f"{grid} --size 4 --slip 0.5",
        f"{garnet} --gamma 0.5",
        f"{garnet} --c 0.5",
        f"{garnet} --policy optimal",
        f"{garnet} --gamma 0.9000001",
        *(f"{garnet} --seed {seed}" for seed in (0, 1)),
    ):
        main(["tabular", "solve", *words.split(), "--out", str(tmp_path)])
    assert sorted(path.stem for path in tmp_path.glob("*.npz")) == [
        "garnet-14-optimal-revised-gamma-0.9",
        "garnet-14-revised-c-0.5",
        "garnet-14-revised-gamma-0.5",
        "garnet-14-revised-gamma-0.9",
        "garnet-14-revised-gamma-0.9000001",
        "garnet-14-seed-1-revised-gamma-0.9",
        "grid-4-revised-gamma-0.9",
        "grid-4-slip-0.5-revised-gamma-0.9",
        "grid-5-revised-gamma-0.9",
    ]


@pytest.mark.usefixtures("_undrawn")
def test_no_file_of_the_same_name_writes_over_another(tmp_path: Path, capsys) -> None:
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        mdp, _ = tabular.examples.garnet(4, branching=4, seed=seed)
        mdp.save(folder / "garnet-4.npz")
        np.save(folder / "mine.npy", np.array([seed, 0, 0, 0]))
    out = str(tmp_path / "out")
    mine, other = (f"--mdp {tmp_path}/{n}/garnet-4.npz" for n in "01")
    first, second = (f"--policy {tmp_path}/{n}/mine.npy" for n in "01")
    different = ("--example garnet --size 4", mine, other, f"{mine} {first}", f"{mine} {second}")
    for words in (*different, f"{mine} {first}"):  # the same again takes the same name
        main(["tabular", "solve", *words.split(), "--out", out])
    assert len(list(Path(out).glob("garnet-4*.npz"))) == len(different)


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize(
    "words",
    [
        *("solve --example grid --size 3 --metric all", "solve --example toy"),
        *("bounds --example toy", "aggregate --example grid --size 3"),
        *("values --example grid --size 3 --metric all", "values --example grid --size 3 --c 0.5"),
    ],
)
def test_tables_fit_80_columns(words: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    main(["tabular", *words.split()])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    for line in printed.splitlines() if "values" not in words else ():  # that prints prose, too
        # no number ends in the middle
        assert not line.rstrip().endswith(("e", "e-", "."))


def test_large_low_rank_results_write_factors(tmp_path: Path, capsys) -> None:
    main(["tabular", "solve", "--example", "grid", "--size", "80", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert "low_rank" in said.out and "is not written" in said.err
    with np.load(tmp_path / "grid-80-revised-gamma-0.9.npz", allow_pickle=False) as file:
        points, own = file["embedding"], file["self_distance"]
    exact = tabular.revised(*tabular.examples.grid_world(80), 0.9)
    rho = ((points[7] - points[4000]) ** 2).sum()
    assert np.isclose(rho + own[7] / 2 + own[4000] / 2, exact.pairs(7, 4000), atol=1e-6)


@pytest.mark.parametrize("metric", ["revised", "bisimulation"])
def test_large_results_without_factors_write_the_matrix(
    metric: str, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("revbis.tabular.jobs.MATRIX_UP_TO", 2)
    main(["tabular", "solve", "--example", "toy", "--metric", metric, "--out", str(tmp_path)])
    assert "is not written" not in capsys.readouterr().err
    with np.load(tmp_path / f"toy-{metric}-gamma-0.9.npz", allow_pickle=False) as file:
        assert file["matrix"].shape == (3, 3)


def test_bounds_prints_theorems_and_the_rest(capsys) -> None:
    main(["tabular", "bounds", "--example", "delay", "--gamma", "0.99"])
    printed = capsys.readouterr().out
    assert "NO" not in printed.split("not theorems")[0]
    last = [line for line in printed.splitlines() if "for c < γ" in line]
    assert len(last) == 1 and " no " in last[0]


def test_an_unwritable_folder_is_one_line(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    where = str(tmp_path / "file" / "out")
    assert where in fails(capsys, "tabular", "solve", "--example", "toy", "--out", where)


def command_with(raised: Exception) -> Callable[[], None]:
    def command() -> None:
        raise raised

    return command


def test_a_run_that_was_taken_over_ends_in_one_line(capsys, monkeypatch) -> None:
    taken = SupersededError("attempt 2 has taken over runs/x; attempt 1 stops here")
    monkeypatch.setattr("revbis.cli.doctor.command", command_with(taken))
    with pytest.raises(SystemExit) as stop:
        main(["doctor"])
    assert stop.value.code == 1
    assert capsys.readouterr().err == f"revbis: error: {taken}\n"


def test_faults_of_the_program_keep_their_traceback(monkeypatch) -> None:
    monkeypatch.setattr("revbis.cli.doctor.command", command_with(RuntimeError("a fault")))
    with pytest.raises(RuntimeError, match="a fault"):
        main(["doctor"])


def test_too_little_memory_is_one_line_that_says_what_to_make_smaller(capsys, monkeypatch) -> None:
    gpu = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")
    for command in (lambda: torch.empty(10**15), command_with(gpu)):
        monkeypatch.setattr("revbis.cli.doctor.command", command)
        said = r"out of memory \(PyTorch asked for (4000000000000000 bytes|2.00 GiB)\): use .*"
        assert re.fullmatch(f"revbis: error: {said}", fails(capsys, "doctor"))


def revbis(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "revbis", *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.mark.parametrize(
    "words", ["--help", "tabular solve --help", "tabular bounds --example toy"]
)
def test_nobody_reading_is_silent(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = revbis(*words.split(), stdout=writer)
    finally:
        os.close(writer)
    lines = [line for line in done.stderr.splitlines() if not line.endswith("% done")]
    assert (done.returncode, lines) == (141, [])  # a busy machine may show progress


def test_output_to_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = revbis("--help", stdout=full)
    assert done.returncode == 2
    assert done.stderr == "revbis: error: standard output: No space left on device\n"


def test_what_is_logged_goes_to_the_standard_error_of_the_moment(capsys) -> None:
    main(["env", "list"])  # any command that sets the log up
    capsys.readouterr()
    shown = StringIO()
    with redirect_stderr(shown):  # as a live line does, to be drawn below what is printed
        logging.getLogger("revbis").warning("an alarm")
    assert shown.getvalue() == "revbis: an alarm\n" and capsys.readouterr().err == ""


def test_no_output_at_all_is_no_traceback() -> None:
    done = revbis("--version", preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    done = revbis(
        *("tabular", "solve", "--example", "toy", "--out", str(tmp_path)),
        stdout=subprocess.PIPE,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    path = tmp_path / "toy-revised-gamma-0.9.npz"
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"revbis: error: {path}: File too large"
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*toy*"))


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


def test_no_help_loads_torch() -> None:
    """Nor do plans and lists; in one process, because each start takes its time."""
    words = ("", "solve ", "values ", "aggregate ", "bounds ")
    code = (
        "from contextlib import suppress\nfrom revbis.cli import main\n"
        f"for words in {words}:\n"
        "    with suppress(SystemExit):\n"
        "        main(['tabular', *words.split(), '--help'])\n"
    )
    modules = loaded_by(code)
    assert "revbis.cli.tabular" in modules
    assert modules & {"torch", "numba", "scipy", "matplotlib", "numpy"} == set()
    code = (
        "from revbis import cli\n"
        "calls = [[name, '--help'] for name in cli._COMMANDS]\n"
        "for words in calls + [['train', '--list'], ['sweep', 'table1-cpu', '--dry-run']]:\n"
        "    try:\n"
        "        cli.main(words)\n"
        "    except SystemExit as stop:\n"
        "        assert not stop.code, words\n"
    )
    assert loaded_by(code) & {"torch", "numba", "gymnasium", "mujoco", "matplotlib"} == set()


def test_exact_metrics_need_neither_torch_nor_a_simulator() -> None:
    code = (
        "from revbis import tabular\n"
        "tabular.revised(*tabular.examples.toy(), 0.9).matrix()\n"
        "tabular.pi_bisimulation(*tabular.examples.grid_world(3), 0.9).matrix()\n"
    )
    assert loaded_by(code) & {"torch", "gymnasium", "mujoco", "dm_control", "ray"} == set()
