"""Evaluations of a run: stops between their steps, both splits of variants, yardsticks."""

import json

import pytest
import torch
from tests.agents.tdmpc import assert_same_state
from tests.runs import evaluations, flags, networks, stop_after, tiny_config

from revbis.cli import main
from revbis.envs import make_env
from revbis.io.files import read_records
from revbis.representation.yardsticks import measure_agent
from revbis.runs.config import Config
from revbis.runs.evaluate import evaluate
from revbis.runs.folder import RunFolder
from revbis.runs.presets import preset_config
from revbis.runs.run import open_run, train
from revbis.runs.seeds import Stream, derive_seed, episode_seeds

# Evaluations at frames 0, 400 and 800, each of three episodes on either split.
RUN = {"task": "tests.runs:Walk", "observation": "state", "quality": "full", "frames": 800}
RUN |= {"state_noise": 3, "eval_episodes": 3, "checkpoint_every": 100_000}
pytestmark = pytest.mark.env("gym", gl=False)


class Stop:
    """Asks a run to stop when an evaluation has taken so many steps in some episode.

    Args:
        evaluation: Its number, from 1.
        episode: The episode's number in it, from 1; yardsticks count to the last one.
        steps: How many times it is asked there.
    """

    def __init__(self, evaluation, episode, steps):
        self.at, self.steps = (evaluation, episode), steps
        self.place, self.answer = (0, None), False

    def report(self, status):
        number, before = self.place
        if status.evaluating is None:
            self.place = (number, None)
        else:
            self.place = (number + (before is None), status.evaluating[0])

    def __call__(self):
        if self.place == self.at:
            self.steps -= 1
            self.answer = self.steps <= 0
        return self.answer


@pytest.fixture(scope="module", params=["drqv2", "simsr-rev", "tdmpc", "mrq"])
def undisturbed(request, tmp_path_factory):
    config = tiny_config(tmp_path_factory.mktemp("undisturbed"), **RUN, method=request.param)
    assert train(config)
    return config


@pytest.mark.parametrize(
    ("evaluation", "episode", "step"), [(1, 1, 1), (1, 1, 3), (1, 6, 1), (2, 4, 2), (3, 6, 5)]
)
def test_a_run_stopped_within_an_evaluation_ends_like_an_undisturbed_one(
    undisturbed, evaluation, episode, step, tmp_path
):
    """Between any two steps, not only between episodes."""
    config, stop = undisturbed.with_settings(out=tmp_path), Stop(evaluation, episode, step)
    assert not train(config, stop=stop, report=stop.report)
    assert stop.answer and stop.place == (evaluation, episode)
    lines = evaluation - 1
    assert len(read_records(config.directory / "eval.jsonl")) == lines  # the evaluation stays due
    (checkpoint,) = (config.directory / "checkpoints").glob("frame-*")
    assert checkpoint.name == f"frame-{400 * lines:012d}"
    assert train(config)
    assert evaluations(config) == evaluations(undisturbed)
    assert_same_state(
        *(open_run(run.directory, trust=True).agent.state_dict() for run in (config, undisturbed))
    )


def test_progress_is_written_and_stops_are_noticed_between_steps_of_an_evaluation(tmp_path):
    config = tiny_config(tmp_path, **RUN)
    home, asked = RunFolder(config.directory), []
    home.beat_seconds = 0.0
    home.claim()

    def stop():
        progress = config.directory / "progress.json"
        progress.unlink()  # fails if it was not written since the last time
        asked.append(True)
        if len(asked) == 2:
            (config.directory / "stop").touch()  # as a sweep asks
        return False

    assert not train(config, home=home, stop=stop)
    assert len(asked) == 2 and not read_records(config.directory / "eval.jsonl")


def test_an_evaluation_is_reported_from_its_first_step(tmp_path):
    config = tiny_config(tmp_path, **RUN | {"frames": 400})
    seen, stop = [], Stop(1, 5, 5)

    def report(status):
        seen.append(status.evaluating)
        stop.report(status)

    train(config, stop=stop, report=report)
    assert list(dict.fromkeys(seen)) == [(number, 6) for number in range(1, 6)]
    assert seen.index((2, 6)) > 2  # at every step, not once an episode


@pytest.mark.parametrize("asked", [1, 3, 12, 17])  # in episodes of five steps, then embeddings
def test_a_stop_within_the_yardsticks_leaves_the_evaluation_due(asked, tmp_path):
    settings = RUN | {"frames": 400, "yardstick_every": 400}
    config, whole = (tiny_config(tmp_path / name, **settings) for name in ("parts", "whole"))
    stop = Stop(1, 6, 6 + asked)  # after the six times in the evaluation's last episode
    assert not train(config, stop=stop, report=stop.report)
    assert not read_records(config.directory / "eval.jsonl")
    assert train(config) and train(whole)
    assert all("yardsticks" in line for line in evaluations(config))
    assert evaluations(config) == evaluations(whole)


WALK = {
    "task": "tests.runs:Walk",
    "observation": "state",
    "frames": 800,
    "eval_episodes": 2,
}
NOISY = {**WALK, "state_noise": 6}


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
    _, agent, *_ = open_run(config.directory, trust=True)
    seeds = [derive_seed(config.seed, Stream.EVALUATION, 800, number) for number in range(2)]
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
    assert_same_state(networks(both), networks(one))


def test_a_run_of_an_earlier_version_resumes(tmp_path, monkeypatch, capsys):
    config = tiny_config(tmp_path, **NOISY)
    with monkeypatch.context() as patch:
        patch.setattr(Config, "splits", ("eval",))
        assert not train(config, **stop_after(60))  # frame 480
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


torch.set_num_threads(1)
MEASURED = {
    "task": "tests.runs:Walk",
    "observation": "state",
    "state_noise": 6,
    "frames": 1000,
    "eval_episodes": 2,
    "method": "simsr-rev",
}
MEASURES = {"denoising_id", "denoising_ood", "state_r2", "effective_rank", "value"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    config = tiny_config(tmp_path_factory.mktemp("measured"), **MEASURED, yardstick_every=800)
    assert train(config)
    return config


def test_they_are_measured_at_evaluations_that_are_due(measured):
    lines = evaluations(measured)
    assert [line["frames"] for line in lines] == [0, 400, 800, 1000]
    # At the start, after 800 frames and at the end.
    assert ["yardsticks" in line for line in lines] == [True, False, True, True]
    of_each = (*MEASURES, "true", "gaussian_r2")
    names = {f"{embedding}_{name}" for embedding in ("phi", "trunk") for name in of_each}
    names |= {"task_gaussian_r2", "true_lags", "true_tail"}
    assert set(lines[0]["yardsticks"]) == names
    last = (measured.directory / "train.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["seconds/yardsticks"] > 0


def test_they_are_of_the_agent_at_that_time(measured):
    config, agent, *_ = open_run(measured.directory, trust=True)
    seeds = episode_seeds(config.seed, Stream.YARDSTICKS, 2)
    values = measure_agent(config.environment, config.discount, agent, seeds)
    assert values == evaluations(measured)[-1]["yardsticks"]


def test_nothing_else_changes(measured, tmp_path):
    plain = tiny_config(tmp_path, **MEASURED)
    assert train(plain)
    without = [{k: v for k, v in e.items() if k != "yardsticks"} for e in evaluations(measured)]
    assert without == evaluations(plain)
    assert_same_state(networks(plain), networks(measured))


def test_an_interrupted_run_has_the_same(measured, tmp_path):
    parts = tiny_config(tmp_path, **MEASURED, yardstick_every=800)
    assert not train(parts, **stop_after(73))
    assert train(parts)
    assert evaluations(parts) == evaluations(measured)


def test_a_run_resumes_with_and_without_them(tmp_path):
    plain = tiny_config(tmp_path, **MEASURED)
    assert not train(plain, **stop_after(73))
    assert train(plain.with_settings(yardstick_every=400))
    assert ["yardsticks" in line for line in evaluations(plain)] == [False, False, True, True]


def test_an_agent_alone_has_only_a_trunk(tmp_path):
    settings = {**MEASURED, "method": "drqv2", "state_noise": 0, "frames": 400}
    config = tiny_config(tmp_path, **settings, yardstick_every=400)
    assert train(config)
    names = {"trunk_state_r2", "trunk_effective_rank", "trunk_value", "trunk_true"}
    names |= {"true_lags", "true_tail"}
    assert [set(line["yardsticks"]) for line in evaluations(config)] == [names, names]


def test_phi_is_what_the_agent_embeds_by(measured):
    _, agent, *_ = open_run(measured.directory, trust=True)
    batch = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    both = agent.embeddings(batch)
    assert set(both) == {"phi", "trunk"}
    assert torch.equal(both["phi"], agent.embed(batch))
    assert both["trunk"].shape == (5, agent.settings.feature_dim)
