"""A small TD-MPC agent, and sequences for it."""

import torch

from revbis.agents import TDMPC, TDMPCSettings
from revbis.replay import Sequences

TINY = {
    "batch_size": 6,
    "explore_steps": 3,
    "latent_dim": 6,
    "hidden": 16,
    "encoder_hidden": 12,
    "channels": 4,
    "strides": (2, 2, 1, 1),
    "horizon": 3,
    "horizon_steps": 20,
    "noise_steps": 20,
    "iterations": 2,
    "samples": 16,
    "policy_samples": 3,
    "elites": 4,
}
ACTION = 2


def tiny_agent(shape=(5,), seed=0, *, random=True, **options):
    """The same seed gives the same agent; `random` moves it from rewards and values of 0."""
    agent = TDMPC(shape, ACTION, TDMPCSettings(**TINY | options), seed=seed)
    if random:
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for network in (agent.model, agent.target):
                for parameter in network.parameters():
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return agent


def random_sequences(shape=(5,), size=6, length=3, seed=0):
    """Sequences, and the probabilities with which they were drawn."""
    generator = torch.Generator().manual_seed(seed)
    whole = (size, length + 1, *shape)
    obs = torch.randn(whole, generator=generator)
    if len(shape) == 3:
        obs = torch.randint(0, 256, whole, dtype=torch.uint8, generator=generator)
    action = 2 * torch.rand(size, length, ACTION, generator=generator) - 1
    reward, discount = (torch.rand(size, length, generator=generator) for _ in range(2))
    probability = torch.rand(size, generator=generator).double() + 0.1
    return Sequences(obs, action, reward, discount), probability / probability.sum()


def assert_same_state(a, b):
    """Equal tensors, numbers and names, however deep."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same_state(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        for mine, other in zip(a, b, strict=True):
            assert_same_state(mine, other)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b
