"""train, eval, neighbours, report: as typed."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.cli import fails
from tests.runs import flags, tiny_config

from revbis.cli import main
from revbis.cli.train import describe, forewarn
from revbis.io.text import format_duration
from revbis.representation.neighbours import find_neighbours
from revbis.runs.config import Config
from revbis.runs.presets import preset_config
from revbis.runs.records import Progress, Status
from revbis.runs.run import open_run, resolve_device, train
from revbis.sweep.measure import NotMeasuredError
from revbis.sweep.plan import Speed

torch.set_num_threads(1)
pytestmark = pytest.mark.env("dmc")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A finished run on pixels, with episodes of 50 agent steps."""
    settings = {"method": "mico-rev", "frames": 400, "action_repeat": 20}
    config = tiny_config(tmp_path_factory.mktemp("run"), **settings)
    assert train(config)
    return config


def test_train_prints_its_evaluations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny_config(
        tmp_path, task="tests.runs:Walk", observation="state", quality="full", frames=400
    )
    main(["train", *flags(config)])
    printed = capsys.readouterr().out
    assert f"finished: {config.directory}" in printed
    assert "mean return" in printed
    assert (config.directory / "result.json").exists()


def test_list_and_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["train", "--list"])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    for word in ("dmc:cheetah_run", "metaworld:hammer", "simsr-rev", "drqv2", "paper", "cpu"):
        assert word in printed
    with pytest.raises(SystemExit) as stop:
        main(["train", "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for flag in ("task", "eval-every", "mode", "batch-size", "objective-weight"):
        assert f"--{flag}" in printed
    assert "in frames" in printed.lower()


def test_eval_with_a_video(run: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import av

    video, out = tmp_path / "out.mp4", tmp_path / "episodes.json"
    main(
        ["eval", str(run.directory), "--episodes", "2", "--video", str(video), "--out", str(out)],
    )
    assert "mean return" in capsys.readouterr().out
    episodes = json.loads(out.read_text())
    assert [episode["frames"] for episode in episodes] == [1000, 1000]
    with av.open(str(video)) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(frames) == 51  # the first and one for each of 1000 / 20 agent steps
    assert frames[0].shape == (256, 256, 3)
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 30


def test_eval_is_repeatable(run: Config, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        main(["eval", str(run.directory), "--episodes", "1", "--out", str(path)])
    assert paths[0].read_text() == paths[1].read_text()


def test_neighbours_are_the_nearest(run: Config, tmp_path: Path) -> None:
    _, agent, *_ = open_run(run.directory)
    found = find_neighbours(run, agent, episodes=2, queries=3, count=4, seed=0)
    assert found.nearest.shape == found.distances.shape == (3, 4)
    assert (np.diff(found.distances, axis=1) >= 0).all()
    assert (found.farthest_distances >= found.distances[:, -1]).all()
    for query, row in zip(found.queries, found.nearest, strict=True):
        same_episode = (row // 50) == (query // 50)
        assert (np.abs(row - query)[same_episode] > 10).all()
    path = tmp_path / "n.png"
    main(["neighbours", str(run.directory), "--episodes", "2", "--out", str(path)])
    with Image.open(path) as picture:
        assert picture.size[0] > 500


@pytest.fixture(scope="module")
def report(run: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run's page."""
    folder = tmp_path_factory.mktemp("report")
    main(["report", str(run.directory), "-o", str(folder)])
    return folder


def test_report_is_one_page(run: Config, report: Path) -> None:
    page = (report / "index.html").read_text()
    for part in ("Learning curve", "Coefficient c", "Timing", "Settings", "Commands", "Versions"):
        assert part in page
    assert "data:video/mp4;base64" in page and "data:image/png;base64" in page
    assert "mico-rev" in page and f"revbis train --task {run.task}" in page
    assert not re.search(r"""(src|href)=["']https?:""", page)  # nothing from a network


def test_report_keeps_what_is_newer_than_the_checkpoint(
    run: Config, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def record(environment: dict[str, object], agent: object, seed: int, path: Path) -> None:
        made.append(environment["task"])
        path.write_bytes(b"another")

    monkeypatch.setattr("revbis.runs.evaluate.record_episode", record)
    words = ["report", str(run.directory), "-o", str(report)]
    main(words)
    assert made == [] and "data:video/mp4" in (report / "index.html").read_text()
    (video,) = report.glob("media/*/episode.mp4")
    os.utime(video, (0, 0))  # older than the checkpoint
    main(words)
    assert made == [run.task] and video.read_bytes() == b"another"
    assert [path.name for path in video.parent.iterdir() if path.name.startswith(".")] == []


def test_report_without_its_video(
    run: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no codec today")

    monkeypatch.setattr("revbis.runs.evaluate.record_episode", broken)
    main(["report", str(run.directory), "-o", str(tmp_path)])
    assert "no episode.mp4: no codec today" in capsys.readouterr().err
    page = (tmp_path / "index.html").read_text()
    assert "data:image/png;base64" in page and "data:video" not in page


def test_report_of_one_run_without_videos(run: Config, tmp_path: Path, capsys) -> None:
    words = ["report", str(run.directory), "-o", str(tmp_path)]
    main([*words, "--no-videos"])
    page = (tmp_path / "index.html").read_text()
    assert "data:video" not in page and "data:image/png" not in page
    assert not (tmp_path / "media").exists()
    assert "contradict each other" in fails(capsys, *words, "--videos", "--no-videos")


def test_report_on_several_runs_draws_no_video_unless_asked(
    run: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "revbis.runs.evaluate.record_episode",
        lambda environment, agent, seed, path: path.write_bytes(b"v"),
    )
    for seed in (1, 2):
        folder = tmp_path / "runs" / f"seed-{seed}"
        shutil.copytree(run.directory, folder)
        (folder / "config.json").write_text(json.dumps(run.as_dict() | {"seed": seed}))
    first = tmp_path / "runs" / "seed-1" / "eval.jsonl"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    first.write_text("".join(json.dumps(r | {"mean_return": 1e6}) + "\n" for r in lines))
    words = ["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page")]
    main(words)
    assert not (tmp_path / "page" / "media").exists()
    main([*words, "--videos"])
    (folder,) = (tmp_path / "page" / "media").iterdir()
    assert "seed-1" in folder.name  # the better of the two
    assert (tmp_path / "page" / "index.html").read_text().count("data:video/mp4") == 1


def test_the_live_line() -> None:
    status = Status(
        progress=Progress(frames=250, updates=20),
        last_return=12.34,
        last_evaluation=56.78,
        agent={"c": 0.5},
        seconds={"update": 6.0, "environment": 2.0, "other": 0.0},
        frames_per_second=50.0,
    )
    assert describe(status, 1000) == (
        "250/1,000 frames · 50/s · 15 s left · return 12.3 · eval 56.8 · c 0.500"
        "  [update 75% environment 25%]"
    )
    first = replace(status, progress=Progress(frames=4), last_return=None, agent={})
    assert describe(first, 1000) == "4/1,000 frames · eval 56.8  [update 75% environment 25%]"
    playing = replace(first, last_evaluation=None, evaluating=(3, 10))
    assert describe(playing, 1000) == "4/1,000 frames · evaluating, episode 3 of 10"


def test_devices() -> None:
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") in ("cpu", "cuda", "mps")


def test_the_paper_preset_on_a_cpu_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """500,000 steps of 10 ms, 10 ms for each action and 40 ms for an update every two steps."""
    config = preset_config("paper", "dmc:cheetah_run").with_settings(device="cpu")
    speed = Speed(step=0.01, act=0.01, update=0.04)
    monkeypatch.setattr("revbis.sweep.measure.measure_speed", lambda config: speed)
    forewarn(config, new=True)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("measuring how long the paper preset takes on this CPU, for at most")
    random = config.agent.explore_steps
    seconds = 500_000 * 0.01 + (500_000 - random) * (0.01 + 0.04 / config.update_every)
    assert f"takes about {format_duration(seconds)} for 1,000,000 frames" in said[1]
    assert (
        said[2].startswith("on a GPU: about 4.") and "an estimate that was not measured" in said[2]
    )
    forewarn(config, new=False)  # a run that goes on has its own speed
    forewarn(preset_config("cpu", "dmc:cheetah_run"), new=True)
    assert not capsys.readouterr().err


def test_a_speed_that_cannot_be_measured_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(config: Config) -> Speed:
        raise NotMeasuredError("18 s are too short on this machine now")

    monkeypatch.setattr("revbis.sweep.measure.measure_speed", fail)
    forewarn(preset_config("paper", "dmc:cheetah_run").with_settings(device="cpu"), new=True)
    assert "takes days or weeks (18 s are too short" in capsys.readouterr().err
