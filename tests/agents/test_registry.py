"""An agent from outside the package: registered, trained, evaluated, resumed, looked at."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tests.runs import evaluations, stop_after, tiny_config

from revbis.agents import (
    AgentEntry,
    AgentSettings,
    BaseAgent,
    make_agent,
    methods,
    register,
    resolve,
    unregister,
)
from revbis.envs import make_env
from revbis.runs.config import Config
from revbis.runs.evaluate import evaluate
from revbis.runs.run import open_run, train


@dataclass(frozen=True, kw_only=True)
class ToySettings(AgentSettings):
    size: int = 2
    """Largest absolute action, in quarters."""


class Toy(BaseAgent):
    """Acts at random; an update counts the transitions it was given."""

    def __init__(self, observation_shape, action_size, settings, *, seed, device):
        self.settings, self.action_size = settings, action_size
        self.generator = torch.Generator().manual_seed(seed)
        self.seen, self.episodes = 0, 0

    def begin_episode(self):
        self.episodes += 1

    def act(self, observation, step, *, explore):
        if not explore:
            return np.zeros(self.action_size, np.float32)
        draw = torch.rand(self.action_size, generator=self.generator)
        return ((2 * draw - 1) * self.settings.size / 4).numpy()

    def update(self, replay, step, *, with_metrics=False):
        batch = replay.sample(self.settings.batch_size)
        self.seen += len(batch.reward)
        return {"mean_reward": batch.reward.mean()}

    def status(self):
        return {"seen": float(self.seen)}

    def state_dict(self):
        return {"generator": self.generator.get_state(), "seen": self.seen}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])
        self.seen = state["seen"]


@pytest.fixture
def toy():
    register(AgentEntry("toy", ToySettings, f"{__name__}:Toy"))
    yield
    unregister("toy")


@pytest.fixture
def config(toy, tmp_path):
    return tiny_config(
        tmp_path, task="tests.runs:Walk", method="toy", observation="state", frames=800
    )


def test_a_name_is_a_method_and_has_settings_of_its_own(toy, tmp_path):
    assert "toy" in methods() and resolve("toy").objective is None
    config = Config.from_dict({"task": "a:b", "method": "toy", "size": 3, "out": str(tmp_path)})
    assert config.agent == ToySettings(size=3) and config.as_dict()["size"] == 3
    with pytest.raises(ValueError, match="unknown hidden"):
        config.with_settings(hidden=7)
    with pytest.raises(ValueError, match="the method 'toy' exists already"):
        register(AgentEntry("toy", ToySettings, "x:y"))
    with pytest.raises(ValueError, match="size must be a whole number"):
        config.with_settings(size="large")


def test_another_method_keeps_the_settings_that_both_have(toy):
    config = Config.from_dict({"task": "a:b", "method": "drqv2", "hidden": 7, "batch_size": 9})
    now = config.with_settings(method="toy")
    assert now.agent == ToySettings(batch_size=9) and "hidden" not in now.as_dict()


def test_it_is_trained_and_its_status_is_recorded(config):
    assert train(config)
    lines = evaluations(config)
    updates = [line["updates"] for line in lines]
    assert [line["status"] for line in lines] == [{"seen": 8.0 * n} for n in updates]
    assert updates[-1] > 0
    read, agent, *_ = open_run(config.directory, trust=True)
    assert read == config and agent.status() == lines[-1]["status"]


def test_it_resumes_where_it_was(config, tmp_path):
    train(config.with_settings(out=tmp_path / "whole"))
    assert not train(config, **stop_after(48))
    assert train(config)
    assert evaluations(config) == evaluations(config.with_settings(out=tmp_path / "whole"))


def test_every_episode_is_announced(config):
    agent = make_agent("toy", config.agent, (2,), 1, seed=0)
    evaluate(agent, make_env(**config.environment, seed=1), [1, 2, 3])
    assert agent.episodes == 3
