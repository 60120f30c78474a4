"""Cells: kept, reused by the same settings alone, run on several cores and interrupted."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from revbis.objectives.registry import OBJECTIVES
from revbis.representation import exactness
from revbis.representation.cells import cell_path, code_key, stored
from revbis.representation.exactness import (
    ExactnessCell,
    ExactnessSettings,
    plan,
    read_dots,
    read_exactness,
    run_cell,
)
from revbis.representation.problems import USUAL
from revbis.representation.workers import Show, run_all

ROOT = Path(__file__).parents[2]
OWN = "tests.objectives.own_objectives"
TINY = ExactnessSettings(steps=2, batch=16, transitions=200)
CELL = ExactnessCell("rooms", "simsr-rev", 0, 5, TINY)


def quiet(*_: object) -> None:
    pass


def run_cells(cells, out: Path, workers: int, show: Show) -> dict[ExactnessCell, str]:
    return run_all(cells, partial(run_cell, out), workers, show)


def test_a_result_is_kept_and_read_again(tmp_path: Path) -> None:
    assert read_exactness(CELL, tmp_path) is None
    run_cell(tmp_path, CELL, quiet)
    row = read_exactness(CELL, tmp_path)
    assert (row["scenario"], row["method"], row["seed"]) == ("rooms", "simsr-rev", 0)
    assert {"phi_spearman", "psi_error", "psi_spearman_untrained", "claims"} <= set(row)
    assert "phi_behaviour_spearman" not in row and row["denoising"] is None
    dots = read_dots(CELL, tmp_path)
    assert {name: len(each) for name, each in dots.items()} == {"phi": 2, "psi": 2}
    (file,) = (tmp_path / "cells").glob("*.json")
    assert file.stat().st_size < 4000


@pytest.mark.parametrize(
    "other",
    [
        replace(CELL, seed=1),
        replace(CELL, size=6),
        replace(CELL, scenario="rooms-off-policy"),
        replace(CELL, method="simsr"),
        replace(CELL, settings=replace(TINY, steps=3)),
    ],
)
def test_other_settings_are_another_cell(other: ExactnessCell, tmp_path: Path) -> None:
    run_cell(tmp_path, CELL, quiet)
    assert read_exactness(other, tmp_path) is None


def test_another_version_is_another_cell(tmp_path: Path, monkeypatch) -> None:
    run_cell(tmp_path, CELL, quiet)
    with monkeypatch.context() as patched:
        patched.setattr(exactness, "BENCHMARK", exactness.BENCHMARK + 1)
        assert read_exactness(CELL, tmp_path) is None
    raised = replace(OBJECTIVES["simsr-rev"], version=OBJECTIVES["simsr-rev"].version + 1)
    with monkeypatch.context() as patched:
        patched.setitem(OBJECTIVES, "simsr-rev", raised)
        assert read_exactness(CELL, tmp_path) is None
    assert read_exactness(CELL, tmp_path) is not None


def test_an_own_objective_is_known_by_its_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (("one_own", "x = 1"), ("same_own", "x = 1"), ("other_own", "x = 2")):
        (tmp_path / f"{name}.py").write_text(text)
    one, same, other = (code_key(f"{name}_own:make", 1) for name in ("one", "same", "other"))
    assert one == same != other


def test_an_archive_is_read_like_the_folder(tmp_path: Path) -> None:
    run_cell(tmp_path, CELL, quiet)
    row, dots = read_exactness(CELL, tmp_path), read_dots(CELL, tmp_path)
    folder = tmp_path / "cells"
    shutil.make_archive(str(folder), "zip", folder)
    shutil.rmtree(folder)
    assert read_exactness(CELL, tmp_path) == row
    assert np.array_equal(read_dots(CELL, tmp_path)["psi"], dots["psi"])
    assert read_exactness(replace(CELL, seed=1), tmp_path) is None
    (tmp_path / "cells.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"cells.zip is not an archive of cells"):
        read_exactness(CELL, tmp_path)


@pytest.mark.parametrize("folder", ["", "controls"])
def test_committed_cells_are_found(folder: str, monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr("torch.__version__", "2.13.0+cpu")  # theirs: file names depend on it
    out = ROOT / "results/exactness" / folder
    methods = {"": list(OBJECTIVES), "controls": ["controls:scaled"]}[folder]
    cells = plan(USUAL, methods, 5, 9, ExactnessSettings())
    assert len(cells) == 30 * len(methods)
    key = next(iter(cells)).key
    for cell in cells:
        content = json.loads(stored(cell_path(cell, out)).read_bytes())
        assert content["key"] | {"torch": key["torch"]} == json.loads(json.dumps(cell.key))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": {}, "result": {}}', b"\xff"])
def test_a_damaged_result_counts_as_none(content: bytes, tmp_path: Path) -> None:
    run_cell(tmp_path, CELL, quiet)
    cell_path(CELL, tmp_path).write_bytes(content)
    assert read_exactness(CELL, tmp_path) is None
    run_cell(tmp_path, CELL, quiet)
    assert read_exactness(CELL, tmp_path) is not None
    cell_path(CELL, tmp_path).with_suffix(".npz").write_bytes(content)
    assert read_exactness(CELL, tmp_path) is None


def test_seeds_come_in_turn_and_long_cells_of_each_first() -> None:
    cells = plan(["rooms", "rooms-noisy"], ["simsr", "simsr-rev-full"], 2, 5, TINY)
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4
    for seed in (0, 1):
        own = {cell: work for cell, work in cells.items() if cell.seed == seed}
        assert list(own.values()) == sorted(own.values(), reverse=True)
        first, *_, last = own
        assert (first.scenario, first.method) == ("rooms-noisy", "simsr-rev-full")
        assert (last.scenario, last.method) == ("rooms", "simsr")


def test_a_method_named_twice_is_run_once() -> None:
    assert len(plan(["rooms"], ["simsr", "simsr"], 1, 5, TINY)) == 1


@pytest.mark.slow
def test_workers_give_what_this_process_gives(tmp_path: Path) -> None:
    cells = plan(["rooms", "rooms-noisy"], ["simsr", f"{OWN}:make"], 1, 5, TINY)
    shown = []
    here, there = tmp_path / "here", tmp_path / "there"
    assert run_cells(cells, here, 1, lambda text, done: shown.append(done)) == {}
    assert shown[-1] == pytest.approx(sum(cells.values())) and shown == sorted(shown)
    texts = []
    assert run_cells(cells, there, 2, lambda text, done: texts.append(text)) == {}
    assert texts[-1] == "4 of 4 cells"
    for cell in cells:
        ours, theirs = read_exactness(cell, here), read_exactness(cell, there)
        assert ours == theirs


def test_a_cell_that_diverges_does_not_end_the_others(tmp_path: Path, monkeypatch) -> None:
    wild = replace(CELL, method="energy", settings=replace(TINY, learning_rate=1e30, steps=50))
    problems = run_cells({wild: 1.0, CELL: 1.0}, tmp_path, 1, quiet)
    assert list(problems) == [wild] and read_exactness(CELL, tmp_path) is not None
    assert problems[wild].startswith("energy on rooms, seed 0: ")
    assert "non-finite" in problems[wild] and len(problems[wild].splitlines()) == 1


def test_what_was_finished_before_an_interruption_is_kept(tmp_path: Path) -> None:
    cells = plan(["rooms"], ["simsr"], 2, 5, TINY)
    first, second = cells

    def interrupt(text: str, done: float) -> None:
        if "2 of 2" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, tmp_path, 1, interrupt)
    assert read_exactness(first, tmp_path) is not None and read_exactness(second, tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_command(number: int, tmp_path: Path) -> None:
    words = ["--methods", "simsr", "simsr-rev", "--scenarios", "rooms", "--size", "5"]
    words += ["--steps", "1000000", "--seeds", "1", "--workers", "2", "--out", str(tmp_path)]
    start = [sys.executable, "-m", "revbis", "exactness", *words]
    with subprocess.Popen(start, stderr=subprocess.PIPE, text=True) as command:
        children = until(lambda: workers_of(command.pid))
        command.send_signal(number)
        error = command.communicate(timeout=120)[1]
    if number == signal.SIGINT:
        assert command.returncode == 130
        assert "finished cells are kept: repeat the command to continue" in error
        assert "Traceback" not in error
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    assert not list(tmp_path.rglob("*.json"))


def workers_of(pid: int) -> list[str]:
    """The two workers, once both are there: not the tracker that multiprocessing starts."""
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    children = tasks.read_text().split() if tasks.exists() else []
    found = []
    for child in children:
        try:
            line = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        found += [child] if b"spawn_main" in line else []
    return found if len(found) == 2 else []


def until(holds, seconds: float = 120):
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value
