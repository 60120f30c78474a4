"""What the states look like: drawn grids, random images, and noise in every observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from revbis.tabular import FiniteMDP

_CELL = 2  # pixels
_SIDE = 16  # pixels of a random image
_BLOCK = 4096  # observations that are drawn at a time


def draw_grid(mdp: FiniteMDP) -> Tensor:
    """One small image per state: floor, walls and the agent, [S, 3, H, W] floats in [0, 1].

    Raises:
        ValueError: If the MDP has no grid.
    """
    if mdp.grid is None:
        raise ValueError("the MDP has no grid to draw its states from: give it one, or pass images")
    rows, columns = mdp.grid.max(axis=0) + 1
    floor = np.zeros((rows, columns), dtype=np.float32)
    floor[mdp.grid[:, 0], mdp.grid[:, 1]] = 0.5
    background = np.kron(floor, np.ones((_CELL, _CELL), dtype=np.float32))
    images = np.repeat(background[None, None], 3, axis=1).repeat(mdp.n_states, axis=0)
    for state, (row, column) in enumerate(mdp.grid):
        cell = (slice(row * _CELL, (row + 1) * _CELL), slice(column * _CELL, (column + 1) * _CELL))
        images[(state, slice(None), *cell)] = np.array([1.0, 0.2, 0.1])[:, None, None]
    return torch.from_numpy(images)


def random_images(count: int, seed: int) -> Tensor:
    """An image of random pixels for each state, [S, 3, H, W]: looks say nothing about behaviour."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, _SIDE, _SIDE, generator=generator)


def observe(images: Tensor, states: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Observations of states as bytes, [N, C, H, W]: every pixel with Gaussian noise of its own.

    Args:
        images: One per state, [S, C, H, W].
        states: [N].
        noise: Standard deviation of the noise; pixels are clipped to [0, 1].
        generator: Draws the noise.
    """
    observations = torch.empty(len(states), *images.shape[1:], dtype=torch.uint8)
    for first in range(0, len(states), _BLOCK):
        clean = images[states[first : first + _BLOCK]]
        pixels = clean + noise * torch.randn(clean.shape, generator=generator)
        observations[first : first + _BLOCK] = (pixels.clamp_(0, 1) * 255).round_()
    return observations
