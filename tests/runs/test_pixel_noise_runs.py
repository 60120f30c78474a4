"""Runs with Gaussian noise on their pixels: resume, records, refusals."""

import itertools
import json

import pytest
import torch
from tests.cli import fails
from tests.runs import evaluations, flags, tiny_config

from revbis.envs.distractors import PixelNoise
from revbis.runs.config import Config
from revbis.runs.run import open_run, train

NOISY = {
    "task": "tests.runs:Walk",
    "frames": 800,
    "distractor": "gaussian",
    "distractor_strength": 0.3,
}


def stop_after(steps):
    count = itertools.count(1)
    return lambda: next(count) >= steps


def networks(config):
    state = open_run(config.directory)[1].state_dict()["networks"]
    return {f"{n}.{key}": value for n, network in state.items() for key, value in network.items()}


def test_a_run_resumes_exactly_in_the_middle_of_an_episode(tmp_path, caplog):
    whole, parts = (tiny_config(tmp_path / name, **NOISY) for name in ("whole", "parts"))
    assert train(whole)
    assert not train(parts, stop=stop_after(65))  # after 63 agent steps; an episode has five
    assert train(parts)
    assert "resumed at frame 504" in caplog.text and "truncated" not in caplog.text
    assert evaluations(parts) == evaluations(whole)
    wanted, got = networks(whole), networks(parts)
    assert wanted.keys() == got.keys()
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)
    louder = tiny_config(tmp_path / "louder", **NOISY | {"distractor_strength": 0.9})
    assert train(louder)
    assert not all(torch.equal(wanted[name], value) for name, value in networks(louder).items())


def test_a_run_records_its_noise_and_cannot_change_it(tmp_path, capsys):
    config = tiny_config(tmp_path, **NOISY)
    assert not train(config, stop=stop_after(20))
    assert Config.read(config.directory / "config.json") == config
    about = json.loads((config.directory / "run.json").read_text())
    assert about["environment"]["distractor"] == "gaussian-v1(0.3)/train"
    assert "--distractor gaussian --distractor-strength 0.3" in about["command"]
    error = fails(capsys, "train", *flags(config.with_settings(distractor_strength=0.4)))
    assert "--distractor-strength was 0.3, now 0.4" in error


def test_training_and_evaluation_have_their_own_numbers(tmp_path, monkeypatch):
    seen = set()
    reset = PixelNoise.reset

    def recorded(noise, seed):
        reset(noise, seed)
        seen.add(noise.identity)

    monkeypatch.setattr(PixelNoise, "reset", recorded)
    assert train(tiny_config(tmp_path, **NOISY | {"frames": 400}))
    assert seen == {"gaussian-v1(0.3)/train", "gaussian-v1(0.3)/eval"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--distractor", "gaussian"], "gaussian needs a distractor_strength"),
        (["--distractor-strength", "0.2"], "is for the distractor gaussian"),
        (["--distractor", "gaussian", "--distractor-strength", "2"], "must be at most 1, got 2"),
        (["--distractor", "gaussian", "--distractor-strength", "nan"], "parsing --distractor-"),
        (["--distractor", "noise"], "drop distractor, or set it to gaussian"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(words, message, tmp_path, capsys):
    start = ["train", "--task", "tests.runs:Walk", "--out", str(tmp_path / "runs")]
    error = fails(capsys, *start, *words)
    assert message in error
    assert not list(tmp_path.iterdir())
