"""A plain PyTorch loop with simsr-rev-full: learns the value of a random policy on Pendulum.

The encoder is trained by temporal differences and by the objective together.
Run it: python examples/plain_loop.py
"""

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from revbis import objectives, runtime

GAMMA, LATENT, BATCH = 0.97, 32, 256


def collect(count: int, seed: int) -> list[torch.Tensor]:
    env = gym.make("Pendulum-v1")
    env.action_space.seed(seed)
    rows, (s, _) = [], env.reset(seed=seed)
    for _ in range(count):
        a = env.action_space.sample()
        s2, r, _, truncated, _ = env.step(a)
        rows.append((s, a, [r / 10], s2))
        s = env.reset()[0] if truncated else s2
    return [torch.from_numpy(np.array(x, dtype=np.float32)) for x in zip(*rows, strict=True)]


def random_policy(s: torch.Tensor) -> torch.Tensor:
    return 4 * torch.rand(len(s), 1) - 2


def train(steps: int, seed: int = 0, method: str = "simsr-rev-full") -> list[dict[str, float]]:
    torch.manual_seed(seed)
    s, a, r, s2 = collect(5000, seed)
    encoder = nn.Sequential(nn.Linear(3, 128), nn.ReLU(), nn.Linear(128, LATENT))
    value = nn.Sequential(nn.Linear(LATENT, 128), nn.ReLU(), nn.Linear(128, 1))
    objective = objectives.make_objective(method, LATENT, action_dim=1, hidden=128)
    trained = [*encoder.parameters(), *value.parameters(), *objective.parameters()]
    optimiser = torch.optim.Adam(trained, lr=1e-3)
    discount, log = torch.full((BATCH,), GAMMA), []
    for step in range(steps):
        rows = torch.randint(len(s), (BATCH,))
        z, next_z = encoder(s[rows]), encoder(s2[rows])
        td_error = value(z) - (r[rows] + GAMMA * value(next_z).detach())
        out = objective(z, a[rows], r[rows], discount, next_z, policy=random_policy)
        optimiser.zero_grad()
        (td_error.square().mean() + out.loss).backward()
        optimiser.step()
        if step % 100 == 99:
            row = {name: float(x) for name, x in out.metrics.items()}
            log.append(row | {"step": step + 1, "td_error": float(td_error.detach().abs().mean())})
    return log


if __name__ == "__main__":
    runtime.prepare(threads=1)  # networks this small gain nothing from more threads
    for row in train(steps=2000):
        print(*(f"{k} {row[k]:.3f}" for k in ("step", "td_error", "representation_loss", "c")))
