"""Real sweeps as processes of this machine."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import filelock
import pytest
from tests.cli import fails
from tests.sweep.grids import (
    SETTINGS,
    TASK,
    attempts,
    checkpoints,
    evaluations,
    newest_process,
    small_grid,
)
from tests.sweep.tasks import MARKER

from revbis.sweep import driver
from revbis.sweep.attempt import Job, Outcome
from revbis.sweep.backend import LocalRunner
from revbis.sweep.driver import Sweep, SweepStorage, lock_path

pytestmark = [pytest.mark.slow, pytest.mark.env("gym", gl=False)]


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(driver, "_BACK_OFF_SECONDS", 0.0)


def _words(out, *methods):
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    grid = ["--tasks", TASK, "--methods", *(methods or ("drqv2", "simsr-rev")), "--seeds", "1"]
    grid += ["--workers", "2"]
    return ["sweep", *grid, "--set", *settings, "--out", str(out)]


class _Driver:
    """A sweep in a process of its own; what it says goes to a file."""

    def __init__(self, out, *methods):
        self._file = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in __exit__)
        words = [sys.executable, "-m", "revbis", *_words(out, *methods)]
        self.process = subprocess.Popen(words, stdout=self._file, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(60)
        self._file.close()

    def ends(self, code):
        """Waits for the end; returns what was said."""
        found = self.process.wait(400)
        self._file.seek(0)
        said = self._file.read()
        assert found == code, said
        return said


def _wait(condition, seconds=240):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def _configs(out):
    return small_grid().configs(out)


def test_a_sweep_equals_its_runs_made_alone_and_is_idempotent(tmp_path, alone):
    with _Driver(tmp_path) as sweep:
        said = sweep.ends(0)
    assert evaluations(_configs(tmp_path)) == alone
    assert "2 finished" in said
    assert [len(attempts(config)) for config in _configs(tmp_path)] == [1, 1]
    with _Driver(tmp_path) as sweep:
        sweep.ends(0)
    assert [len(attempts(config)) for config in _configs(tmp_path)] == [1, 1]


def test_stopped_and_killed_sweeps_and_killed_runs_lose_nothing(tmp_path, alone, held):
    configs = _configs(tmp_path)
    with _Driver(tmp_path) as sweep:
        _wait(lambda: all(map(checkpoints, configs)))
        sweep.process.send_signal(signal.SIGTERM)
        said = sweep.ends(128 + signal.SIGTERM)
    assert "repeat the command to resume" in said
    with _Driver(tmp_path, "drqv2"):  # killed on leaving; its run notices, saves and ends
        _wait(lambda: [len(attempts(config)) for config in configs] == [2, 1])
    with _Driver(tmp_path) as sweep:
        _wait(lambda: [len(attempts(config)) for config in configs] == [3, 2])
        _wait(lambda: newest_process(configs[0]))
        assert not any((config.directory / "failures.json").exists() for config in configs)
        os.kill(newest_process(configs[0]), signal.SIGKILL)
        held.unlink()
        sweep.ends(0)
    assert [len(attempts(config)) for config in configs] == [4, 2]
    assert evaluations(configs) == alone


def test_a_second_driver_is_refused(tmp_path, capsys):
    with filelock.FileLock(lock_path(str(tmp_path))):
        assert "another sweep is driving" in fails(capsys, *_words(tmp_path))


def test_a_run_that_cannot_train_is_reported(tmp_path):
    grid = small_grid("tests.runs:BadReward", methods=["drqv2"])
    bad = grid.configs(tmp_path)[0].with_settings(threads=1)
    sweep = Sweep([bad], SweepStorage(str(tmp_path)))
    sweep.run(LocalRunner(1), lambda entries: None, lambda: False)
    assert [entry.state for entry in sweep.entries] == ["failed"]
    assert "reward" in sweep.entries[0].text
    logs = list((bad.directory / "attempts").glob("*.log"))
    assert len(logs) == 1 and "Traceback" in logs[0].read_text()  # a mistake is not repeated
    [failure] = SweepStorage(str(tmp_path)).failures(sweep.entries[0].name)
    assert failure["final"] and failure["text"] == sweep.entries[0].text


def test_what_is_no_mistake_of_the_user_may_be_tried_again(tmp_path):
    config = small_grid("tests.sweep.tasks:Broken", methods=["drqv2"]).configs(tmp_path)[0]
    runner, ended = LocalRunner(1), []
    runner.start("run", Job(config.with_settings(threads=1).as_dict()))
    _wait(lambda: ended.extend(runner.ended(1.0)) or ended)
    assert ended == [("run", Outcome("failed", "RuntimeError: the device has gone"), True)]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")
def test_a_full_disk_does_not_hide_why_an_attempt_ended(tmp_path):
    config = small_grid("tests.runs:BadReward", methods=["drqv2"]).configs(tmp_path)[0]
    (config.directory / "attempts").mkdir(parents=True)
    (config.directory / "attempts" / "attempt-0001.log").symlink_to("/dev/full")
    runner, ended = LocalRunner(1), []
    runner.start("run", Job(config.with_settings(threads=1).as_dict()))
    _wait(lambda: ended.extend(runner.ended(1.0)) or ended)
    [(_, outcome, _)] = ended
    assert outcome.end == "refused" and "reward must be a finite" in outcome.text


def test_a_run_that_stands_still_has_failed_and_is_taken_up_again(tmp_path, monkeypatch):
    marker, until = tmp_path / "marker", time.monotonic() + 300
    monkeypatch.setenv(MARKER, str(marker))
    grid = small_grid("tests.sweep.tasks:Stuck", methods=["drqv2"])
    configs = [config.with_settings(threads=1) for config in grid.configs(tmp_path)]
    sweep = Sweep(configs, SweepStorage(str(tmp_path)))
    texts = []

    def look(entries):
        [entry] = entries
        texts.append(entry.text)
        stuck = marker.exists() and entry.state == "running" and entry.attempts == 1
        monkeypatch.setattr(driver, "_STALL_SECONDS", -1.0 if stuck else 1e6)

    sweep.run(LocalRunner(1), look, lambda: time.monotonic() > until)
    [entry] = sweep.entries
    assert sweep.complete and entry.attempts == 2, texts
    [failure] = SweepStorage(str(tmp_path)).failures(entry.name)
    assert "no progress" in failure["text"]


def test_a_process_that_cannot_even_begin_is_the_runs_failure(tmp_path):
    runner = LocalRunner(1)
    runner.start("run", Job({}))  # without its threads
    ended = []
    _wait(lambda: ended.extend(runner.ended(1.0)) or ended)
    assert ended[0].outcome.end == "failed" and ended[0].blame
    assert ended[0].outcome.text


def test_a_frozen_attempt_that_comes_back_does_no_harm(tmp_path, alone, held):
    config = _configs(tmp_path)[0].with_settings(threads=1)
    first, second = LocalRunner(1), LocalRunner(1)
    first.start("run", Job(config.as_dict()))
    frozen = first._children["run"]
    ended = []
    try:
        _wait(lambda: checkpoints(config))
        frozen.send_signal(signal.SIGSTOP)
        held.unlink()
        second.start("run", Job(config.as_dict()))
        _wait(lambda: ended.extend(second.ended(1.0)) or ended)
        assert ended[0].outcome.end == "finished"
        before = (config.directory / "eval.jsonl").read_bytes()
        frozen.send_signal(signal.SIGCONT)
        _wait(lambda: ended.extend(first.ended(1.0)) or len(ended) == 2)
    finally:
        frozen.kill()
        second.close()
    assert ended[1].outcome.end == "superseded", ended[1].outcome
    assert (config.directory / "eval.jsonl").read_bytes() == before
    assert evaluations([config]).items() <= alone.items()
    assert len(attempts(config)) == 2
