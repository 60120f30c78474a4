"""Where a sweep's runs train: on this machine or on a Ray cluster, and how many in parallel."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from revbis.system.extras import is_installed
from revbis.system.memory import available_bytes
from revbis.system.words import in_words

if TYPE_CHECKING:
    from revbis.sweep.driver import Runner
    from revbis.sweep.place import Place

_MOST = 4096  # threads, GPUs or parallel runs: more than any machine has


@dataclass(frozen=True)
class Where:
    """Where runs train."""

    on: Literal["local", "ray"] = "local"
    """local: processes of this machine; ray: tasks of a Ray cluster."""
    address: str | None = None
    """Of an existing Ray cluster, such as auto or HOST:6379; without it Ray starts one here."""
    workers: int | None = None
    """Parallel runs on this machine; as many as its cores and memory allow when not given."""
    threads: int = 1
    """Threads of a run; with Ray also the cores it requests."""
    gpus: float = 0.0
    """GPUs a run requests from Ray; 0.25 lets four runs share one."""


HERE = Where()


def check_where(where: Where, out: str) -> None:
    """Refuses flags that do not go together, or that no machine can satisfy.

    Args:
        where: The flags.
        out: The sweep's folder.

    Raises:
        ValueError: With the flag, what it must be and what it is.
    """
    from revbis.training.storage import is_url

    for name, count in (("threads", where.threads), ("workers", where.workers)):
        if count is not None and not 1 <= count <= _MOST:
            raise ValueError(f"--{name} must be a whole number from 1 to {_MOST}, got {count}")
    gpus = where.gpus
    if not (0 <= gpus < 1 or (1 <= gpus <= _MOST and gpus == int(gpus))):
        raise ValueError(
            f"--gpus must be a share from 0 to 1, or a whole number up to {_MOST}, got {gpus:g}"
        )
    if where.on == "ray":
        if where.workers is not None:
            raise ValueError("--workers is for --on local; with Ray the nodes decide")
        if not is_installed("ray"):
            raise ValueError("--on ray needs Ray; run: pip install 'revbis[sweep]'")
        return
    if is_url(out):
        raise ValueError(f"--out {out} is for --on ray; local runs need a path")
    if where.address is not None:
        raise ValueError("--address is for --on ray")
    if gpus:
        raise ValueError("--gpus is for --on ray; for local runs use --set device=cuda")


def local_workers(where: Where, memory: int) -> int:
    """Parallel runs on this machine: as many as asked for, or as its cores and memory allow.

    Args:
        where: The flags.
        memory: Bytes of a run.

    Raises:
        MemoryError: If there is not enough memory.
    """
    free = available_bytes()
    fitting = free // memory
    count = where.workers or 1
    if fitting < count:
        runs = "a run takes" if count == 1 else f"{count} parallel runs take"
        raise MemoryError(
            f"{runs} {in_words(count * memory)} of memory, but only {in_words(free)} is free; use "
            "fewer --workers, --set replay_storage=disk or a smaller --set replay_capacity=N"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return where.workers or max(1, min(fitting, (cores or 1) // where.threads))


def make_runner(where: Where, memory: int, place: Place) -> Runner:
    """What starts attempts.

    Args:
        where: The flags.
        memory: Bytes of a run.
        place: The sweep's folder.
    """
    if where.on == "ray":
        from revbis.sweep.ray import RayRunner, Request

        return RayRunner(where.address, Request(where.threads, where.gpus, memory), place)
    from revbis.sweep.local import LocalRunner

    return LocalRunner(local_workers(where, memory))
