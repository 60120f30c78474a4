"""Runs that gather batches ahead: the same records, weights and buffers as those that do not."""

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.agents.tdmpc import assert_same_state
from tests.runs import Walk, evaluations, tiny_config

from revbis.envs import make_env
from revbis.io.files import read_records
from revbis.replay import PrefetchingReplay, PrioritisedReplay, prefetch
from revbis.replay.batch import observe
from revbis.replay.storage import RecordArrays
from revbis.runs import trainer
from revbis.runs.checkpoint import Checkpoint, Checkpoints
from revbis.runs.config import Config
from revbis.runs.run import train
from revbis.runs.trainer import make_replay

torch.set_num_threads(1)
RUN = {"method": "simsr-rev", "task": "tests.runs.test_prefetch_runs:LongWalk"}
RUN |= {"quality": "full", "action_repeat": 1, "frames": 240, "eval_every": 240, "log_every": 20}
RUN |= {"replay_capacity": 150, "explore_steps": 40}  # the ring goes round
pytestmark = pytest.mark.env("gym", gl=False)


class LongWalk(Walk):
    """Episodes of a more usual length."""

    limit = 90


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> list[PrefetchingReplay]:
    """The replay buffers of the runs, in order."""
    made = []

    def make(*args, **kwargs):
        made.append(make_replay(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(trainer, "make_replay", make)
    return made


def losses(config: Config) -> list[dict]:
    """The lines of train.jsonl but for what another machine or moment changes."""
    lines = read_records(config.directory / "train.jsonl")
    other = ("seconds", "resident_bytes")
    return [{k: v for k, v in line.items() if not k.startswith(other)} for line in lines]


def assert_same_runs(one: Config, other: Config) -> None:
    """Records, weights and all that is in the replay buffers are equal."""
    assert evaluations(one) == evaluations(other)
    assert losses(one) == losses(other)
    first, second = (Checkpoints(c.directory / "checkpoints", 2).resume() for c in (one, other))
    assert_same_state(first.agent, second.agent)
    assert first.state.keys() == second.state.keys()
    assert first.state["replay"] == second.state["replay"]
    mine, yours = (contents(each, one) for each in (first, second))
    assert mine.keys() == yours.keys()
    for name, values in mine.items():
        np.testing.assert_array_equal(values, yours[name])


def contents(checkpoint: Checkpoint, config: Config) -> RecordArrays:
    """The records of a saved replay buffer, in one piece."""
    replay = make_replay(config, make_env(**config.environment, seed=1))
    replay.restore(checkpoint.records(), checkpoint.state["replay"])
    return replay.export(0, replay.written)


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("revbis-prefetch")]


def stopped(config: Config, steps: int) -> None:
    count = itertools.count(1)
    assert not train(config, stop=lambda: next(count) >= steps)
    assert not threads()


def test_a_run_is_the_same_with_batches_gathered_ahead(tmp_path: Path, buffers) -> None:
    plain, ahead = (tiny_config(tmp_path / str(on), **RUN, prefetch=on) for on in (False, True))
    assert train(plain) and train(ahead)
    assert_same_runs(ahead, plain)
    used = buffers[1]
    updates = evaluations(ahead)[-1]["updates"]
    assert used.written > 150 and used.images == 2 * updates * ahead.agent.batch_size
    assert used.images_ahead > 0.9 * used.images
    assert not threads()


def test_it_may_be_turned_on_and_off_when_a_run_is_resumed(tmp_path: Path) -> None:
    changes = {**RUN, "transition": "one_step", "replay_storage": "disk"}
    whole = tiny_config(tmp_path / "whole", **changes)
    assert train(whole)
    parts = tiny_config(tmp_path / "parts", **changes, prefetch=True)
    stopped(parts, 101)
    stopped(parts, 60)  # resumed with it
    stopped(parts.with_settings(prefetch=False), 20)
    assert train(parts)
    assert_same_runs(parts, whole)


def test_an_error_in_the_thread_ends_the_run(tmp_path: Path, monkeypatch) -> None:
    def failing(*args, **kwargs):
        if threading.current_thread() is not threading.main_thread():
            raise OSError("the disk is gone")
        return observe(*args, **kwargs)

    monkeypatch.setattr(prefetch, "observe", failing)
    with pytest.raises(OSError, match="the disk is gone"):
        train(tiny_config(tmp_path, **RUN, prefetch=True))
    assert not threads()


def test_sequences_by_priority_are_not_gathered_ahead(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **RUN | {"method": "tdmpc"}, prefetch=True)
    env = make_env(**config.environment, seed=1)
    assert type(make_replay(config, env, ahead_for="cuda")) is PrioritisedReplay


@pytest.mark.parametrize(("device", "pinned"), [("cpu", False), ("mps", False), ("cuda:1", True)])
def test_only_batches_for_cuda_are_pinned(tmp_path: Path, device: str, pinned: bool) -> None:
    config = tiny_config(tmp_path, **RUN)
    env = make_env(**config.environment, seed=1)
    replay = make_replay(config, env, ahead_for=device)
    assert isinstance(replay, PrefetchingReplay)
    assert replay._pinned is pinned and replay._steps == config.update_every
