"""Sequences drawn by priority: how often, what is new, what has left, and after a restore."""

import json

import numpy as np
import pytest
import torch
from tests.replay import play

from revbis.replay import PrioritisedReplay


def small(capacity=40, **options):
    settings = {"stack": 2, "n_step": 1, "shift": 0, "discount": 0.9}
    return PrioritisedReplay(capacity, (2,), 2, **settings | options)


def filled(count=30, stop=0.1, **options):
    replay = small(**options)
    play([replay], np.random.default_rng(1), count, (2,), stop)
    return replay


def first_frames(drawn):
    """Which sequence each is: frames are numbered."""
    return drawn.sequences.obs[:, 0, -1].numpy().astype(int)


def assert_equal(a, b):
    assert all(map(torch.equal, a.sequences, b.sequences))
    np.testing.assert_array_equal(a.entry, b.entry)
    assert torch.equal(a.probability, b.probability)


def test_each_is_drawn_as_often_as_its_priority_says():
    replay = filled()
    count = replay.count_sequences(3)
    drawn = replay.sample_prioritised(50, 3, shift="image")
    assert torch.equal(drawn.probability, torch.full((50,), 1 / count, dtype=torch.float64))
    priority = np.arange(1, count + 1, dtype=np.float64)
    replay.set_priorities(np.arange(count), priority)
    drawn = replay.sample_prioritised(60_000, 3, shift="image")
    wanted = priority / priority.sum()
    np.testing.assert_allclose(drawn.probability, wanted[drawn.entry], rtol=1e-6)
    seen = np.bincount(drawn.entry, minlength=count) / 60_000
    assert np.abs(seen - wanted).max() < 5 * np.sqrt(wanted.max() / 60_000)


def test_an_entry_is_the_sequence_at_its_position():
    replay = filled()
    drawn = replay.sample_prioritised(40, 3, shift="image")
    same = replay.gather_sequences(drawn.entry, 3, shift="image")
    assert all(map(torch.equal, drawn.sequences, same))


def test_a_sequence_with_almost_all_of_the_priority_is_almost_always_drawn():
    replay = filled()
    replay.sample_prioritised(1, 3, shift="image")
    count = replay.count_sequences(3)
    for chosen in (0, 4, count - 1):
        priority = np.full(count, 1e-12)
        priority[chosen] = 1.0
        replay.set_priorities(np.arange(count), priority)
        drawn = replay.sample_prioritised(500, 3, shift="image")
        assert (drawn.entry == chosen).all()


def test_what_is_new_gets_the_largest_priority_there_is():
    replay = filled(stop=0.0)
    entry = replay.sample_prioritised(5, 2, shift="image").entry
    count = replay.count_sequences(2)
    replay.set_priorities(np.arange(count), np.full(count, 0.5))
    replay.set_priorities(entry[:1], [3.0])
    replay.add(np.zeros(2), 0.0, 1.0, np.zeros(2, np.float32), last=False)
    drawn = replay.sample_prioritised(2000, 2, shift="image")
    share = 3.0 / (3.0 + 3.0 + 0.5 * (count - 1))
    assert drawn.probability[drawn.entry == count].unique().tolist() == pytest.approx([share])
    assert (drawn.entry == count).any()


def test_around_the_ring_many_times():
    """Each priority is its sequence's own number: it must never be another's."""
    replay, rng = small(), np.random.default_rng(2)
    numbers = {}
    for lap in range(40):
        play([replay], rng, 11, (2,), 0.15, first=11 * lap)
        if replay.count_sequences(3):
            drawn = replay.sample_prioritised(64, 3, shift="image")
            total = None
            for frame, chance in zip(first_frames(drawn), drawn.probability, strict=True):
                if frame in numbers:
                    total = total or numbers[frame] / chance
                    assert chance * total == pytest.approx(numbers[frame], rel=1e-5)
            priority = 1.0 + first_frames(drawn)
            replay.set_priorities(drawn.entry, priority)
            numbers |= dict(zip(first_frames(drawn), priority, strict=True))
        replay.cut()
    assert replay.oldest > 5 * 40


def test_priorities_of_what_has_left_are_passed_over():
    replay = filled(40, stop=0.0)
    drawn = replay.sample_prioritised(200, 3, shift="image")
    for number in range(100, 130):
        replay.add(np.zeros(2), 0.0, 1.0, np.full(2, number, np.float32), last=False)
    replay.set_priorities(drawn.entry, np.full(200, 1000.0))
    gone = drawn.entry < replay.sample_prioritised(1, 3, shift="image").entry.min()
    later = replay.sample_prioritised(2000, 3, shift="image")
    assert gone.any() and later.entry.min() > drawn.entry.min()
    assert torch.isfinite(later.probability).all()


@pytest.mark.parametrize("count", [9, 39, 95, 333])
def test_a_restored_buffer_draws_as_the_first(count):
    rng = np.random.default_rng(count)
    original = small()
    while original.written < count:
        original.cut()
        play([original], rng, min(9, count - original.written), (2,), 0.05, original.written)
        if original.count_sequences(2):
            drawn = original.sample_prioritised(8, 2, shift="image")
            original.set_priorities(drawn.entry, rng.random(8) + 0.01)
    state = json.loads(json.dumps(original.state()))
    restored = small(seed=9)
    play([restored], rng, 13, (2,))
    restored.sample_prioritised(2, 3, shift="image")  # what was there before must not matter
    restored.restore([original.export(0, original.written)], state)
    assert restored.state() == original.state()
    for lap in range(6):
        for buffer in (original, restored):
            buffer.cut()
            play([buffer], np.random.default_rng(lap), 12, (2,), 0.1)
        drawn = [buffer.sample_prioritised(16, 2, shift="image") for buffer in (original, restored)]
        assert first_frames(drawn[0]).tolist() == first_frames(drawn[1]).tolist()
        assert torch.equal(drawn[0].probability, drawn[1].probability)
        priority = rng.random(16) + 0.01
        original.set_priorities(drawn[0].entry, priority)
        restored.set_priorities(drawn[1].entry, priority)
    values = [buffer.state()["priorities"] for buffer in (original, restored)]
    assert values[0] == values[1]


def test_a_seed_determines_all_draws():
    first, again, other = filled(seed=1), filled(seed=1), filled(seed=2)
    drawn = [buffer.sample_prioritised(9, 3, shift="image") for buffer in (first, again, other)]
    assert_equal(drawn[0], drawn[1])
    assert drawn[0].entry.tolist() != drawn[2].entry.tolist()


@pytest.mark.parametrize(
    "saved",
    [
        3,
        {"length": 3},
        {"length": 3, "values": "?"},
        {"length": 0, "values": ""},
        {"length": 3, "values": "AAAAAA=="},  # 0.0
        {"length": 3, "values": "AACAPw==" * 400},
    ],
)
def test_damaged_states_are_refused(saved):
    replay = filled()
    piece, state = replay.export(0, replay.written), replay.state()
    with pytest.raises(ValueError, match="priorities are damaged"):
        small().restore([piece], state | {"priorities": saved})
    del state["priorities"]
    with pytest.raises(ValueError, match="has no priorities: it is of another agent"):
        small().restore([piece], state)


def test_what_is_out_of_range_is_refused():
    with pytest.raises(ValueError, match="needs 3 consecutive steps of one episode"):
        small().sample_prioritised(4, 3, shift="image")
    with pytest.raises(ValueError, match="entry must be what sample_prioritised returned"):
        filled().set_priorities(np.arange(2), [1.0, 1.0])
    replay = filled()
    entry = replay.sample_prioritised(4, 3, shift="image").entry
    with pytest.raises(ValueError, match="priorities of sequences of 3 steps, got 2"):
        replay.sample_prioritised(4, 2, shift="image")
    for wrong in (0.0, np.nan, 1e39):
        with pytest.raises(ValueError, match="priority must be finite and above 0"):
            replay.set_priorities(entry, [1.0, 1.0, 1.0, wrong])
    with pytest.raises(ValueError, match=r"priority must have shape \(4,\), got \(3,\)"):
        replay.set_priorities(entry, np.ones(3))
    for wrong in (entry + 10**6, entry.astype(float)):
        with pytest.raises(ValueError, match="entry must be what sample_prioritised returned"):
            replay.set_priorities(wrong, np.ones(4))
