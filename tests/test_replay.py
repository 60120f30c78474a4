import errno
import gc
import itertools
import json
import math
import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from revbis import memory
from revbis.replay import Batch, Replay
from revbis.replay import storage as storage_module
from revbis.replay.kernels import gather_shifted

torch.set_num_threads(1)


# A slow reference: whole episodes in lists, every transition from its definition.


class Episode:
    def __init__(self, first):
        self.frames, self.steps, self.running = [first], [], True


class Naive:
    def __init__(self, capacity, stack, n_step, gamma):
        self.capacity, self.stack, self.n_step, self.gamma = capacity, stack, n_step, gamma
        self.episodes = []

    def begin(self, frame):
        self.episodes.append(Episode(frame))

    def add(self, action, reward, discount, frame, *, last):
        episode = self.episodes[-1]
        episode.steps.append((action, reward, discount))
        episode.frames.append(frame)
        episode.running = not last

    def cut(self):
        if self.episodes:
            self.episodes[-1].running = False

    def observation(self, episode, t):
        wanted = range(t - self.stack + 1, t + 1)
        return np.concatenate([episode.frames[max(k, 0)] for k in wanted])

    def follow(self, episode, t, n):
        m = min(n, len(episode.steps) - t)
        total, weight = 0.0, 1.0
        for _, reward, discount in episode.steps[t : t + m]:
            total += weight * reward
            weight *= self.gamma * discount
        return total, weight, self.observation(episode, t + m)

    def transitions(self):
        """All that can be sampled, oldest first, as (obs, action, n-step, one-step)."""
        found, offset = [], 0
        oldest = sum(len(e.frames) for e in self.episodes) - self.capacity
        for episode in self.episodes:
            for t in range(len(episode.steps)):
                enough = not episode.running or t + self.n_step <= len(episode.steps)
                complete = offset + max(0, t - self.stack + 1) >= oldest
                if enough and complete:
                    obs, action = self.observation(episode, t), episode.steps[t][0]
                    several, one = (self.follow(episode, t, n) for n in (self.n_step, 1))
                    found.append((obs, action, several, one))
            offset += len(episode.frames)
        return found


def assert_same(replay, naive):
    """Every transition, in order, and nothing else."""
    wanted = naive.transitions()
    assert len(replay) == len(wanted)
    if not wanted:
        return
    batch = replay.gather(np.arange(len(replay)))
    obs, action, several, one = zip(*wanted, strict=True)
    np.testing.assert_array_equal(batch.obs, np.stack(obs))
    np.testing.assert_array_equal(batch.action, np.stack(action))
    for got, expected in ((batch[2:5], several), (batch.one_step, one)):
        reward, discount, next_obs = zip(*expected, strict=True)
        np.testing.assert_allclose(got[0], reward, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got[1], discount, rtol=1e-6)
        np.testing.assert_array_equal(got[2], np.stack(next_obs))


def numbered(number, shape=(2, 2, 3)):
    """A frame that no other number has: the number's two bytes, over and over."""
    if len(shape) == 1:
        return np.full(shape, number, np.float32)
    return np.resize(np.array(divmod(number, 256), np.uint8), shape)


def play(buffers, rng, count, shape=(2, 2, 3), stop=0.3, first=0):
    """The same random episodes into each buffer; an episode may be left running."""
    running = False
    for number in range(first, first + count):
        frame = numbered(number, shape)
        if not running:
            for buffer in buffers:
                buffer.begin(frame)
            running = True
            continue
        last = bool(rng.random() < stop)
        action, reward = rng.normal(size=2).astype(np.float32), float(rng.integers(-9, 10))
        discount = 0.0 if last and rng.random() < 0.5 else 1.0
        for buffer in buffers:
            buffer.add(action, reward, discount, frame, last=last)
        running = not last


def small(capacity=40, shape=(2, 2, 3), **kwargs):
    return Replay(capacity, shape, 2, **{"shift": 0, "discount": 0.9, "one_step": True} | kwargs)


def assert_equal_batches(a, b):
    for x, y in zip(a[:5], b[:5], strict=True):
        assert torch.equal(x, y)
    assert (a.one_step is None) == (b.one_step is None)
    for x, y in zip(a.one_step or (), b.one_step or (), strict=True):
        assert torch.equal(x, y)


# Contents


STEP = st.tuples(
    st.sampled_from(["go", "go", "go", "terminate", "limit", "cut"]),
    st.integers(-8, 8),
    st.sampled_from([1.0, 1.0, 0.5]),
)


@given(
    steps=st.lists(STEP, max_size=60),
    stack=st.integers(1, 4),
    n_step=st.integers(1, 4),
    room=st.integers(1, 20),
    gamma=st.sampled_from([0.0, 0.5, 0.99]),
    shape=st.sampled_from([(1, 1, 2), (2, 3, 1), (2,)]),
)
@settings(max_examples=150, deadline=None)
def test_every_transition_is_the_naive_one_after_every_step(
    steps, stack, n_step, room, gamma, shape
):
    capacity = stack + n_step + room
    kwargs = {"stack": stack, "n_step": n_step, "discount": gamma, "shift": 0, "one_step": True}
    replay, naive = Replay(capacity, shape, 2, **kwargs), Naive(capacity, stack, n_step, gamma)
    for number, (kind, reward, discount) in enumerate(steps):
        idle = not replay.running
        for buffer in (replay, naive):
            if idle:
                buffer.begin(numbered(number, shape))
            elif kind == "cut":
                buffer.cut()
            else:
                buffer.add(
                    np.array([number, -number], np.float32),
                    reward,
                    0.0 if kind == "terminate" else discount,
                    numbered(number, shape),
                    last=kind != "go",
                )
        assert_same(replay, naive)


def test_by_hand():
    """γ = ½, n = 3, stack 2, one episode of 4 steps with rewards 1, 2, 4, 8, then a termination.

    Frames are numbered 0–4. n-step sums: 1 + 2/2 + 4/4 = 3; 2 + 4/2 + 8/4 = 6; 4 + 8/2 = 8; 8.
    The first looks on from frame 3 with ½³; the others contain the termination: discount 0.
    One step: rewards 1, 2, 4, 8 and discounts ½, ½, ½, 0.
    """
    replay = Replay(20, (1, 1, 1), 1, stack=2, discount=0.5, shift=0, one_step=True)
    frame = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1)
    replay.begin(frame[0])
    for t in range(4):
        replay.add([10 * t], 2.0**t, float(t < 3), frame[t + 1], last=t == 3)
    batch = replay.gather(np.arange(4))
    assert batch.obs[:, :, 0, 0].tolist() == [[0, 0], [0, 1], [1, 2], [2, 3]]
    assert batch.action.tolist() == [[0], [10], [20], [30]]
    assert batch.reward.tolist() == [3, 6, 8, 8]
    assert batch.discount.tolist() == [0.125, 0, 0, 0]
    assert batch.next_obs[:, :, 0, 0].tolist() == [[2, 3], [3, 4], [3, 4], [3, 4]]
    assert batch.one_step.reward.tolist() == [1, 2, 4, 8]
    assert batch.one_step.discount.tolist() == [0.5, 0.5, 0.5, 0]
    assert batch.one_step.next_obs[:, :, 0, 0].tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]


def test_a_time_limit_bootstraps_from_the_final_frame():
    """Two steps, γ = ½, rewards 1 and 2: 1 + 2/2 = 2 with ½², and 2 with ½, both from frame 2."""
    replay = Replay(20, (1,), 1, stack=1, discount=0.5)
    replay.begin(np.zeros(1, np.float32))
    replay.add([0], 1, 1, np.ones(1, np.float32), last=False)
    replay.add([0], 2, 1, np.full(1, 2, np.float32), last=True)
    batch = replay.gather(np.arange(2))
    assert batch.reward.tolist() == [2, 2]
    assert batch.discount.tolist() == [0.25, 0.5]
    assert batch.next_obs.tolist() == [[2], [2]]
    assert batch.one_step is None


def test_the_environments_discounts_multiply():
    """γ = ½, environment ½ each step, rewards 1, 1, 1: 1 + ¼ + 1/16, then weight 1/64."""
    replay = Replay(20, (1,), 1, stack=1, discount=0.5)
    replay.begin(np.zeros(1, np.float32))
    for _ in range(3):
        replay.add([0], 1, 0.5, np.zeros(1, np.float32), last=False)
    batch = replay.gather(np.arange(1))
    assert batch.reward.tolist() == [1.3125] and batch.discount.tolist() == [1 / 64]


@pytest.mark.parametrize("terminated", [True, False])
def test_an_episode_of_one_step(terminated):
    replay = small()
    replay.begin(numbered(1))
    assert len(replay) == 0
    replay.add([1, 2], 5.0, float(not terminated), numbered(2), last=True)
    assert len(replay) == 1
    batch = replay.sample(2)
    assert batch.reward.tolist() == [5, 5]
    np.testing.assert_allclose(batch.discount, [0.9 * (not terminated)] * 2, rtol=1e-6)
    np.testing.assert_array_equal(batch.obs[0], np.concatenate([numbered(1)] * 3))
    stack = [numbered(1), numbered(1), numbered(2)]
    np.testing.assert_array_equal(batch.next_obs[0], np.concatenate(stack))


def test_a_running_episode_is_sampled_up_to_n_steps_before_its_newest_frame():
    replay = small(n_step=3)
    replay.begin(numbered(0))
    seen = []
    for number in range(1, 7):
        replay.add([0, 0], 1.0, 1.0, numbered(number), last=False)
        seen.append(len(replay))
    assert seen == [0, 0, 1, 2, 3, 4]
    replay.cut()
    assert len(replay) == 6 and not replay.running
    replay.cut()
    assert len(replay) == 6


def test_there_is_always_a_transition_at_the_smallest_capacity():
    replay, rng = small(capacity=7), np.random.default_rng(0)
    naive = Naive(7, 3, 3, 0.9)
    for number in range(400):
        if not replay.running:
            replay.begin(numbered(number)), naive.begin(numbered(number))
        else:
            last = bool(rng.random() < 0.3)
            for buffer in (replay, naive):
                buffer.add(np.zeros(2), 1.0, 1.0, numbered(number), last=last)
        assert len(replay) > 0 or replay.written < 4
        if number % 10 == 0:
            assert_same(replay, naive)


@pytest.mark.parametrize("shape", [(2, 2, 3), (2,)])
@pytest.mark.parametrize("storage", ["ram", "disk"])
def test_many_times_around(storage, shape, tmp_path):
    replay = small(shape=shape, storage=storage, directory=tmp_path)
    naive, rng = Naive(40, 3, 3, 0.9), np.random.default_rng(1)
    for lap in range(30):
        play([replay, naive], rng, 37, shape, stop=rng.choice([0.02, 0.3, 0.8]), first=37 * lap)
        replay.cut(), naive.cut()
        assert_same(replay, naive)
    assert replay.written == 30 * 37 and replay.oldest == 30 * 37 - 40


def test_types_and_shapes():
    replay = small(shape=(3, 10, 12), shift=4)
    play([replay], np.random.default_rng(0), 30, (3, 10, 12))
    batch = replay.sample(7)
    assert isinstance(batch, Batch)
    images, row = (torch.uint8, (7, 9, 10, 12)), (torch.float32, (7,))
    expected = [images, (torch.float32, (7, 2)), row, row, images]
    assert [(x.dtype, tuple(x.shape)) for x in batch[:5]] == expected
    assert [(x.dtype, tuple(x.shape)) for x in batch.one_step] == [row, row, images]
    assert all(x.is_contiguous() for x in batch[:5])


def test_vectors_are_never_shifted_and_may_be_stacked():
    replay = Replay(20, (2,), 2, stack=2, n_step=1, shift=4)
    play([replay], np.random.default_rng(0), 15, (2,))
    batch = replay.sample(50)
    assert batch.obs.dtype == torch.float32 and batch.obs.shape == (50, 4)
    assert set(batch.obs.flatten().tolist()) <= set(range(15))


def test_a_batch_outlives_later_samples_and_writes():
    replay, rng = small(capacity=12), np.random.default_rng(0)
    play([replay], rng, 20)
    replay.cut()
    batch = replay.sample(8)
    copy = [x.clone() for x in batch[:5]]
    play([replay], rng, 20)
    replay.sample(8), replay.sample(8)
    assert all(torch.equal(x, y) for x, y in zip(batch[:5], copy, strict=True))


def test_what_is_added_is_copied():
    replay, frame, action = small(n_step=1), numbered(7), np.ones(2)
    replay.begin(frame)
    replay.add(action, 0, 1, frame, last=True)
    frame[:], action[:] = 0, 0
    batch = replay.sample(1)
    assert batch.action.tolist() == [[1, 1]]
    np.testing.assert_array_equal(batch.obs[0, :2], numbered(7))


# The draw


def test_draws_are_uniform_over_all_transitions():
    """Counts are binomial: each within 5 standard deviations of its mean."""
    replay, naive = small(capacity=30, stack=1), Naive(30, 1, 3, 0.9)
    play([replay, naive], np.random.default_rng(2), 95)
    ids = [int(obs[0, 0, 0]) * 256 + int(obs[0, 0, 1]) for obs, *_ in naive.transitions()]
    draws = 40_000
    corner = replay.sample(draws).obs[:, 0, 0].numpy().astype(int)
    seen, counts = np.unique(corner[:, 0] * 256 + corner[:, 1], return_counts=True)
    assert seen.tolist() == ids
    p = 1 / len(ids)
    assert np.abs(counts - draws * p).max() < 5 * math.sqrt(draws * p * (1 - p))


def test_the_seed_decides():
    def samples(seed):
        replay = small(shape=(1, 9, 9), shift=4, seed=seed)
        play([replay], np.random.default_rng(0), 60, (1, 9, 9))
        return [replay.sample(16) for _ in range(3)]

    for a, b in zip(samples(3), samples(3), strict=True):
        assert_equal_batches(a, b)
    assert not torch.equal(samples(3)[0].action, samples(4)[0].action)


def filled(count):
    """A full buffer of short vectors, made through restore."""
    replay = Replay(count, (1,), 1, stack=3, n_step=3, one_step=True)
    ages = np.arange(count, dtype=np.int32) % 10
    piece = {
        "start": np.array(0),
        "frame": np.zeros((count, 1), np.float32),
        "action": np.zeros((count, 1), np.float32),
        "reward": np.zeros(count, np.float32),
        "discount": np.ones(count, np.float32),
        "age": ages,
    }
    replay.restore([piece], replay.state() | {"written": count})
    assert len(replay) == count - count // 10
    return replay


def work_of_a_sample(replay):
    """Lines of Python run by a sample, and the most bytes it had allocated."""
    replay.sample(64)
    lines = 0

    def count(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # what other tests have left is not this one's work
    try:
        sys.settrace(count)
        replay.sample(64)
        sys.settrace(before)
        tracemalloc.start()
        replay.sample(64)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    finally:
        gc.enable()
    return lines, peak


def test_the_work_of_a_sample_does_not_grow_with_the_buffer():
    """The kernels loop over the batch alone; the rest is counted: lines run, bytes allocated."""
    (few, little), (many, much) = (work_of_a_sample(filled(n)) for n in (1_000, 300_000))
    assert many == few
    assert abs(much - little) < 10_000  # an array of a byte per record would be 300,000


# The random shift


def crop(image, dy, dx, pad):
    """Replicate-pads [..., H, W] and cuts the window that a shift of (dy, dx) sees."""
    height, width = image.shape[-2:]
    padded = functional.pad(image[None].float(), (pad,) * 4, mode="replicate")[0]
    return padded[..., pad + dy : pad + dy + height, pad + dx : pad + dx + width].to(torch.uint8)


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


def shifts_of(batch_images, original, pad):
    """The shift of each image, found by trying all of them."""
    table = {}
    for dy, dx in itertools.product(range(-pad, pad + 1), repeat=2):
        table[crop(original, dy, dx, pad).numpy().tobytes()] = (dy, dx)
    assert len(table) == (2 * pad + 1) ** 2
    return np.array([table[image.numpy().tobytes()] for image in batch_images])


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


def test_no_shift():
    replay, naive = small(shape=(1, 4, 4), shift=0), Naive(40, 3, 3, 0.9)
    play([replay, naive], np.random.default_rng(0), 30, (1, 4, 4))
    assert_same(replay, naive)


# Checkpoints


def through_files(pieces, state, directory):
    """What pieces and state are after a trip to disk without pickle, and through JSON."""
    loaded = []
    for number, piece in enumerate(pieces):
        np.savez(directory / f"{number}.npz", **piece)
        with np.load(directory / f"{number}.npz", allow_pickle=False) as file:
            loaded.append(dict(file))
    return loaded, json.loads(json.dumps(state))


@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9, 39, 40, 41, 95, 333])
@pytest.mark.parametrize("stop", [0.0, 0.3])
def test_a_restored_buffer_goes_on_as_the_first(count, stop, storage, tmp_path):
    shape, rng = (2, 6, 5), np.random.default_rng(count)
    original = small(shape=shape, shift=4)
    pieces, saved = [], 0
    while original.written < count:  # a checkpoint every 15 records, each with the new ones only
        room = min(15, count - original.written)
        original.cut()
        play([original], rng, room, shape, stop, first=original.written)
        if original.written > 3:
            original.sample(3)
        pieces.append(original.export(saved, original.written))
        saved = original.written
    restored = small(shape=shape, shift=4, seed=99, storage=storage, directory=tmp_path)
    play([restored], rng, 13, shape)  # what was there before must not matter
    loaded, state = through_files(pieces, original.state(), tmp_path)
    restored.restore(iter(loaded), state)
    assert restored.state() == original.state() and len(restored) == len(original)
    for _ in range(3):
        if len(original):
            assert_equal_batches(original.sample(20), restored.sample(20))
        for buffer in (original, restored):
            if not buffer.running:
                buffer.begin(numbered(1, shape))
            for number in range(25):
                buffer.add([1, 1], number, 1, numbered(number, shape), last=number == 24)
        assert_equal_batches(original.gather(np.arange(20)), restored.gather(np.arange(20)))


def test_records_outside_the_ring_or_after_the_state_are_passed_over():
    original, rng = small(), np.random.default_rng(5)
    play([original], rng, 30)
    early = original.export(0, 30)
    original.cut()
    play([original], rng, 45, first=30)
    state, late = original.state(), original.export(30, 75)
    assert int(late["start"]) == 35 and len(late["age"]) == 40
    wanted = original.sample(30)
    original.cut()
    play([original], rng, 5, first=75)
    pieces = [early, late, original.export(70, 80)]
    restored = small()
    restored.restore(pieces, state)
    assert restored.written == 75
    assert_equal_batches(restored.sample(30), wanted)


def test_export_gives_copies_of_what_is_still_there():
    replay = small(capacity=10)
    play([replay], np.random.default_rng(0), 25, stop=0.0)
    piece = replay.export(0, 25)
    assert int(piece["start"]) == 15
    np.testing.assert_array_equal(piece["age"], np.arange(15, 25))
    np.testing.assert_array_equal(piece["frame"], [numbered(n) for n in range(15, 25)])
    piece["frame"][:] = 0
    np.testing.assert_array_equal(replay.export(20, 21)["frame"][0], numbered(20))
    gone = replay.export(2, 4)
    assert gone["age"].shape == (0,) and gone["frame"].shape == (0, 2, 2, 3)


def test_missing_records_are_refused_and_leave_the_buffer_empty():
    original = small()
    play([original], np.random.default_rng(0), 30)
    restored = small()
    pieces = [original.export(0, 10), original.export(12, 30)]
    with pytest.raises(ValueError, match=r"records 10 to 29 are missing from the pieces; give all"):
        restored.restore(pieces, original.state())
    assert len(restored) == restored.written == 0 and not restored.running


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame": np.zeros((9, 2, 2), np.uint8)}, r"frame must be uint8 of shape \(9, 2, 2, 3\)"),
        ({"reward": np.zeros(9)}, r"reward must be float32 of shape \(9,\), got float64 of shape"),
        ({"action": None}, r"action must be float32 of shape \(9, 2\), got none; give what export"),
    ],
)
def test_a_piece_of_another_kind_is_refused(change, message):
    replay = small()
    play([replay], np.random.default_rng(0), 9)
    piece = replay.export(0, 9) | change
    with pytest.raises(ValueError, match=message):
        small().restore([piece], replay.state())


def test_a_piece_without_a_start_is_refused():
    replay = small()
    play([replay], np.random.default_rng(0), 9)
    piece = replay.export(0, 9)
    del piece["start"]
    with pytest.raises(ValueError, match="a piece must have its start; give what export returned"):
        small().restore([piece], replay.state())


def test_a_state_of_other_settings_is_refused():
    message = r"the saved replay has stack 3, not 2; n_step 3, not 1; use the settings"
    with pytest.raises(ValueError, match=message):
        small(stack=2, n_step=1).restore([], small().state())
    with pytest.raises(ValueError, match="state must be of format 1, got None"):
        small().restore([], {})


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 3), (0, 31)])
def test_export_of_what_was_never_written_is_refused(bounds):
    replay = small()
    play([replay], np.random.default_rng(0), 30)
    with pytest.raises(ValueError, match=r"export needs 0 <= start|start must be"):
        replay.export(*bounds)


# Sizes


def test_a_million_frames_take_at_most_22_gb():
    """Per record: 3·84·84 of frame, 4·6 of action, reward 4, discount 4, age 4, its index 8."""
    projected = Replay.projected_bytes(1_000_000, (3, 84, 84), 6)
    assert projected == 1_000_000 * (21_168 + 24 + 4 + 4 + 4 + 8) <= 22e9


def test_what_does_not_fit_in_memory_is_refused_with_the_flags(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2_000_000_000)
    message = (
        r"a replay of 1,000,000 frames takes 21.2 GB, but only 2 GB is free; use --replay-storage "
        r"disk or a smaller --replay-capacity \(up to 94,286 fits in memory\)"
    )
    with pytest.raises(MemoryError, match=message):
        Replay(1_000_000, (3, 84, 84), 6)


def test_what_does_not_fit_on_disk_is_refused(monkeypatch, tmp_path):
    usage = (10**10, 10**10, 2_116_800_000)
    fake = type("Usage", (), dict(zip(("total", "used", "free"), usage, strict=True)))
    monkeypatch.setattr(storage_module.shutil, "disk_usage", lambda path: fake)
    message = (
        r"a replay of 1,000,000 frames takes 21.2 GB on disk, but only 2.12 GB is free at .*; use "
        r"another directory or a smaller --replay-capacity \(up to 100,000 fits\)"
    )
    with pytest.raises(ValueError, match=message):
        Replay(1_000_000, (3, 84, 84), 6, storage="disk", directory=tmp_path / "not" / "yet")
    assert not (tmp_path / "not").exists()
    Replay(100_000, (3, 84, 84), 6, storage="disk", directory=tmp_path)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1_000_000)
    with pytest.raises(MemoryError, match=r"keeps beside them takes 4.4 MB, but only 1 MB is free"):
        Replay(100_000, (3, 84, 84), 6, storage="disk", directory=tmp_path)


FILL = """
import numpy as np
from revbis.memory import resident_bytes
from revbis.replay import Replay
shape, capacity = (3, 84, 84), 4_000
before = resident_bytes()
replay = Replay(capacity, shape, 2)
print(resident_bytes() - before)
frame = np.ones(shape, np.uint8)
replay.begin(frame)
for _ in range(2 * capacity):
    replay.add([0, 0], 0, 1, frame, last=False)
print(resident_bytes() - before, Replay.projected_bytes(capacity, shape, 2))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_memory_is_taken_as_it_is_filled_and_stays_within_the_projection():
    # In a process of its own: what others freed before would be taken without being seen.
    words = [sys.executable, "-c", FILL]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=400)
    empty, full, projected = map(int, done.stdout.split())
    slack = 12_000_000
    assert empty < slack
    assert projected / 2 < full < projected + slack


def test_frames_on_disk_leave_no_file_behind(tmp_path):
    replay = small(storage="disk", directory=tmp_path / "made")
    play([replay], np.random.default_rng(0), 30)
    assert list((tmp_path / "made").iterdir()) == []
    batch = replay.sample(4)
    if Path("/proc/self/fd").exists():
        assert open_below(tmp_path)
    del replay
    assert batch.obs.shape == (4, 6, 2, 3)
    assert open_below(tmp_path) == []


def open_below(folder: Path) -> list[str]:
    """Files below a folder that this process has open, where the system tells."""
    links = []
    for link in Path("/proc/self/fd").glob("*"):
        with suppress(FileNotFoundError):  # the descriptor with which this is read
            links.append(os.readlink(link))
    return [name for name in links if name.startswith(str(folder))]


def test_a_full_disk_is_an_error_one_can_read(monkeypatch, tmp_path):
    replay = small(storage="disk", directory=tmp_path)
    play([replay], np.random.default_rng(0), 10, stop=0.0)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage_module.os, "pwrite", full)
    message = r"could not be written to disk \(No space left on device\); free some space or use"
    with pytest.raises(OSError, match=message) as stopped:
        replay.add([0, 0], 0, 1, numbered(0), last=False)
    assert stopped.value.filename == str(tmp_path)
    assert replay.written == 10 and len(replay) == 7


def test_short_writes_are_completed(monkeypatch, tmp_path):
    whole_write = os.pwrite
    monkeypatch.setattr(
        storage_module.os, "pwrite", lambda f, data, at: whole_write(f, data[:5], at)
    )
    replay, naive = small(storage="disk", directory=tmp_path), Naive(40, 3, 3, 0.9)
    play([replay, naive], np.random.default_rng(0), 90)
    assert_same(replay, naive)


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": 6}, r"capacity must be at least stack \+ n_step \+ 1 = 7 .*, got 6; use a l"),
        ({"capacity": 0}, "capacity must be at least 1, got 0"),
        ({"capacity": 10.5}, "capacity must be a whole number, got 10.5"),
        ({"observation_shape": (84, 84)}, r"must be \(C, H, W\) for pixels or \(D,\) for vectors"),
        ({"observation_shape": (0,)}, "observation_shape's sizes must be at least 1, got 0"),
        ({"action_size": 0}, "action_size must be at least 1, got 0"),
        ({"stack": 0}, "stack must be at least 1, got 0"),
        ({"n_step": 0}, "n_step must be at least 1, got 0"),
        ({"discount": 1.5}, r"discount must be in \[0, 1\), got 1.5"),
        ({"shift": -1}, "shift must be at least 0, got -1"),
        ({"shift": 8}, "shift must be less than the image's side 8, got 8"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"storage": "dsik"}, "storage must be one of ram, disk, got 'dsik'; did you mean 'disk'"),
        ({"storage": "disk"}, "directory must be given with storage 'disk'"),
    ],
)
def test_a_wrong_setting_is_refused(changes, message):
    arguments = {"capacity": 20, "observation_shape": (1, 9, 8), "action_size": 2} | changes
    with pytest.raises(ValueError, match=message):
        Replay(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": [1.0]}, r"action must have shape \(2,\), got \(1,\)"),
        ({"action": [1.0, math.nan]}, "action must be finite, but 1 of its entries are not"),
        ({"action": [1.0, 1e39]}, "action must fit in 32 bits, got"),
        ({"reward": math.nan}, "reward must be a finite 32-bit number, got nan"),
        ({"reward": math.inf}, "reward must be a finite 32-bit number, got inf"),
        ({"reward": 1e39}, r"reward must be a finite 32-bit number, got 1e\+39"),
        ({"reward": None}, "reward must be a number, got None"),
        ({"discount": -0.1}, r"discount must be in \[0, 1\], got -0.1"),
        ({"discount": 1.1}, r"discount must be in \[0, 1\], got 1.1"),
        ({"discount": math.nan}, r"discount must be in \[0, 1\], got nan"),
        (
            {"frame": np.zeros((2, 3, 2), np.uint8)},
            r"frame must be uint8 of shape \(2, 2, 3\), got uint8 of shape \(2, 3, 2\)",
        ),
        (
            {"frame": np.zeros((2, 2, 3), np.float32)},
            r"frame must be uint8 of shape \(2, 2, 3\), got float32 of shape \(2, 2, 3\)",
        ),
    ],
)
def test_a_wrong_step_is_refused_and_changes_nothing(changes, message):
    replay = small()
    play([replay], np.random.default_rng(0), 10, stop=0.0)
    before, state = replay.export(0, 10), replay.state()
    step = {"action": [0, 0], "reward": 0.0, "discount": 1.0, "frame": numbered(0), "last": False}
    with pytest.raises(ValueError, match=message):
        replay.add(**step | changes)
    after = replay.export(0, 10)
    assert replay.state() == state and len(replay) == 7
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_vector_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="frame must be finite, got"):
        small(shape=(2,)).begin(np.array([0, value], np.float32))


def test_a_vector_of_doubles_is_refused():
    with pytest.raises(ValueError, match=r"frame must be float32 of shape \(2,\), got float64"):
        small(shape=(2,)).begin(np.zeros(2))


def test_steps_out_of_order_are_refused():
    replay = small()
    with pytest.raises(ValueError, match="add needs a running episode; call begin with its first"):
        replay.add([0, 0], 0, 1, numbered(0), last=False)
    with pytest.raises(ValueError, match="sample needs at least one transition, but the replay "):
        replay.sample(1)
    replay.begin(numbered(0))
    with pytest.raises(ValueError, match=r"begin needs the running episode to be over; end it wit"):
        replay.begin(numbered(0))
    replay.add([0, 0], 0, 1, numbered(0), last=True)
    with pytest.raises(ValueError, match="add needs a running episode"):
        replay.add([0, 0], 0, 1, numbered(0), last=False)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        replay.sample(0)
    with pytest.raises(IndexError, match=r"positions must be in \[0, 1\)"):
        replay.gather(np.array([1]))
    with pytest.raises(IndexError, match=r"positions must be in \[0, 1\)"):
        replay.gather(np.array([-1]))
