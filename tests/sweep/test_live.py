"""What a sweep shows: at any width, in any state, on a terminal or not."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from revbis.sweep import live
from revbis.sweep.driver import Entry, RunProgress
from revbis.sweep.grid import grid_from
from revbis.sweep.live import PlainBoard, common_folder, summary, table, time_left

TASKS = ["dmc:cartpole_balance", "dmc:finger_turn_hard", "metaworld:button-press-topdown-wall"]
STATES = ("running", "failed", "waiting", "finished")
WHY = "ValueError: reward must be a finite 32-bit number, got nan"


def _entries(**progress):
    values = {"frames": 12_345, "frames_per_second": 33.3, "mean_return": -3.2e-13}
    values |= {"status": {"c": 0.5123}}
    grid = grid_from({"tasks": TASKS, "methods": ["drqv2", "simsr-rev"], "preset": "paper"})
    entries = []
    for number, config in enumerate(grid.configs(Path())):
        state = STATES[number % 4]
        entries.append(
            Entry(
                config.directory.as_posix(),
                config,
                state,
                attempts=number,
                progress=RunProgress(**(values | progress)),
                text=WHY if state == "failed" else "",
            )
        )
    return entries


def _rendered(entries, width, height=None):
    console = Console(width=width, file=StringIO(), force_terminal=False)
    console.print(table(entries, "this machine", width, height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def _header(lines):
    return next(line.split() for line in lines if line.startswith("run "))


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_run_is_a_line_that_fits(width):
    entries = _entries()
    lines = _rendered(entries, width)
    assert max(map(len, lines)) <= width
    prefix = common_folder([entry.name for entry in entries])
    assert prefix == "paper" and "runs in paper" in lines
    for entry in entries:
        own = entry.name.removeprefix("paper/")
        shown = [line for line in lines if line.startswith(f"{own} ") and entry.state in line]
        if width == 60 and len(own) > 38:  # longer than the room: it goes on in the next line
            shown = [line for line in lines if line.startswith(own[:24])]
        assert shown, own


def test_wide_screens_show_all_and_narrow_ones_the_most_important():
    columns = {width: _header(_rendered(_entries(), width)) for width in (60, 80, 120, 200)}
    assert columns[200] == ["run", "state", "frames", "frames/s", "left", "return", "c", "attempts"]
    assert columns[120] == ["run", "state", "frames", "frames/s", "left", "return", "c"]
    assert columns[80] == ["run", "state", "done", "return"]
    assert columns[60] == ["run", "state", "done"]


def test_short_names_leave_room_for_more_at_80_columns():
    entries = [entry for entry in _entries() if "cartpole" in entry.name]
    lines = _rendered(entries, 80)
    assert "runs in paper/dmc-cartpole_balance" in lines
    assert _header(lines) == ["run", "state", "frames", "frames/s", "left", "return"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("mean", [-3.2e-13, 812.44, -1234567.0, 1.5e14])
def test_numbers_are_never_broken(width, mean):
    lines = _rendered(_entries(mean_return=mean), width)
    if "return" in _header(lines):
        wanted = {-3.2e-13: "0.0", 812.44: "812.4", -1234567.0: "-1.2e+06", 1.5e14: "1.5e+14"}[mean]
        rows = [line for line in lines if re.search(r"/seed-\d +(running|waiting|finished) ", line)]
        assert rows and all(wanted in line.split() for line in rows)
    assert not any(re.fullmatch(r"[-+.\de]+", line.strip()) for line in lines)


def test_names_that_do_not_fit_go_on_in_the_next_line_and_are_whole():
    entries = _entries()[:1]
    long = "x" * 50 + "/" + "y" * 50
    entries[0].name = f"a/{long}"
    entries.append(replace(entries[0], name="b/short"))
    lines = _rendered(entries, 60)
    assert max(map(len, lines)) <= 60
    start = next(number for number, line in enumerate(lines) if line.startswith("a/"))
    pieces = [line.split()[0] for line in lines[start : start + 4]]
    assert "".join(pieces).startswith(f"a/{long}")
    assert all(len(piece) >= 24 for piece in pieces[:2])


def test_failed_runs_say_why_below():
    lines = _rendered(_entries(), 120)
    failed = [entry for entry in _entries() if entry.state == "failed"]
    told = [line for line in lines if " failed: ValueError: reward" in line]
    assert len(told) == len(failed) > 3
    at_height = _rendered(_entries(), 120, height=30)
    assert sum(" failed: " in line for line in at_height) == 3
    assert any(line == f"and {len(failed) - 3} more failed" for line in at_height)


@pytest.mark.parametrize("height", [1, 10, 24, 50])
def test_a_low_screen_shows_running_runs_first_and_counts_the_rest(height):
    entries = _entries()
    lines = _rendered(entries, 120, height)
    rows = [line for line in lines if re.search(r" (running|failed|waiting|finished) ", line)]
    rows = [line for line in rows if " failed: " not in line and " · " not in line]
    assert "running" in rows[0]
    rest = len(entries) - len(rows)
    assert (f"and {rest} more runs" in lines) == (rest > 0)
    if height >= 24:
        assert len(lines) <= height


def test_common_folders():
    assert common_folder(["cpu/a/x/seed-1", "cpu/a/y/seed-1"]) == "cpu/a"
    assert common_folder(["cpu/a/x/seed-1"]) == "cpu/a/x"  # a run keeps its own part
    assert common_folder(["a/1", "b/1"]) == ""
    assert common_folder(["a", "b"]) == ""
    assert common_folder(["light/cpu/a", "lighter/cpu/a"]) == ""  # folders, not letters


def test_the_time_left_follows_from_the_running_ones():
    entries = _entries(frames=400_000, frames_per_second=100.0)[:4]
    for entry, state in zip(entries, ("running", "running", "waiting", "finished"), strict=True):
        entry.state = state
    # three runs with 600,000 frames left each, 200 frames a second together: 9000 s
    assert time_left(entries) == "2 h 30 min"
    assert summary(entries) == "2 running · 1 waiting · 1 finished · about 2 h 30 min left"
    entries[0].progress = RunProgress(frames=5)  # has not told its speed yet
    assert time_left(entries) == "" and "left" not in summary(entries)
    for entry in entries:
        entry.state = "waiting"
    assert time_left(entries) == ""


def test_a_run_beyond_its_budget_has_nothing_left():
    [entry] = _entries(frames=5_000_000)[:1]
    assert time_left([entry]) == "0 s"
    row = next(line for line in _rendered([entry], 120) if "running" in line and "seed" in line)
    assert "5,000,000/1,000,000" in row and " 0 s " in row


def test_without_a_terminal_each_change_is_a_line(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    lines, [entry] = PlainBoard("this machine"), _entries()[:1]
    entry.name, entry.state, entry.attempts, entry.text = "a/b", "waiting", 0, ""

    def printed():
        lines([entry])
        return capsys.readouterr().err.splitlines()

    assert printed() == ["1 waiting · this machine"]
    entry.state, entry.attempts = "running", 1
    assert printed() == ["a/b running"]
    assert printed() == []  # nothing new
    entry.state, entry.text = "waiting", "it broke"
    assert printed() == ["a/b waiting: it broke"]
    entry.state, entry.attempts = "running", 2
    assert printed() == ["a/b running, attempt 2"]  # told already
    now[0] += 31.0
    assert len(printed()) == 1 and printed() == []
    entry.state = "finished"
    assert printed() == ["a/b finished, attempt 2"]


def test_the_board_prints_lines_where_there_is_no_terminal(capsys):
    with live.board("this machine") as show:
        show(_entries()[:1])
    assert "running" in capsys.readouterr().err
