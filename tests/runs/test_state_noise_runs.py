"""Runs whose state vectors have irrelevant numbers: resume, evaluation, videos, refusals."""

import itertools
import json

import pytest
import torch
from tests.cli import fails
from tests.runs import evaluations, flags, tiny_config

from revbis.cli import main
from revbis.runs.config import Config
from revbis.runs.run import open_run, train

NOISY = {
    "task": "tests.runs:Walk",
    "observation": "state",
    "quality": "full",
    "frames": 800,
    "state_noise": 6,
}


def stop_after(steps):
    count = itertools.count(1)
    return lambda: next(count) >= steps


def networks(config):
    state = open_run(config.directory)[1].state_dict()["networks"]
    return {f"{n}.{key}": value for n, network in state.items() for key, value in network.items()}


@pytest.mark.parametrize("kind", ["gaussian", "walk"])
def test_a_run_resumes_exactly_in_the_middle_of_an_episode(kind, tmp_path, caplog):
    settings = NOISY | {"state_noise_kind": kind}
    whole, parts = (tiny_config(tmp_path / name, **settings) for name in ("whole", "parts"))
    assert train(whole)
    assert not train(parts, stop=stop_after(65))  # after 63 agent steps; an episode has five
    assert train(parts)
    assert "resumed at frame 504" in caplog.text and "truncated" not in caplog.text
    assert evaluations(parts) == evaluations(whole)
    wanted, got = networks(whole), networks(parts)
    assert wanted.keys() == got.keys()
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)


def test_the_noise_changes_what_is_learned(tmp_path):
    returns = []
    for number, change in enumerate(({}, {"state_noise": 7}, {"state_noise_kind": "walk"})):
        config = tiny_config(tmp_path / str(number), **NOISY | change)
        assert train(config)
        assert Config.read(config.directory / "config.json") == config
        returns.append(evaluations(config)[-1]["returns"][0])
    assert len(set(returns)) == 3


def test_a_run_records_its_noise_and_cannot_change_it(tmp_path, capsys):
    config = tiny_config(tmp_path, **NOISY)
    assert not train(config, stop=stop_after(20))
    about = json.loads((config.directory / "run.json").read_text())
    assert about["environment"]["state_noise"] == "gaussian-v1(6)/train"
    assert "--state-noise 6" in about["command"]
    error = fails(capsys, "train", *flags(config.with_settings(state_noise=7)))
    assert "--state-noise was 6, now 7" in error


def test_it_is_evaluated_on_the_evaluation_variants(tmp_path, monkeypatch):
    from revbis.envs.state_noise import StateNoise

    seen = set()
    reset = StateNoise.reset

    def recorded(noise, seed):
        reset(noise, seed)
        seen.add((noise.identity, noise.variant in range(60)))

    monkeypatch.setattr(StateNoise, "reset", recorded)
    config = tiny_config(tmp_path, **NOISY | {"frames": 400})
    assert train(config)
    assert seen == {("gaussian-v1(6)/train", True), ("gaussian-v1(6)/eval", False)}
    seen.clear()
    main(["eval", str(config.directory), "--episodes", "2"])
    assert seen == {("gaussian-v1(6)/eval", False)}


def test_a_video_shows_the_task_without_the_numbers(tmp_path):
    pytest.importorskip("av")
    config = tiny_config(tmp_path, **NOISY | {"frames": 400})
    assert train(config)
    video = tmp_path / "episode.mp4"
    main(["eval", str(config.directory), "--episodes", "1", "--video", str(video)])
    assert video.stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--state-noise", "4"], "state_noise requires observation state"),
        (["--observation", "state", "--state-noise", "-1"], "at least 0"),
        (["--observation", "state", "--state-noise", "10001"], "at most 10,000"),
        (["--observation", "state", "--state-noise-kind", "white"], "gaussian"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(words, message, tmp_path, capsys):
    start = ["train", "--task", "tests.runs:Walk", "--out", str(tmp_path / "runs")]
    error = fails(capsys, *start, *words)
    assert message in error
    assert error.count("\n") == 0
    assert not list(tmp_path.iterdir())
