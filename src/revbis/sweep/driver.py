"""Drives a sweep: its folder, attempts and failures, until every run is done or given up."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from revbis.io import schema
from revbis.io.files import atomic_write
from revbis.io.schema import Failure, FailuresFile, ProgressFile, ResultFile
from revbis.runs import preflight
from revbis.runs.config import Config
from revbis.runs.folder import (
    ATTEMPTS,
    CHECKPOINTS,
    CONFIG,
    FAILURES,
    PROGRESS,
    RESULT,
    STOP,
    claimed_numbers,
    given_up,
    is_finished,
    is_url,
    newest_checkpoint,
    open_storage,
)
from revbis.runs.records import agent_status
from revbis.sweep.attempt import Job, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
EntryState = Literal["waiting", "running", "finished", "failed"]
_STALL_SECONDS = 1800.0
_BACK_OFF_SECONDS = 2.0
_POLL_SECONDS = 1.0
_REFUSALS = 5  # listed in one error
_OTHER_SETTINGS = (
    "Pass the same settings to resume it, another --out for a new sweep, or remove the folder to "
    "discard it"
)


@dataclass(frozen=True)
class RunProgress:
    """How far a run is, by its files; None for what they do not say.

    Attributes:
        frames: Frames so far.
        frames_per_second: Speed since the attempt started.
        seconds: Time spent on all frames.
        mean_return: Of the last evaluation.
        status: The agent's status.
        beat: Frames in progress.json, which change while the run is alive.
    """

    frames: int = 0
    frames_per_second: float | None = None
    seconds: float | None = None
    mean_return: float | None = None
    status: dict[str, float] = field(default_factory=dict)
    beat: int = 0


class SweepStorage:
    """The sweep's folder, on a path or at an fsspec URL.

    A file that cannot be read, is no JSON or holds values of other types counts as not there.

    Args:
        out: Path or URL.
    """

    def __init__(self, out: str) -> None:
        self.url = out if is_url(out) else None
        self._root = Path() if self.url else Path(out).resolve()
        self._storage = open_storage(self.url or f"file://{self._root}")

    def name(self, config: Config) -> str:
        """A run's folder below the sweep's."""
        if self.url:
            return config.directory.as_posix()
        return config.directory.resolve().relative_to(self._root).as_posix()

    def folder(self, name: str) -> str:
        """A run's folder as the user would write it."""
        return f"{self.url.rstrip('/') if self.url else self._root}/{name}"

    def config(self, name: str) -> Config | None:
        """The settings of the run in a folder; None if there is no run.

        Raises:
            ValueError: If there is one, but its settings cannot be read.
        """
        content = self._read(name, CONFIG)
        if content is None:
            return None
        try:
            return Config.from_json(content)
        except ValueError as problem:
            raise ValueError(
                f"{self.folder(name)}/{CONFIG} is {problem}; remove the folder or pass another "
                "--out"
            ) from None

    def progress(self, name: str) -> RunProgress:
        """How far a run is."""
        progress = self._parsed(name, PROGRESS, ProgressFile) or ProgressFile()
        result = self._parsed(name, RESULT, ResultFile)
        beat = progress.get("frames", 0)
        newest = result if result is not None and result["frames"] >= beat else progress
        mean = newest.get("mean_return")
        return RunProgress(
            frames=newest.get("frames", 0),
            frames_per_second=_positive(progress.get("frames_per_second")),
            seconds=_positive(newest.get("seconds")),
            mean_return=mean if mean is not None and math.isfinite(mean) else None,
            status={
                name: value
                for name, value in agent_status(progress).items()
                if math.isfinite(value)
            },
            beat=beat,
        )

    def finished(self, name: str, budget: int) -> bool:
        """Whether a run has spent its budget."""
        return is_finished(self._parsed(name, RESULT, ResultFile), budget)

    def failures(self, name: str) -> list[Failure]:
        """The failed attempts at a run that were its own fault."""
        content = self._parsed(name, FAILURES, FailuresFile)
        return [] if content is None else content["failures"]

    def write_failures(self, name: str, failures: list[Failure]) -> None:
        """Replaces the list of failed attempts at a run."""
        self.write(name, FAILURES, {"failures": failures})

    def ask_to_stop(self, name: str) -> None:
        """Asks the running attempt at a run to save and end."""
        self.write(name, STOP, {})

    def checkpoint(self, name: str) -> int:
        """The frame of a run's newest checkpoint; 0 without one."""
        return newest_checkpoint(self._names(f"{name}/{CHECKPOINTS}")) or 0

    def claims(self, name: str) -> int:
        """How many attempts have claimed a run."""
        return len(claimed_numbers(self._names(f"{name}/{ATTEMPTS}")))

    def write(self, name: str, file: str, content: dict[str, Any]) -> None:
        """Writes a JSON file of a run; on a path it is replaced as a whole."""
        encoded = json.dumps(content).encode()
        if self.url is None:
            atomic_write(self._root / name / file, encoded)
            return
        self._storage.makedirs(name, exist_ok=True)
        self._storage.pipe_file(f"{name}/{file}", encoded)

    def _parsed(self, name: str, file: str, kind: type[T]) -> T | None:
        """A JSON file of a run, if it is there and of that type."""
        content = self._read(name, file)
        try:
            return None if content is None else schema.parse_json(content, kind, file)
        except ValueError:
            return None

    def _names(self, folder: str) -> list[str]:
        """The names in a folder; none if it cannot be read."""
        self._storage.fs.invalidate_cache()
        try:
            paths = self._storage.ls(folder, detail=False)
        except OSError:
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def _read(self, name: str, file: str) -> bytes | None:
        try:
            if self.url is None:
                return (self._root / name / file).read_bytes()
            self._storage.fs.invalidate_cache()
            content: bytes = self._storage.cat_file(f"{name}/{file}")
        except OSError:
            return None
        return content


def lock_path(out: str) -> Path:
    """The file that keeps a second driver away; for a URL it is only this machine's."""
    if not is_url(out):
        return Path(out) / ".sweep.lock"
    digest = blake2b(out.encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"revbis-sweep-{os.getuid()}-{digest}.lock"


def _positive(value: float | None) -> float | None:
    return value if value is not None and 0 < value < math.inf else None


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
    """Starts attempts, and notices when they end."""

    where: str

    def room(self) -> int:
        """How many more attempts can be started now."""

    def start(self, name: str, job: Job) -> None:
        """Starts an attempt at the run of that name."""

    def ended(self, seconds: float) -> list[Ended]:
        """Waits at most so long for attempts to end."""

    def kill(self, name: str) -> None:
        """Ends an attempt immediately."""

    def close(self) -> None:
        """Asks all attempts to save and end, and waits for them."""


@dataclass
class Entry:
    """A run of the sweep and its state.

    Attributes:
        name: Its folder below the sweep's.
        config: Its settings.
        state: waiting, running, finished or failed.
        attempts: Attempts started by this sweep.
        progress: How far it is.
        text: Why its last attempt ended early.
        stalled: Whether this sweep ended the attempt because it made no progress for long.
        claims: Attempts that had claimed the run when the last one was started.
    """

    name: str
    config: Config
    state: EntryState = "waiting"
    attempts: int = 0
    progress: RunProgress = RunProgress()
    text: str = ""
    stalled: bool = False
    claims: int = 0
    changed: float = field(default_factory=time.monotonic)
    not_before: float = 0.0


class Sweep:
    """A sweep.

    Args:
        configs: The runs.
        storage: Their folder.
        retry_failed: Forget earlier failures.
    """

    def __init__(
        self, configs: Sequence[Config], storage: SweepStorage, *, retry_failed: bool = False
    ) -> None:
        self.entries = [Entry(storage.name(config), config) for config in configs]
        self._storage = storage
        self._by_name = {entry.name: entry for entry in self.entries}
        for entry in self.entries:
            if retry_failed and storage.failures(entry.name):
                storage.write_failures(entry.name, [])
            self._update_progress(entry)
            if storage.finished(entry.name, entry.config.frames):
                entry.state = "finished"
            elif self._given_up(entry):
                entry.state = "failed"

    @property
    def complete(self) -> bool:
        """Whether every run is finished."""
        return all(entry.state == "finished" for entry in self.entries)

    def check(self, *, here: bool) -> str | None:
        """Refuses the sweep if one of its runs can be trained nowhere.

        Args:
            here: Whether the runs train on this machine.

        Returns:
            Why this machine, for what it lacks, cannot train every run; None if it can.

        Raises:
            ValueError: With every reason, or the first few of many.
        """
        reasons: dict[str, list[Entry]] = {}
        lacking = True
        passed: set[tuple[object, ...]] = set()
        for entry in self.entries:
            try:
                self._check(entry, here, passed)
            except ValueError as problem:
                lacking = lacking and isinstance(problem, preflight.UnfitMachineError)
                reasons.setdefault(str(problem), []).append(entry)
        if not reasons:
            return None
        if lacking:
            return _lack(reasons, self.entries)
        raise ValueError(_refusal(reasons, len(self.entries)))

    def run(
        self, runner: Runner, show: Callable[[Sequence[Entry]], None], stop: Callable[[], bool]
    ) -> None:
        """Continues until no run is left, or a stop is requested.

        Args:
            runner: Starts attempts; closed at the end.
            show: Called every second.
            stop: Asked every second; then running attempts save and end.
        """
        try:
            while any(entry.state in ("waiting", "running") for entry in self.entries):
                if stop():
                    return
                self._start_some(runner)
                for ended in runner.ended(_POLL_SECONDS):
                    self._handle_end(ended)
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
                entry.claims = self._storage.claims(entry.name)
                runner.start(entry.name, Job(entry.config.as_dict(), self._storage.url))
                entry.state, entry.changed = "running", now
                entry.attempts += 1
                room -= 1

    def _check(self, entry: Entry, here: bool, passed: set[tuple[object, ...]]) -> None:
        """Checks a run; what it shares with others that have `passed`, once."""
        before = self._storage.config(entry.name)
        if before is not None:
            folder = self._storage.folder(entry.name)
            preflight.check_unchanged(before, entry.config, folder, _OTHER_SETTINGS)
        kind = entry.config.kind
        if entry.state != "finished" and kind not in passed:
            preflight.check(entry.config, here=here)
            passed.add(kind)

    def _handle_end(self, ended: Ended) -> None:
        entry, outcome = self._by_name[ended.name], ended.outcome
        stalled, entry.stalled = entry.stalled, False
        self._update_progress(entry)
        if outcome.end == "finished":
            entry.state = "finished"
            return
        entry.state, entry.text = "waiting", outcome.text
        entry.not_before = time.monotonic() + _BACK_OFF_SECONDS * min(entry.attempts, 10)
        blame = outcome.end == "failed" and ended.blame
        if stalled and blame:  # it was this sweep that ended it, however that looks from outside
            entry.text = f"ended: no progress for {_STALL_SECONDS:.0f} s"
            blame = self._storage.claims(entry.name) > entry.claims  # else it never began
        if blame or outcome.end == "refused":
            failures = self._storage.failures(entry.name)
            failure = Failure(checkpoint=self._storage.checkpoint(entry.name), text=entry.text)
            if outcome.end == "refused":
                failure["final"] = True
            self._storage.write_failures(entry.name, [*failures, failure])
            if self._given_up(entry):
                entry.state = "failed"

    def _given_up(self, entry: Entry) -> bool:
        failures = self._storage.failures(entry.name)
        if failures:
            entry.text = failures[-1]["text"]
        return given_up(failures)

    def _update_progress(self, entry: Entry) -> None:
        progress = self._storage.progress(entry.name)
        if progress != entry.progress:
            entry.progress, entry.changed = progress, time.monotonic()

    def _watch(self, runner: Runner) -> None:
        """Reads the progress of running attempts, and ends those without any for long."""
        for entry in self.entries:
            if entry.state == "running":
                self._update_progress(entry)
                if time.monotonic() - entry.changed > _STALL_SECONDS:
                    entry.stalled, entry.changed = True, time.monotonic()
                    runner.kill(entry.name)


def _refusal(reasons: dict[str, list[Entry]], runs: int) -> str:
    """Why a sweep is refused: each reason with its runs."""
    refused = sum(map(len, reasons.values()))
    if refused == runs and len(reasons) == 1:
        return next(iter(reasons))
    lines = [f"{refused} of {runs} runs cannot be trained; none was started:"]
    for text, entries in list(reasons.items())[:_REFUSALS]:
        others = f" and {len(entries) - 1} more runs" if len(entries) > 1 else ""
        lines.append(f"  {entries[0].name}{others}: {text}")
    if len(reasons) > _REFUSALS:
        lines.append(f"  and {len(reasons) - _REFUSALS} more reasons")
    return "\n".join(lines)


def _lack(reasons: dict[str, list[Entry]], entries: Sequence[Entry]) -> str:
    """What this machine lacks for some of the runs, and how to leave their methods out."""
    unfit = [entry for group in reasons.values() for entry in group]
    text = "; ".join(reasons)
    if len(unfit) == len(entries):
        return text
    text = f"{len(unfit)} of {len(entries)} runs cannot be trained here: {text}"
    without, every = _methods(unfit), _methods(entries)
    kept = [method for method in every if method not in without]
    if not kept:
        return text
    return f"{text}; or leave {', '.join(without)} out: --methods {' '.join(kept)}"


def _methods(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(entry.config.method for entry in entries))
