"""A run's folder from outside: due frames, failed attempts, and folders that come and go."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.fake_study import fake_run
from tests.analysis.test_page import Page, page_of

from revbis.analysis import runs
from revbis.analysis.page import writer
from revbis.analysis.problems import failure_text
from revbis.analysis.runs import Failures, due_frame, read_failures
from revbis.analysis.study import read_study
from revbis.cli import main
from revbis.io.files import shown_path
from revbis.runs.config import Config


@pytest.mark.parametrize(
    ("frames", "due"),
    [
        (0, 0),
        (3, 3),  # at 0 an evaluation is never late
        (10_000, 10_000),
        (10_003, 10_000),
        (10_004, 10_004),  # later than one action: due at another frame, whichever
        (19_999, 19_999),
        (25_000, 25_000),  # the budget
        (25_002, 25_000),
        (2_503, 2_500),  # eval_every was 2,500 before the run was resumed
        (1_251, 1_250),
        (30_001, 30_000),
    ],
)
def test_due_frames(frames: int, due: int) -> None:
    every = {"eval_every": 10_000, "action_repeat": 4}
    config = Config.from_dict({"task": "dmc:a_b", "frames": 25_000} | every)
    assert due_frame(frames, config) == due
    assert due_frame(frames, config.with_settings(action_repeat=1)) == frames


def failing(*checkpoints: int, text: str = "it broke") -> dict[str, Any]:
    return {"failures": [{"checkpoint": at, "text": text} for at in checkpoints]}


@pytest.mark.parametrize(
    ("note", "given_up"),
    [
        (failing(0), False),
        (failing(0, 0), False),
        (failing(0, 0, 0), True),
        (failing(0, 0, 5, 0), True),
        (failing(0, 0, 0, 5), False),  # it has come further since
        (failing(*range(19)), False),
        (failing(*range(20)), True),
        ({"failures": [{"checkpoint": 0, "text": "it broke", "final": True}]}, True),
    ],
)
def test_given_up(note: dict[str, Any], given_up: bool, tmp_path: Path) -> None:
    (tmp_path / "failures.json").write_text(json.dumps(note))
    problems: list[str] = []
    failures = read_failures(tmp_path, problems.append)
    assert failures == Failures(len(note["failures"]), "it broke", given_up) and not problems
    words = "given up after" if given_up else "to be retried after"
    assert words in failure_text(failures) and failure_text(failures).endswith(
        "; last reason: it broke"
    )


def test_no_failure(tmp_path: Path) -> None:
    assert read_failures(tmp_path, print) is None
    (tmp_path / "failures.json").write_text('{"failures": []}')  # as --retry-failed leaves it
    assert read_failures(tmp_path, print) is None


def test_failed_runs_are_on_the_page_with_their_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    fake_run(runs, seed=1)
    notes = {
        fake_run(runs, seed=2, done=0.5): failing(500, 500, 500, text="CUDA is <lost>"),
        fake_run(runs, seed=3, done=0.5): failing(500, text="out of memory"),
        fake_run(runs, seed=4): failing(500, text="long forgotten"),  # finished since
        runs / "cpu" / "never" / "seed-1": failing(0, 0, 0, text="ValueError: no such task"),
    }
    for folder, note in notes.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "failures.json").write_text(json.dumps(note))
    main(["report", str(runs), "-o", str(tmp_path / "page")])
    printed = capsys.readouterr().err
    page = Page(tmp_path / "page" / "index.html")
    for words in (
        "seed-2 : given up after 3 failures; last reason: CUDA is <lost>",
        "seed-3 : to be retried after 1 failure; last reason: out of memory",
        "never/seed-1 : given up after 3 failures; last reason: ValueError: no such task",
        "2 of 3 given up",
        "never/seed-1 is left out",
    ):
        assert words in page.text, words
    assert "given up after 3 failures; last reason: CUDA is <lost>" in printed
    assert "long forgotten" not in page.text
    states = [run["state"] for run in page.data["groups"][0]["runs"]]
    assert states == ["finished", "failed", "unfinished", "finished"]


def test_a_walk_passes_over_what_disappears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run renames checkpoints and the sweep's folders come and go while the page looks."""
    folders = [fake_run(tmp_path, seed=seed) for seed in (1, 2)]
    for name in ("checkpoints", "attempts"):
        (folders[0] / name / "frame-000000000010").mkdir(parents=True)
        (folders[0] / name / "frame-000000000010" / "config.json").write_text("{}")
    (tmp_path / "gone").mkdir()
    looked_at: list[str] = []
    real = os.scandir

    def scandir(path: Any) -> Iterator[Any]:
        looked_at.append(str(path))
        if str(path).endswith("gone"):
            os.rmdir(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    problems: list[str] = []
    assert sorted(runs.run_folders(tmp_path, problems.append)) == sorted(folders)
    assert problems == [] and any(path.endswith("gone") for path in looked_at)
    assert not any("checkpoints" in path or "attempts" in path for path in looked_at)
    stamps = writer._stamps([tmp_path, tmp_path / "nowhere"])
    assert {path.parent for path in stamps} == set(folders)
    assert {"config.json", "result.json"} <= {path.name for path in stamps}


def test_zip_files_are_read_as_folders_are(tmp_path: Path) -> None:
    study = tmp_path / "study"
    for seed in (1, 2, 10):
        fake_run(study, seed=seed)
    wanted = read_study([study]).rows()
    shutil.make_archive(str(tmp_path / "runs"), "zip", study)
    shutil.rmtree(study)
    study.mkdir()
    (tmp_path / "runs.zip").rename(study / "runs.zip")
    for path in (tmp_path, study, study / "runs.zip", study / "cpu"):
        found = read_study([path])
        assert found.rows() == wanted
        folders = [str(shown_path(run.folder)) for run in found.runs]
        assert folders[0].endswith("/study/runs.zip/cpu/dmc-cartpole_balance/simsr-rev/seed-1")
    shutil.make_archive(str(tmp_path / "runs"), "zip", study)  # one within another
    nested: list[Path] = list(runs.run_folders(tmp_path / "runs.zip"))
    assert nested == []


def test_a_zip_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    fake_run(tmp_path / "good")
    (tmp_path / "runs.zip").write_text("no zip")
    found = read_study([tmp_path])
    assert len(found.runs) == 1
    assert f"{tmp_path}/runs.zip cannot be unpacked: File is not a zip file" in map(
        str, found.problems
    )
    with pytest.raises(ValueError, match=r"runs\.zip cannot be unpacked"):
        read_study([tmp_path / "runs.zip"])


def test_checkpoints_may_be_the_name_of_a_folder_of_runs(tmp_path: Path) -> None:
    fake_run(tmp_path / "checkpoints")
    assert len(read_study([tmp_path]).runs) == 1


def test_a_folder_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_run(tmp_path)
    (tmp_path / "secret").mkdir()
    real = os.scandir

    def scandir(path: Any) -> Iterator[Any]:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert "secret cannot be read: Permission denied" in page_of(tmp_path, out=tmp_path / "p").text
