"""Training: determinism, exact resume, damage, full disks, signals, refusals."""

import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.runs import Walk, evaluations, flags, stop_after, tiny_config

from revbis.cli import main
from revbis.io import files, machine
from revbis.io.files import read_records
from revbis.objectives import OBJECTIVES
from revbis.runs import checkpoint as checkpoint_module
from revbis.runs.checkpoint import Checkpoints, DamagedError
from revbis.runs.run import finished, open_run, train
from revbis.runs.trainer import Trainer, TrainingFailedError

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
WALK = {"task": "tests.runs:Walk", "observation": "state", "quality": "full", "frames": 800}
# On pixels: 60 agent steps, an episode is 50 of them, the first 10 are random.
PIXELS = {"method": "simsr-rev", "action_repeat": 20, "eval_every": 600, "log_every": 100}
PIXELS |= {"checkpoint_every": 300, "replay_capacity": 30}  # the ring goes round
pytestmark = pytest.mark.env("dmc")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Evaluations of a run on pixels that nothing happened to."""
    config = tiny_config(tmp_path_factory.mktemp("undisturbed"), **PIXELS)
    assert train(config)
    return evaluations(config)


@pytest.fixture(scope="module")
def undisturbed_walk(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Evaluations of a run on vectors that nothing happened to."""
    config = tiny_config(tmp_path_factory.mktemp("undisturbed_walk"), **WALK)
    assert train(config)
    return evaluations(config)


@pytest.fixture(scope="module")
def stopped_walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run on vectors that was stopped at frame 560, with a checkpoint at 400 too."""
    out = tmp_path_factory.mktemp("stopped_walk")
    train(tiny_config(out, **WALK), **stop_after(70))
    return out


# `revbis train`, but for a signal that the process sends to itself after an agent step.
SIGNALLED = """
import os, sys
from revbis.runs import run as runs
from revbis.cli import main

def signalled(config, *, report, train=runs.train, **rest):
    def report_then_signal(status):
        report(status)
        if status.progress.agent_steps == int(sys.argv[1]):
            print("compiler loaded:", "torch._dynamo" in sys.modules, flush=True)
            os.kill(os.getpid(), int(sys.argv[2]))
    return train(config, report=report_then_signal, **rest)

runs.train = signalled
main(sys.argv[3:])
"""


def signalled(config, step: int, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """What the command of a run does when it gets a signal after a step."""
    words = [sys.executable, "-c", SIGNALLED, str(step), str(int(number)), "train", *flags(config)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert "compiler loaded: False" in done.stdout  # PyTorch's, which takes long to import
    return done


def test_one_seed_gives_one_record(undisturbed: list[dict], tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **PIXELS)
    assert train(config)
    assert evaluations(config) == undisturbed
    assert [line["frames"] for line in undisturbed] == [0, 600, 1200]
    assert undisturbed[-1]["updates"] == (1200 // 20 - 10) // 2
    assert undisturbed[0]["status"] == {"c": 0.5} != undisturbed[-1]["status"]
    other = tiny_config(tmp_path, **PIXELS, seed=2, frames=600)
    assert train(other)
    for line, first in zip(evaluations(other), undisturbed, strict=False):
        assert line["returns"] != first["returns"]


@pytest.mark.parametrize("stops", [(1, 2, 3), (49, 1), (51, 4), (60,)])
def test_stopped_runs_end_like_undisturbed_ones(
    undisturbed: list[dict], tmp_path: Path, stops: tuple[int, ...]
) -> None:
    # Within, at and after an episode's end, and at the end of the run.
    config = tiny_config(tmp_path, **PIXELS)
    for steps in stops:
        train(config, **stop_after(steps))
    assert train(config)
    assert evaluations(config) == undisturbed


def test_a_stopped_run_in_bfloat16_ends_like_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "avx512_bf16")
    changes = {**PIXELS, "precision": "bfloat16", "frames": 600}
    whole, stopped = (tiny_config(tmp_path / name, **changes) for name in ("whole", "stopped"))
    assert train(whole)
    train(stopped, **stop_after(21))
    assert train(stopped)
    assert evaluations(stopped) == evaluations(whole)


@pytest.mark.slow
@pytest.mark.parametrize("step", [12, 50])
def test_killed_runs_end_like_undisturbed_ones(
    undisturbed: list[dict], tmp_path: Path, step: int
) -> None:
    # Before the first checkpoint at step 15, and at an episode's end.
    config = tiny_config(tmp_path, **PIXELS)
    log = config.directory / "train.jsonl"
    killed = signalled(config, step, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL, killed
    assert len(read_records(log)) == step // 5
    assert not finished(config)
    assert train(config)
    assert evaluations(config) == undisturbed
    frames = [json.loads(line)["frames"] for line in log.read_text().splitlines()]
    assert frames == sorted(set(frames))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_leave(
    undisturbed_walk: list[dict], tmp_path: Path, number: signal.Signals
) -> None:
    config = tiny_config(tmp_path, **WALK, checkpoint_every=100_000)
    stopped = signalled(config, 12, number)
    assert stopped.returncode == 128 + number, stopped
    assert f"saved; to resume: revbis train {config.directory} --trust\n" in stopped.stdout
    assert "Traceback" not in stopped.stderr
    assert Checkpoints(config.directory / "checkpoints", 2).resume() is not None
    assert train(config)
    assert evaluations(config) == undisturbed_walk


def test_finished_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny_config(tmp_path, **WALK)
    assert train(config)
    before = {path: path.stat().st_mtime_ns for path in config.directory.rglob("*")}
    main(["train", *flags(config)])
    assert "is finished" in capsys.readouterr().out
    with pytest.raises(SystemExit):  # not that it is finished: it is another run
        main(["train", *flags(config), "--hidden", "17"])
    told = capsys.readouterr()
    assert "is finished" not in told.out
    assert "was started with other settings" in told.err
    assert {path: path.stat().st_mtime_ns for path in config.directory.rglob("*")} == before


def test_a_larger_budget_goes_on(undisturbed_walk: list[dict], tmp_path: Path) -> None:
    short, long = (tiny_config(tmp_path, **WALK | {"frames": f}) for f in (400, 800))
    assert train(short)
    assert train(long)
    assert evaluations(long) == undisturbed_walk


def test_safe_change_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tiny_config(tmp_path, **WALK)
    train(config, **stop_after(20))
    assert train(tiny_config(tmp_path, **WALK, checkpoint_every=300))
    assert "--checkpoint-every was 200, now 300" in caplog.text


def newest_folder(config) -> Path:
    return sorted((config.directory / "checkpoints").glob("frame-*"))[-1]


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete"])
@pytest.mark.parametrize("name", ["agent.pt", "state.json", "manifest.json", "replay"])
def test_damaged_checkpoint_is_passed_over(
    undisturbed_walk: list[dict],
    stopped_walk: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: str,
) -> None:
    config = tiny_config(shutil.copytree(stopped_walk, tmp_path / "run"), **WALK)
    folder = newest_folder(config)
    path = folder / name
    if name == "replay":  # the newest piece belongs to the newest checkpoint alone
        path = max((config.directory / "checkpoints" / "replay").iterdir())
    content = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        path.unlink()
    assert train(config)
    assert f"{folder}" in caplog.text and "resuming from an earlier one" in caplog.text
    assert "resumed at frame 400" in caplog.text
    assert (folder.parent / f"damaged-{folder.name}").exists()
    assert evaluations(config) == undisturbed_walk


def test_checkpoints_run_no_code(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **WALK)
    train(config, **stop_after(20))
    folder = newest_folder(config)
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(marker),))

    torch.save({"networks": Evil()}, folder / "agent.pt")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["agent.pt"] = checkpoint_module._entry((folder / "agent.pt").read_bytes())
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedError, match="no checkpoint"):
        train(config)
    assert not marker.exists()


def test_full_disk_leaves_the_last_checkpoint(
    undisturbed_walk: list[dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(tmp_path, **WALK)
    real, writes = files.atomic_write, itertools.count()

    def full(path: Path, content: bytes) -> None:
        if next(writes) > 12 and "checkpoints" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "atomic_write", full)
        with pytest.raises(OSError, match="No space left") as stopped:
            train(config)
    assert stopped.value.errno == errno.ENOSPC
    left = Checkpoints(config.directory / "checkpoints", 2).resume()
    assert left is not None
    assert not list(config.directory.rglob(".*"))
    assert train(config)
    assert evaluations(config) == undisturbed_walk


def test_file_size_limit_is_a_clear_error(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **WALK, hidden=256)
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"
        "from revbis.cli import main; main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, "train", *flags(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 2
    assert "File too large" in done.stderr and "checkpoint" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(config.directory.rglob(".*"))


def test_old_checkpoints_and_pieces_are_deleted(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **WALK, keep_checkpoints=2)
    assert train(config)
    folder = config.directory / "checkpoints"
    assert len(list(folder.glob("frame-*"))) == 2
    oldest = min(int(path.stem.split("-")[1]) for path in (folder / "replay").iterdir())
    newest = json.loads((newest_folder(config) / "state.json").read_text())["replay"]["written"]
    # A ring of 60 records and two checkpoints 200 frames = 25 records apart need about 85.
    assert newest > 100 and oldest > newest - 120


def test_task_that_cannot_be_repeated_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(tmp_path, **WALK | {"task": "tests.runs:Forgetful"})
    train(config, **stop_after(7))
    assert train(config)
    assert "episode was truncated" in caplog.text


def test_an_episode_that_ends_earlier_when_it_is_repeated_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(tmp_path, **WALK)
    train(config, **stop_after(7))
    monkeypatch.setattr(Walk, "limit", 20)
    assert train(config)
    assert "episode was truncated" in caplog.text


def test_a_resume_that_fails_changes_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(tmp_path, **WALK)
    assert train(config)
    before = (config.directory / "config.json").read_bytes()

    def fail(trainer: Trainer, checkpoint: object) -> None:
        raise OSError("the simulator has gone")

    monkeypatch.setattr(Trainer, "restore", fail)
    with pytest.raises(OSError, match="the simulator has gone"):
        train(config.with_settings(frames=config.frames + 400))
    assert (config.directory / "config.json").read_bytes() == before


def test_non_finite_loss_stops_with_a_diagnosis(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **WALK | {"task": "tests.runs:Huge"})
    with pytest.raises(TrainingFailedError, match=r"not finite.*--learning-rate.*diagnosis"):
        train(config)
    facts = json.loads((config.directory / "diagnosis" / "facts.json").read_text())
    assert facts["alarm"]["name"] == "non_finite"
    state = torch.load(config.directory / "diagnosis" / "agent.pt", weights_only=True)
    assert "networks" in state
    alarms = (config.directory / "alarms.jsonl").read_text().splitlines()
    assert json.loads(alarms[-1])["name"] == "non_finite"


def test_nan_reward_is_an_error(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **WALK | {"task": "tests.runs:BadReward"})
    with pytest.raises(ValueError, match="reward must be a finite"):
        train(config)


MODES = itertools.cycle(["joint", "alternating", "balanced"])
METHODS = [(method, next(MODES)) for method in ("drqv2", *OBJECTIVES)]


@pytest.mark.parametrize(("method", "mode"), METHODS)
def test_every_method_trains(tmp_path: Path, method: str, mode: str) -> None:
    settings = WALK | {"frames": 400, "method": method}
    settings |= {} if method == "drqv2" else {"mode": mode}
    config = tiny_config(tmp_path, **settings)
    assert train(config)
    last = read_records(config.directory / "train.jsonl")[-1]
    assert last["updates"] == 20 and np.isfinite(last["critic_loss"])
    assert ("objective/representation_loss" in last) == (method != "drqv2")


def test_one_step_transitions_and_disk_storage(tmp_path: Path) -> None:
    settings = WALK | {"frames": 400, "method": "mico-rev", "transition": "one_step"}
    config = tiny_config(tmp_path, **settings, replay_storage="disk")
    train(config, **stop_after(30))
    assert train(config)
    ram = tiny_config(tmp_path / "ram", **settings)
    assert train(ram)
    assert evaluations(config) == evaluations(ram)


def test_a_run_can_be_opened(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **WALK)
    assert train(config)
    found, agent, *_ = open_run(config.directory, trust=True)
    assert found == config
    action = agent.act(np.zeros(2, np.float32), 0, explore=False)
    assert action.shape == (1,)
    with pytest.raises(ValueError, match="is not a run"):
        open_run(tmp_path, trust=True)


def test_too_large_a_replay_is_refused_with_the_flag(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, pixels=84, replay_capacity=10_000_000)
    with pytest.raises(MemoryError, match="--replay-storage disk"):
        train(config)


def test_run_folder_tells_what_was_run(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **WALK)
    assert train(config)
    about = json.loads((config.directory / "run.json").read_text())
    assert (
        about["versions"]["torch"] == torch.__version__.split("+")[0] or about["versions"]["torch"]
    )
    assert about["environment"]["task"] == config.task
    assert about["revision"] is None or len(about["revision"].rstrip("+")) == 40
    assert about["processor"] == machine.processor()
    assert about["threads"] == {"torch": 1, "cores": os.cpu_count()}
    assert about["blas"] == machine.blas()


def test_a_run_that_moves_names_the_difference_and_keeps_the_first_machine(
    stopped_walk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(shutil.copytree(stopped_walk, tmp_path / "run"), **WALK)
    path = config.directory / "run.json"
    here = json.loads(path.read_text())
    first = here | {"processor": "elsewhere's", "blas": {"torch": "none"}}
    path.write_text(json.dumps(first))
    assert train(config)
    lines = [text for text in caplog.messages if "started elsewhere" in text]
    assert lines == [
        "the run started elsewhere, and seeds do not reproduce across the difference: "
        f"processor is {here['processor']}, was elsewhere's; "
        f"BLAS of torch is {here['blas']['torch']}, was none"
    ]
    now = json.loads(path.read_text())
    assert {name: now[name] for name in ("processor", "threads", "blas")} == {
        name: first[name] for name in ("processor", "threads", "blas")
    }


def test_a_run_that_stays_says_nothing_of_machines(
    stopped_walk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(shutil.copytree(stopped_walk, tmp_path / "run"), **WALK)
    before = json.loads((config.directory / "run.json").read_text())
    assert train(config)
    assert "resumed at frame" in caplog.text and "elsewhere" not in caplog.text
    now = json.loads((config.directory / "run.json").read_text())
    assert {**now, "command": ""} == {**before, "command": ""}  # of another folder


def test_resident_memory_is_flat(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, frames=3200, eval_every=3200, checkpoint_every=3200)
    assert train(config)
    held = [line["resident_bytes"] for line in read_records(config.directory / "train.jsonl")]
    settled = held[len(held) // 4]
    assert max(held[len(held) // 4 :]) - settled < 12e6, held
