"""Transitions and windows drawn by priority: what is in them, how often, and after a restore."""

import json

import numpy as np
import pytest
import torch
from tests.replay import Naive, assert_equal_batches, play

from revbis.replay import TransitionReplay


def small(capacity=40, **options):
    settings = {"stack": 2, "n_step": 3, "shift": 0, "discount": 0.9}
    return TransitionReplay(capacity, (2,), 2, **settings | options)


def filled(count=30, stop=0.2, **options):
    replay = small(**options)
    play([replay], np.random.default_rng(1), count, (2,), stop)
    return replay


def naive_windows(naive, length):
    """The window of each transition that can be sampled, oldest first."""
    windows, offset = [], 0
    oldest = sum(len(e.frames) for e in naive.episodes) - naive.capacity
    for episode in naive.episodes:
        for t in range(len(episode.steps)):
            enough = not episode.running or t + naive.n_step <= len(episode.steps)
            if enough and offset + max(0, t - naive.stack + 1) >= oldest:
                steps = episode.steps[t : t + length]
                places = [min(t + k, len(episode.steps)) for k in range(length + 1)]
                obs = np.stack([naive.observation(episode, place) for place in places])
                windows.append((obs, steps, [k < len(steps) for k in range(length)]))
        offset += len(episode.frames)
    return windows


@pytest.mark.parametrize("length", [1, 3, 5])
@pytest.mark.parametrize("count", [12, 38, 95])
def test_windows_are_the_naive_ones(length, count):
    replay, naive = small(), Naive(40, 2, 3, 0.9)
    play([replay, naive], np.random.default_rng(count), count, (2,), 0.2)
    wanted = naive_windows(naive, length)
    assert len(wanted) == len(replay)
    replay.sample_transitions(1)
    for position, (obs, steps, valid) in enumerate(wanted):
        priority = np.full(len(replay), 1e-12)
        priority[position] = 1.0
        replay.set_priorities(replay._starts.left + np.arange(len(replay)), priority)
        window = replay.sample_windows(2, length)
        for row in range(2):
            np.testing.assert_array_equal(window.obs[row], obs)
            assert window.valid[row].tolist() == valid
            for k, (action, reward, discount) in enumerate(steps):
                np.testing.assert_array_equal(window.action[row, k], action)
                assert window.reward[row, k] == reward
                assert window.discount[row, k] == discount


def test_a_termination_is_the_last_valid_step():
    replay = filled(200, 0.3, capacity=300)
    window = replay.sample_windows(500, 4)
    ended = window.discount == 0
    assert ended.any()
    later = torch.roll(window.valid, -1, dims=1)
    later[:, -1] = 0
    assert (later[ended] == 0).all()
    assert (window.valid[:, 0] == 1).all()


def test_transitions_are_drawn_as_often_as_their_priority_says():
    replay = filled()
    count = len(replay)
    replay.sample_transitions(1)
    priority = np.arange(1, count + 1, dtype=np.float64)
    replay.set_priorities(np.arange(count), priority)
    drawn = replay.sample_transitions(60_000)
    wanted = priority / priority.sum()
    seen = np.bincount(drawn.entry, minlength=count) / 60_000
    assert np.abs(seen - wanted).max() < 5 * np.sqrt(wanted.max() / 60_000)
    assert_equal_batches(replay.gather(drawn.entry[:9]), type(drawn.batch)(*(
        None if part is None else part[:9] for part in drawn.batch
    )))  # fmt: skip


def test_what_is_new_gets_the_largest_priority_there_is():
    replay = filled(stop=0.0)
    replay.sample_transitions(5)
    count = len(replay)
    replay.set_priorities(np.arange(count), np.full(count, 0.5))
    replay.set_priorities(np.array([3]), [4.0])
    replay.add(np.zeros(2), 0.0, 1.0, np.zeros(2, np.float32), last=False)
    drawn = replay.sample_transitions(20_000).entry
    shares = [(drawn == entry).mean() for entry in (3, count, 0)]
    total = 4.0 + 4.0 + 0.5 * (count - 1)
    assert shares == pytest.approx([4 / total, 4 / total, 0.5 / total], abs=0.02)


@pytest.mark.parametrize("count", [9, 39, 95, 333])
def test_a_restored_buffer_draws_as_the_first(count):
    rng = np.random.default_rng(count)
    original = small()
    while original.written < count:
        original.cut()
        play([original], rng, min(9, count - original.written), (2,), 0.05, original.written)
        if len(original):
            drawn = original.sample_transitions(8)
            original.set_priorities(drawn.entry, rng.random(8) + 0.01)
    state = json.loads(json.dumps(original.state()))
    restored = small(seed=9)
    play([restored], rng, 13, (2,))
    restored.sample_windows(2, 3)  # what was there before must not matter
    restored.restore([original.export(0, original.written)], state)
    assert restored.state() == original.state()
    for lap in range(6):
        for buffer in (original, restored):
            buffer.cut()
            play([buffer], np.random.default_rng(lap), 12, (2,), 0.1)
        drawn = [buffer.sample_transitions(16) for buffer in (original, restored)]
        assert_equal_batches(drawn[0].batch, drawn[1].batch)
        windows = [buffer.sample_windows(7, 4) for buffer in (original, restored)]
        assert all(map(torch.equal, *windows))
        priority = rng.random(16) + 0.01
        original.set_priorities(drawn[0].entry, priority)
        restored.set_priorities(drawn[1].entry, priority)
    assert original.state()["priorities"] == restored.state()["priorities"]


def test_the_size_of_rewards_and_terminations_are_of_what_is_stored():
    """Rewards 1, −3 and 2 of two episodes; their first frames have none."""
    replay = small(capacity=6)
    assert replay.mean_reward_size() == 0 and not replay.has_terminations()
    frame = np.zeros(2, np.float32)
    replay.begin(frame)
    replay.add(np.zeros(2), 1.0, 1.0, frame, last=False)
    assert replay.mean_reward_size() == 1 and not replay.has_terminations()
    replay.add(np.zeros(2), -3.0, 0.0, frame, last=True)
    replay.begin(frame)
    replay.add(np.zeros(2), 2.0, 1.0, frame, last=False)
    assert replay.mean_reward_size() == 2 and replay.has_terminations()
    for _ in range(6):
        replay.add(np.zeros(2), 5.0, 1.0, frame, last=False)
    assert replay.mean_reward_size() == 5 and not replay.has_terminations()


def test_wrong_arguments_are_refused():
    replay = small()
    for draw in (lambda: replay.sample_transitions(2), lambda: replay.sample_windows(2, 3)):
        with pytest.raises(ValueError, match="sample needs at least one transition"):
            draw()
    replay = filled()
    with pytest.raises(ValueError, match="length must be at least 1"):
        replay.sample_windows(2, 0)
    with pytest.raises(ValueError, match=r"batch_size · \(length \+ 1\) must be at most"):
        replay.sample_windows(2, 10**12)
    entry = replay.sample_transitions(4).entry
    with pytest.raises(ValueError, match=r"priority must have shape \(4,\), got \(3,\)"):
        replay.set_priorities(entry, np.ones(3))
    for wrong in (0.0, -1.0, np.nan, 1e300):
        with pytest.raises(ValueError, match="priority must be finite and above 0"):
            replay.set_priorities(entry, np.full(4, wrong))
    for wrong in (entry + 1000, entry.astype(float), entry[None]):
        with pytest.raises(ValueError, match="entry must be what sample_transitions returned"):
            replay.set_priorities(wrong, np.ones(4).reshape(np.shape(wrong)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("priorities"), "no priorities: it is of another agent"),
        (lambda s: s.update(priorities=None), "the replay's priorities are damaged"),
        (lambda s: s.update(priorities="AAAA"), "the replay's priorities are damaged"),
        (lambda s: s.update(priorities="é"), "the replay's priorities are damaged"),
    ],
)
def test_damaged_states_are_refused(change, message):
    replay = filled()
    replay.sample_transitions(3)
    state = replay.state()
    change(state)
    with pytest.raises(ValueError, match=message):
        small().restore([replay.export(0, replay.written)], state)
