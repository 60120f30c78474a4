"""Who may write to a run's folder, and its copy elsewhere."""

import json
import os
import zipfile
from pathlib import Path

import pytest
from tests.runs import evaluations, tiny_config

from revbis.runs.folder import (
    MirroredFolder,
    RunFolder,
    SupersededError,
    check_writable,
    checkpoint_frames,
    checkpoint_name,
    is_finished,
    newest_checkpoint,
    open_storage,
    read_result,
    unpacked,
)
from revbis.runs.records import Progress, Status
from revbis.runs.run import train


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    if request.param == "memory":
        open_storage("memory://").fs.store.clear()
    return f"file://{tmp_path}/shared/run" if request.param == "file" else "memory://shared/run"


def _status():
    progress = Progress(frames=40, agent_steps=20)
    return Status(progress, 1.0, 2.0, {"c": 0.5}, {"update": 3.0}, 10.0)


def _beat_now(folder):
    folder.beat_seconds = 0.0
    return folder.beat(_status)


def test_a_run_is_finished_when_its_budget_is_spent(tmp_path):
    assert read_result(tmp_path) is None and not is_finished(None, 0)
    (tmp_path / "result.json").write_text('{"frames": 400, "mean_return": 1.0}')
    result = read_result(tmp_path)
    assert is_finished(result, 400) and is_finished(result, 300)
    assert not is_finished(result, 401)  # its budget was raised since
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(ValueError, match=r"result\.json"):
        read_result(tmp_path)


def test_checkpoints_are_named_by_their_frame():
    assert checkpoint_frames(checkpoint_name(1200)) == 1200
    others = [".frame-000000000900", "damaged-frame-000000000800", "frame-7", "replay"]
    assert [checkpoint_frames(name) for name in others] == [None] * 4
    names = [*others, checkpoint_name(300), checkpoint_name(0)]
    assert newest_checkpoint(names) == 300
    assert newest_checkpoint(others) is None


def test_the_latest_claim_may_write(tmp_path):
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    first.claim()
    first.check()
    second.claim()
    assert (first.attempt, second.attempt) == (1, 2)
    second.check()
    with pytest.raises(SupersededError, match="attempt 2"):
        first.check()


def test_a_claim_never_takes_a_number_that_is_taken(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    RunFolder(tmp_path).claim()
    seen = iter([[], [1]])  # what another process makes in between is not in the first listing
    monkeypatch.setattr(folder, "_claims", lambda: next(seen))
    folder.claim()
    assert folder.attempt == 2


def test_a_beat_tells_how_far_the_run_is_and_hears_that_it_is_to_stop(tmp_path):
    folder = RunFolder(tmp_path)
    folder.claim()
    assert not folder.beat(_status)  # not due yet
    assert not (tmp_path / "progress.json").exists()
    assert not _beat_now(folder)
    told = json.loads((tmp_path / "progress.json").read_text())
    assert told == {
        "attempt": 1,
        "frames": 40,
        "frames_per_second": 10.0,
        "seconds": 3.0,
        "mean_return": 2.0,
        "status": {"c": 0.5},
    }
    (tmp_path / "stop").touch()
    assert _beat_now(folder)
    RunFolder(tmp_path).claim()  # whoever takes it up again is not to stop
    assert not (tmp_path / "stop").exists()


def test_a_copy_holds_what_was_sent_and_no_more(tmp_path, url):
    here = MirroredFolder(tmp_path / "one", url)
    here.claim()
    (here.path / "checkpoints" / "frame-1").mkdir(parents=True)
    (here.path / "checkpoints" / "frame-1" / "manifest.json").write_text("1")
    (here.path / "eval.jsonl").write_text("a")
    (here.path / ".eval.jsonl.77").write_text("unfinished")
    here.saved()
    (here.path / "eval.jsonl").write_text("ab")
    (here.path / "checkpoints" / "frame-1" / "manifest.json").unlink()
    (here.path / "result.json").write_text("{}")
    here.saved()
    other = MirroredFolder(tmp_path / "two", url)
    (other.path / "old").mkdir(parents=True)
    (other.path / "old" / "file").write_text("not of this run")
    other.claim()
    found = {p.relative_to(other.path).as_posix() for p in other.path.rglob("*") if p.is_file()}
    assert found == {"eval.jsonl", "result.json"}
    assert (other.path / "eval.jsonl").read_text() == "ab"


def test_a_superseded_copy_is_left_alone(tmp_path, url):
    first, second = (MirroredFolder(tmp_path / name, url) for name in ("one", "two"))
    first.claim()
    (first.path / "eval.jsonl").parent.mkdir(parents=True, exist_ok=True)
    (first.path / "eval.jsonl").write_text("old")
    second.claim()
    with pytest.raises(SupersededError):
        first.saved()
    third = MirroredFolder(tmp_path / "three", url)
    third.claim()
    assert not (third.path / "eval.jsonl").exists()


def test_a_copy_tells_progress_and_hears_that_it_is_to_stop(tmp_path, url):
    folder = MirroredFolder(tmp_path / "one", url)
    folder.claim()
    assert not _beat_now(folder)
    storage = open_storage(url)
    assert json.loads(storage.cat_file("progress.json"))["frames"] == 40
    storage.pipe_file("stop", b"{}")
    assert _beat_now(folder)


def test_sending_puts_a_manifest_after_what_it_lists(tmp_path, monkeypatch):
    folder = MirroredFolder(tmp_path / "one", f"file://{tmp_path}/shared")
    folder.claim()
    for name in (
        "result.json",
        "checkpoints/frame-2/manifest.json",
        "checkpoints/frame-2/agent.pt",
    ):
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text(name)
    (folder.path / "checkpoints" / "replay").mkdir()
    (folder.path / "checkpoints" / "replay" / "0-1.npz").write_text("piece")
    sent = []
    monkeypatch.setattr(folder, "_write", lambda name, content: sent.append(name))
    folder.saved()
    assert sent == [
        "checkpoints/replay/0-1.npz",
        "checkpoints/frame-2/agent.pt",
        "checkpoints/frame-2/manifest.json",
        "result.json",
    ]


def test_what_goes_away_while_it_is_listed_or_sent_is_passed_over(tmp_path, monkeypatch):
    folder = MirroredFolder(tmp_path / "one", f"file://{tmp_path}/shared")
    folder.claim()
    for name in ("a/file", "b/file", "c"):
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text(name)
    real = os.scandir

    def scandir(path):
        if Path(path) == folder.path / "a":  # renamed after the listing that names it
            (folder.path / "a").rename(folder.path / "d")
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        assert set(folder._local_files()) == {"b/file", "c"}
    listed = folder._local_files()
    monkeypatch.setattr(folder, "_local_files", lambda: listed)
    (folder.path / "c").unlink()
    folder.saved()
    assert sorted(folder._sent) == ["b/file", "d/file"]


def test_an_unknown_kind_of_storage_is_told():
    with pytest.raises(ValueError, match="nowhere://x cannot be used"):
        open_storage("nowhere://x")


def test_training_stops_when_another_process_takes_the_run_over(tmp_path):
    config = tiny_config(tmp_path, task="tests.runs:Walk", observation="state")
    other = RunFolder(config.directory)
    seen = []

    def take_over(status):
        seen.append(status.progress.frames)
        if status.progress.frames >= 500 and not other.attempt:
            other.claim()

    with pytest.raises(SupersededError):
        train(config, report=take_over)
    assert max(seen) < 700  # it noticed at the next line, checkpoint or evaluation
    assert train(config)
    undisturbed = tiny_config(tmp_path / "b", task="tests.runs:Walk", observation="state")
    assert train(undisturbed)
    assert evaluations(config) == evaluations(undisturbed)


def test_paths_that_lead_into_a_zip_file(tmp_path):
    study, other = tmp_path / "study", tmp_path / "other.zip"
    study.mkdir()
    for path in (study / "runs.zip", other):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("cpu/one/config.json", "{}")
    for path in (study / "cpu", study / "runs.zip" / "cpu", other / "cpu"):
        assert [each.name for each in unpacked(path).iterdir()] == ["one"]
        assert (unpacked(path / "one") / "config.json").read_text() == "{}"
        with pytest.raises(ValueError, match="only read: unzip it, or pass --out"):
            check_writable(path / "one")
    assert (unpacked(other) / "cpu").is_dir()
    with pytest.raises(ValueError, match=r"other\.zip has no cpu/two"):
        unpacked(other / "cpu" / "two")
    with pytest.raises(ValueError, match="only read"):
        check_writable(other / "cpu" / "two")
    for path in (study, tmp_path, study / "nowhere", tmp_path / "cpu", Path("x")):
        assert unpacked(path) == path
        check_writable(path)
    (study / "cpu").mkdir()  # what is there is read
    assert unpacked(study / "cpu") == study / "cpu"
    (tmp_path / "runs.zip").write_text("")
    with pytest.raises(ValueError, match=r"runs\.zip cannot be unpacked: File is not a zip file"):
        unpacked(tmp_path / "nowhere")
