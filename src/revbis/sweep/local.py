"""Runs as processes of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict

from revbis.sweep.attempt import Job, Outcome
from revbis.sweep.driver import Ended

_GRACE_SECONDS = 300.0  # for saving a large replay buffer


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
