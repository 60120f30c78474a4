"""Records: whole files, cut lines, restored and cleared; every logged name is explained."""

import errno
import json
import logging
import re
import shutil
from pathlib import Path

import pytest
from tests.runs import stop_after, tiny_config

from revbis.io.files import read_records
from revbis.runs.checkpoint import Checkpoints, read_agent
from revbis.runs.records import Records, wandb_id
from revbis.runs.run import train
from revbis.runs.trainer import PHASES, Clock

ROOT = Path(__file__).parents[2]


def make(folder: Path, **options: object) -> Records:
    return Records(folder, tensorboard=False, wandb=None, run={}, **options)


def test_write_and_restore(tmp_path: Path) -> None:
    records = make(tmp_path)
    records.train({"frames": 1, "x": float("nan")})
    records.evaluation({"frames": 1, "returns": [1.0, float("inf")], "mean_return": 2.0})
    state = json.loads(json.dumps(records.state()))
    records.train({"frames": 2})
    records.evaluation({"frames": 2, "returns": [], "mean_return": 0.0})
    records.alarm({"frames": 2, "name": "a", "text": "b"})
    again = make(tmp_path)
    again.restore(state)
    assert [r["frames"] for r in read_records(tmp_path / "train.jsonl")] == [1]
    assert read_records(tmp_path / "train.jsonl")[0]["x"] == "nan"  # JSON knows no NaN
    assert read_records(tmp_path / "eval.jsonl")[0]["returns"] == [1.0, "inf"]
    assert read_records(tmp_path / "alarms.jsonl") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_disk_names_the_record(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space") as stopped:
        make(tmp_path).train({"frames": 1})
    assert stopped.value.filename == str(path)


def test_tensorboard_on_a_full_disk_is_named_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def __init__(self, folder: str, **_: object) -> None:
            pass

        def add_scalar(self, *_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            self.add_scalar()

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter", Full)
    records = Records(tmp_path, tensorboard=True, wandb=None, run={})
    with pytest.raises(OSError, match="No space") as stopped:
        records.evaluation({"frames": 1, "mean_return": 2.0})
    assert stopped.value.filename == str(tmp_path / "tensorboard")
    monkeypatch.setattr(logging.getLogger("revbis"), "propagate", True)
    records.close()  # with the error that ended the run still on its way
    assert caplog.messages == [f"{tmp_path / 'tensorboard'}: No space left on device"]


def test_tensorboard_files_hold_the_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing import event_accumulator

    records = Records(tmp_path, tensorboard=True, wandb=None, run={})
    records.train({"frames": 10, "critic_loss": 0.5, "c": None})
    records.close()
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["train/critic_loss"]
    assert [(e.step, e.value) for e in events.Scalars("train/critic_loss")] == [(10, 0.5)]


@pytest.mark.env("gym", gl=False)
def test_tensorboard_hides_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing import event_accumulator

    config = tiny_config(
        tmp_path,
        task="tests.runs:Walk",
        observation="state",
        quality="full",
        frames=400,
        tensorboard=True,
    )
    assert not train(config, **stop_after(40))  # 320 frames, a line every 80
    folder = config.directory / "tensorboard"
    (written,) = folder.iterdir()
    written.rename(folder / "events.out.tfevents.0000000001.first")  # files are read by name
    newest = max((config.directory / "checkpoints").glob("frame-*"))
    assert newest.name == f"frame-{320:012d}"
    shutil.rmtree(newest)  # as if the run had been killed: it resumes at frame 200
    assert train(config)
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    lines = read_records(config.directory / "train.jsonl")
    for name in ("updates", "episodes"):
        shown = [(event.step, event.value) for event in events.Scalars(f"train/{name}")]
        assert shown == [(line["frames"], line[name]) for line in lines]


def test_missing_wandb_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(ValueError, match="pip install wandb"):
        Records(tmp_path, tensorboard=False, wandb="project", run={})


def test_wandb_failure_does_not_stop_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Offline:
        @staticmethod
        def init(**_: object) -> None:
            raise ConnectionError("no network")

    monkeypatch.setitem(__import__("sys").modules, "wandb", Offline)
    records = Records(tmp_path, tensorboard=False, wandb="project", run={})
    records.train({"frames": 1})
    assert "training continues without it" in caplog.text


def test_every_run_has_its_own_id_at_wandb_and_keeps_it(tmp_path: Path) -> None:
    names = ("c-learned", "c-0.9", "again/c-0.9")
    folders = [tmp_path / name / "cpu" / "dmc-walk" / "simsr" / "seed-1" for name in names]
    ids = [wandb_id(folder) for folder in folders]
    assert len(set(ids)) == 3
    assert all(re.fullmatch(r"cpu-dmc-walk-simsr-seed-1-[0-9a-f]{8}", each) for each in ids)
    assert [wandb_id(folder) for folder in folders] == ids
    moved = folders[0].rename(tmp_path / "moved")
    assert wandb_id(moved) == ids[0]


def test_a_run_of_an_earlier_version_keeps_its_id_at_wandb(tmp_path: Path) -> None:
    folder = tmp_path / "cpu" / "dmc-walk" / "simsr" / "seed-1"
    (folder / "wandb").mkdir(parents=True)
    assert wandb_id(folder) == wandb_id(folder) == "cpu-dmc-walk-simsr-seed-1"


def test_clock_adds_up() -> None:
    clock = Clock({"update": 5.0, "other": 1.0})
    with clock.phase("environment"):
        pass
    clock.move(2.0, "update", "rendering")
    split = clock.split()
    assert set(split) == {*PHASES, "other"}
    assert split["rendering"] == 2.0 and split["update"] == 3.0
    assert sum(split.values()) == pytest.approx(clock.total, abs=0.1)
    assert clock.total >= 6.0


def test_no_checkpoint_yet(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none", 2).resume() is None
    assert read_agent(tmp_path / "none") is None


@pytest.mark.env("dmc")
@pytest.mark.parametrize("method", ["simsr-rev", "deepmdp"])
def test_every_logged_name_is_explained(method: str, tmp_path: Path) -> None:
    config = tiny_config(
        tmp_path,
        task="tests.runs:Walk",
        observation="state",
        quality="full",
        method=method,
        state_noise=3,
        frames=400,
    )
    assert train(config)
    explained = (ROOT / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"`/?([\w/]+)`", explained))
    logged = {
        name.removeprefix("objective/").removeprefix("seconds/")
        for file in ("train.jsonl", "eval.jsonl")
        for record in read_records(config.directory / file)
        for name in record
    }
    quantiles = {"distance_q50", "distance_q95"}  # told as `_q50`, `_q95`
    assert {name for name in logged - quantiles if f"seconds/{name}" not in names} <= names
    assert len(logged) > 25 and "train_mean_return" in logged
