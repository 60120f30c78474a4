"""Where a sweep's runs train: as processes of this machine or on a Ray cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from revbis.io.machine import available_bytes, usable_cores
from revbis.io.plugins import is_installed
from revbis.io.text import format_bytes
from revbis.runs.folder import is_url
from revbis.sweep.attempt import Job, Outcome
from revbis.sweep.driver import Ended

if TYPE_CHECKING:
    from revbis.sweep.driver import Runner, SweepStorage

_MOST = 4096  # threads, GPUs or parallel runs: more than any machine has
_GRACE_SECONDS = 300.0  # for saving a large replay buffer


@dataclass(frozen=True)
class Backend:
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


HERE = Backend()


def check_backend(backend: Backend, out: str) -> None:
    """Refuses flags that do not go together, or that no machine can satisfy.

    Raises:
        ValueError: With the flag, what it must be and what it is.
    """
    for name, count in (("threads", backend.threads), ("workers", backend.workers)):
        if count is not None and not 1 <= count <= _MOST:
            raise ValueError(f"--{name} must be a whole number from 1 to {_MOST}, got {count}")
    gpus = backend.gpus
    if not (0 <= gpus < 1 or (1 <= gpus <= _MOST and gpus == int(gpus))):
        raise ValueError(
            f"--gpus must be a share from 0 to 1, or a whole number up to {_MOST}, got {gpus:g}"
        )
    if backend.on == "ray":
        if backend.workers is not None:
            raise ValueError("--workers is for --on local; with Ray the nodes decide")
        if not is_installed("ray"):
            raise ValueError("--on ray needs Ray; run: pip install 'revbis[sweep]'")
        return
    if is_url(out):
        raise ValueError(f"--out {out} is for --on ray; local runs need a path")
    if backend.address is not None:
        raise ValueError("--address is for --on ray")
    if gpus:
        raise ValueError("--gpus is for --on ray; for local runs use --set device=cuda")


def make_runner(backend: Backend, memory: int, storage: SweepStorage) -> Runner:
    """What starts attempts at runs that take so many bytes of memory."""
    if backend.on == "ray":
        from revbis.sweep.ray import RayRunner, Request

        return RayRunner(backend.address, Request(backend.threads, backend.gpus, memory), storage)
    return LocalRunner(local_workers(backend, memory))


def local_workers(backend: Backend, memory: int) -> int:
    """Parallel runs on this machine: as many as asked for, or as its cores and memory allow.

    Raises:
        MemoryError: If there is not enough memory.
    """
    free = available_bytes()
    fitting = free // memory
    count = backend.workers or 1
    if fitting < count:
        runs = "a run takes" if count == 1 else f"{count} parallel runs take"
        raise MemoryError(
            f"{runs} {format_bytes(count * memory)} of memory, but only {format_bytes(free)} is "
            "free; use fewer --workers, --set replay_storage=disk or a smaller "
            "--set replay_capacity=N"
        )
    return backend.workers or max(1, min(fitting, usable_cores() // backend.threads))


class LocalRunner:
    """Attempts as child processes; they end, saving, when this process does.

    Args:
        workers: How many in parallel.
    """

    where = "this machine"

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def room(self) -> int:
        """How many more attempts can be started now."""
        return self._workers - len(self._children)

    def start(self, name: str, job: Job) -> None:
        """Starts an attempt at the run of that name."""
        words = [sys.executable, "-m", "revbis.sweep.attempt", json.dumps(asdict(job))]
        # Until a child has a log of its own, the end of its output says what went wrong.
        self._children[name] = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def ended(self, seconds: float) -> list[Ended]:
        """Waits at most so long for attempts to end."""
        until = time.monotonic() + seconds
        while True:
            done = [name for name, child in self._children.items() if child.poll() is not None]
            if done or time.monotonic() >= until:
                return [Ended(name, *_outcome(self._children.pop(name))) for name in done]
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        """Ends an attempt immediately; it is then among the ended."""
        self._children[name].kill()

    def close(self) -> None:
        """Asks all attempts to save and end, and waits for them."""
        for child in self._children.values():
            child.terminate()
        until = time.monotonic() + _GRACE_SECONDS
        for child in self._children.values():
            try:
                child.communicate(timeout=max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
        self._children.clear()


def _outcome(child: subprocess.Popen[bytes]) -> tuple[Outcome, bool]:
    """How a child ended, and whether the run is to blame if it failed."""
    lines = child.communicate()[0].decode(errors="replace").strip().splitlines()
    if child.returncode == 0 and lines:
        return Outcome(**json.loads(lines[-1])), True
    if child.returncode < 0:
        text = f"ended by signal {-child.returncode}"
        if child.returncode == -9:
            text += ", as when memory runs out"
    else:
        text = lines[-1] if lines else f"exit code {child.returncode}"
    return Outcome("failed", text), True
