"""What the agent is given from outside: each mistake is one error that names it."""

import copy

import numpy as np
import pytest
import torch
from tests.agents.conftest import ACTION, PIXELS, SMALL

from revbis.agents import DrQV2, DrQV2Settings

SETTINGS = DrQV2Settings(**SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation_shape": "abc"}, "observation_shape must be a list, got 'abc'"),
        ({"observation_shape": 3}, "observation_shape must be"),
        ({"observation_shape": (10**23,)}, r"observation_shape\[0\] must be at most 65,536"),
        ({"observation_shape": (True,)}, r"observation_shape\[0\] must be"),
        ({"action_size": "two"}, "action_size must be a whole number, got 'two'"),
        ({"action_size": 10**23}, "action_size must be at most 65,536"),
        ({"settings": {}}, "settings must be DrQV2Settings, got {}"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"device": "abacus"}, "device must be cpu, cuda, cuda:1, mps or similar, got 'abacus'"),
        ({"device": 1}, "device must be cpu"),
    ],
)
def test_what_an_agent_is_made_of(change, message):
    given = {"observation_shape": PIXELS, "action_size": ACTION, "settings": SETTINGS, "seed": 0}
    with pytest.raises(ValueError, match=message):
        DrQV2(**given | change)


def test_what_an_agent_sees(make_agent):
    agent, seen = make_agent(), np.zeros(PIXELS, np.uint8)
    with pytest.raises(ValueError, match=r"observation must be uint8 of shape .* got \[1\]"):
        agent.act([1], 0, explore=False)
    with pytest.raises(ValueError, match="step must be a whole number, got 'first'"):
        agent.act(seen, "first", explore=False)
    with pytest.raises(ValueError, match="explore must be True or False, got 'no'"):
        agent.act(seen, 0, explore="no")
    for wrong in (seen, torch.zeros(2, *PIXELS), torch.zeros(0, *PIXELS, dtype=torch.uint8)):
        with pytest.raises(ValueError, match=r"observations must be uint8 \['B', 6, 20, 21\], got"):
            agent.embed(wrong)


def test_what_an_agent_learns_from(make_agent, make_batch):
    agent, batch = make_agent(), make_batch()
    with pytest.raises(ValueError, match="batch must be a Batch, as Replay"):
        agent.learn(tuple(batch), 0)
    for wrong in (3, None, torch.tensor(1)):
        with pytest.raises(ValueError, match="every part of a batch must be a tensor"):
            agent.learn(batch._replace(obs=wrong), 0)
    with pytest.raises(ValueError, match="one_step must be a OneStep or None, got 1"):
        agent.learn(batch._replace(one_step=1), 0)
    with pytest.raises(ValueError, match="reward must hold floats, got torch"):
        agent.learn(batch._replace(reward=batch.reward.to(torch.complex64)), 0)
    with pytest.raises(ValueError, match="step must be at least 0"):
        agent.learn(batch, -1)
    with pytest.raises(ValueError, match="with_metrics must be True or False"):
        agent.learn(batch, 0, with_metrics=2)


def _forgeries(state):
    """Changes of a state that PyTorch would take, and stumble over at the next update."""
    moments = state["optimisers"]["critic"]["state"]
    yield lambda: moments[0].update(exp_avg=torch.zeros(1))
    yield lambda: moments[0].update(exp_avg=7)
    yield lambda: moments[0].update(step=torch.zeros(3))
    yield lambda: moments[0].pop("exp_avg_sq")
    yield lambda: moments.update({10**6: moments[0]})
    yield lambda: state["optimisers"].update(actor={})
    yield lambda: state["optimisers"]["actor"].update(state=[])
    yield state["networks"]["policy"].clear
    yield lambda: state.pop("update_generator")
    yield lambda: state.update(explore_generator=torch.zeros(3))


def test_forged_states_are_refused_at_the_door(make_agent, make_batch):
    agent = make_agent("simsr-rev")
    agent.learn(make_batch(), 5)
    for number in range(len(list(_forgeries(agent.state_dict())))):
        state = copy.deepcopy(agent.state_dict())
        list(_forgeries(state))[number]()
        with pytest.raises(ValueError, match="the state does not fit this agent: "):
            make_agent("simsr-rev").load_state_dict(state)
    for wrong in ([], None, "state"):
        with pytest.raises(ValueError, match="the state must be a dict, as state_dict returns"):
            agent.load_state_dict(wrong)
    with pytest.raises(ValueError, match="the state's method must be 'simsr-rev', got 4"):
        agent.load_state_dict(agent.state_dict() | {"method": 4})


def test_rates_are_those_of_the_settings(make_agent, make_batch):
    """A forged learning rate changes nothing."""
    one = make_agent("simsr-rev")
    one.learn(make_batch(), 5)
    state = copy.deepcopy(one.state_dict())
    for adam in state["optimisers"].values():
        adam["param_groups"] = [{"lr": 1e9, "params": "none"}]
    other = make_agent("simsr-rev", seed=4)
    other.load_state_dict(state)
    one.learn(make_batch(1), 6)
    other.learn(make_batch(1), 6)
    mine, others = (
        [p for part in agent.parts.modules().values() for p in part.state_dict().values()]
        for agent in (one, other)
    )
    assert all(map(torch.equal, mine, others))
