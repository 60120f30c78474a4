"""Dreamer-v3: its settings everywhere, and sheeprl's agent where it is installed."""

import io

import numpy as np
import pytest
import torch
from tests.agents.dreamer import SIDE, SMALL
from tests.cli import fails

from revbis.agents import make_agent, resolve
from revbis.agents.dreamerv3 import Streams
from revbis.agents.presets import OURS, SHEEPRL
from revbis.agents.settings import DreamerV3Settings
from revbis.io import plugins
from revbis.io.plugins import is_installed
from revbis.replay import Replay
from revbis.runs import preflight
from revbis.runs.presets import CODE as AUTHORS
from revbis.runs.presets import PAPER, PRESETS, preset_config, preset_settings

needs_sheeprl = pytest.mark.skipif(
    not is_installed("sheeprl"), reason='sheeprl is not installed: pip install "revbis[dreamer]"'
)
PIXELS, VECTOR, ACTION = (3, SIDE, SIDE), (5,), 2
SETTINGS = DreamerV3Settings(**SMALL | {"explore_steps": 10, "batch_size": 3})


def dreamer(shape=PIXELS):
    return make_agent("dreamerv3", SETTINGS, shape, ACTION, seed=1)


def filled(shape=PIXELS, steps=12, episodes=3):
    """Episodes whose observations, actions and rewards say where they are; the last one ends."""
    rng = np.random.default_rng(0)
    replay = Replay(200, shape, ACTION, stack=1, n_step=1, shift=0, discount=0.9, seed=5)

    def frame():
        if len(shape) == 3:
            return rng.integers(0, 256, shape, dtype=np.uint8)
        return rng.standard_normal(shape).astype(np.float32)

    for _ in range(episodes):
        replay.begin(frame())
        for step in range(1, steps + 1):
            last = step == steps
            replay.add([step / 100, 0.5], float(step), float(not last), frame(), last=last)
    return replay


def saved(agent):
    buffer = io.BytesIO()
    torch.save(agent.state_dict(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def parameters(agent):
    return {
        name: [tensor.clone() for tensor in module.state_dict().values()]
        for name, module in agent.parts.networks.items()
    }


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("task", ["dmc:cartpole_balance", "metaworld:hammer", "a.b:c"])
def test_presets_are_valid_and_have_sources(name, task):
    config = preset_config(name, task, "dreamerv3")
    preflight.check(config, here=False)
    assert (config.frame_stack, config.shift) == (1, 0)
    sources = {each.source for each in preset_settings(name, task, "dreamerv3").values()}
    assert SHEEPRL in sources and sources <= {PAPER, AUTHORS, SHEEPRL, OURS}


def test_the_defaults_are_those_of_the_paper_preset():
    assert preset_config("paper", "dmc:cheetah_run", "dreamerv3").agent == DreamerV3Settings()


def test_settings_out_of_range():
    with pytest.raises(ValueError, match="sequence_length must be at least 2, got 1"):
        DreamerV3Settings(sequence_length=1)
    with pytest.raises(ValueError, match="explore_steps must be at least sequence_length = 64"):
        DreamerV3Settings(explore_steps=63)


@pytest.mark.parametrize("side", [4, 48, 84])
def test_sides_that_cannot_be_halved(side):
    with pytest.raises(ValueError, match=f"a power of 2 from 8 on for pixels, got {side}; use 32"):
        SETTINGS.check((3, side, side))
    SETTINGS.check((side,))


def test_memory_grows_with_images_and_batch():
    small, large = (DreamerV3Settings().activation_bytes((3, n, n), 16) for n in (32, 64))
    assert 3.5 * small < large < 4.5 * small
    assert DreamerV3Settings().activation_bytes((5,), 16) == 0


def test_without_sheeprl_one_line_says_what_to_install(monkeypatch, tmp_path, capsys):
    lines = ['sheeprl==0.8.*; extra == "dreamer"', 'pillow<12; extra == "dreamer"']
    monkeypatch.setattr(plugins, "requires", lambda _: lines)
    monkeypatch.setattr(preflight, "is_installed", lambda _: False)
    words = ["--task", "tests.agents.dreamer:Dot", "--method", "dreamerv3"]
    error = fails(capsys, "train", *words, "--out", str(tmp_path))
    assert "dreamerv3 needs sheeprl, which is not installed: it comes with the extra" in error
    assert error.endswith('run: pip install "sheeprl==0.8.*" "pillow<12"')
    assert error.count("\n") == 0 and not list(tmp_path.iterdir())
    assert resolve("dreamerv3").agent.requires == ("sheeprl", "dreamer")


def test_streams_leave_the_global_generator_alone_and_continue():
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    streams = Streams(3, torch.device("cpu"))
    with streams.drawing("explore"):
        first = torch.rand(2)
    state = streams.state()
    with streams.drawing("explore"):
        second = torch.rand(2)
    assert not torch.equal(first, second)
    other = Streams(4, torch.device("cpu"))
    other.restore(state)
    with other.drawing("explore"):
        assert torch.equal(torch.rand(2), second)
    with streams.drawing("evaluate"):
        once = torch.rand(2)
    streams.restart("evaluate")
    with streams.drawing("evaluate"):
        assert torch.equal(torch.rand(2), once)
    assert torch.equal(torch.rand(2), expected)


def test_the_replay_knows_the_rewards_before_sequences():
    replay = filled()
    positions = np.arange(replay.count_sequences(9))
    first = replay.gather_sequences(positions, 9, shift="sequence").reward[:, 0]
    assert set(first.tolist()) == {1, 2, 3, 4}  # of each episode's first step, of its second, ...
    assert torch.equal(replay.rewards_before(positions, 9), first - 1)
    assert replay.rewards_before(positions[[1]], 9).tolist() == [1.0]


@needs_sheeprl
def test_the_rows_that_sheeprl_learns_from():
    agent, replay, positions = dreamer(), filled(), np.array([0, 3])
    sequences = replay.gather_sequences(positions, 9, shift="sequence")
    rows = agent._data(sequences, replay.rewards_before(positions, 9))
    assert rows["rgb"].shape == (10, 2, *PIXELS) and rows["rgb"].dtype == torch.uint8
    assert rows["rewards"][:, 0, 0].tolist() == list(range(10))  # arriving, not leaving
    assert rows["rewards"][:, 1, 0].tolist() == list(range(3, 13))
    assert rows["terminated"][:, 1, 0].tolist() == [0.0] * 9 + [1.0]
    assert rows["terminated"][:, 0].sum() == rows["is_first"].sum() == 0
    assert torch.allclose(rows["actions"][:9, 0, 0], torch.arange(1, 10) / 100)
    assert torch.equal(rows["rgb"][1, 0], sequences.obs[0, 1])


@needs_sheeprl
@pytest.mark.parametrize("shape", [PIXELS, VECTOR])
def test_an_update_trains_every_network_and_moves_the_target(shape):
    agent, replay = dreamer(shape), filled(shape)
    first = agent.update(replay, 20)
    assert {"model_loss", "actor_loss", "critic_loss", "kl", "batch_reward"} <= first.keys()
    assert all(torch.isfinite(value) and value.ndim == 0 for value in first.values())
    assert agent.parts.config.algo.gamma == 0.9
    before = parameters(agent)
    agent.update(replay, 20)
    for name, tensors in parameters(agent).items():
        same = [torch.equal(a, b) for a, b in zip(before[name], tensors, strict=True)]
        assert not all(same), name
    with torch.no_grad():
        dtype = "uint8" if len(shape) == 3 else "float32"
        other = agent.act(np.zeros(shape, dtype), 9, explore=False)
    assert other.shape == (ACTION,) and np.abs(other).max() <= 1


@needs_sheeprl
def test_a_restored_agent_goes_on_the_same():
    agent, replay = dreamer(), filled()
    image = np.arange(3 * SIDE**2, dtype=np.uint8).reshape(PIXELS)
    agent.update(replay, 20)
    agent.begin_episode()
    for _ in range(3):
        agent.act(image, 20, explore=True)
    state, draws = saved(agent), replay.state()
    other = dreamer()
    other.act(image, 0, explore=True)  # whatever it drew before is replaced
    other.load_state_dict(state)
    continued = []
    for each in (agent, other):
        replay.restore([replay.export(0, replay.written)], draws)
        losses = each.update(replay, 21)["model_loss"]
        actions = [each.act(image, 21, explore=True) for _ in range(3)]
        each.begin_episode()
        actions += [each.act(image, 0, explore=False) for _ in range(3)]
        continued.append((float(losses), np.concatenate(actions).tolist()))
    assert continued[0] == continued[1]


@needs_sheeprl
def test_evaluation_in_an_episode_changes_nothing_and_repeats_itself():
    image = np.full(PIXELS, 9, np.uint8)
    alone, disturbed = dreamer(), dreamer()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    played, evaluated = [], []
    for agent in (alone, disturbed):
        agent.begin_episode()
        agent.act(image, 20, explore=True)
        for _ in range(0 if agent is alone else 2):
            agent.begin_episode()
            evaluated.append([agent.act(image, 0, explore=False).tolist() for _ in range(3)])
        played.append([agent.act(image, 20, explore=True).tolist() for _ in range(3)])
    assert played[0] == played[1] and evaluated[0] == evaluated[1]
    assert evaluated[0][0] != evaluated[0][1]  # it has a memory, or draws
    assert torch.equal(torch.rand(3), expected)


@needs_sheeprl
def test_embeddings_states_and_mistakes():
    agent = dreamer()
    embeddings = agent.embed(torch.zeros(2, *PIXELS, dtype=torch.uint8))
    assert embeddings.shape[0] == 2 and agent.distance(embeddings, embeddings[:1]).shape == (2, 1)
    assert agent.status() == {}
    with pytest.raises(ValueError, match="the state's method must be 'dreamerv3'"):
        agent.load_state_dict({"method": "drqv2"})
    with pytest.raises(ValueError, match="does not fit this agent"):
        agent.load_state_dict(saved(dreamer(VECTOR)))
    with pytest.raises(ValueError, match="observation must be uint8 of shape"):
        agent.act(np.zeros(3, np.uint8), 0, explore=True)
    with pytest.raises(ValueError, match="needs an episode of 9 steps for sequences of 10"):
        agent.update(filled(steps=8), 20)
