"""The random shift: a crop of the padded image, drawn uniformly."""

import itertools

import numpy as np
import pytest
import torch
from tests.replay import crop, shifts_of
from torch.nn import functional

from revbis.replay import Replay
from revbis.replay.batch import gather_shifted


def interpolated(image, dy, dx, pad):
    """The published augmentation: bilinear interpolation at the shifted grid (square images)."""
    side = image.shape[-1]
    padded = functional.pad(image[None].float(), (pad,) * 4, mode="replicate")
    total = side + 2 * pad
    centres = torch.linspace(-1 + 1 / total, 1 - 1 / total, total)[:side]
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    grid = torch.stack([x + 2 * (dx + pad) / total, y + 2 * (dy + pad) / total], dim=-1)
    return functional.grid_sample(padded, grid[None], padding_mode="zeros", align_corners=False)[0]


def kernel(frames, slots, shift):
    out = np.zeros((1, len(slots), *frames.shape[1:]), np.uint8)
    gather_shifted(frames, np.array([slots]), np.array([shift]), out)
    return torch.from_numpy(out[0])


@pytest.mark.parametrize("size", [(12, 12), (5, 9), (9, 5), (5, 5)])
def test_every_shift_is_pad_and_crop(size):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (4, 3, *size), dtype=np.uint8)
    for dy, dx in itertools.product(range(-4, 5), repeat=2):
        got = kernel(frames, [2, 0], (dy, dx))
        wanted = crop(torch.from_numpy(frames[[2, 0]]).flatten(0, 1), dy, dx, 4)
        assert torch.equal(got.flatten(0, 1), wanted), (dy, dx)


def test_a_shift_is_what_the_interpolating_reference_gives():
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (1, 3, 84, 84), dtype=np.uint8)
    for dy, dx in [(0, 0), (4, -4), (-4, 4), (-3, -1), (2, 4), (0, -2), (1, 0)]:
        wanted = interpolated(torch.from_numpy(frames[0]), dy, dx, 4)
        got = kernel(frames, [0], (dy, dx))[0]
        torch.testing.assert_close(got.float(), wanted, rtol=0, atol=0.05)


@pytest.fixture(scope="module")
def drawn_shifts():
    """Shifts of obs, next_obs and one-step next_obs in 8,100 samples of one transition."""
    frames = np.random.default_rng(0).integers(0, 256, (3, 2, 8, 11), dtype=np.uint8)
    replay = Replay(30, (2, 8, 11), 1, stack=2, n_step=2, shift=4, one_step=True)
    replay.begin(frames[0])
    replay.add([0], 0, 1, frames[1], last=False)
    replay.add([0], 0, 1, frames[2], last=False)
    assert len(replay) == 1
    batch = replay.sample(8_100)
    stacks = [torch.from_numpy(np.concatenate(frames[ids])) for ids in ([0, 0], [1, 2], [0, 1])]
    images = (batch.obs, batch.next_obs, batch.one_step.next_obs)
    return [shifts_of(x, stack, 4) for x, stack in zip(images, stacks, strict=True)]


def test_a_stack_is_shifted_as_one_uniformly_over_all_81_shifts(drawn_shifts):
    """Each shift is expected 100 times; 5 standard deviations are 50."""
    for shifts in drawn_shifts:
        counts = np.unique(shifts, axis=0, return_counts=True)[1]
        assert len(counts) == 81 and np.abs(counts - 100).max() < 50


def test_observations_are_shifted_independently(drawn_shifts):
    """Two independent shifts agree in one of 81 cases: 100 ± 50 of 8,100."""
    for a, b in itertools.combinations(drawn_shifts, 2):
        assert abs((a == b).all(axis=1).sum() - 100) < 50
