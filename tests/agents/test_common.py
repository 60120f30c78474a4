"""What agents share: Adam, checks of what they are given."""

import copy

import numpy as np
import pytest
import torch
from tests.agents.conftest import ACTION, PIXELS, SMALL

from revbis.agents import DrQV2, DrQV2Settings
from revbis.agents.common import Adam

# Adam against PyTorch's own, to the last bit

RATES = (3e-4, 1e-2)


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(1)
    filters = torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)
    return [torch.nn.Parameter(each) for each in (torch.randn(5, 4), torch.randn(5), filters)]


def groups(trained: list[torch.nn.Parameter]) -> list[dict]:
    return [{"params": trained[:1], "lr": RATES[0]}, {"params": trained[1:], "lr": RATES[1]}]


def gradients(step: int, trained: list[torch.nn.Parameter]) -> list[torch.Tensor | None]:
    """Random ones; the second parameter has none in the first steps, the third none in some."""
    generator = torch.Generator().manual_seed(step)
    found = [torch.randn(each.shape, generator=generator) for each in trained]
    return [found[0], found[1] if step > 2 else None, found[2] if step % 2 else None]


def train(adam: Adam | torch.optim.Adam, trained: list[torch.nn.Parameter], steps: range) -> None:
    for step in steps:
        adam.zero_grad()
        assert all(each.grad is None for each in trained)
        for each, gradient in zip(trained, gradients(step, trained), strict=True):
            each.grad = gradient
        adam.step()


def test_steps_and_moments_are_those_of_pytorch() -> None:
    ours, theirs = parameters(), parameters()
    adam, reference = Adam(groups(ours)), torch.optim.Adam(groups(theirs), fused=True)
    for step in range(6):
        train(adam, ours, range(step, step + 1))
        train(reference, theirs, range(step, step + 1))
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine, other)
        moments, expected = adam.state_dict()["state"], reference.state_dict()["state"]
        assert moments.keys() == expected.keys()
        for number, moment in moments.items():
            assert moment.keys() == expected[number].keys()
            assert all(torch.equal(moment[name], expected[number][name]) for name in moment)


def test_moments_of_pytorch_are_loaded_and_copied() -> None:
    ours, theirs = parameters(), parameters()
    reference = torch.optim.Adam(groups(theirs), fused=True)
    train(reference, theirs, range(4))
    adam = Adam(groups(ours))
    adam.load(reference.state_dict()["state"])
    with torch.no_grad():
        for mine, other in zip(ours, theirs, strict=True):
            mine.copy_(other)
    train(adam, ours, range(4, 7))
    train(reference, theirs, range(4, 7))
    assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs, strict=True))


def test_moments_that_do_not_fit_change_nothing() -> None:
    trained = parameters()
    adam = Adam(groups(trained))
    train(adam, trained, range(3))
    before = adam.state_dict()
    wrong = {0: before["state"][0], 2: before["state"][2] | {"exp_avg": torch.zeros(1)}}
    with pytest.raises(ValueError, match="the moments of parameter 2 have shapes"):
        adam.load(wrong)
    assert adam.state_dict() == before


# What the agent is given from outside: each mistake is one error that names it

SETTINGS = DrQV2Settings(**SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation_shape": "abc"}, "observation_shape must be a list, got 'abc'"),
        ({"observation_shape": (3, 4)}, r"observation_shape must be .* got \(3, 4\)"),
        ({"action_size": 0}, "action_size must be at least 1, got 0"),
        ({"settings": {}}, "settings must be DrQV2Settings, got {}"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"device": "abacus"}, "device must be cpu, cuda, cuda:1, mps or similar, got 'abacus'"),
        ({"device": 1}, "device must be cpu"),
    ],
)
def test_what_an_agent_is_made_of(change, message):
    given = {"observation_shape": PIXELS, "action_size": ACTION, "settings": SETTINGS, "seed": 0}
    with pytest.raises(ValueError, match=message):
        DrQV2(**given | change)


def test_what_an_agent_sees(make_agent):
    agent = make_agent()
    with pytest.raises(ValueError, match=r"observation must be uint8 of shape .* got float32 of"):
        agent.act(np.zeros(PIXELS, np.float32), 0, explore=False)
    with pytest.raises(ValueError, match=r"observations must be torch.uint8 \[2, 6, 20, 21\], got"):
        agent.embed(torch.zeros(2, *PIXELS))


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
    with pytest.raises(ValueError, match="the state must be a dict, as state_dict returns"):
        agent.load_state_dict([])
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
