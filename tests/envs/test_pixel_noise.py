"""Gaussian noise on every pixel: its distribution, independence, seeds, splits and tasks."""

import math
import pickle
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from revbis.envs import make_env
from revbis.envs.distractors import PixelNoise, quantiles

GREY = 128  # noise of strength 0.1 has at most 4.4 · 25.5 < 113 levels, so nothing is clipped
TASKS = [
    "envs.toys:Good",
    pytest.param("gym:Pendulum-v1", marks=pytest.mark.env("gym", gl=False)),
    pytest.param("dmc:cartpole_balance", marks=pytest.mark.env("dmc")),
    pytest.param("metaworld:reach", marks=pytest.mark.env("metaworld")),
]


def drawn(noise: PixelNoise, frames: int = 3, level: int = GREY) -> np.ndarray:
    """What the noise adds to plain frames, [frames, 3, size, size]."""
    out = np.full((frames, 3, noise.size, noise.size), level, dtype=np.uint8)
    for frame in out:
        noise.add(frame)
    return out.astype(int) - level


def started(seed: int = 1, strength: float = 0.1, size: int = 84, **settings: Any) -> PixelNoise:
    noise = PixelNoise(strength, size, **settings)
    noise.reset(seed)
    return noise


# ---- the distribution


@pytest.mark.parametrize("strength", [0.01, 0.1, 0.5, 1.0])
def test_the_table_is_a_gaussian_distribution_in_whole_levels(strength: float) -> None:
    table, deviation = quantiles(strength), 255 * strength
    assert table.shape == (65_536,) and table.dtype == np.int16
    assert table.sum() == 0
    # Rounding to whole levels adds 1/12 to the variance.
    assert table.std() == pytest.approx(math.sqrt(deviation**2 + 1 / 12), rel=1e-3)
    normal = NormalDist(0, deviation)
    for level in range(-3 * round(deviation), 3 * round(deviation), 7):
        assert (table <= level).mean() == pytest.approx(normal.cdf(level + 0.5), abs=1e-4)


def test_the_weakest_noise_still_changes_pixels() -> None:
    # 0.255 levels: a pixel changes where that rounds to 1, beyond 1.96 deviations.
    assert (quantiles(0.001) != 0).mean() == pytest.approx(0.05, abs=0.001)


def test_mean_and_deviation_before_clipping() -> None:
    noise = drawn(started(), frames=40)  # 846,720 numbers
    assert abs(noise.mean()) < 4 * 25.5 / math.sqrt(noise.size)
    assert noise.std() == pytest.approx(25.5, rel=0.005)
    assert (np.abs(noise) <= 25).mean() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.003)


def test_pixels_colours_and_frames_are_independent() -> None:
    noise = drawn(started(), frames=40) / 25.5
    # Of products of neighbours the mean is 0 and the deviation 1/√n, n above 800,000.
    for axis in range(4):
        for lag in (1, 2):
            ahead, background_mask = (
                np.take(noise, range(lag, noise.shape[axis]), axis=axis),
                np.take(noise, range(noise.shape[axis] - lag), axis=axis),
            )
            assert abs((ahead * background_mask).mean()) < 5 / math.sqrt(ahead.size)
    # Their sizes are independent too, as those of noise moved from frame to frame would not be.
    sizes = noise**2 - 1
    flat = sizes.reshape(len(sizes), -1)
    correlations = flat @ flat.T / flat.shape[1] / 2
    assert np.abs(correlations - np.diag(np.diag(correlations))).max() < 6 / math.sqrt(21_168)


def test_against_the_slow_way() -> None:
    """Number by number, from the same bits."""
    bits = np.random.PCG64(np.random.SeedSequence((1002, 1, 7)))
    noise, normal = started(7, 0.3, 3, split="eval"), NormalDist(0, 0.3 * 255)
    frame = np.arange(0, 27 * 9, 9, dtype=np.uint8).reshape(3, 3, 3)
    for _ in range(2):
        words = [int(bits.random_raw()) for _ in range(7)]  # 28 numbers for 27 pixels
        parts = [(word >> 16 * part) % 2**16 for word in words for part in range(4)]
        added = [round(normal.inv_cdf((part + 0.5) / 2**16)) for part in parts]
        wanted = [min(max(int(p) + a, 0), 255) for p, a in zip(frame.flat, added, strict=False)]
        got = frame.copy()
        noise.add(got)
        assert got.ravel().tolist() == wanted


# What version 1 is, so that nobody changes it without a new version.
def test_a_version_does_not_change() -> None:
    wanted = [-60, 22, 65, 22, 0, -27, -60, 7, 24, 0, -43, 57]
    assert drawn(started(3, 0.2, 2), frames=1).ravel().tolist() == wanted


def test_strong_noise_is_clipped_and_not_wrapped() -> None:
    noise = started(strength=1.0)
    for level in (0, 255):
        frame = np.full((3, 84, 84), level, dtype=np.uint8)
        noise.add(frame)
        # Half goes beyond the end; of the rest 0.16 reach the other one, a deviation away.
        assert (frame == level).mean() == pytest.approx(0.5, abs=0.02)
        assert (frame == 255 - level).mean() == pytest.approx(0.16, abs=0.02)


# ---- seeds and splits


def test_a_seed_determines_the_episodes() -> None:
    def episodes(seed: int, **settings: Any) -> np.ndarray:
        noise = started(99, size=16, **settings)
        drawn(noise)  # what came before plays no part
        shown = []
        for number in range(3):
            noise.reset(seed if number == 0 else None)
            shown.append(drawn(noise))
        return np.stack(shown)

    first = episodes(1)
    np.testing.assert_array_equal(first, episodes(1))
    for other in (episodes(2), episodes(1, split="eval"), np.roll(first, 1, axis=0)):
        assert (first != other).mean() > 0.9


def test_without_any_seed_there_is_noise_too() -> None:
    noise = PixelNoise(0.1, 16)
    noise.reset(None)
    assert np.ptp(drawn(noise)) > 0


def test_the_global_random_state_plays_no_part() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = drawn(started(size=16))
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    np.testing.assert_array_equal(drawn(started(size=16)), first)


def test_it_survives_pickling_in_the_middle_of_an_episode() -> None:
    noise = started(size=16)
    drawn(noise)
    copy = pickle.loads(pickle.dumps(noise))
    np.testing.assert_array_equal(drawn(copy), drawn(noise))


# ---- environments


def episode(task: str, steps: int = 3, **settings: Any) -> np.ndarray:
    """The newest frames of an episode with fixed actions, [steps + 1, 3, 16, 16]."""
    env = make_env(task, seed=4, pixels=16, **settings)
    observation, info = env.reset()
    frames = [info["frame"]]
    np.testing.assert_array_equal(observation, np.tile(info["frame"], (3, 1, 1)))
    for action in np.random.default_rng(0).uniform(-1, 1, (steps, *env.action_space.shape)):
        observation, _, _, _, info = env.step(action.astype(np.float32))
        assert observation in env.observation_space
        frames.append(info["frame"])
        older = observation[-6:-3]
        np.testing.assert_array_equal(older, frames[-2])  # a stacked frame keeps its noise
    env.close()
    return np.stack(frames)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_with_images_can_have_it(task: str) -> None:
    plain = episode(task)
    for split in ("train", "eval"):
        settings = {"distractor": "gaussian", "distractor_strength": 0.3}
        noisy = episode(task, **settings, distractor_split=split)
        noise = started(4, 0.3, 16, split=split)
        wanted = plain.copy()
        for frame in wanted:
            noise.add(frame)
        np.testing.assert_array_equal(noisy, wanted)


@pytest.mark.env("dmc")
def test_the_background_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(
        "dmc:cartpole_balance", seed=1, pixels=16, distractor="gaussian", distractor_strength=0.2
    )
    monkeypatch.setattr(env.simulation, "background_mask", None)  # calling it would fail
    env.reset()
    assert env.identity["distractor"] == "gaussian-v1(0.2)/train"
