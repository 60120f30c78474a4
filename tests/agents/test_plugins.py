"""A user's own agent: made from package.module:factory, tried, and refused with a reason."""

import inspect

import pytest
import torch
from tests.agents.own_agents import Seeing

from revbis.agents import Agent, BaseAgent, make_agent, methods, resolve
from revbis.agents.plugins import _FUNCTIONS
from revbis.agents.settings import OwnSettings
from revbis.runs.config import Config, setting_names
from revbis.sweep.grid import grid_from

HOME = "tests.agents.own_agents"
NAME = f"agent:{HOME}:make"


def made(factory: str, *options: str, shape: tuple[int, ...] = (2,)) -> Agent:
    settings = OwnSettings(agent_options=options, batch_size=7)
    return make_agent(f"agent:{HOME}:{factory}", settings, shape, 1, seed=3)


def test_it_is_a_method_that_nothing_is_imported_for():
    method = resolve("agent:no_such_package.module:make")
    assert (method.objective, method.agent.settings) == (None, OwnSettings)
    assert method.factory == "no_such_package.module:make"
    assert resolve("mine:make").factory == resolve("mine:make").objective == "mine:make"
    assert resolve("simsr").factory is None and NAME not in methods()


def test_it_has_a_config_a_folder_and_a_place_in_grids(tmp_path):
    config = Config.from_dict(
        {"task": "a:b", "method": NAME, "agent_options": ["gain=0.5"], "out": str(tmp_path)}
    )
    assert config.agent == OwnSettings(agent_options=("gain=0.5",))
    assert config.directory.parent.name == f"agent-{HOME}-make"
    assert Config.from_dict(config.as_dict()) == config
    assert "agent_options" in setting_names()
    grid = {"tasks": ["a:b"], "methods": ["drqv2", NAME], "seeds": [1]}
    runs = grid_from(grid | {"settings": {"agent_options": ["gain=2"]}}).configs(tmp_path)
    assert runs[1].agent.options == {"gain": 2} and "agent_options" not in runs[0].as_dict()


def test_the_factory_is_given_all_it_needs():
    agent = made("takes_anything", "gain=1e-3", "deep=true", "sizes=[1, 2]", "name=a=b", shape=(5,))
    (shape, size, settings), options = agent.given
    assert (shape, size, settings.batch_size) == ((5,), 1, 7)
    assert options == {"seed": 3, "device": "cpu", "gain": 0.001, "deep": True} | {
        "sizes": [1, 2],
        "name": "a=b",
    }


@pytest.mark.parametrize("shape", [(2,), (9, 8, 8)])
def test_the_trial_leaves_no_trace(shape):
    torch.manual_seed(0)
    after = torch.rand(3)
    torch.manual_seed(0)
    agent = made("make", "gain=0.5", shape=shape)
    assert isinstance(agent, Seeing) and (agent.gain, agent.batch_size) == (0.5, 7)
    assert agent.acts == 0 and agent.updates == 0
    assert torch.equal(torch.rand(3), after)


def test_functions_are_those_of_the_protocol():
    functions = {n for n, f in vars(Agent).items() if inspect.isfunction(f) and n[0] != "_"}
    assert set(_FUNCTIONS) == functions and {"act", "update", "embed"} <= functions
    needed = {"act", "update", "state_dict", "load_state_dict"}
    assert {name for name in functions if not hasattr(BaseAgent, name)} == needed


MISTAKES = {
    "raises": r"the factory raised KeyError at own_agents.py:\d+: 'network\\nof two lines'",
    "takes_no_seed": r"\(observation_shape, action_size, settings, seed=..., device=...\): got an",
    "returns_none": "the factory must return an agent, got None",
    "returns_a_class": "the factory must return an agent, got <class .*Seeing",
    "returns_a_network": "but Linear has no act, begin_episode, distance, embed, status, update",
    "without_learning": "BaseAgent has no act, load_state_dict, state_dict, update; revbis.agents",
    "filled_in": "act must be a function, got int",
    "acts_wrongly": r"act\(observation, step, explore=True\) raised TypeError",
    "acts_in_tensors": r"explore=True\) must return a NumPy array, got Tensor",
    "acts_twice": r"explore=True\) must have shape \(1,\), got \(2,\)",
    "acts_nowhere": r"explore=True\) must be finite",
    "acts_widely": r"must return float32 in \[-1, 1\], got float32 up to 1.5",
    "acts_in_doubles": r"must return float32 in \[-1, 1\], got float64 up to 0",
    "undecided": r"two episodes began with different actions: draw from a generator that begin_ep",
    "updates_alone": r"update is called with \(replay, step, with_metrics=...\): ",
    "embeds_nothing": r"embed\(observations\) must be a tensor, got None",
    "squeezed": r"embed\(observations\) must be \[2, D\] for a batch of 2, got \[4\]",
    "flat_distance": r"distance\(x, y\) must be \[2, 1\] for a batch of 2, got \[2\]",
    "talkative": r"status\(\) must return a dict of numbers, got str",
    "stateless": r"state_dict\(\) must return a dict, got None",
    "unsaved": r"state_dict\(\) must hold tensors, numbers, texts, lists and dicts only",
    "forgetful": r"load_state_dict\(state_dict\(\)\) raised KeyError",
}


@pytest.mark.parametrize(("factory", "message"), MISTAKES.items())
def test_what_does_not_work_is_refused_in_one_line(factory: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as info:
        made(factory)
    text = str(info.value)
    assert text.startswith(f"{HOME}:{factory}: ") and len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["gain"], "agent_options must be NAME=VALUE, got 'gain'"),
        (["2=3"], "agent_options must be NAME=VALUE, got '2=3'"),
        (["gain=1", "gain=2"], "agent_options has gain more than once"),
        (["seed=1"], "agent_options must not set seed: use --seed"),
        (["pain=1"], r"device=..., pain=...\): got an unexpected keyword argument 'pain'"),
    ],
)
def test_options_that_are_none(options, message):
    with pytest.raises(ValueError, match=message):
        made("make", *options)


@pytest.mark.parametrize("name", ["agent:", "agent:drqv2", "agent:a.b:c:d"])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match=r"of your own must be agent:package\.module:factory, got"):
        resolve(name)
