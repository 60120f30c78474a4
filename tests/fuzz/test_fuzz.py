"""Some hundred bad inputs at every border; `python -m tests.fuzz 10000` tries many more."""

import contextlib
import os
from pathlib import Path

import pytest
import torch
from tests.fuzz import commands, judge, library, runs
from tests.fuzz.targets import TARGETS, quiet, send

from revbis.io import schema

torch.set_num_threads(1)
COUNTS = {"run folders": 15, "checkpoints": 20, "command lines": 60}
pytestmark = pytest.mark.env("gym", gl=False)


@pytest.mark.parametrize("target", TARGETS)
def test_bad_inputs_are_refused_without_a_traceback(target, tmp_path):
    count = COUNTS.get(target, 100)
    refused = sum(send(target, number, tmp_path) for number in range(count))
    assert refused >= count // 10  # the inputs are bad indeed


@pytest.mark.parametrize("name", library.CALLS)
def test_calls_are_good_before_they_are_changed(name, tmp_path):
    with quiet():
        for function, arguments in library.CALLS[name](tmp_path / "put"):
            function(**arguments)


@pytest.mark.parametrize("make", [runs.finished, runs.stopped])
def test_runs_have_the_same_bytes_each_time(make, tmp_path):
    contents = []
    for name in ("one", "another-one"):
        place = tmp_path / name / "put"
        place.mkdir(parents=True)
        with contextlib.chdir(place):
            out = make(place)
        files = [path for path in out.rglob("*") if path.is_file()]
        contents.append(
            {
                path.relative_to(out): path.read_bytes()
                for path in files
                if "attempt" not in path.stem
            }
        )
    assert contents[0] == contents[1] and len(contents[0]) > 5


@pytest.mark.parametrize("out", ["0", "`=!b", "a/b", "/", "/0", "../../../../../0", None])
def test_inputs_write_into_their_folder_only(out, tmp_path, monkeypatch):
    """An `--out 0` once left its files in the folder that the tests were called in."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    line = ["tabular", "solve", "--example", "toy", *([] if out is None else ["--out", out])]
    monkeypatch.setattr(commands, "_lines", lambda folder: [line])
    monkeypatch.setattr(commands, "_changes", lambda rng: 0)
    before = set(os.listdir("/"))
    assert not send("command lines", 0, tmp_path / "fuzzed")
    assert os.listdir(here) == [] and set(os.listdir("/")) == before
    assert sorted(os.listdir(tmp_path)) == ["fuzzed", "here"]
    assert len(list((tmp_path / "fuzzed").rglob("toy-revised-*.npz"))) == 1
    assert Path.cwd() == here


def test_only_what_the_package_raises_itself_is_meant_for_the_sender(monkeypatch):
    monkeypatch.setattr(judge, "_HERE", __file__)

    def check(function, *arguments):
        with pytest.raises(Exception) as caught:
            function(*arguments)
        return judge.refused(caught.value)

    assert check(schema.integer, "a", "size", 1)
    assert check(schema.integer)
    for escaped in (lambda: int("a"), lambda: [][0], lambda: schema.nearest("a", [1])):
        with pytest.raises(judge.TracebackError):
            check(escaped)
