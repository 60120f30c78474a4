"""Yardsticks during training: at evaluations, in their records, and without a trace elsewhere."""

import itertools
import json

import pytest
import torch
from tests.runs import evaluations, tiny_config

from revbis.representation.yardsticks import measure
from revbis.runs.run import open_run, train
from revbis.runs.seeds import Stream, episode_seeds

torch.set_num_threads(1)
NOISY = {
    "task": "tests.runs:Walk",
    "observation": "state",
    "state_noise": 6,
    "frames": 1000,
    "eval_episodes": 2,
    "method": "simsr-rev",
}
MEASURES = {"denoising_id", "denoising_ood", "state_r2", "effective_rank", "value"}


def stop_after(steps):
    count = itertools.count(1)
    return lambda: next(count) >= steps


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    config = tiny_config(tmp_path_factory.mktemp("whole"), **NOISY, yardstick_every=800)
    assert train(config)
    return config


def test_they_are_measured_at_evaluations_that_are_due(whole):
    lines = evaluations(whole)
    assert [line["frames"] for line in lines] == [0, 400, 800, 1000]
    # At the start, after 800 frames and at the end.
    assert ["yardsticks" in line for line in lines] == [True, False, True, True]
    names = {f"{embedding}_{name}" for embedding in ("phi", "trunk") for name in MEASURES}
    assert set(lines[0]["yardsticks"]) == names
    last = (whole.directory / "train.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["seconds/yardsticks"] > 0


def test_they_are_of_the_agent_at_that_time(whole):
    config, agent = open_run(whole.directory)
    seeds = episode_seeds(config.seed, Stream.YARDSTICKS, 2)
    values = measure(config.environment, config.discount, agent, seeds)
    assert values == evaluations(whole)[-1]["yardsticks"]


def test_nothing_else_changes(whole, tmp_path):
    plain = tiny_config(tmp_path, **NOISY)
    assert train(plain)
    without = [{k: v for k, v in e.items() if k != "yardsticks"} for e in evaluations(whole)]
    assert without == evaluations(plain)
    wanted, got = (open_run(run.directory)[1].state_dict()["networks"] for run in (plain, whole))
    for name, network in wanted.items():
        assert all(torch.equal(value, got[name][key]) for key, value in network.items())


def test_an_interrupted_run_has_the_same(whole, tmp_path):
    parts = tiny_config(tmp_path, **NOISY, yardstick_every=800)
    assert not train(parts, stop=stop_after(73))
    assert train(parts)
    assert evaluations(parts) == evaluations(whole)


def test_a_run_resumes_with_and_without_them(tmp_path):
    plain = tiny_config(tmp_path, **NOISY)
    assert not train(plain, stop=stop_after(73))
    assert train(plain.with_settings(yardstick_every=400))
    assert ["yardsticks" in line for line in evaluations(plain)] == [False, False, True, True]


def test_an_agent_alone_has_only_a_trunk(tmp_path):
    settings = {**NOISY, "method": "drqv2", "state_noise": 0, "frames": 400}
    config = tiny_config(tmp_path, **settings, yardstick_every=400)
    assert train(config)
    names = {"trunk_state_r2", "trunk_effective_rank", "trunk_value"}
    assert [set(line["yardsticks"]) for line in evaluations(config)] == [names, names]


def test_phi_is_what_the_agent_embeds_by(whole):
    _, agent = open_run(whole.directory)
    batch = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    both = agent.embeddings(batch)
    assert set(both) == {"phi", "trunk"}
    assert torch.equal(both["phi"], agent.embed(batch))
    assert both["trunk"].shape == (5, agent.settings.feature_dim)
