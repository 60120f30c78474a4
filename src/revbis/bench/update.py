"""How long an update takes, beside the time its encoder passes alone must take.

Measurements that are compared are taken in turns, so that other load on the machine hits all alike,
and are reported as medians. Call `revbis.system.runtime.prepare` before torch is imported.
"""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from revbis.agents import AgentSettings, DrQV2
from revbis.objectives import Objective, ObjectiveOutput
from revbis.system.runtime import keep_freed_memory, prepare

if TYPE_CHECKING:
    from revbis.replay import Batch, Replay

Times = dict[str, list[float]]
_STACK, _COLOURS, _EPISODE = 3, 3, 500
_STEP = 0  # of the noise schedule, which does not change the work


@dataclass(frozen=True)
class UpdateSpeed:
    """Medians in seconds.

    Attributes:
        seconds_per_update: A whole update with sampling and augmentation.
        encoder_bound_seconds: The encoder passes alone: one batch forwards and backwards, the next
            one forwards; by the agent's own encoder, from bytes to features.
        ratio: The first through the second.
        objective_seconds: Forward and backward pass of the objective, from embeddings on.
        objective_share: Of a whole update; 0 without objective.
        parts: Sampling, targets, critic, actor, objective and target move within an update. In
            joint mode the objective's backward pass is part of the critic's.
        threads: Of PyTorch.
        batch: Transitions in a batch.
        pixels: Height and width of an image.
    """

    seconds_per_update: float
    encoder_bound_seconds: float
    ratio: float
    objective_seconds: float
    objective_share: float
    parts: dict[str, float]
    threads: int
    batch: int
    pixels: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_update(
    settings: AgentSettings,
    *,
    batch: int = 256,
    pixels: int = 84,
    action_size: int = 6,
    repeats: int = 10,
    threads: int | None = None,
) -> UpdateSpeed:
    """Measures updates on random images, and the encoder passes alone, in turns.

    Args:
        settings: The agent.
        batch: Transitions in a batch.
        pixels: Height and width of an image; observations stack three colour images.
        action_size: Numbers in an action.
        repeats: Measurements of each, after two that do not count.
        threads: Of PyTorch; None for as many as it uses now.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    keep_freed_memory()
    shape = (_STACK * _COLOURS, pixels, pixels)
    with _threads(threads):
        agent = _TimedDrQV2(shape, action_size, settings, seed=0)
        replay = random_replay(pixels, action_size, settings.transition == "one_step")
        sample = replay.sample(batch)
        bound = encoder_passes(agent, sample)
        objective = objective_passes(agent, sample)
        whole: Times = defaultdict(list)
        for turn in range(repeats + 2):
            if turn == 2:
                whole.clear()
                agent.times.clear()
            with _timed(whole, "update"):
                with _timed(agent.times, "sample"):
                    drawn = replay.sample(batch)
                agent.update(drawn, _STEP)
            for name, run in (("bound", bound), ("objective", objective)):
                with _timed(whole, name):
                    run()
        used = torch.get_num_threads()
    update, encoder = median(whole["update"]), median(whole["bound"])
    seconds = median(whole["objective"]) if settings.has_objective else 0.0
    return UpdateSpeed(
        seconds_per_update=update,
        encoder_bound_seconds=encoder,
        ratio=update / encoder,
        objective_seconds=seconds,
        objective_share=seconds / update,
        parts=_exclusive({name: median(times) for name, times in agent.times.items()}),
        threads=used,
        batch=batch,
        pixels=pixels,
    )


def measure_neighbours(
    settings: AgentSettings, *, batch: int = 256, pixels: int = 84, repeats: int = 5
) -> dict[str, float]:
    """Speed of a one-thread run beside another one, against that of a lone one.

    Returns:
        Seconds per update `alone` and `beside` another (the slower of the two), and the share of
        the lone run's speed that is `kept`; `kept_processor` is the same in processor time, which
        does not count the time that other programs on the machine took.
    """
    runs = [_run_processes(n, (settings, batch, pixels, repeats)) for n in (1, 2)]
    (alone, alone_processor), (beside, beside_processor) = (
        (max(wall for wall, _ in run), max(processor for _, processor in run)) for run in runs
    )
    return {
        "alone": alone,
        "beside": beside,
        "kept": alone / beside,
        "kept_processor": alone_processor / beside_processor,
    }


def random_replay(pixels: int, action_size: int, one_step: bool, records: int = 3000) -> Replay:
    """A replay buffer of random images in episodes of 500 steps."""
    from revbis.replay import Replay

    rng = np.random.default_rng(0)
    shape = (_COLOURS, pixels, pixels)
    replay = Replay(records, shape, action_size, stack=_STACK, one_step=one_step)

    def frame() -> Any:
        return rng.integers(0, 256, shape, dtype=np.uint8)

    for _ in range(records // (_EPISODE + 1)):
        replay.begin(frame())
        for step in range(_EPISODE):
            action = rng.uniform(-1, 1, action_size).astype(np.float32)
            replay.add(action, rng.random(), 1.0, frame(), last=step == _EPISODE - 1)
    return replay


def encoder_passes(agent: DrQV2, batch: Batch) -> Callable[[], None]:
    """The encoder's work in one update, with the gradient of the features given."""
    encoder = agent.parts.encoder
    gradient = torch.randn(len(batch.obs), encoder.size) / encoder.size

    def run() -> None:
        for parameter in encoder.parameters():
            parameter.grad = None
        with torch.no_grad():
            encoder(batch.next_obs)
        encoder(batch.obs).backward(gradient)

    return run


def objective_passes(agent: DrQV2, batch: Batch) -> Callable[[], None]:
    """The objective's work in one update, from embeddings on; its gradients are thrown away."""
    objective = agent.parts.objective
    if objective is None:
        return lambda: None
    z, next_z = (torch.randn(len(batch.obs), agent.settings.latent_dim) for _ in range(2))
    trained = [*objective.representation_parameters(), *objective.coefficient_parameters()]

    def run() -> None:
        x = z.clone().requires_grad_()
        out = objective(x, batch.action, batch.reward, batch.discount, next_z)
        loss = out.representation_loss
        if out.coefficient_loss is not None:
            loss = loss + out.coefficient_loss
        torch.autograd.grad(loss, [x, *trained])

    return run


class _TimedDrQV2(DrQV2):
    """The same agent, with a stopwatch on each part of an update."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.times: Times = defaultdict(list)
        move = self.parts.move_target

        def timed_move(rate: float) -> None:
            with _timed(self.times, "move_target"):
                move(rate)

        self.parts.move_target = timed_move  # type: ignore[method-assign]

    def _critic_step(self, *arguments: Any) -> Any:
        with _timed(self.times, "critic"):
            return super()._critic_step(*arguments)

    def _targets(self, *arguments: Any) -> tuple[Tensor, Tensor | None]:
        with _timed(self.times, "targets"):
            return super()._targets(*arguments)

    def _actor_step(self, *arguments: Any) -> dict[str, Tensor]:
        with _timed(self.times, "actor"):
            return super()._actor_step(*arguments)

    def _objective_step(self, *arguments: Any) -> ObjectiveOutput:
        with _timed(self.times, "objective_step"):
            return super()._objective_step(*arguments)

    def _compare(
        self, batch: Batch, objective: Objective, z: Tensor, next_z: Tensor
    ) -> ObjectiveOutput:
        with _timed(self.times, "compare"):
            return super()._compare(batch, objective, z, next_z)


def _exclusive(inclusive: dict[str, float]) -> dict[str, float]:
    """Parts that do not contain each other, and so add up to an update."""
    parts = dict(inclusive)
    parts["critic"] -= parts["targets"]
    compare, step = parts.pop("compare", 0.0), parts.pop("objective_step", None)
    if step is None:
        parts["critic"] -= compare
    parts["objective"] = compare if step is None else step
    return parts


def _run_processes(
    count: int, job: tuple[AgentSettings, int, int, int]
) -> list[tuple[float, float]]:
    """Seconds and processor seconds per update of each of `count` simultaneous processes."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(count), context.SimpleQueue()
    processes = [context.Process(target=_one, args=(barrier, answers, *job)) for _ in range(count)]
    for process in processes:
        process.start()
    seconds: list[tuple[float, float]] = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return seconds


def _one(
    barrier: Any, answers: Any, settings: AgentSettings, batch: int, pixels: int, repeats: int
) -> None:
    prepare(threads=1)
    agent = DrQV2((_STACK * _COLOURS, pixels, pixels), 6, settings, seed=0)
    replay = random_replay(pixels, 6, settings.transition == "one_step")
    agent.update(replay.sample(batch), _STEP)
    barrier.wait()
    times: Times = defaultdict(list)
    for _ in range(repeats):
        with _timed(times, "update"), _timed(times, "processor", process_time):
            agent.update(replay.sample(batch), _STEP)
    answers.put((median(times["update"]), median(times["processor"])))


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
