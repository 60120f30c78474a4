"""Agents from outside the package: one that works, and factories that do not."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from revbis.agents import BaseAgent


class Seeing(BaseAgent):
    """Acts on the sum of what it sees; an update counts."""

    def __init__(self, action_size: int, batch_size: int = 4, gain: float = 0.0) -> None:
        self.action_size, self.batch_size, self.gain = action_size, batch_size, gain
        self.updates = torch.zeros((), dtype=torch.int64)
        self.acts = 0

    def act(self, observation, step, *, explore):
        self.acts += 1
        value = np.tanh(self.gain * float(observation.sum()))
        return np.full(self.action_size, value, np.float32)

    def update(self, replay, step, *, with_metrics=False):
        self.updates += 1
        return {"batch_reward": replay.sample(self.batch_size).reward.mean()}

    def status(self):
        return {"updates": float(self.updates)}

    def state_dict(self):
        return {"updates": self.updates, "acts": self.acts}

    def load_state_dict(self, state):
        self.updates, self.acts = state["updates"], state["acts"]


def make(observation_shape, action_size, settings, *, seed, device, gain=0.0):
    return Seeing(action_size, settings.batch_size, gain)


def takes_anything(*args: Any, **options: Any) -> Seeing:
    agent = Seeing(args[1])
    agent.given = (args, options)
    return agent


def changed(**members: Any) -> Any:
    """A factory of agents that are `Seeing` but for these members."""
    kind = type("Changed", (Seeing,), members)
    return lambda shape, size, settings, *, seed, device: kind(size)


def raises(shape, size, settings, *, seed, device):
    raise KeyError("network\nof two lines")


def takes_no_seed(shape, size, settings, *, device):
    return Seeing(size)


def returns_none(shape, size, settings, *, seed, device):
    return None


def returns_a_class(shape, size, settings, *, seed, device):
    return Seeing


def returns_a_network(shape, size, settings, *, seed, device):
    return torch.nn.Linear(2, 2)


def without_learning(shape, size, settings, *, seed, device):
    return BaseAgent()


def filled_in(shape, size, settings, *, seed, device):
    names = "act begin_episode distance embed load_state_dict state_dict status update"
    return SimpleNamespace(**dict.fromkeys(names.split(), 1))


acts_wrongly = changed(act=lambda self, observation, step: np.zeros(1, np.float32))
acts_in_tensors = changed(act=lambda self, o, step, *, explore: torch.zeros(1))
acts_twice = changed(act=lambda self, o, step, *, explore: np.zeros(2, np.float32))
acts_nowhere = changed(act=lambda self, o, step, *, explore: np.full(1, np.nan, np.float32))
acts_widely = changed(act=lambda self, o, step, *, explore: np.full(1, 1.5, np.float32))
acts_in_doubles = changed(act=lambda self, o, step, *, explore: np.zeros(1))
undecided = changed(
    act=lambda self, o, step, *, explore: np.random.default_rng().random(1, np.float32)
)
updates_alone = changed(update=lambda self: {})
embeds_nothing = changed(embed=lambda self, observations: None)
squeezed = changed(embed=lambda self, observations: observations.flatten())
flat_distance = changed(distance=lambda self, x, y: torch.zeros(2))
talkative = changed(status=lambda self: "fine")
stateless = changed(state_dict=lambda self: None)
unsaved = changed(state_dict=lambda self: {"generator": np.random.default_rng(0)})
forgetful = changed(load_state_dict=lambda self, state: state["network"])
