"""The time of an update, compared with the time of its encoder passes alone.

Compared measurements are taken in turns, so that other load on the machine affects them equally,
and reported as medians. Call `revbis.io.runtime.prepare` before torch is imported.
"""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from revbis.agents import AgentSettings, make_agent, resolve
from revbis.io.runtime import keep_freed_memory, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from revbis.replay import Replay

_STACK, _COLOURS, _EPISODE = 3, 3, 500
_STEP = 0  # of the noise schedule, which does not change the work


class Times(defaultdict[str, list[float]]):
    """Seconds by name."""

    def __init__(self) -> None:
        super().__init__(list)


@dataclass(frozen=True)
class UpdateSpeed:
    """Medians in seconds.

    Attributes:
        seconds_per_update: A whole update with sampling and augmentation.
        encoder_bound_seconds: The encoder passes alone, from bytes to features: forward and
            backward on one batch, forward on the next observations; None if the agent does not
            offer them alone.
        ratio: The first divided by the second.
        parts: Seconds by part of the update: for DrQ-v2 sample, targets, critic, actor, objective
            (in joint mode its forward pass) and move_target.
        threads: PyTorch's threads.
        batch: Transitions in a batch.
        pixels: Height and width of an image.
        objective_seconds: Forward and backward pass of the objective, given embeddings; None for
            agents that cannot have one.
        objective_share: Its share of a whole update; 0 without objective.
        seconds_per_action: The choice of an action, for agents that plan; else None.
    """

    seconds_per_update: float
    encoder_bound_seconds: float | None
    ratio: float | None
    parts: dict[str, float]
    threads: int
    batch: int
    pixels: int
    objective_seconds: float | None = None
    objective_share: float | None = None
    seconds_per_action: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The values by name, for JSON, without what this agent does not have."""
        own = ("objective_seconds", "objective_share", "seconds_per_action")
        return {k: v for k, v in asdict(self).items() if v is not None or k not in own}


def measure_update(
    method: str,
    settings: AgentSettings,
    *,
    pixels: int = 84,
    stack: int = _STACK,
    action_size: int = 6,
    repeats: int = 10,
    threads: int | None = None,
) -> UpdateSpeed:
    """Measures updates on random images and the encoder passes alone, in turns.

    Args:
        method: The method.
        settings: The agent's settings, with the batch size.
        pixels: Height and width of an image.
        stack: Colour images in an observation.
        action_size: Dimension of an action.
        repeats: Measurements of each, after two that are discarded.
        threads: PyTorch's threads; None for the current number.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    keep_freed_memory()
    parts, whole = _Parts(), Times()
    with _threads(threads):
        agent = make_agent(method, settings, _shape(pixels, stack), action_size, seed=0)
        agent.stopwatch = parts
        replay = random_replay(pixels, action_size, settings, stack=stack)
        work = agent.work(replay)
        for turn in range(repeats + 2):
            if turn == 2:
                whole.clear()
                parts.times.clear()
            with _timed(whole, "update"):
                agent.update(replay, _STEP)
            for name, run in work.items():
                with _timed(whole, name):
                    run()
        used = torch.get_num_threads()
    update = median(whole["update"])
    encoder, action = (median(whole[n]) if n in work else None for n in ("encoder", "action"))
    objective = median(whole["objective"] or [0.0]) if resolve(method).agent.objectives else None
    return UpdateSpeed(
        seconds_per_update=update,
        encoder_bound_seconds=encoder,
        ratio=None if encoder is None else update / encoder,
        parts={name: median(times) for name, times in parts.times.items()},
        threads=used,
        batch=settings.batch_size,
        pixels=pixels,
        objective_seconds=objective,
        objective_share=None if objective is None else objective / update,
        seconds_per_action=action,
    )


def measure_neighbours(
    method: str, settings: AgentSettings, *, pixels: int = 84, repeats: int = 5
) -> dict[str, float]:
    """Speed of a one-thread run beside another one, compared with the speed of one alone.

    Returns:
        Seconds per update `alone` and `beside` another run (the slower of the two); `kept`, the
        speed beside another run divided by the speed alone; and `kept_processor`, the same in CPU
        time, which excludes the time of other programs.
    """
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.SimpleQueue()
    job = (barrier, answers, method, settings, pixels, repeats)
    processes = [context.Process(target=_one, args=(first, *job)) for first in (True, False)]
    for process in processes:
        process.start()
    told: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(3):
        when, seconds = answers.get()
        told[when].append(seconds)
    for process in processes:
        process.join()
    [(alone, alone_processor)] = told["alone"]
    beside, beside_processor = map(max, zip(*told["beside"], strict=True))
    return {
        "alone": alone,
        "beside": beside,
        "kept": alone / beside,
        "kept_processor": alone_processor / beside_processor,
    }


def random_replay(
    pixels: int,
    action_size: int,
    settings: AgentSettings,
    records: int = 3000,
    stack: int = _STACK,
) -> Replay:
    """A replay buffer of random images in episodes of 500 steps, as these settings need it."""
    from revbis.replay import PrioritisedReplay, Replay

    rng = np.random.default_rng(0)
    shape = (_COLOURS, pixels, pixels)
    kind = PrioritisedReplay if settings.prioritised else Replay
    replay = kind(records, shape, action_size, stack=stack, one_step=settings.one_step)

    def frame() -> Any:
        return rng.integers(0, 256, shape, dtype=np.uint8)

    for _ in range(records // (_EPISODE + 1)):
        replay.begin(frame())
        for step in range(_EPISODE):
            action = rng.uniform(-1, 1, action_size).astype(np.float32)
            replay.add(action, rng.random(), 1.0, frame(), last=step == _EPISODE - 1)
    return replay


class _Parts:
    """A stopwatch for the parts of an update; nested parts are not counted twice."""

    def __init__(self) -> None:
        self.times = Times()
        self._within: list[float] = []  # seconds of the nested parts of each open part

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._within.append(0.0)
        start = perf_counter()
        yield
        seconds = perf_counter() - start
        self.times[name].append(seconds - self._within.pop())
        if self._within:
            self._within[-1] += seconds


def _one(
    first: bool,
    barrier: Any,
    answers: Any,
    method: str,
    settings: AgentSettings,
    pixels: int,
    repeats: int,
) -> None:
    """One of two runs: measures updates while the other waits, if it is the first, then beside it.

    Tells the wall-clock and CPU seconds of an update.
    """
    prepare(threads=1)
    agent = make_agent(method, settings, _shape(pixels), 6, seed=0)
    replay = random_replay(pixels, 6, settings)
    agent.update(replay, _STEP)
    for when in ("alone", "beside"):
        barrier.wait()
        if when == "alone" and not first:
            continue
        times = Times()
        for _ in range(repeats):
            with _timed(times, "update"), _timed(times, "processor", process_time):
                agent.update(replay, _STEP)
        answers.put((when, (median(times["update"]), median(times["processor"]))))


def _shape(pixels: int, stack: int = _STACK) -> tuple[int, int, int]:
    return (stack * _COLOURS, pixels, pixels)


@contextmanager
def _timed(times: Times, name: str, clock: Callable[[], float] = perf_counter) -> Iterator[None]:
    start = clock()
    yield
    times[name].append(clock() - start)


@contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
