"""A slow replay buffer to compare with, and episodes for both."""

import gc
import itertools
import sys
import tracemalloc

import numpy as np
import torch
from torch.nn import functional

from revbis.replay import Replay

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
        possible, offset = [], 0
        oldest = sum(len(e.frames) for e in self.episodes) - self.capacity
        for episode in self.episodes:
            for t in range(len(episode.steps)):
                enough = not episode.running or t + self.n_step <= len(episode.steps)
                complete = offset + max(0, t - self.stack + 1) >= oldest
                if enough and complete:
                    obs, action = self.observation(episode, t), episode.steps[t][0]
                    several, one = (self.follow(episode, t, n) for n in (self.n_step, 1))
                    possible.append((obs, action, several, one))
            offset += len(episode.frames)
        return possible

    def sequences(self, length):
        """All sequences that can be sampled, oldest first, as (obs, action, reward, discount)."""
        possible, offset = [], 0
        oldest = sum(len(e.frames) for e in self.episodes) - self.capacity
        for episode in self.episodes:
            for t in range(len(episode.steps) - length + 1):
                if offset + max(0, t - self.stack + 1) >= oldest:
                    obs = [self.observation(episode, k) for k in range(t, t + length + 1)]
                    action, reward, discount = zip(*episode.steps[t : t + length], strict=True)
                    possible.append((np.stack(obs), np.stack(action), reward, discount))
            offset += len(episode.frames)
        return possible


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


def assert_same_sequences(replay, naive, length):
    """Every sequence of the length, in order and once, and nothing else."""
    wanted = naive.sequences(length)
    assert replay.count_sequences(length) == len(wanted)
    if not wanted:
        return
    got = replay.gather_sequences(np.arange(len(wanted)), length, shift="image")
    for name, part in zip(got._fields, zip(*wanted, strict=True), strict=True):
        np.testing.assert_array_equal(getattr(got, name), np.stack(part), err_msg=name)


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


def work_of(draw):
    """Lines of Python run by a call, after a first one, and the most bytes it had allocated."""
    draw()
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
        draw()
        sys.settrace(before)
        tracemalloc.start()
        draw()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    finally:
        gc.enable()
    return lines, peak


def crop(image, dy, dx, pad):
    """Replicate-pads [..., H, W] and cuts the window that a shift of (dy, dx) sees."""
    height, width = image.shape[-2:]
    padded = functional.pad(image[None].float(), (pad,) * 4, mode="replicate")[0]
    return padded[..., pad + dy : pad + dy + height, pad + dx : pad + dx + width].to(torch.uint8)


def shifts_of(batch_images, original, pad):
    """The shift of each image, found by trying all of them."""
    table = {}
    for dy, dx in itertools.product(range(-pad, pad + 1), repeat=2):
        table[crop(original, dy, dx, pad).numpy().tobytes()] = (dy, dx)
    assert len(table) == (2 * pad + 1) ** 2
    return np.array([table[image.numpy().tobytes()] for image in batch_images])
