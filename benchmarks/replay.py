"""The replay buffer beside TorchRL's and Stable-Baselines3's, on the same batch.

B = 256, 84 × 84 × 3, stack 3, n = 3. Each peer is set up as its documentation shows for pixels and
is timed in turn with ours on the same 20,000 steps; ours shifts every image too, the peers do not.
Peers that hand out the same batch (stacks, n-step returns, time limits) must be no faster, and take
three times the memory; the others are shown for what they are. Times are of the processor: with one
thread they are what a clock shows on an idle machine, and other work does not disturb them.

Sequences, in the batches that agents ask for, must come at 0.8 of the bytes a second of `sample` or
faster. Their batches are larger, so freed memory is kept there, as in training.
"""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from _measure import finish, median_ratio, one_thread, print_table, timed

one_thread()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gymnasium import spaces  # noqa: E402
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from torchrl import data as torchrl  # noqa: E402
from torchrl.envs.transforms import CatFrames, Compose, MultiStepTransform  # noqa: E402

from revbis.io.runtime import keep_freed_memory  # noqa: E402
from revbis.replay import Batch, Replay, Sequences  # noqa: E402
from revbis.replay.sequences import ShiftUnit  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

warnings.filterwarnings("ignore")  # the peers' own
logging.disable(logging.WARNING)  # sizes are in the table
BATCH, STACK, N_STEP, GAMMA, ACTIONS, SHAPE = 256, 3, 3, 0.99, 6, (3, 84, 84)
LENGTH, EPISODES, ROUNDS, CALLS = 250, 80, 15, 4
SIZES = (10_000, 40_000, 160_000)
SHARE, GROWTH = 1 / 3, 1.5
SEQUENCES = (("TACO", 256, 3), ("TD-MPC", 256, 5), ("Dreamer", 16, 64))
SEQUENCE_SPEED = 0.8
HEADER = ("stores", "our samples/s", "its samples/s", "speed", "bytes/step", "our memory/its")
POOL = np.random.default_rng(0).integers(0, 256, (997, *SHAPE), dtype=np.uint8)


class Episode(NamedTuple):
    """T steps: T + 1 frames, and their stacks; odd episodes terminate, even ones time out."""

    frames: np.ndarray
    stacks: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool


class Peer(NamedTuple):
    """A buffer: what it stores and does, its sampler, the bytes it stores for a step."""

    name: str
    sample: Callable[[], Any]
    bytes_per_step: float
    same_batch: bool


def episodes(count: int) -> Iterator[Episode]:
    rng = np.random.default_rng(1)
    for number in range(count):
        frames = POOL[(number * 31 + np.arange(LENGTH + 1)) % len(POOL)]
        back = np.maximum(np.arange(LENGTH + 1)[:, None] - np.arange(STACK)[::-1], 0)
        stacks = frames[back].reshape(LENGTH + 1, STACK * SHAPE[0], *SHAPE[1:])
        actions = rng.uniform(-1, 1, (LENGTH, ACTIONS)).astype(np.float32)
        rewards = rng.random(LENGTH).astype(np.float32)
        yield Episode(frames, stacks, actions, rewards, number % 2 == 1)


def ours(count: int, shift: int = 4) -> tuple[Replay, float]:
    capacity = count * (LENGTH + 1)
    replay = Replay(capacity, SHAPE, ACTIONS, stack=STACK, n_step=N_STEP, shift=shift)
    for e in episodes(count):
        replay.begin(e.frames[0])
        for t in range(LENGTH):
            last = t == LENGTH - 1
            discount = float(not (last and e.terminated))
            replay.add(e.actions[t], e.rewards[t], discount, e.frames[t + 1], last=last)
    return replay, Replay.projected_bytes(capacity, SHAPE, ACTIONS) / (count * LENGTH)


def stable_baselines(count: int, kind: type[ReplayBuffer], **kwargs: Any) -> ReplayBuffer:
    images = spaces.Box(0, 255, (STACK * SHAPE[0], *SHAPE[1:]), np.uint8)
    actions = spaces.Box(-1, 1, (ACTIONS,), np.float32)
    buffer = kind(count * LENGTH, images, actions, device="cpu", **kwargs)
    for e in episodes(count):
        for t in range(LENGTH):
            last = t == LENGTH - 1
            info = {"TimeLimit.truncated": last and not e.terminated}
            step = (e.actions[t], e.rewards[t], float(last))
            buffer.add(
                e.stacks[t][None], e.stacks[t + 1][None], *(np.array([v]) for v in step), [info]
            )
    return buffer


def stable_baselines_n_step(count: int) -> tuple[NStepReplayBuffer, float]:
    buffer = stable_baselines(count, NStepReplayBuffer, n_steps=N_STEP, gamma=GAMMA)
    return buffer, array_bytes(buffer) / (count * LENGTH)


def stable_baselines_lean(count: int) -> tuple[ReplayBuffer, float]:
    options = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    buffer = stable_baselines(count, ReplayBuffer, **options)
    return buffer, array_bytes(buffer) / (count * LENGTH)


def array_bytes(buffer: ReplayBuffer) -> int:
    return sum(v.nbytes for v in vars(buffer).values() if isinstance(v, np.ndarray))


def steps(e: Episode, pixels: np.ndarray) -> TensorDict:
    """An episode as TorchRL's collectors deliver it."""
    ends = torch.zeros(LENGTH, 1, dtype=torch.bool)
    ends[-1] = True
    following = {
        "pixels": torch.from_numpy(pixels[1:]),
        "reward": torch.from_numpy(e.rewards)[:, None],
        "done": ends,
        "terminated": ends & e.terminated,
        "truncated": ends & (not e.terminated),
    }
    start = torch.zeros(LENGTH, 1, dtype=torch.bool)
    root = {"pixels": torch.from_numpy(pixels[:-1]), "action": torch.from_numpy(e.actions)}
    return TensorDict(root | {"done": start, "next": following}, batch_size=[LENGTH])


def torchrl_stacked(
    count: int, storage: type = torchrl.LazyTensorStorage
) -> tuple[torchrl.TensorDictReplayBuffer, float]:
    buffer = torchrl.TensorDictReplayBuffer(
        storage=storage(count * LENGTH),
        transform=MultiStepTransform(n_steps=N_STEP, gamma=GAMMA),
        batch_size=BATCH,
    )
    for e in episodes(count):
        buffer.extend(steps(e, e.stacks))
    return buffer, stored_bytes(buffer)


def torchrl_frames(count: int) -> tuple[torchrl.ReplayBuffer, float]:
    """Single frames, stacked when sampled: CatFrames.make_rb_transform_and_sampler.

    Ends of episodes are not cached: adding a step, as a run does all the time, clears the cache.
    """
    stacking = CatFrames(
        N=STACK, dim=-3, in_keys=["pixels"], out_keys=["stack"], reset_key="_reset"
    )
    transform, sampler = stacking.make_rb_transform_and_sampler(
        BATCH, end_key=("next", "done"), strict_length=True
    )
    buffer = torchrl.ReplayBuffer(
        storage=torchrl.LazyTensorStorage(count * LENGTH),
        sampler=sampler,
        transform=Compose(transform, MultiStepTransform(n_steps=N_STEP, gamma=GAMMA)),
        batch_size=BATCH,
    )
    for e in episodes(count):
        buffer.extend(steps(e, e.frames))
    return buffer, stored_bytes(buffer)


def stored_bytes(buffer: torchrl.ReplayBuffer) -> float:
    """Bytes of a stored step."""
    row = buffer._storage[:1]  # noqa: SLF001
    return sum(v.numel() * v.element_size() for v in row.values(True, True))


def check_same_batch() -> None:
    """Without the shift ours is the peers' batch: every transition of two episodes."""
    mine = ours(2, shift=0)[0]
    index = np.arange(2 * LENGTH)
    batch = mine.gather(index)
    theirs = stable_baselines_n_step(2)[0]._get_samples(index)  # noqa: SLF001
    discount = (theirs.discounts * (1 - theirs.dones))[:, 0]
    pairs = [(batch.obs, theirs.observations), (batch.next_obs, theirs.next_observations)]
    pairs += [(batch.reward, theirs.rewards[:, 0]), (batch.discount, discount)]
    rows = torchrl_stacked(2)[0]._storage[:]  # noqa: SLF001
    kept = len(rows)  # its last n steps wait for the next episode
    ahead = rows["next"]
    pairs += [(batch.obs[:kept], rows["pixels"]), (batch.next_obs[:kept], ahead["pixels"])]
    pairs += [(batch.reward[:kept], ahead["reward"][:, 0])]
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def peers() -> Iterator[Peer]:
    """One after the other, so that only one is in memory beside ours."""
    on_disk = torchrl.LazyMemmapStorage
    for name, build, same_batch in (
        ("SB3 n-step: stacks twice", stable_baselines_n_step, True),
        ("SB3 optimized: stacks once, 1 step", stable_baselines_lean, False),
        ("TorchRL RAM: stacks twice", torchrl_stacked, True),
        ("TorchRL memmap: stacks twice", partial(torchrl_stacked, storage=on_disk), True),
        ("TorchRL CatFrames: frames twice", torchrl_frames, False),
    ):
        buffer, size = build(EPISODES)
        yield Peer(name, partial(buffer.sample, BATCH), size, same_batch)
        del buffer


def in_turn(samples: Sequence[Callable[[], Any]], calls: int, rounds: int) -> list[list[float]]:
    """Processor seconds of a call of each, round by round, one after the other in each."""
    times: list[list[float]] = [[] for _ in samples]
    for _ in range(rounds):
        for sample, spent in zip(samples, times, strict=True):
            start = time.process_time()
            for _ in range(calls):
                sample()
            spent.append((time.process_time() - start) / calls)
    return times


def against(replay: Replay, peer: Peer) -> tuple[float, float, float]:
    """Samples a second of ours and of the peer, in turn, and the ratio of their times."""
    first, _ = timed(peer.sample)  # loads what a first call loads
    calls, rounds = (CALLS, ROUNDS) if first < 1 else (1, 3)
    own, its = in_turn([partial(replay.sample, BATCH), peer.sample], calls, rounds)
    speeds = (BATCH / statistics.median(times) for times in (own, its))
    return *speeds, median_ratio(its, own)


def compare() -> tuple[dict[str, Any], list[str]]:
    replay, size = ours(EPISODES)
    replay.sample(BATCH)  # compiles
    rows: list[tuple[object, ...]] = [("revbis: frames once, shifts too", "", "", "", size, "")]
    figures, missed = {}, []
    for peer in peers():
        own, its, ratio = against(replay, peer)
        share = size / peer.bytes_per_step
        rows.append((peer.name, own, its, ratio, peer.bytes_per_step, share))
        key = peer.name.split(":")[0].replace(" ", "_").lower()
        figures |= {f"{key}_speedup": ratio, f"{key}_memory_share": share}
        if ratio < 1:
            missed.append(f"{peer.name}: {ratio:.2f}× its samples a second, wanted 1×")
        if peer.same_batch and share > SHARE:
            missed.append(f"{peer.name}: {share:.3f} of its memory, wanted a third")
        del peer  # before the next one is made
    print_table(HEADER, rows)
    print("1 step: no n-step returns, time limits count as terminations, so not the same batch.")
    print("CatFrames: never an episode's first two steps, a wrong next stack at its last two.")
    return figures, missed


def filled(capacity: int) -> Replay:
    """A full buffer of any size, quickly, through restore."""
    replay = Replay(capacity, SHAPE, ACTIONS, stack=STACK, n_step=N_STEP)
    count = len(POOL)

    def pieces() -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, capacity, count):
            yield {
                "start": np.array(start),
                "frame": POOL,
                "action": np.zeros((count, ACTIONS), np.float32),
                "reward": np.zeros(count, np.float32),
                "discount": np.ones(count, np.float32),
                "age": ((start + np.arange(count)) % (LENGTH + 1)).astype(np.int32),
            }

    replay.restore(pieces(), replay.state() | {"written": capacity})
    return replay


def growth() -> tuple[dict[str, Any], list[str]]:
    """The time of a draw as the buffer grows, all sizes in turn."""
    buffers = [filled(size) for size in SIZES]
    figures, missed = {}, []
    for name, key, draws in (
        ("sample", "growth_16x", [partial(b.sample, BATCH) for b in buffers]),
        ("sequences", "sequences_growth_16x", [sequences_of(b, BATCH // 4, 3) for b in buffers]),
    ):
        for draw in draws:
            draw()  # the first one of a length looks through all records
        times = in_turn(draws, CALLS, ROUNDS)
        rows = [
            (f"{size:,} frames", 1e3 * statistics.median(t), median_ratio(t, times[0]))
            for size, t in zip(SIZES, times, strict=True)
        ]
        print_table(("buffer", f"ms/{name}", "ratio"), rows)
        figures[key] = rows[-1][2]
        if figures[key] > GROWTH:
            missed.append(f"{name}: {figures[key]:.2f}× the time at {SIZES[-1]:,} frames")
    return figures, missed


def sequences_of(
    replay: Replay, batch: int, length: int, shift: ShiftUnit = "image"
) -> Callable[[], Sequences]:
    return partial(replay.sample_sequences, batch, length, shift=shift)


def sequences() -> tuple[dict[str, Any], list[str]]:
    """Bytes a second of sequences beside those of transitions, all in turn."""
    keep_freed_memory()
    replay, _ = ours(EPISODES)
    names, draws = ["sample"], [partial(replay.sample, BATCH)]
    for agent, batch, length in SEQUENCES:
        for shift in get_args(ShiftUnit):
            names.append(f"{agent}: {batch} × {length}, a shift for each {shift}")
            draws.append(sequences_of(replay, batch, length, shift))
    sizes = [tensor_bytes(draw()) for draw in draws]
    times = in_turn(draws, CALLS, ROUNDS)
    costs = [[t / size for t in spent] for spent, size in zip(times, sizes, strict=True)]
    ratios = [median_ratio(costs[0], cost) for cost in costs]
    speeds = [1e-9 / statistics.median(cost) for cost in costs]
    rows = zip(names, [size / 1e6 for size in sizes], speeds, ratios, strict=True)
    print_table(("batch", "MB", "GB/s", "of sample's"), list(rows))
    missed = [
        f"{name}: {ratio:.2f} of sample's bytes a second, wanted {SEQUENCE_SPEED:g}"
        for name, ratio in zip(names, ratios, strict=True)
        if ratio < SEQUENCE_SPEED
    ]
    return {"sequences_speed_least": min(ratios[1:])}, missed


def tensor_bytes(batch: Batch | Sequences) -> int:
    return sum(part.nbytes for part in batch if isinstance(part, torch.Tensor))


def main() -> None:
    check_same_batch()
    figures, missed = compare()
    grown, more = growth()
    sequence_figures, slow = sequences()
    million = Replay.projected_bytes(1_000_000, SHAPE, ACTIONS) / 1e9
    print(f"1,000,000 frames: {million:.1f} GB")
    if million > 22:
        missed.append(f"{million:.1f} GB for a million frames, wanted 22")
    finish(
        "replay",
        figures | grown | sequence_figures | {"million_frames_gb": million},
        missed + more + slow,
    )


if __name__ == "__main__":
    main()
