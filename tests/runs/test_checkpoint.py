"""Checkpoints: manifests, damage, readers, takeovers; what none of them must do to a run."""

import errno
import io
import json
import os
import pickle
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.agents.tdmpc import assert_same_state
from tests.cli import fails
from tests.replay import play, small
from tests.runs import evaluations, flags, networks, stop_after, tiny_config

from revbis.cli import main
from revbis.io.files import digest
from revbis.runs import checkpoint as checkpoint_module
from revbis.runs.checkpoint import Checkpoint, Checkpoints, DamagedError, read_agent
from revbis.runs.folder import RunFolder, SupersededError
from revbis.runs.run import open_run, train


class Run:
    """A replay buffer that grows from checkpoint to checkpoint."""

    def __init__(self, folder, keep=2):
        self.folder, self.replay = folder, small(100)
        self.checkpoints, self.frames = Checkpoints(folder, keep), 0

    def save(self):
        self.frames += 10
        play([self.replay], np.random.default_rng(self.frames), 10, stop=1.0, first=self.frames)
        return self.checkpoints.save(self.frames, {}, {"replay": self.replay.state()}, self.replay)

    def resumed(self):
        self.checkpoints = Checkpoints(self.folder, self.checkpoints.keep)
        assert self.checkpoints.resume() is not None


def test_a_manifest_lists_every_file_as_it_is(tmp_path):
    run = Run(tmp_path)
    run.save()
    run.save()
    run.resumed()
    folder = run.save()
    files = json.loads((folder / "manifest.json").read_text())["files"]
    pieces = sorted(path.name for path in (tmp_path / "replay").iterdir())
    assert list(files) == ["agent.pt", "state.json", *(f"replay/{name}" for name in pieces)]
    assert len(pieces) == 3
    for name, entry in files.items():
        path = (tmp_path if "/" in name else folder) / name
        assert list(entry.items()) == [("bytes", path.stat().st_size), ("digest", digest(path))]


def test_one_that_replaces_another_of_its_frame_loses_neither(tmp_path, monkeypatch):
    run = Run(tmp_path, keep=1)
    kept = run.save()
    rename = Path.rename

    def again():
        state = {"replay": run.replay.state(), "again": True}
        return run.checkpoints.save(run.frames, {}, state, run.replay)

    def interrupted(path, target):
        if path.name == f".{kept.name}":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        again()
    monkeypatch.undo()
    assert "again" not in Checkpoints(tmp_path, 1).resume().state
    kept.rename(tmp_path / f".replaced-{kept.name}")  # as a killed process leaves it
    assert "again" not in Checkpoints(tmp_path, 1).resume().state
    run.resumed()
    shutil.copytree(kept, tmp_path / f".replaced-{kept.name}")  # as one killed a moment later does
    assert again() == kept
    assert "again" in Checkpoints(tmp_path, 1).resume().state
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_piece_is_not_read_again(tmp_path, resumed):
    """Nor is its damage therefore taken for its content."""
    run = Run(tmp_path)
    run.save()
    if resumed:
        run.resumed()
    (piece,) = (tmp_path / "replay").iterdir()
    content = piece.read_bytes()
    piece.write_bytes(content[:-1] + b"X")
    run.save()
    with pytest.raises(DamagedError, match="has changed"):
        run.resumed()
    piece.write_bytes(content)
    run.resumed()


@pytest.mark.parametrize("damage", ["delete", "garble"])
def test_a_damaged_older_checkpoint_stops_nothing(tmp_path, caplog, damage):
    run = Run(tmp_path)
    first, second = run.save(), run.save()
    for _ in range(2):  # of the same frame twice
        if damage == "delete":
            (second / "manifest.json").unlink()
        else:
            (second / "manifest.json").write_text("{")
        third = run.save()
        assert "it is set aside" in caplog.text
        assert not second.exists() and (tmp_path / f"damaged-{second.name}").exists()
        assert first.exists() and third.exists()  # as many are kept as before
        third.rename(second)
    third = run.save()
    run.resumed()
    assert sorted(tmp_path.glob("frame-*")) == [second, third]


WALK = {"task": "tests.runs:Walk", "observation": "state", "quality": "full", "frames": 800}
pytestmark = pytest.mark.env("gym", gl=False)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a run but for who claimed it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "attempts" not in path.parts
    }


def interrupted(out: Path, steps: int = 70, **settings):
    config = tiny_config(out, **WALK | settings)
    assert not train(config, **stop_after(steps + 1))
    return config


def overwrite_a_byte(path: Path, where: int = 900) -> None:
    with open(path, "r+b") as file:
        file.seek(where)
        byte = file.read(1)
        file.seek(where)
        file.write(b"X" if byte != b"X" else b"Y")


@pytest.fixture
def damaged(tmp_path):
    """A run whose first replay piece, which every checkpoint shares, has one wrong byte."""
    config = interrupted(tmp_path / "damaged")
    overwrite_a_byte(min((config.directory / "checkpoints" / "replay").iterdir()))
    return config


def test_a_damaged_piece_erases_nothing(damaged, capsys, monkeypatch):
    before = content(damaged.directory)
    assert evaluations(damaged)
    for _ in range(2):
        error = fails(capsys, "train", *flags(damaged))
        assert "no checkpoint" in error and "--restart" in error
        assert content(damaged.directory) == before


def test_readers_of_a_damaged_run_work_and_write_nothing(damaged, tmp_path, capsys):
    before = content(damaged.directory)
    main(["eval", "--trust", str(damaged.directory), "--episodes", "1"])
    assert "mean return" in capsys.readouterr().out
    main(["report", str(damaged.directory), "--out", str(tmp_path / "page")])
    assert (tmp_path / "page" / "index.html").exists()
    assert content(damaged.directory) == before


def test_restart_discards_and_begins_at_frame_0(damaged, tmp_path):
    whole = tiny_config(tmp_path / "whole", **WALK)
    assert train(damaged, restart=True) and train(whole)
    assert evaluations(damaged) == evaluations(whole)
    names = {path.name for path in (damaged.directory / "checkpoints").iterdir()}
    assert not any("damaged" in name for name in names)


def test_restart_takes_other_settings(tmp_path, capsys):
    config = interrupted(tmp_path)
    other = config.with_settings(learning_rate=1e-2)
    assert "--restart" in fails(capsys, "train", *flags(other))
    main(["train", *flags(other), "--restart"])
    assert json.loads((other.directory / "config.json").read_text())["learning_rate"] == 1e-2
    assert "finished" in capsys.readouterr().out


def with_other_outputs(config) -> list[Path]:
    """What else a run and the commands that read it write; not a file of the user's."""
    files = ["diagnosis/facts.json", "tensorboard/events", "page/index.html", "export/card.md"]
    paths = [config.directory / name for name in (*files, "neighbours.png", "yardsticks.json")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("old")
    (config.directory / "notes.txt").write_text("mine")
    return paths


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("late", [False, True])
def test_a_restart_that_cannot_start_loses_nothing(tmp_path, monkeypatch, late):
    config = interrupted(tmp_path)
    with_other_outputs(config)
    before = content(config.directory)
    other = config.with_settings(replay_capacity=10**12, learning_rate=1e-2)
    if late:  # the records and the config of the new run are there by then
        other = config.with_settings(tensorboard=True, learning_rate=1e-2)
        monkeypatch.setattr("revbis.runs.trainer.Trainer.save", full_disk)
    with pytest.raises((MemoryError, OSError)):
        train(other, restart=True)
    assert content(config.directory) == before
    assert not list((config.directory / "attempts").glob("discarded*"))
    monkeypatch.undo()
    assert train(config)


def test_a_restart_discards_what_else_was_written(tmp_path):
    config = interrupted(tmp_path)
    paths = with_other_outputs(config)
    (config.directory / "attempts" / "discarded-0001").mkdir()  # left by a killed process
    assert train(config, restart=True)
    assert not [path for path in paths if path.exists()]
    assert (config.directory / "notes.txt").read_text() == "mine"
    assert not list((config.directory / "attempts").glob("discarded*"))


@pytest.mark.parametrize("left", ["eval.jsonl", "train.jsonl", "result.json"])
def test_records_without_checkpoints_are_kept(tmp_path, left):
    config = interrupted(tmp_path)
    (config.directory / "result.json").write_text('{"frames": 8, "mean_return": 0}')
    for name in ("eval.jsonl", "train.jsonl", "result.json"):
        if name != left:
            (config.directory / name).unlink()
    checkpoints = config.directory / "checkpoints"
    checkpoints.rename(config.directory / "elsewhere")
    before = content(config.directory)
    with pytest.raises(ValueError, match=rf"has records \({left}\) but no intact checkpoint"):
        train(config)
    assert content(config.directory) == before


def test_there_is_a_checkpoint_before_the_first_record(tmp_path, monkeypatch):
    config, whole = (tiny_config(tmp_path / out, **WALK) for out in "ab")

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("revbis.runs.trainer.evaluate_splits", killed)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    assert Checkpoints(config.directory / "checkpoints", 2).newest_frame == 0
    assert train(config) and train(whole)
    assert evaluations(config) == evaluations(whole)
    assert not (config.directory / "checkpoints" / f"frame-{0:012d}").exists()


def test_a_damaged_newer_checkpoint_does_not_count_among_those_kept(tmp_path):
    config = interrupted(tmp_path, keep_checkpoints=2)
    newest = max((config.directory / "checkpoints").glob("frame-*"))
    (newest / "agent.pt").write_bytes(b"")
    short = config.with_settings(keep_checkpoints=1)
    train(short, **stop_after(2))  # saved before the damaged one's frame
    assert Checkpoints(config.directory / "checkpoints", 1).resume() is not None


def test_a_reader_beside_a_run_that_keeps_one_checkpoint(tmp_path):
    config = tiny_config(tmp_path, **WALK | {"keep_checkpoints": 1, "checkpoint_every": 20})
    done, problems, opened = threading.Event(), [], 0

    def read():
        nonlocal opened
        while not done.is_set():
            try:
                opened += read_agent(config.directory / "checkpoints") is not None
            except Exception as problem:
                problems.append(problem)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert train(config)
    finally:
        done.set()
        reader.join(timeout=60)
    assert not problems
    assert not list((config.directory / "checkpoints").glob("damaged-*"))
    assert opened and open_run(config.directory, trust=True)


def test_a_checkpoint_deleted_while_it_is_read_is_looked_for_again(tmp_path, monkeypatch):
    config = interrupted(tmp_path)
    root = config.directory / "checkpoints"
    listed = checkpoint_module._folders
    gone = root / "frame-999999999999"
    calls = []

    def stale(folder):
        calls.append(folder)
        return [gone] if len(calls) == 1 else listed(folder)

    monkeypatch.setattr(checkpoint_module, "_folders", stale)
    assert read_agent(root) is not None and len(calls) == 2


def test_what_a_kill_left_unfinished_is_tidied_up(tmp_path):
    config = interrupted(tmp_path)
    root = config.directory / "checkpoints"
    (root / ".frame-000000000999").mkdir()
    (root / ".frame-000000000999" / "agent.pt").write_bytes(b"half")
    (root / "replay" / ".000000000999-000000001999.npz.17").write_bytes(b"half")
    before = content(config.directory)
    main(["eval", "--trust", str(config.directory), "--episodes", "1"])
    assert content(config.directory) == before  # readers leave it
    assert train(config)
    assert not [path for path in root.rglob("*") if path.name.startswith(".")]


def test_a_process_that_was_taken_over_while_it_saved_says_so(tmp_path, monkeypatch):
    """The one that took over has tidied up what the other was about to rename."""
    config = tiny_config(tmp_path, **WALK)
    write = checkpoint_module.atomic_write

    def tidied(path, content):
        if path.name == "state.json" and "000000000200" in str(path):
            RunFolder(config.directory).claim()
            raise FileNotFoundError(2, "No such file or directory", str(path))
        write(path, content)

    monkeypatch.setattr(checkpoint_module, "atomic_write", tidied)
    with pytest.raises(SupersededError, match="attempt 2 has taken over"):
        train(config)


def test_a_run_taken_over_ends_with_one_line(tmp_path, capsys, monkeypatch):
    config = tiny_config(tmp_path, **WALK)
    taken = iter(range(10))

    def take_over(self, status):
        if next(taken, 0) == 5:
            RunFolder(config.directory).claim()
        return False

    monkeypatch.setattr(RunFolder, "beat", take_over)
    with pytest.raises(SystemExit) as stop:
        main(["train", *flags(config)])
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert "attempt 2 has taken over" in error and "Traceback" not in error


def test_a_process_that_was_taken_over_leaves_the_folder_alone(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim()
    RunFolder(tmp_path / "run").claim()
    with pytest.raises(SupersededError):
        folder.check()
    folder.abandon()
    assert (tmp_path / "run" / "attempts" / "attempt-0002.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--task", "dmc:cartpole_balanc"],
        ["--task", "tests.runs:Walk", "--device", "cuda:77"],
        ["--task", "tests.runs:Walk", "--pixels", "2"],
        ["--task", "tests.runs:Walk", "--replay-capacity", "1000000000"],
    ],
)
def test_what_cannot_begin_leaves_no_folder(words, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    fails(capsys, "train", *words, "--out", str(tmp_path / "mine" / "new" / "runs"))
    assert os.listdir(tmp_path / "mine") == []


def test_what_cannot_begin_leaves_an_older_run_alone(tmp_path, capsys):
    config = interrupted(tmp_path)
    before = content(config.directory)
    fails(capsys, "train", *flags(config.with_settings(device="cuda:77")))
    assert content(config.directory) == before


def test_another_evaluation_interval_resumes(tmp_path):
    """What is learned stays the same; evaluations follow the new interval from then on."""
    config = interrupted(tmp_path / "a", steps=60)  # 480 frames, evaluations at 0 and 400
    other = config.with_settings(eval_every=100, eval_episodes=2)
    assert train(other)
    frames = [record["frames"] for record in evaluations(other)]
    assert frames[:2] == [0, 400] and len(frames) == len(set(frames)) == 2 + 3 + 1
    assert [frame // 100 for frame in frames] == [0, 4, 5, 6, 7, 8]
    whole = tiny_config(tmp_path / "b", **WALK)
    assert train(whole)
    assert_same_state(networks(other), networks(whole))


def _forge(folder: Path, name: str, text: bytes) -> None:
    """Puts a file into a checkpoint with the right checksum."""
    (folder / name).write_bytes(text)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = checkpoint_module._entry((folder / name).read_bytes())
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _states():
    """Parts of state.json that no run of ours writes."""
    yield "progress", {"frames": "many"}
    yield "progress", {"frames": 10**30}
    yield "replay", {"written": -1}
    yield "records", {"evaluations": [{}], "alarms": [], "train_bytes": 0}
    yield "raised", 1
    yield "episode", {"seed": 1}
    yield "episode", {"seed": 2**32, "actions": [[0.0]], "total": 0, "observation": ""}
    yield "episode", {"seed": 1, "actions": [[1, 2, 3]], "total": 0, "observation": ""}


def test_forged_states_are_one_error_and_change_nothing(tmp_path):
    config = interrupted(tmp_path, keep_checkpoints=1)
    (folder,) = (config.directory / "checkpoints").glob("frame-*")
    intact = json.loads((folder / "state.json").read_text())
    records = evaluations(config)
    for name, value in _states():
        _forge(folder, "state.json", json.dumps(intact | {name: value}).encode())
        with pytest.raises(ValueError) as caught:
            train(config)
        assert str(folder) in str(caught.value), (name, value)
        assert evaluations(config) == records
    for text in (b"", b"[]", b"{", b"[" * 100_000, b"\xff\xfe", b'{"a": NaN}'):
        _forge(folder, "state.json", text)
        with pytest.raises(DamagedError):
            train(config)
    _forge(folder, "state.json", json.dumps(intact).encode())
    assert train(config)


def test_forged_agents_are_one_error(tmp_path):
    config = interrupted(tmp_path, keep_checkpoints=1)
    (folder,) = (config.directory / "checkpoints").glob("frame-*")
    state = torch.load(folder / "agent.pt", weights_only=True)
    for forged in (
        {},
        [],
        3,
        state | {"networks": {}},
        state | {"networks": None},
        state | {"method": 4},
        state | {"optimisers": []},
        state | {"explore_generator": torch.zeros(3)},
        {**state, "networks": {name: {} for name in state["networks"]}},
    ):
        torch.save(forged, folder / "forged")
        _forge(folder, "agent.pt", (folder / "forged").read_bytes())
        for read in (train, lambda config: open_run(config.directory, trust=True)):
            with pytest.raises(ValueError, match=r"frame-|does not fit"):
                read(config)


class _Foreign:
    pass


class _Command:
    def __reduce__(self):
        return os.system, ("false",)


def _pickles() -> dict[str, bytes]:
    packed, command = io.BytesIO(), io.BytesIO()
    torch.save({"networks": _Foreign()}, packed)
    torch.save({"networks": _Command()}, command)
    return {
        "torch": packed.getvalue(),
        "command": command.getvalue(),
        "pickle": pickle.dumps(_Foreign()),
        "text": b"weights",
    }


@pytest.mark.parametrize("kind", ["torch", "command", "pickle", "text"])
def test_no_refusal_advises_to_load_code(kind, tmp_path):
    config = interrupted(tmp_path, keep_checkpoints=1)
    (folder,) = (config.directory / "checkpoints").glob("frame-*")
    _forge(folder, "agent.pt", _pickles()[kind])
    with pytest.raises(DamagedError) as refused:
        open_run(config.directory, trust=True)
    message = str(refused.value)
    assert "only tensors, numbers, texts, lists and dicts are read" in message
    assert ("test_checkpoint._Foreign" in message) == (kind == "torch")
    assert (f"{os.system.__module__}.system" in message) == (kind == "command")
    assert not re.search("weights_only|torch.load|trust|pickle|PyTorch", message)
    pieces = sorted((config.directory / "checkpoints" / "replay").glob("*.npz"))
    pieces[0].write_bytes(_pickles()["pickle"])
    checkpoint = Checkpoint(folder, {}, {}, pieces, 0)
    with pytest.raises(DamagedError, match=r"\.npz cannot be read as arrays of numbers$"):
        list(checkpoint.records())


@pytest.mark.parametrize(
    "forged",
    [
        {"files": {"../../../secret": {"bytes": 1, "digest": "x"}}},
        {"files": {"/etc/passwd": {"bytes": 1, "digest": "x"}}},
        {"files": []},
        {"files": {"agent.pt": {}}},
        {"files": {"agent.pt": {"bytes": "x", "digest": 1}}},
        {"format": "revbis checkpoint 99"},
    ],
)
def test_forged_manifests_are_one_error(forged, tmp_path):
    config = interrupted(tmp_path, steps=5, keep_checkpoints=1)
    (folder,) = (config.directory / "checkpoints").glob("frame-*")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | forged))
    with pytest.raises(DamagedError, match="no checkpoint"):
        train(config)
    with pytest.raises(DamagedError):
        open_run(config.directory, trust=True)
