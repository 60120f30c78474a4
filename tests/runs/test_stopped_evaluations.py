"""A run can be stopped between the episodes of an evaluation, and shows there that it is alive."""

import pytest
import torch
from tests.runs import evaluations, tiny_config

from revbis.io.files import read_records
from revbis.runs.folder import RunFolder
from revbis.runs.run import open_run, train

# Evaluations at frames 0, 400 and 800, each of three episodes on either split: stop is asked at
# the five places between them.
RUN = {"task": "tests.runs:Walk", "observation": "state", "quality": "full", "frames": 800}
RUN |= {"state_noise": 3, "eval_episodes": 3, "checkpoint_every": 100_000}
pytestmark = pytest.mark.env("gym", gl=False)


class Stop:
    """Asks a run to stop at one of the places between evaluation episodes."""

    def __init__(self, place):
        self.place, self.asked, self.stepped = place, 0, False

    def report(self, status):
        self.stepped = True

    def __call__(self):
        stepped, self.stepped = self.stepped, False
        self.asked += not stepped
        return not stepped and self.asked == self.place


@pytest.fixture(scope="module", params=["drqv2", "simsr-rev", "tdmpc"])
def whole(request, tmp_path_factory):
    config = tiny_config(tmp_path_factory.mktemp("whole"), **RUN, method=request.param)
    assert train(config)
    return config


@pytest.mark.parametrize(("place", "lines"), [(1, 0), (3, 0), (8, 1), (15, 2)])
def test_a_run_stopped_within_an_evaluation_ends_like_an_undisturbed_one(
    whole, place, lines, tmp_path
):
    config, stop = whole.with_settings(out=tmp_path), Stop(place)
    assert not train(config, stop=stop, report=stop.report)
    assert stop.asked == place
    assert len(read_records(config.directory / "eval.jsonl")) == lines  # the evaluation stays due
    (checkpoint,) = (config.directory / "checkpoints").glob("frame-*")
    assert checkpoint.name == f"frame-{400 * lines:012d}"
    assert train(config)
    assert evaluations(config) == evaluations(whole)
    one, two = (open_run(run.directory)[1].state_dict() for run in (config, whole))
    assert same(one, two)


def same(one, two):
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return all(map(same, one, two, strict=True))
    return torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two


def test_progress_is_written_and_stops_are_noticed_between_evaluation_episodes(tmp_path):
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


def test_a_stop_before_the_yardsticks_leaves_the_evaluation_due(tmp_path):
    config = tiny_config(tmp_path, **RUN | {"frames": 400}, yardstick_every=400)
    stop = Stop(6)
    assert not train(config, stop=stop, report=stop.report)
    assert not read_records(config.directory / "eval.jsonl")
    assert train(config)
    assert all("yardsticks" in line for line in evaluations(config))
