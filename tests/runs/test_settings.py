"""Runs beside each other, resumed by their folder, extended; settings that have no effect."""

import json
import shutil
import time
from pathlib import Path

import pytest
from tests.runs import Walk, evaluations, flags, stop_after, tiny_config

from revbis.analysis.study import read_study
from revbis.cli import main
from revbis.runs import trainer
from revbis.runs.config import Config
from revbis.runs.preflight import check_unchanged
from revbis.runs.presets import preset_config
from revbis.runs.run import open_run, read_config, train

WALK = {"task": "tests.runs:Walk", "observation": "state", "quality": "full", "frames": 400}
pytestmark = pytest.mark.env("gym", gl=False)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A finished run of 400 frames; do not change it."""
    config = tiny_config(tmp_path_factory.mktemp("walk"), **WALK)
    assert train(config)
    return config


@pytest.fixture
def copy(walk: Config, tmp_path: Path) -> Config:
    shutil.copytree(walk.out, tmp_path / "runs")
    return walk.with_settings(out=tmp_path / "runs")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["train", *words])
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("eval_every", [400, 1000, 1208])
@pytest.mark.parametrize("method", ["simsr-rev", "tdmpc"])
def test_an_extended_run_is_one_that_was_longer_from_the_start(
    tmp_path: Path, method: str, eval_every: int
) -> None:
    # The short budget is, is not, and is by an action's frames not, a multiple of the interval.
    small = {"samples": 8, "policy_samples": 2, "elites": 4, "iterations": 1, "encoder_hidden": 8}
    settings = {**WALK, "method": method, "eval_every": eval_every, "eval_episodes": 2}
    settings |= small if method == "tdmpc" else {}
    whole = tiny_config(tmp_path / "whole", **settings | {"frames": 2000})
    extended = tiny_config(tmp_path / "extended", **settings | {"frames": 1201})
    assert train(whole)
    assert train(extended)
    assert train(extended.with_settings(frames=2000))
    expected = {line["frames"]: line for line in evaluations(whole)}
    found = {line["frames"]: line for line in evaluations(extended)}
    assert found.keys() - expected.keys() <= {1208}
    assert {frames: found[frames] for frames in expected} == expected


def test_a_run_resumes_by_its_folder_alone(
    walk: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tiny_config(tmp_path / "runs", **WALK)
    train(config, **stop_after(12))
    shutil.move(tmp_path / "runs", tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    folder = Path("moved") / config.directory.relative_to(tmp_path / "runs")
    main(["train", str(folder), "--trust"])
    said = capsys.readouterr()
    assert f"in {folder}, action repeat 8" in said.out and "--out was" not in said.err
    moved = config.with_settings(out=Path("moved"))
    assert evaluations(moved) == evaluations(walk)
    monkeypatch.chdir(folder)
    main(["train", ".", "--trust", "--frames", "480", "--checkpoint-every", "300"])
    assert Config.read(Path("config.json")).frames == 480
    assert [
        line["frames"] for line in evaluations(moved.with_settings(out=tmp_path / "moved"))
    ] == [
        0,
        400,
        480,
    ]


def test_what_a_folder_stands_for_cannot_be_changed(
    copy: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(copy.directory)
    for words in (["--seed", "2"], ["--name=x"], ["--task", "dmc:cheetah_run"], ["--out", "x"]):
        assert f"{words[0].partition('=')[0]} is what {run} was started with" in refused(
            capsys, run, *words
        )
    told = refused(capsys, run, "--trust", "--hidden", "17")
    assert "was started with other settings: --hidden was 16, now 17" in told
    assert f"revbis train {run}. To keep both, pass --name NAME" in told
    assert "no_such does not exist" in refused(capsys, "no_such")
    copy.directory.rename(copy.directory.with_name("mine"))
    told = refused(capsys, str(copy.directory.with_name("mine")))
    assert "has the settings of a run in cpu/tests.runs-Walk/drqv2/seed-1" in told


def test_a_named_run_is_kept_beside_the_other(
    copy: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    named = copy.with_settings(name="wide", hidden=17)
    assert named.directory == copy.directory.parents[1] / "drqv2+wide" / "seed-1"
    main(["train", *flags(copy), "--name", "wide", "--hidden", "17"])
    assert "tests.runs:Walk · drqv2 (wide) · cpu · seed 1" in capsys.readouterr().out
    main(["train", str(named.directory), "--trust", "--frames", "480"])
    study = read_study([copy.out])
    assert study.labels == ["drqv2", "drqv2 (wide)"]
    assert not [each for each in study.problems if "kept separate" in str(each)]
    again = refused(capsys, *flags(copy), "--name", "a/b")
    assert "name must be a folder's name of letters, digits" in again


def test_runs_of_one_name_are_told_apart_by_their_settings(copy: Config) -> None:
    named = copy.with_settings(name="wide", seed=2)
    for hidden in (17, 18):
        folder = copy.out / str(hidden)
        shutil.copytree(copy.directory, folder)
        config = named.with_settings(hidden=hidden)
        (folder / "config.json").write_text(json.dumps(config.as_dict()))
    study = read_study([copy.out])
    assert study.labels == ["drqv2", "drqv2 (wide, hidden=17)", "drqv2 (wide, hidden=18)"]


def test_fewer_frames_than_a_finished_run_has(
    copy: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", str(copy.directory), "--trust", "--frames", "200"])
    said = capsys.readouterr().out
    assert "is finished: it has 400 frames; the 200 of --frames are spent already." in said
    assert f"revbis train {copy.directory} --trust --frames N, with N above 400" in said
    assert Config.read(copy.directory / "config.json").frames == 400


def test_a_wrong_value_is_named_before_other_settings() -> None:
    before = tiny_config(Path("runs"))
    with pytest.raises(ValueError, match="was started with other settings: --distractor was None"):
        check_unchanged(before, before.with_settings(distractor="noise"), "runs")
    with pytest.raises(ValueError, match="noize"):
        check_unchanged(before, before.with_settings(distractor="noize"), "runs")


@pytest.mark.parametrize(
    ("method", "words", "needed"),
    [
        ("drqv2", ["--objective-weight", "3"], "objective"),
        ("drqv2", ["--mode=joint"], "objective"),
        ("drqv2", ["--encoder-norm"], "objective"),
        ("drqv2", ["--latent_dim", "7"], "objective"),
        ("simsr", ["--coefficient-learning-rate", "1e-3"], "coefficient"),
    ],
)
def test_a_setting_without_effect_is_refused(
    method: str, words: list[str], needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(capsys, "--task", "tests.runs:Walk", "--method", method, *words)
    name = words[0].partition("=")[0].removeprefix("--").replace("-", "_")
    assert f"{name} would change nothing: {method} has no {needed}" in told
    config = preset_config("cpu", "tests.runs:Walk", method)
    with pytest.raises(ValueError, match="would change nothing"):
        config.with_settings(**{name: getattr(config.agent, name)})
    assert Config.from_dict(config.as_dict()) == config


@pytest.mark.parametrize("method", ["simsr-rev", "taco"])
def test_a_weight_that_alternating_steps_do_not_have_is_refused(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--task", "tests.runs:Walk", "--method", method, "--mode", "alternating"]
    told = refused(capsys, *words, "--objective-weight", "3")
    wanted = "objective_weight would change nothing: it needs --mode balanced or joint"
    assert wanted in " ".join(told.split())
    config = preset_config("cpu", "tests.runs:Walk", method).with_settings(mode="balanced")
    assert config.with_settings(objective_weight=3).effective()["objective_weight"] == 3
    alternating = config.with_settings(mode="alternating")
    assert "objective_weight" not in alternating.effective()  # nor do alarms suggest it
    with pytest.raises(ValueError, match="would change nothing"):
        config.with_settings(mode="alternating", objective_weight=3)


def test_an_older_run_with_settings_without_effect_is_read_resumed_and_reported(
    copy: Config,
) -> None:
    path = copy.directory / "config.json"
    before = json.loads(path.read_text())
    path.write_text(json.dumps(before | {"objective_weight": 3.0, "mode": "joint"}))
    open_run(copy.directory, trust=True)
    assert train(copy.with_settings(frames=480))
    path.write_text(json.dumps(before | {"objective_weight": 3.0, "frames": 480}))
    other = copy.with_settings(seed=2)
    shutil.copytree(copy.directory, other.directory)
    (other.directory / "config.json").write_text(json.dumps(before | {"seed": 2}))
    assert read_study([copy.out]).labels == ["drqv2"]


def test_without_config_json_the_checkpoint_knows_the_settings(
    copy: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy.directory / "config.json").unlink()
    assert read_config(copy.directory) == copy.with_settings(out=read_config(copy.directory).out)
    for frames in ("400", "480"):
        told = refused(capsys, *flags(copy), "--learning-rate", "1e-3", "--frames", frames)
        assert "--learning-rate was 0.0003, now 0.001" in told
    main(["train", str(copy.directory), "--trust", "--frames", "480"])
    assert Config.read(copy.directory / "config.json") == copy.with_settings(frames=480)


def test_a_checkpoint_without_settings_is_told(
    copy: Config, caplog: pytest.LogCaptureFixture
) -> None:
    from revbis.runs import checkpoint

    (copy.directory / "config.json").unlink()
    for folder in (copy.directory / "checkpoints").glob("frame-*"):
        state = json.loads((folder / "state.json").read_text())
        del state["config"]  # as earlier versions wrote it
        (folder / "state.json").write_text(json.dumps(state))
        manifest = json.loads((folder / "manifest.json").read_text())
        content = (folder / "state.json").read_bytes()
        manifest["files"]["state.json"] = checkpoint._entry(content)
        (folder / "manifest.json").write_text(json.dumps(manifest))
    assert train(copy.with_settings(frames=480))
    assert "that it was started with these settings cannot be checked" in caplog.text


def test_a_finished_run_gets_its_evaluations_back(copy: Config, walk: Config) -> None:
    (copy.directory / "eval.jsonl").unlink()
    assert train(copy)
    restored = (copy.directory / "eval.jsonl").read_bytes()
    assert restored == (walk.directory / "eval.jsonl").read_bytes()


def test_a_report_reads_them_from_the_checkpoint(copy: Config, walk: Config) -> None:
    (copy.directory / "eval.jsonl").unlink()
    [run], [whole] = (read_study([each.out]).runs for each in (copy, walk))
    assert run.finished and run.evaluations == whole.evaluations and len(run.evaluations) > 1
    problems = [str(problem) for problem in read_study([copy.out]).problems]
    assert any("eval.jsonl is missing; its lines are read from the" in text for text in problems)
    assert not any("no evaluation" in text for text in problems)
    assert not (copy.directory / "eval.jsonl").exists()  # a report changes no run


def test_files_of_killed_processes_are_removed(copy: Config) -> None:
    dead, alive = (1 << 22) + 1, 1  # more than Linux gives to processes, and one that always runs
    left = [f".{dead}-config.json", f".{dead}-eval.jsonl"]
    kept = [f".{alive}-config.json", f".{dead}-mine.txt", ".config.json"]
    for name in left + kept:
        (copy.directory / name).write_text("half")
    (copy.directory / f".{dead}-export").mkdir()
    (copy.directory / f".{dead}-export" / "weights.safetensors").write_text("half")
    assert train(copy.with_settings(frames=480))
    assert sorted(path.name for path in copy.directory.glob(".*")) == sorted(kept)


def test_a_finished_run_whose_checkpoints_are_gone(copy: Config) -> None:
    shutil.rmtree(copy.directory / "checkpoints")
    with pytest.raises(ValueError, match="is finished, but its checkpoints are not here"):
        open_run(copy.directory, trust=True)


def test_the_time_left_follows_from_the_speed_since_the_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(tmp_path, **WALK)
    train(config, **stop_after(12))  # within an episode, which is played again
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(trainer, "_WARM_UP", 1)
    reset, step = Walk.reset, Walk.step

    def slow_reset(self, **options):
        now[0] += 1000.0
        return reset(self, **options)

    def timed_step(self, action):
        now[0] += 1.0
        return step(self, action)

    monkeypatch.setattr(Walk, "reset", slow_reset)
    monkeypatch.setattr(Walk, "step", timed_step)
    speeds = []
    stopping = stop_after(3)

    def report(status):
        speeds.extend([] if status.evaluating else [status.frames_per_second])
        stopping["report"](status)

    train(config, stop=stopping["stop"], report=report)
    assert speeds[1:] == [1.0, 1.0]  # from the end of the first step on


def test_steps_of_own_environments_are_not_repeated_unless_asked_for() -> None:
    for preset in ("cpu", "paper"):
        for method in ("drqv2", "tdmpc"):
            assert preset_config(preset, "tests.runs:Walk", method).action_repeat == 1
    assert preset_config("cpu", "dmc:cartpole_balance").action_repeat == 4
