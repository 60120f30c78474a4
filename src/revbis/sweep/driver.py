"""Drives a sweep: starts attempts, counts failures, resumes, until every run is done or given up.

The runs' folders are the only lasting state. A sweep that is repeated finds out from them which
runs are finished, which go on from a checkpoint, and which have failed too often.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from revbis.config import Config
from revbis.folders import open_storage
from revbis.sweep.attempt import Job, Outcome

State = Literal["waiting", "running", "finished", "failed"]
_SAME_PLACE, _IN_ALL = 3, 20  # failures after which a run is given up
_STALL_SECONDS = 1800.0
_BACK_OFF_SECONDS = 2.0
_LOOK_SECONDS = 1.0


class Ended(NamedTuple):
    """An attempt that has ended.

    Attributes:
        name: The run's.
        outcome: How.
        blame: Whether a failure is the run's own, and not its machine's.
    """

    name: str
    outcome: Outcome
    blame: bool


class Runner(Protocol):
    """Where attempts are made."""

    where: str

    def room(self) -> int:
        """How many more attempts can be started now."""

    def start(self, name: str, job: Job) -> None:
        """Starts an attempt at the run of that name."""

    def ended(self, seconds: float) -> list[Ended]:
        """Waits up to so long for attempts to end."""

    def kill(self, name: str) -> None:
        """Ends an attempt at once."""

    def close(self) -> None:
        """Asks all attempts to save and end, and waits for them."""


@dataclass
class Entry:
    """A run of the sweep and how it stands.

    Attributes:
        name: Its folder below the sweep's.
        config: Its settings.
        state: waiting, running, finished or failed.
        attempts: Attempts started by this sweep.
        progress: What the run last told: frames, frames_per_second, mean_return, c.
        text: Why it last failed.
    """

    name: str
    config: Config
    state: State = "waiting"
    attempts: int = 0
    progress: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    changed: float = field(default_factory=time.monotonic)
    not_before: float = 0.0


class Place:
    """The sweep's folder, on a path or at an fsspec URL; what the driver reads and notes there.

    Args:
        out: Path or URL.
    """

    def __init__(self, out: str) -> None:
        self.url = out if "://" in out else None
        self._storage, self._root = open_storage(
            out if self.url else f"file://{Path(out).resolve()}"
        )

    def name(self, config: Config) -> str:
        """A run's folder below the sweep's."""
        if self.url:
            return config.directory.as_posix()
        return config.directory.resolve().relative_to(self._root).as_posix()

    def json(self, name: str, file: str) -> dict[str, Any]:
        """A JSON file of a run; empty if it cannot be read."""
        self._storage.invalidate_cache()
        try:
            found = json.loads(self._storage.cat_file(f"{self._root}/{name}/{file}"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, name: str, file: str, content: dict[str, Any]) -> None:
        """Writes a JSON file of a run."""
        self._storage.makedirs(f"{self._root}/{name}", exist_ok=True)
        self._storage.pipe_file(f"{self._root}/{name}/{file}", json.dumps(content).encode())

    def checkpoint(self, name: str) -> int:
        """Frames at a run's newest checkpoint."""
        self._storage.invalidate_cache()
        try:
            found = self._storage.ls(f"{self._root}/{name}/checkpoints", detail=False)
        except OSError:
            return 0
        frames = [re.search(r"frame-(\d{12})/?$", str(path)) for path in found]
        return max((int(match[1]) for match in frames if match), default=0)


class Sweep:
    """A sweep.

    Args:
        configs: The runs.
        place: Their folder.
        retry_failed: Forget earlier failures.
    """

    def __init__(
        self, configs: Sequence[Config], place: Place, *, retry_failed: bool = False
    ) -> None:
        self.entries = [Entry(place.name(config), config) for config in configs]
        self._place = place
        self._by_name = {entry.name: entry for entry in self.entries}
        for entry in self.entries:
            if retry_failed:
                place.write(entry.name, "failures.json", {"failures": []})
            self._look(entry)
            if self._is_finished(entry):
                entry.state = "finished"
            elif self._given_up(entry):
                entry.state = "failed"

    @property
    def complete(self) -> bool:
        """Whether every run is finished."""
        return all(entry.state == "finished" for entry in self.entries)

    def run(
        self,
        runner: Runner,
        show: Callable[[Sequence[Entry]], None],
        stop: Callable[[], bool],
    ) -> None:
        """Goes on until no run is left, or a stop is asked for.

        Args:
            runner: Where attempts are made; closed at the end.
            show: Called every second.
            stop: Asked every second; then running attempts are saved and ended.
        """
        try:
            while any(entry.state in ("waiting", "running") for entry in self.entries):
                if stop():
                    return
                self._start_some(runner)
                for ended in runner.ended(_LOOK_SECONDS):
                    self._note(ended)
                self._watch(runner)
                show(self.entries)
        finally:
            runner.close()

    def _start_some(self, runner: Runner) -> None:
        now = time.monotonic()
        room = runner.room()
        for entry in self.entries:
            if room <= 0:
                return
            if entry.state == "waiting" and entry.not_before <= now:
                runner.start(entry.name, Job(entry.config.as_dict(), self._place.url))
                entry.state, entry.changed = "running", now
                entry.attempts += 1
                room -= 1

    def _note(self, ended: Ended) -> None:
        entry, outcome = self._by_name[ended.name], ended.outcome
        self._look(entry)
        if outcome.end == "finished":
            entry.state = "finished"
            return
        entry.state, entry.text = "waiting", outcome.text
        entry.not_before = time.monotonic() + _BACK_OFF_SECONDS * min(entry.attempts, 10)
        if outcome.end == "failed" and ended.blame:
            self._record_failure(entry, outcome.text)
            if self._given_up(entry):
                entry.state = "failed"

    def _record_failure(self, entry: Entry, text: str) -> None:
        failures = self._failures(entry)
        failures.append({"checkpoint": self._place.checkpoint(entry.name), "text": text})
        self._place.write(entry.name, "failures.json", {"failures": failures})

    def _given_up(self, entry: Entry) -> bool:
        """Whether a run has failed too often, at one checkpoint or in all."""
        failures = self._failures(entry)
        if not failures:
            return False
        entry.text = str(failures[-1]["text"])
        here = [each["checkpoint"] for each in failures]
        return here.count(here[-1]) >= _SAME_PLACE or len(failures) >= _IN_ALL

    def _failures(self, entry: Entry) -> list[dict[str, Any]]:
        return list(self._place.json(entry.name, "failures.json").get("failures", []))

    def _is_finished(self, entry: Entry) -> bool:
        frames = self._place.json(entry.name, "result.json").get("frames", 0)
        return bool(frames >= entry.config.frames)

    def _look(self, entry: Entry) -> None:
        found = self._place.json(entry.name, "progress.json")
        found |= self._place.json(entry.name, "result.json")
        if found and found != entry.progress:
            entry.progress, entry.changed = found, time.monotonic()

    def _watch(self, runner: Runner) -> None:
        """Reads what the running ones tell, and ends those that have told nothing for long."""
        for entry in self.entries:
            if entry.state == "running":
                self._look(entry)
                if time.monotonic() - entry.changed > _STALL_SECONDS:
                    entry.changed = time.monotonic()
                    runner.kill(entry.name)


def lock_path(out: str) -> Path:
    """The file that keeps a second driver away; for a URL it is only this machine's."""
    if "://" in out:
        import tempfile
        from hashlib import blake2b

        digest = blake2b(out.encode(), digest_size=8).hexdigest()
        return Path(tempfile.gettempdir()) / f"revbis-sweep-{os.getuid()}-{digest}.lock"
    return Path(out) / ".sweep.lock"
