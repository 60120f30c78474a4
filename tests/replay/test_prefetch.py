"""Batches gathered ahead: always those of the plain buffer, and seldom gathered twice."""

import itertools
import threading

import numpy as np
import pytest
import torch
from tests.replay import assert_equal_batches, numbered, small

from revbis.replay import PrefetchingReplay, prefetch
from revbis.replay.batch import observe

PIXELS, VECTORS = (3, 6, 6), (5,)
OPTIONS = {"shift": 2, "discount": 0.9, "one_step": True, "seed": 3}


def ahead(capacity=40, shape=PIXELS, *, steps=2, **kwargs):
    return PrefetchingReplay(capacity, shape, 2, steps=steps, **OPTIONS | kwargs)


def plain(capacity=40, shape=PIXELS, **kwargs):
    return small(capacity, shape, **OPTIONS | kwargs)


def played(buffers, lengths, steps):
    """Plays the same episodes of these lengths into each buffer; stops after every few steps."""
    rng, numbers, count = np.random.default_rng(0), itertools.count(), 0
    shape = buffers[0]._layout.observation_shape
    for length in lengths:
        for t in range(length + 1):
            frame = numbered(next(numbers), shape)
            action, reward = rng.normal(size=2).astype(np.float32), rng.normal()
            for buffer in buffers:
                if t == 0:
                    buffer.begin(frame)
                else:
                    buffer.add(action, reward, 1.0, frame, last=t == length)
            if t:
                count += 1
                if count % steps == 0 and len(buffers[0]):
                    yield count


def threads():
    return [each for each in threading.enumerate() if each.name.startswith("revbis-prefetch")]


def in_thread(action):
    """An `observe` that calls the action first, if it runs in the background."""

    def acting(*args, **kwargs):
        if threading.current_thread() is not threading.main_thread():
            action()
        return observe(*args, **kwargs)

    return acting


@pytest.fixture
def pair():
    """A plain buffer and one that gathers ahead, with a running episode in both."""
    buffers = plain(), ahead()
    for _ in itertools.islice(played(buffers, [30], 2), 8):
        pass
    yield buffers
    buffers[1].close()


@pytest.mark.parametrize("shape", [PIXELS, VECTORS])
@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_batches_are_the_plain_buffers(tmp_path, shape, storage, steps):
    """Rings of 13 to 40 records go round many times; episodes are long and short."""
    lengths = [12, 1, 2, 30, 3, 3, 8, 1, 1, 40]
    for capacity in (13, 24, 40):
        slow = plain(capacity, shape)
        fast = ahead(capacity, shape, steps=steps, storage=storage, directory=tmp_path)
        for _ in played((slow, fast), lengths, steps):
            assert_equal_batches(fast.sample(16), slow.sample(16))
            assert fast.state() == slow.state()
        fast.close()
        assert 0 < fast.images_ahead < fast.images


@pytest.mark.parametrize("late", [False, True])
def test_records_may_be_overwritten_before_or_after_they_are_gathered(monkeypatch, late):
    permits = threading.Semaphore(0)
    monkeypatch.setattr(prefetch, "observe", in_thread(permits.acquire))
    slow, fast = plain(20), ahead(20)
    for _ in played((slow, fast), [25, 4, 25], 2):
        if late:  # the steps since the guess are written
            permits.release(max(len(fast._guesses), 1))
        assert_equal_batches(fast.sample(32), slow.sample(32))
        if not late:
            permits.release(len(fast._guesses))
            for guess in fast._guesses:
                guess.images.result()
    permits.release(3)
    fast.close()
    assert 0 < fast.images_ahead < fast.images


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_most_images_are_gathered_ahead(steps):
    """Episodes of 200 steps, while the buffer fills and when it is full."""
    fast, shares = ahead(300, steps=steps), []
    for count in played([fast], [200] * 5, steps):
        if count > 50:  # one transition of 50 or more is new
            before = fast.images, fast.images_ahead
            fast.sample(32)
            shares.append((fast.images_ahead - before[1]) / (fast.images - before[0]))
    fast.close()
    filling, full = shares[: 250 // steps], shares[250 // steps :]
    assert np.mean(filling) > 0.9 and np.mean(full) > 0.9


def test_what_was_gathered_ahead_is_what_is_used(pair, monkeypatch):
    slow, fast = pair

    def black(*args, **kwargs):
        images = observe(*args, **kwargs)
        return images if threading.current_thread() is threading.main_thread() else 0 * images

    monkeypatch.setattr(prefetch, "observe", black)
    fast._steps = 0  # the next draw follows at once
    assert_equal_batches(fast.sample(8), slow.sample(8))
    batch, right = fast.sample(8), slow.sample(8)
    assert fast.images_ahead == 3 * 8
    assert not batch.obs.any() and not batch.next_obs.any() and not batch.one_step.next_obs.any()
    assert right.obs.any()
    assert torch.equal(batch.reward, right.reward) and torch.equal(batch.action, right.action)


def test_other_draws_in_between_change_nothing(pair):
    slow, fast = pair
    for size in (8, 4, 8):
        assert_equal_batches(fast.sample(size), slow.sample(size))
    for buffer in pair:
        buffer.sample_sequences(4, 2, shift="image")
        buffer.gather(np.arange(3))
        buffer.cut()
    assert_equal_batches(fast.sample(8), slow.sample(8))
    assert fast.state() == slow.state()


def test_restored_records_are_not_taken_for_those_before(pair):
    slow, fast = pair
    fast._steps = 0  # the guess is right, but for the records
    fast.sample(8)
    piece, state = fast.export(0, fast.written), fast.state()
    piece["frame"] = 255 - piece["frame"]
    for buffer in pair:
        buffer.restore([piece], state)
    assert_equal_batches(fast.sample(8), slow.sample(8))


def test_an_error_in_the_thread_is_raised_by_the_next_sample(pair, monkeypatch):
    def fail():
        raise OSError("the disk is gone")

    _, fast = pair
    monkeypatch.setattr(prefetch, "observe", in_thread(fail))
    fast.sample(8)
    with pytest.raises(OSError, match="the disk is gone"):
        fast.sample(8)


def test_one_thread_from_the_first_sample_to_close(pair):
    slow, fast = pair
    fast.sample_sequences(4, 2, shift="image")
    slow.sample_sequences(4, 2, shift="image")
    assert not threads()
    for _ in range(3):
        assert_equal_batches(fast.sample(8), slow.sample(8))
    assert len(threads()) == 1
    fast.close()
    fast.close()
    assert not threads()
    assert_equal_batches(fast.sample(8), slow.sample(8))


def test_batches_for_a_gpu_are_in_pinned_memory(pair, monkeypatch):
    """Without a GPU there is none; this counts what is asked for."""
    slow, _ = pair
    pinned, empty = {}, torch.empty  # by address, and kept: addresses are used again

    def recorded(*args, pin_memory=False, **kwargs):
        tensor = empty(*args, **kwargs)
        if pin_memory:
            pinned[tensor.data_ptr()] = tensor
        return tensor

    def pin(tensor):
        pinned[tensor.data_ptr()] = tensor
        copied.append(tensor.numel())
        return tensor

    fast = ahead(pinned=True)
    fast.restore([slow.export(0, slow.written)], slow.state())
    monkeypatch.setattr(torch, "empty", recorded)
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda x: x if x.data_ptr() in pinned else pin(x)
    )
    for _ in range(2):  # gathered at once, then ahead
        copied = []
        batch = fast.sample(8)
        assert_equal_batches(batch, slow.sample(8))
        tensors = [*batch[:5], *batch.one_step]
        assert all(tensor.data_ptr() in pinned for tensor in tensors)
        assert sorted(copied) == [8, 8, 8, 8, 16]  # rewards, discounts, actions; no images
    fast.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"pinned": 1}, "pinned must be True or False, got 1"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ahead(**options)
