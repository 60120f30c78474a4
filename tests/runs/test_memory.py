"""The memory that a run takes: counted on real tensors, and the same wherever it is told."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.runs import tiny_config

from revbis.agents import make_agent
from revbis.io import machine
from revbis.io.text import format_bytes
from revbis.replay import Replay
from revbis.runs.memory import ACTIONS, gpu_bytes, memory_bytes, replay_bytes, stored_records
from revbis.runs.presets import preset_config
from revbis.runs.trainer import make_replay

SIZES = {"hidden": 16, "channels": 4, "feature_dim": 5, "latent_dim": 6, "pixels": 32}


def small(method: str, batch: int = 8):
    config = preset_config("paper", "dmc:cheetah_run", method)
    own = config.effective()
    sizes = {name: value for name, value in SIZES.items() if name in own}
    return config.with_settings(**sizes, batch_size=batch, replay_capacity=100)


def updated(config):
    """The run's agent after an update, and the bytes that autograd kept for it, by storage."""
    agent = make_agent(config.method, config.agent, config.observation_shape, ACTIONS, seed=1)
    side = config.pixels
    options = {"stack": config.frame_stack, "n_step": config.n_step, "shift": config.shift}
    replay = Replay(100, (3, side, side), ACTIONS, one_step=config.agent.one_step, **options)
    frames = np.random.default_rng(1).integers(0, 256, (60, 3, side, side), dtype=np.uint8)
    replay.begin(frames[0])
    for frame in frames[1:]:
        replay.add(np.zeros(ACTIONS, np.float32), 0.0, 1.0, frame, last=False)
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters(agent)}
    kept, storages = {}, []  # the storages are held, so that no address is used twice

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages.append(storage)
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        agent.update(replay, 10**6)
    return agent, sum(kept.values())


def parameters(agent):
    for part in agent.parts.modules().values():
        yield from part.parameters()


@pytest.mark.parametrize("method", ["drqv2", "simsr-rev", "mico-rev-full"])
def test_networks_and_adam_are_those_of_the_agent(method: str) -> None:
    config = small(method)
    agent, _ = updated(config)
    parts = gpu_bytes(config, agent)
    assert parts is not None
    state = [
        tensor for part in agent.parts.modules().values() for tensor in part.state_dict().values()
    ]
    assert parts["networks"] == sum(tensor.nbytes for tensor in state)
    moments = [m for adam in agent.optimisers.values() for m in adam._moments.values()]
    assert parts["Adam"] == sum(tensor.nbytes for each in moments for tensor in each.values())
    gradients = {id(p): p.grad for p in parameters(agent) if p.grad is not None}
    assert parts["gradients"] == sum(gradient.nbytes for gradient in gradients.values())


def test_activations_are_near_what_autograd_keeps() -> None:
    """One pass of four: the others are gradients, the next batch and temporaries."""
    config = preset_config("paper", "dmc:cheetah_run", "drqv2").with_settings(hidden=64)
    kept = [updated(config.with_settings(batch_size=batch))[1] for batch in (2, 4)]
    estimates = [config.agent.activation_bytes(config.observation_shape, batch) for batch in (2, 4)]
    ratio = (kept[1] - kept[0]) / (estimates[1] - estimates[0])  # what is not of images drops out
    assert 0.2 < ratio < 0.3


def test_a_batch_has_two_images_a_transition() -> None:
    config = small("drqv2", batch=8)
    agent = make_agent("drqv2", config.agent, config.observation_shape, ACTIONS, seed=1)
    parts = gpu_bytes(config, agent)
    assert parts is not None and parts["batch"] == 2 * 8 * 9 * 32 * 32


def test_the_replay_buffer_is_counted_as_far_as_it_is_filled() -> None:
    """`train` and `sweep` said 21.2 and 15.5 GB of one run."""
    config = preset_config("paper", "dmc:cheetah_run", "drqv2")
    assert stored_records(config) == 500_000  # of the million that would fit
    activations = config.agent.activation_bytes(config.observation_shape, 1024)
    assert memory_bytes(config) == 800_000_000 + replay_bytes(config) + activations
    assert format_bytes(replay_bytes(config)) == "10.6 GB"
    assert format_bytes(Replay.projected_bytes(500_000, (3, 84, 84), 6)) == "10.6 GB"  # in `train`


def test_memory_is_checked_for_the_records_that_are_expected(monkeypatch) -> None:
    half = Replay.projected_bytes(500, (3, 32, 32), 6)
    monkeypatch.setattr(machine, "available_bytes", lambda: half)
    assert len(Replay(1000, (3, 32, 32), 6, expected=500)) == 0
    with pytest.raises(MemoryError, match="a replay buffer of 1,000 frames takes"):
        Replay(1000, (3, 32, 32), 6)


def test_a_run_checks_the_memory_that_it_will_fill(tmp_path, monkeypatch) -> None:
    config = tiny_config(tmp_path, task="tests.runs:Walk", observation="state")
    seen = []
    kind = {None: lambda *_, **options: seen.append(options["expected"])}
    monkeypatch.setattr("revbis.runs.trainer.REPLAYS", kind)
    from revbis.envs import make_env

    make_replay(replace(config, replay_capacity=10**9), make_env(**config.environment, seed=1))
    assert seen == [config.frames // config.action_repeat]
