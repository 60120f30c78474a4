"""Every sequence is the naive one, each is drawn alike, and none is drawn that should not be."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replay import (
    Naive,
    assert_same_sequences,
    filled,
    numbered,
    play,
    shifts_of,
    small,
    work_of,
)

from revbis.replay import Replay, Sequences


def assert_equal(a, b):
    for x, y in zip(a, b, strict=True):
        assert torch.equal(x, y)


def both(capacity=40, shape=(2, 2, 3), **kwargs):
    """A buffer and its twin."""
    replay = small(capacity, shape, **kwargs)
    return replay, Naive(capacity, replay.stack, replay.n_step, replay.discount)


# Contents


STEP = st.tuples(
    st.sampled_from(["go", "go", "go", "go", "terminate", "limit", "cut"]),
    st.sampled_from([1.0, 1.0, 0.5]),
)


@given(
    steps=st.lists(STEP, max_size=60),
    stack=st.integers(1, 4),
    n_step=st.integers(1, 4),
    room=st.integers(1, 12),
    length=st.integers(1, 6),
    shape=st.sampled_from([(1, 1, 2), (2, 3, 1), (2,)]),
)
@settings(max_examples=150, deadline=None)
def test_every_sequence_is_the_naive_one_after_every_step(
    steps, stack, n_step, room, length, shape
):
    """One queue is kept up to date from the first step on; one for each length is made at the end.

    n_step, of the transitions, must not matter.
    """
    capacity = stack + n_step + room
    length = min(length, capacity - 1)
    replay, naive = both(capacity, shape, stack=stack, n_step=n_step)
    for number, (kind, discount) in enumerate(steps):
        idle = not replay.running
        for buffer in (replay, naive):
            if idle:
                buffer.begin(numbered(number, shape))
            elif kind == "cut":
                buffer.cut()
            else:
                buffer.add(
                    np.array([number, -number], np.float32),
                    float(number),
                    0.0 if kind == "terminate" else discount,
                    numbered(number, shape),
                    last=kind != "go",
                )
        assert_same_sequences(replay, naive, length)
    for other in range(1, capacity):
        assert_same_sequences(replay, naive, other)


def test_by_hand():
    """Stack 2; a termination after 3 steps, a time limit after 1, a running episode of 2 so far.

    Frames are 0 1 2 3 | 4 5 | 6 7 8, rewards 1 2 3 | 5 | 7 8 (the frame each leads to), actions ten
    times as much. Two steps: from 0, from 1, and from 6, which has just been completed.
    """
    replay = Replay(20, (1, 1, 1), 1, stack=2, discount=0.5, shift=0)
    frame = np.arange(9, dtype=np.uint8).reshape(9, 1, 1, 1)
    for first, final in ((0, 3), (4, 5), (6, 8)):
        replay.begin(frame[first])
        for k in range(first + 1, final + 1):
            replay.add([10 * k], k, float(k != 3), frame[k], last=k in (3, 5))
    got = replay.gather_sequences(np.arange(3), 2, shift="image")
    assert got.obs[..., 0, 0].tolist() == [
        [[0, 0], [0, 1], [1, 2]],
        [[0, 1], [1, 2], [2, 3]],
        [[6, 6], [6, 7], [7, 8]],
    ]
    assert got.action[..., 0].tolist() == [[10, 20], [20, 30], [70, 80]]
    assert got.reward.tolist() == [[1, 2], [2, 3], [7, 8]]
    assert got.discount.tolist() == [[1, 1], [1, 0], [1, 1]]  # no γ
    assert [replay.count_sequences(n) for n in (1, 2, 3, 4)] == [6, 3, 1, 0]


@pytest.mark.parametrize("shape", [(2, 2, 3), (2,)])
@pytest.mark.parametrize("storage", ["ram", "disk"])
def test_many_times_around(storage, shape, tmp_path):
    replay, naive = both(shape=shape, storage=storage, directory=tmp_path)
    rng = np.random.default_rng(1)
    for lap in range(30):
        play([replay, naive], rng, 37, shape, stop=rng.choice([0.02, 0.3, 0.8]), first=37 * lap)
        for length in (1, 3, 5, 38, 39):
            assert_same_sequences(replay, naive, length)
        replay.cut(), naive.cut()


def test_more_lengths_than_have_a_queue_of_their_own():
    replay, naive = both()
    rng = np.random.default_rng(3)
    for lap in range(8):
        play([replay, naive], rng, 11, stop=0.05, first=11 * lap)
        for length in (*range(1, 14), 1, 2):
            assert_same_sequences(replay, naive, length)
        replay.cut(), naive.cut()
    assert len(replay._sequences._queues) == 8


def test_the_longest_sequence_is_the_whole_ring():
    """Ten records: nine steps from an episode's first frame, which repeats in its stack."""
    replay, naive = both(capacity=10)
    counts = []
    for buffer in (replay, naive):
        buffer.begin(numbered(0))
    for number in range(1, 12):
        for buffer in (replay, naive):
            buffer.add(np.zeros(2), 0.0, 1.0, numbered(number), last=False)
        assert_same_sequences(replay, naive, 9)
        counts.append(replay.count_sequences(9))
    assert counts == [0] * 8 + [1, 0, 0]
    assert [replay.count_sequences(n) for n in (8, 7)] == [0, 1]  # a stack takes two frames more


def test_a_write_that_fails_costs_only_what_it_may_have_overwritten(monkeypatch, tmp_path):
    replay = small(capacity=8, stack=1, n_step=1, storage="disk", directory=tmp_path)
    play([replay], np.random.default_rng(0), 8, stop=0.0)
    assert replay.count_sequences(2) == 6

    def full(*arguments):
        raise OSError("full")

    with monkeypatch.context() as patch:
        patch.setattr("revbis.replay.storage.os.pwrite", full)
        with pytest.raises(OSError, match="could not be written"):
            replay.add([0, 0], 0, 1, numbered(8), last=False)
    assert replay.written == 8 and replay.count_sequences(2) == 5
    replay.add([0, 0], 0, 1, numbered(8), last=False)
    assert replay.count_sequences(2) == 6


def test_types_and_shapes():
    replay = small(shape=(3, 10, 12), shift=4)
    play([replay], np.random.default_rng(0), 30, (3, 10, 12), stop=0.1)
    got = replay.sample_sequences(7, 4, shift="sequence")
    assert isinstance(got, Sequences)
    expected = [(7, 5, 9, 10, 12), (7, 4, 2), (7, 4), (7, 4)]
    assert [tuple(x.shape) for x in got] == expected
    assert [x.dtype for x in got] == [torch.uint8] + 3 * [torch.float32]
    assert all(x.is_contiguous() for x in got)


def test_vectors_are_never_shifted_and_may_be_stacked():
    replay, naive = both(shape=(2,), stack=2, shift=4)
    play([replay, naive], np.random.default_rng(0), 30, (2,), stop=0.1)
    assert_same_sequences(replay, naive, 3)
    got = replay.sample_sequences(50, 3, shift="sequence")
    assert got.obs.dtype == torch.float32 and got.obs.shape == (50, 4, 4)
    assert set(got.obs.flatten().tolist()) <= set(range(30))


def test_a_batch_outlives_later_samples_and_writes():
    replay, rng = small(capacity=12), np.random.default_rng(0)
    play([replay], rng, 20, stop=0.1)
    replay.cut()
    got = replay.sample_sequences(8, 2, shift="image")
    copy = [x.clone() for x in got]
    play([replay], rng, 20, stop=0.1)
    replay.sample_sequences(8, 2, shift="image")
    assert_equal(got, copy)


# The draw


def test_a_draw_is_one_position_out_of_all_with_equal_chances():
    """Each sequence has one position (see above), and positions are the generator's integers."""
    replay, naive = both(capacity=60, seed=5)
    play([replay, naive], np.random.default_rng(2), 195, stop=0.1)
    generator = np.random.Generator(np.random.PCG64(5))
    for length in (1, 4, 1, 7):
        wanted = naive.sequences(length)
        positions = generator.integers(len(wanted), size=300)
        generator.integers(0, 1, size=(300, 2))  # the shifts, of which there is one: none
        got = replay.sample_sequences(300, length, shift="sequence")
        obs, action, reward, discount = zip(*(wanted[p] for p in positions), strict=True)
        for x, y in zip(got, (obs, action, reward, discount), strict=True):
            np.testing.assert_array_equal(x, np.stack(y))


@pytest.fixture
def shifted():
    """An 8 × 11 buffer that shifts by up to 2, its seed, and the images without a shift."""
    frames = np.random.default_rng(0).integers(0, 256, (12, 2, 8, 11), dtype=np.uint8)
    buffers = [
        Replay(30, (2, 8, 11), 1, stack=2, n_step=1, shift=shift, seed=3) for shift in (2, 0)
    ]
    for buffer in buffers:
        buffer.begin(frames[0])
        for frame in frames[1:]:
            buffer.add([0], 0, 1, frame, last=False)
    plain = buffers[1].gather_sequences(np.arange(8), 4, shift="image").obs
    return buffers[0], plain


@pytest.mark.parametrize(("shift", "draws"), [("sequence", 1), ("image", 4)])
def test_steps_can_be_named_and_named_twice(shifted, shift, draws):
    replay, plain = shifted
    generator = np.random.Generator(np.random.PCG64(3))
    positions = generator.integers(8, size=40)
    wanted = generator.integers(-2, 3, size=(40, draws, 2)).repeat(4 // draws, axis=1)
    got = replay.sample_sequences(40, 4, shift=shift, at=(0, 0, 4, 1))
    assert got.action.shape == (40, 4, 1) and got.obs.shape == (40, 4, 4, 8, 11)
    for sequence, position, own in zip(got.obs, positions, wanted, strict=True):
        for image, step, one in zip(sequence, (0, 0, 4, 1), own, strict=True):
            np.testing.assert_array_equal(shifts_of([image], plain[position, step], 2), [one])


@pytest.mark.parametrize(("shift", "draws"), [("sequence", 1), ("image", 5)])
def test_images_are_shifted_alike_in_a_sequence_or_each_on_its_own(shifted, shift, draws):
    """After the positions come the shifts, one for a sequence or one for an image."""
    replay, plain = shifted
    generator = np.random.Generator(np.random.PCG64(3))
    assert replay.count_sequences(4) == 8
    positions = generator.integers(8, size=40)
    wanted = generator.integers(-2, 3, size=(40, draws, 2)).repeat(5 // draws, axis=1)
    got = replay.sample_sequences(40, 4, shift=shift).obs
    for sequence, position, own in zip(got, positions, wanted, strict=True):
        for image, original, one in zip(sequence, plain[position], own, strict=True):
            np.testing.assert_array_equal(shifts_of([image], original, 2), [one])
    assert (wanted == wanted[:, :1]).all() == (shift == "sequence")


def test_the_seed_decides():
    def draws(seed):
        replay = small(shape=(1, 9, 9), shift=4, seed=seed)
        play([replay], np.random.default_rng(0), 60, (1, 9, 9), stop=0.1)
        return [replay.sample_sequences(16, 3, shift="image") for _ in range(3)]

    for a, b in zip(draws(3), draws(3), strict=True):
        assert_equal(a, b)
    assert not torch.equal(draws(3)[0].obs, draws(4)[0].obs)


@pytest.mark.parametrize("shift", ["sequence", "image"])
def test_the_work_of_a_draw_does_not_grow_with_the_buffer(shift):
    """Lines run and bytes allocated; episodes of 9 steps, of which a third starts a sequence."""
    draws = (partial(filled(n).sample_sequences, 64, 7, shift=shift) for n in (1_000, 300_000))
    (few, little), (many, much) = (work_of(draw) for draw in draws)
    assert many == few
    assert abs(much - little) < 10_000  # an array of a byte per record would be 300,000


# Checkpoints


@pytest.mark.parametrize("shape", [(2, 6, 5), (3,)])
@pytest.mark.parametrize("count", [9, 39, 41, 95, 333])
def test_a_restored_buffer_continues_exactly(count, shape):
    """Also where the lengths asked for, and so the queues kept, were others before."""
    original, rng = small(shape=shape, shift=2), np.random.default_rng(count)
    play([original], rng, 8, shape, stop=0.0)
    original.sample_sequences(4, 2, shift="image")
    original.cut()
    play([original], rng, count - 8, shape, stop=0.1, first=8)
    restored = small(shape=shape, shift=2, seed=99)
    play([restored], rng, 13, shape, stop=0.0)  # what was there before must not matter
    restored.sample_sequences(4, 3, shift="image")
    state = json.loads(json.dumps(original.state()))
    restored.restore([original.export(0, count)], state)
    for length in (2, 3, 2, 5):
        for buffer in (original, restored):
            if not buffer.running:
                buffer.begin(numbered(1, shape))
            for number in range(6):
                buffer.add([1, 1], number, 1, numbered(number, shape), last=number == 5)
        for unit in ("sequence", "image"):
            pair = [b.sample_sequences(20, length, shift=unit) for b in (original, restored)]
            assert_equal(*pair)
        assert_equal(original.sample(5)[:5], restored.sample(5)[:5])
        assert original.state() == restored.state()


def test_sampling_sequences_leaves_no_trace_but_the_generators():
    """States saved before there were sequences are restored as before."""
    replay = small()
    play([replay], np.random.default_rng(0), 30, stop=0.0)
    before = replay.state()
    replay.sample_sequences(4, 2, shift="image")
    after = replay.state()
    assert before.pop("generator") != after.pop("generator")
    assert before == after


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 0}, "length must be at least 1, got 0"),
        (
            {"length": 40},
            r"length must be at most 39: .* the replay keeps 40; got 40; use a smaller length or a "
            r"larger --replay-capacity",
        ),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (
            {"batch_size": 500_000},
            r"batch_size · images in a sequence must be at most 1,000,000, got 1500000",
        ),
        ({"at": []}, "at must name at least one step; use None for all of them"),
        ({"at": [0, 3]}, "a step of at must be at most 2, got 3"),
        ({"shift": "sequnce"}, "shift must be one of sequence, image, got 'sequnce'; did you mean"),
        (
            {"length": 9},
            r"needs 9 consecutive steps of one episode, but the replay has no such seq",
        ),
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_is_drawn(changes, message):
    replay = small()
    play([replay], np.random.default_rng(0), 9, stop=0.0)
    before = replay.state()
    with pytest.raises(ValueError, match=message):
        replay.sample_sequences(**{"batch_size": 2, "length": 2, "shift": "image"} | changes)
    assert replay.state() == before


def test_the_first_step_is_a_sequence():
    replay = small()
    replay.begin(numbered(0))
    assert replay.count_sequences(1) == 0
    replay.add([0, 0], 0, 1, numbered(1), last=False)
    assert replay.count_sequences(1) == 1


def test_no_sequence_joins_two_episodes():
    """Ten episodes of two steps are twenty steps and no three in a row."""
    replay = small()
    for number in range(10):
        replay.begin(numbered(number))
        replay.add([0, 0], 0, 1, numbered(number), last=False)
        replay.add([0, 0], 0, 1, numbered(number), last=True)
    assert [replay.count_sequences(n) for n in (1, 2, 3)] == [20, 10, 0]
    with pytest.raises(ValueError, match=r"no such sequence; use a smaller length"):
        replay.sample_sequences(4, 3, shift="image")
