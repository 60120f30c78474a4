"""Evaluations on training variants beside those on evaluation variants."""

import itertools
import json

import pytest
import torch
from tests.runs import evaluations, flags, tiny_config

from revbis.cli import main
from revbis.envs import make_env
from revbis.runs.config import Config
from revbis.runs.evaluate import evaluate
from revbis.runs.presets import preset_config
from revbis.runs.run import open_run, train
from revbis.runs.seeds import Stream, derive_seed

WALK = {
    "task": "tests.runs:Walk",
    "observation": "state",
    "frames": 800,
    "eval_episodes": 2,
}
NOISY = {**WALK, "state_noise": 6}
NAMES = ("mean_return", "returns", "success_any", "success_last")


def stop_after(steps):
    count = itertools.count(1)
    return lambda: next(count) >= steps


@pytest.mark.parametrize(
    ("settings", "splits"),
    [
        ({}, ("eval",)),
        ({"distractor": "shapes"}, ("eval", "train")),
        ({"distractor": "gaussian", "distractor_strength": 0.5}, ("eval", "train")),
        ({"observation": "state"}, ("eval",)),
        ({"observation": "state", "state_noise": 1}, ("eval", "train")),
    ],
)
def test_which_variants_are_evaluated(settings, splits):
    assert preset_config("cpu", "dmc:cheetah_run").with_settings(**settings).splits == splits


def test_every_evaluation_is_on_both_with_the_same_seeds(tmp_path):
    config = tiny_config(tmp_path, **NOISY)
    assert train(config)
    lines = evaluations(config)
    assert [line["frames"] for line in lines] == [0, 400, 800]
    for line in lines:
        assert line["train_mean_return"] == sum(line["train_returns"]) / 2
        assert line["train_success_any"] == line["train_success_last"] == [None, None]
        assert line["train_returns"] != line["returns"]
    # The last evaluation again, with the agent of the last checkpoint.
    _, agent = open_run(config.directory)
    seeds = [derive_seed(config.seed, Stream.EVALUATION, 2, number) for number in range(2)]
    for split, name in (("eval", "returns"), ("train", "train_returns")):
        env = make_env(**config.environment, seed=0, distractor_split=split)
        assert [episode.total for episode in evaluate(agent, env, seeds)] == lines[-1][name]


def test_without_variants_nothing_is_added(tmp_path):
    config = tiny_config(tmp_path, **WALK)
    assert train(config)
    assert not [name for line in evaluations(config) for name in line if "train" in name]


def test_learning_and_other_records_are_as_without(tmp_path, monkeypatch):
    both, one = (tiny_config(tmp_path / name, **NOISY) for name in ("both", "one"))
    assert train(both)
    with monkeypatch.context() as patch:
        patch.setattr(Config, "splits", ("eval",))
        assert train(one)
    plain = [{k: v for k, v in line.items() if "train" not in k} for line in evaluations(both)]
    assert plain == evaluations(one)
    wanted, got = (open_run(run.directory)[1].state_dict()["networks"] for run in (both, one))
    for name, network in wanted.items():
        assert all(torch.equal(value, got[name][key]) for key, value in network.items())


def test_a_run_of_an_earlier_version_resumes(tmp_path, monkeypatch, capsys):
    config = tiny_config(tmp_path, **NOISY)
    with monkeypatch.context() as patch:
        patch.setattr(Config, "splits", ("eval",))
        assert not train(config, stop=stop_after(60))  # frame 480
    main(["train", *flags(config)])
    lines = evaluations(config)
    assert ["train_mean_return" in line for line in lines] == [False, False, True]
    printed = capsys.readouterr().out
    assert "training variants" in " ".join(printed.split())
    assert f"{lines[-1]['train_mean_return']:.1f}" in printed and "–" in printed


def test_success_on_both(tmp_path):
    noise = {"distractor": "gaussian", "distractor_strength": 0.5}
    config = tiny_config(tmp_path, task="tests.envs.toys:Succeeding", frames=120, **noise)
    assert train(config)
    for line in evaluations(config):
        assert line["train_success_any"] == line["success_any"]  # whatever is seen
        assert all(isinstance(value, bool) for value in line["train_success_last"])


def test_an_interrupted_run_keeps_both(tmp_path):
    whole, parts = (tiny_config(tmp_path / name, **NOISY) for name in ("whole", "parts"))
    assert train(whole)
    assert not train(parts, stop=stop_after(73))
    state = json.loads(
        (max((parts.directory / "checkpoints").glob("frame-*")) / "state.json").read_text()
    )
    assert all(f"train_{name}" in state["records"]["evaluations"][0] for name in NAMES)
    assert train(parts)
    assert evaluations(parts) == evaluations(whole)
