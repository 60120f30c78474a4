"""Runs as tasks of a Ray cluster.

A task is one attempt and Ray never retries it: the sweep does, because only it can tell a run that
fails from a machine that died.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from revbis.sweep.attempt import Job, Outcome, attempt
from revbis.sweep.driver import Ended

if TYPE_CHECKING:
    from revbis.sweep.driver import SweepStorage

_LOG = logging.getLogger("revbis")
_GRACE_SECONDS = 120.0


@dataclass(frozen=True)
class Request:
    """What a run requests from a node.

    Attributes:
        cpus: Cores.
        gpus: GPUs, or a share of one.
        memory: Bytes.
    """

    cpus: float
    gpus: float
    memory: int


class RayRunner:
    """Attempts as Ray tasks.

    Args:
        address: Of an existing cluster; None starts one on this machine.
        request: What each run requests.
        storage: The sweep's folder, through which running attempts are asked to stop.

    Raises:
        ValueError: If Ray is missing or the cluster cannot be reached.
    """

    def __init__(self, address: str | None, request: Request, storage: SweepStorage) -> None:
        self._ray = _import_ray()
        try:
            self._ray.init(
                address=address or "local",
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError) as problem:
            first = str(problem).splitlines()[0]
            raise ValueError(f"no Ray cluster at {address or 'this machine'}: {first}") from None
        self.where = f"Ray at {address}" if address else "a Ray cluster on this machine"
        self._request, self._storage = request, storage
        self._warned = 0.0
        self._tasks: dict[Any, str] = {}
        self._attempt = self._ray.remote(max_calls=1)(attempt).options(
            num_cpus=request.cpus,
            num_gpus=request.gpus,
            memory=request.memory,
            max_retries=0,
            retry_exceptions=False,
            scheduling_strategy="SPREAD",
        )

    def room(self) -> int:
        """How many more attempts fit on the nodes that are alive."""
        slots = sum(self._slots(node["Resources"]) for node in self._ray.nodes() if node["Alive"])
        if slots == 0 and time.monotonic() - self._warned > 60:
            self._warned = time.monotonic()
            _LOG.warning(
                "no node of the cluster has %g CPUs, %g GPUs and %.1f GB of memory for a run; "
                "waiting for one",
                self._request.cpus,
                self._request.gpus,
                self._request.memory / 1e9,
            )
        return slots - len(self._tasks)

    def start(self, name: str, job: Job) -> None:
        """Starts an attempt at the run of that name."""
        self._tasks[self._attempt.remote(job)] = name

    def ended(self, seconds: float) -> list[Ended]:
        """Waits at most so long for attempts to end."""
        if not self._tasks:
            time.sleep(seconds)
            return []
        done, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=seconds)
        return [Ended(self._tasks.pop(task), *self._outcome(task)) for task in done]

    def kill(self, name: str) -> None:
        """Ends an attempt immediately."""
        for task, run in self._tasks.items():
            if run == name:
                self._ray.cancel(task, force=True)

    def close(self) -> None:
        """Asks all attempts to save and end, waits for them, and leaves the cluster."""
        for name in self._tasks.values():
            self._storage.ask_to_stop(name)
        if self._tasks:
            tasks = list(self._tasks)
            _, left = self._ray.wait(tasks, num_returns=len(tasks), timeout=_GRACE_SECONDS)
            for task in left:
                self._ray.cancel(task, force=True)
        self._tasks.clear()
        self._ray.shutdown()

    def _slots(self, resources: dict[str, float]) -> int:
        request = self._request
        shares = [resources.get("memory", 0.0) / request.memory]
        for name, count in (("CPU", request.cpus), ("GPU", request.gpus)):
            if count:
                shares.append(resources.get(name, 0.0) / count)
        return int(min(shares))

    def _outcome(self, task: object) -> tuple[Outcome, bool]:
        """How a task ended, and whether the run is to blame if it failed."""
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(task)
            return outcome, True
        except (errors.NodeDiedError, errors.LocalRayletDiedError) as problem:
            return Outcome("failed", f"its node died: {_first(problem)}"), False
        except errors.TaskCancelledError:  # by `kill`, on a node that is alive or waiting for one
            return Outcome("failed", "cancelled"), True
        except errors.OutOfMemoryError as problem:
            return Outcome("failed", f"out of memory: {_first(problem)}"), True
        except errors.RayError as problem:
            return Outcome("failed", f"{type(problem).__name__}: {_first(problem)}"), True


def _import_ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # runs without GPU see none
    import ray

    return ray


def _first(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else "no message"
