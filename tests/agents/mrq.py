"""A small MR.Q agent, batches and windows for it, and the plain one to compare it with."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
from tests.replay import numbered

from revbis.agents import MRQ, MRQSettings
from revbis.agents.mrq import reward_bins
from revbis.replay import Batch, TransitionReplay, Windows

TINY = {
    "batch_size": 6,
    "explore_steps": 3,
    "latent_dim": 6,
    "action_dim": 5,
    "hidden": 16,
    "channels": 4,
    "strides": (2, 2, 1, 1),
    "horizon": 3,
    "target_every": 4,
}
ACTION, VECTOR, PIXELS = 2, (5,), (6, 31, 33)


def load_benchmark(name):
    """A file of benchmarks/ as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as it is where a program runs
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


plain = load_benchmark("_plain_mrq")


def tiny_agent(shape=VECTOR, seed=0, discrete=False, **options):
    """The same seed gives the same agent."""
    return MRQ(shape, ACTION, MRQSettings(**TINY | options), seed=seed, discrete=discrete)


def exact_agent(shape=VECTOR, seed=0, **options):
    """The same in double precision."""
    agent = tiny_agent(shape, seed, **options)
    agent.networks.double()
    agent.target.double()
    agent._bins = reward_bins(agent.device, torch.float64)
    return agent


def observations(shape, size, generator):
    """Images or vectors, [*size, *shape]."""
    whole = (*size, *shape)
    if len(shape) == 3:
        return torch.randint(0, 256, whole, dtype=torch.uint8, generator=generator)
    return torch.randn(whole, generator=generator)


def random_batch(shape=VECTOR, size=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    action = 2 * torch.rand(size, ACTION, generator=generator) - 1
    reward, discount = (torch.rand(size, generator=generator) for _ in range(2))
    seen, following = (observations(shape, (size,), generator) for _ in range(2))
    return Batch(seen, action, 9 * reward - 3, discount.round() * 0.9, following)


def random_windows(shape=VECTOR, size=6, length=3, seed=0):
    """Windows of which two terminate, after one step and at the last, and one is cut short."""
    generator = torch.Generator().manual_seed(seed)
    action = 2 * torch.rand(size, length, ACTION, generator=generator) - 1
    reward = 9 * torch.rand(size, length, generator=generator) - 3
    discount, valid = torch.ones(size, length), torch.ones(size, length)
    discount[0, 0], valid[0, 1:] = 0.0, 0.0
    discount[1, -1] = 0.0
    valid[2, 2:] = 0.0
    obs = observations(shape, (size, length + 1), generator)
    return Windows(obs, action, reward, discount, valid)


def small_replay(shape=VECTOR, count=50, stop=0.1, **options):
    """Short random episodes."""
    pixels = len(shape) == 3
    settings = {"stack": 2 if pixels else 1, "n_step": 3, "shift": 1, "discount": 0.9} | options
    frame = (3, *shape[1:]) if pixels else shape
    replay = TransitionReplay(60, frame, ACTION, **settings)
    rng = np.random.default_rng(0)
    for number in range(count):
        seen = numbered(number, frame)
        if not replay.running:
            replay.begin(seen)
            continue
        last = bool(rng.random() < stop)
        discount = 0.0 if last and rng.random() < 0.5 else 1.0
        action = rng.uniform(-1, 1, ACTION).astype(np.float32)
        replay.add(action, float(rng.integers(-2, 10)), discount, seen, last=last)
    return replay
