"""Every transition is the naive one, and each is drawn alike."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replay import (
    Naive,
    assert_equal_batches,
    assert_same,
    filled,
    numbered,
    play,
    small,
    work_of,
)

from revbis.replay import Batch, Replay

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


def test_the_work_of_a_sample_does_not_grow_with_the_buffer():
    """The kernels loop over the batch alone; the rest is counted: lines run, bytes allocated."""
    (few, little), (many, much) = (work_of(partial(filled(n).sample, 64)) for n in (1_000, 300_000))
    assert many == few
    assert abs(much - little) < 10_000  # an array of a byte per record would be 300,000


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
