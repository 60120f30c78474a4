"""The sweep command: its plan, and what it refuses in one line."""

import json
import re
import sys

import pytest
from tests.cli import fails
from tests.envs.toys import run_python
from tests.sweep.grids import SETTINGS, small_grid

from revbis.cli import main
from revbis.sweep.measure import NotMeasuredError
from revbis.sweep.plan import Speed

TASK = "tests.runs:Walk"
WALK = ["--tasks", TASK, "--methods", "drqv2", "simsr-rev", "--seeds", "1"]
LONGER = {"frames": 1200}
SMALL = [*WALK, "--set", *(f"{name}={value}" for name, value in (SETTINGS | LONGER).items())]


@pytest.fixture(autouse=True)
def _narrow_and_with_every_package(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for module in ("sweep.backend", "runs.preflight"):  # a plan needs none
        monkeypatch.setattr(f"revbis.{module}.is_installed", lambda module: True)


def _plan(capsys, *words):
    main(["sweep", *words, "--dry-run"])
    return capsys.readouterr()


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_run_that_was_begun_otherwise_is_refused(dry, capsys, tmp_path):
    configs = small_grid(TASK, settings=LONGER).configs(tmp_path)
    path = configs[1].directory / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(configs[1].with_settings(hidden=99).as_dict()))
    error = fails(capsys, "sweep", *SMALL, "--out", str(tmp_path), *dry)
    assert error.startswith("revbis: error: 1 of 2 runs cannot be trained; none was started:\n")
    assert "--hidden was 99, now 16" in error
    assert "remove the folder to discard it" in error  # a sweep has no --restart
    assert not list(tmp_path.rglob("attempts"))


def test_a_missing_package_is_told_here_and_left_to_the_nodes(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("revbis.runs.preflight.is_installed", lambda module: False)
    words = [*SMALL, "wandb=mine", "--out", str(tmp_path / "runs")]
    for where in ([], ["--on", "ray"]):  # which starts a cluster here
        assert "pip install wandb" in fails(capsys, "sweep", *words, *where)
        planned = _plan(capsys, *words, *where)
        assert "2 runs" in planned.out and planned.err.count("\n") == 1
        assert planned.err.startswith("revbis: warning: wandb is set but not installed; run: pip ")
    printed = _plan(capsys, *words, "--on", "ray", "--address", "auto")
    assert "2 runs" in printed.out and printed.err == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.env("dmc", gl=False)
@pytest.mark.parametrize("command", [["sweep", "table1-cpu"], ["reproduce", "table1"]])
def test_without_sheeprl_one_line_tells_how_to_go_on(command, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("revbis.runs.preflight.is_installed", lambda module: module != "sheeprl")
    error = fails(capsys, *command, "--out", str(tmp_path / "runs"))
    assert error.count("\n") == 0 and not list(tmp_path.iterdir())
    assert "6 of 48 runs cannot be trained here: dreamerv3 needs sheeprl" in error
    assert "; run: pip install " in error
    words = error.split("; or leave dreamerv3 out: ")[1].split()
    printed = _plan(capsys, "table1-cpu", *words)
    assert "42 runs" in printed.out and printed.err == ""


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_missing_ray_is_told_before_anything_is_written(dry, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("revbis.sweep.backend.is_installed", lambda module: module != "ray")
    words = [*SMALL, "--on", "ray", "--address", "auto", "--out", str(tmp_path / "runs"), *dry]
    assert "pip install 'revbis[sweep]'" in fails(capsys, "sweep", *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_dry_run_imports_nothing_heavy_and_stays_small(tmp_path):
    heavy = ("torch", "numba", "scipy", "mujoco", "dm_control", "metaworld", "ray", "matplotlib")
    code = (
        "import re, sys\nfrom pathlib import Path\nfrom revbis.cli import main\n"
        f"main(['sweep', 'table1', '--on', 'ray', '--dry-run', '--out', {str(tmp_path)!r}])\n"
        f"print([name for name in {heavy} if name in sys.modules])\n"
        # of this program alone: rusage would count the process it was forked from
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    *_, imported, kilobytes = run_python(code).stdout.splitlines()
    assert imported == "[]" and int(kilobytes) < 200_000


def test_a_dry_run_starts_nothing_and_tells_time_memory_and_disk(tmp_path, capsys):
    printed = _plan(capsys, *SMALL, "--out", str(tmp_path / "runs"))
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert lines[0] == f"in {tmp_path}/runs/cpu/tests.runs-Walk:"
    assert any("drqv2/seed-1" in line and "waiting" in line for line in lines)
    memory = r"\d+ MB memory of its process \([\d.]+ kB of it the replay buffer\)"
    assert re.search(rf"^each run: 1,200 frames, {memory}, [\d.]+ kB disk$", printed.out, re.M)
    assert "time: unknown" in lines[-1] and "--measure" in lines[-1]
    assert not list(tmp_path.iterdir())


def test_the_table_fits_80_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for grid in ("table1-cpu", "metaworld"):
        out = _plan(capsys, grid, "--on", "ray", "--out", "runs").out
        rows = [line for line in out.splitlines() if "seed-" in line]
        assert len(rows) >= 30 and all("/seed-" in line for line in rows)  # no name is folded
        assert max(map(len, rows)) <= 80


def test_what_differs_between_runs_stays_in_the_table(tmp_path, capsys):
    grid = tmp_path / "grid.yaml"
    overrides = {"long": {"frames": 5000}, "wide": {"frames": 9000}}
    grid.write_text(json.dumps({"tasks": "json:loads", "methods": "drqv2", "overrides": overrides}))
    out = _plan(capsys, str(grid), "--out", str(tmp_path / "runs")).out
    assert "5,000" in out and "9,000" in out and "frames, " not in out


def test_runs_that_have_begun_tell_the_time(tmp_path, capsys):
    first, second = small_grid(TASK, settings=LONGER).configs(tmp_path)
    for config, frames, seconds in ((first, 600, 6.0), (second, 300, 3.0)):
        config.directory.mkdir(parents=True)
        (config.directory / "config.json").write_text(json.dumps(config.as_dict()))
        progress = {"frames": frames, "seconds": seconds}
        (config.directory / "progress.json").write_text(json.dumps(progress))
    out = _plan(capsys, *SMALL, "--out", str(tmp_path), "--workers", "1").out
    rows = [line for line in out.splitlines() if "seed-1" in line]
    assert all("resumed" in row for row in rows)
    assert "6 s" in rows[0] and "9 s" in rows[1]
    assert "time: about 15 s with 1 in parallel, at the speed of the runs so far" in out


def test_runs_that_were_given_up_take_no_time_unless_tried_again(tmp_path, capsys):
    first, second = small_grid(TASK, settings=LONGER).configs(tmp_path)
    for config, name, content in (
        (first, "result.json", {"frames": 1200, "mean_return": 1.0, "seconds": 12.0}),
        (second, "failures.json", {"failures": [{"checkpoint": 0, "text": "it", "final": True}]}),
    ):
        config.directory.mkdir(parents=True)
        (config.directory / name).write_text(json.dumps(content))
    words = [*SMALL, "--out", str(tmp_path), "--workers", "1"]
    lines = _plan(capsys, *words).out.splitlines()
    assert [line.split()[1:] for line in lines if "/seed-1" in line] == [
        ["finished", "0", "s"],
        ["failed", "0", "s"],
    ]
    assert lines[-2:] == [
        "time: about 0 s with 1 in parallel, at the speed of the runs so far",
        "given up: 1 of them; pass --retry-failed to retry",
    ]
    again = _plan(capsys, *words, "--retry-failed").out.splitlines()
    assert again[-1] == "time: about 12 s with 1 in parallel, at the speed of the runs so far"
    assert (second.directory / "failures.json").read_text() == json.dumps(content)


def test_measuring_says_so_first_and_implies_a_dry_run(tmp_path, capsys, monkeypatch):
    measured = []

    def measure(config):
        measured.append((config, capsys.readouterr().err))
        return Speed(step=0.02, act=0.0, update=0.0)  # 600 steps of two frames

    monkeypatch.setattr("revbis.cli.sweep.measure_speed", measure)
    main(["sweep", *SMALL, "--out", str(tmp_path / "runs"), "--measure", "--workers", "2"])
    printed = capsys.readouterr()
    [(config, before)] = measured
    assert config.method == "simsr-rev" and config.threads == 1
    assert before.startswith("measuring tests.runs:Walk, simsr-rev, for at most 20 s")
    assert "20 ms per step, 0 ms per action, 0 ms per update" in printed.err
    assert "time: about 12 s with 2 in parallel, as measured here just now" in printed.out
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_measured_is_a_warning(tmp_path, capsys, monkeypatch):
    def measure(config):
        raise NotMeasuredError("the speed could not be measured: no OpenGL")

    monkeypatch.setattr("revbis.cli.sweep.measure_speed", measure)
    main(["sweep", *SMALL, "--out", str(tmp_path), "--measure"])
    printed = capsys.readouterr()
    assert "revbis: warning: the speed could not be measured: no OpenGL" in printed.err
    assert "time: not known for runs that could not be measured" in printed.out


def test_the_runs_of_an_agent_that_could_not_be_measured_have_no_time(
    tmp_path, capsys, monkeypatch
):
    def measure(config):
        if config.method == "tdmpc":
            raise NotMeasuredError("the speed could not be measured: no time")
        return Speed(step=0.02, act=0.0, update=0.0)

    monkeypatch.setattr("revbis.cli.sweep.measure_speed", measure)
    words = [*SMALL, "samples=8", "elites=2", "--methods", "drqv2", "tdmpc", "--measure"]
    main(["sweep", *words, "--out", str(tmp_path / "runs"), "--workers", "1"])
    printed = capsys.readouterr()
    times = [
        line.split("waiting")[1].split() for line in printed.out.splitlines() if "/seed-" in line
    ]
    assert times == [["12", "s"], ["unknown"]]
    assert printed.out.endswith("time: not known for runs that could not be measured\n")
    assert printed.err.count("revbis: warning: ") == 1
