"""Drives a sweep: starts attempts, counts failures, resumes, until every run is done or given up.

The runs' folders are the only lasting state. A sweep that is repeated reads from them which runs
are finished, which resume from a checkpoint, and which have failed too often.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from revbis.schema import Failure
from revbis.sweep.attempt import Job, Outcome
from revbis.sweep.place import Place, Standing
from revbis.training import preflight
from revbis.training.failures import given_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from revbis.config import Config

EntryState = Literal["waiting", "running", "finished", "failed"]
_STALL_SECONDS = 1800.0
_BACK_OFF_SECONDS = 2.0
_POLL_SECONDS = 1.0
_REFUSALS = 5  # listed in one error


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
        standing: How far it is.
        text: Why its last attempt ended early.
        stalled: Whether this sweep ended the attempt because it made no progress for long.
        claims: Attempts that had claimed the run when the last one was started.
    """

    name: str
    config: Config
    state: EntryState = "waiting"
    attempts: int = 0
    standing: Standing = Standing()  # noqa: RUF009 (frozen)
    text: str = ""
    stalled: bool = False
    claims: int = 0
    changed: float = field(default_factory=time.monotonic)
    not_before: float = 0.0


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
            if retry_failed and place.failures(entry.name):
                place.write_failures(entry.name, [])
            self._update_standing(entry)
            if place.finished(entry.name, entry.config.frames):
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
        for entry in self.entries:
            try:
                self._check(entry, here)
            except ValueError as problem:
                lacking = lacking and isinstance(problem, preflight.UnfitMachineError)
                reasons.setdefault(str(problem), []).append(entry)
        if not reasons:
            return None
        if lacking:
            return _lack(reasons, self.entries)
        raise ValueError(_refusal(reasons, len(self.entries)))

    def run(
        self,
        runner: Runner,
        show: Callable[[Sequence[Entry]], None],
        stop: Callable[[], bool],
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
                entry.claims = self._place.claims(entry.name)
                runner.start(entry.name, Job(entry.config.as_dict(), self._place.url))
                entry.state, entry.changed = "running", now
                entry.attempts += 1
                room -= 1

    def _check(self, entry: Entry, here: bool) -> None:
        before = self._place.config(entry.name)
        if before is not None:
            folder = self._place.folder(entry.name)
            preflight.check_unchanged(before, entry.config, folder, "remove the folder")
        if entry.state != "finished":
            preflight.check(entry.config, here=here)

    def _handle_end(self, ended: Ended) -> None:
        entry, outcome = self._by_name[ended.name], ended.outcome
        stalled, entry.stalled = entry.stalled, False
        self._update_standing(entry)
        if outcome.end == "finished":
            entry.state = "finished"
            return
        entry.state, entry.text = "waiting", outcome.text
        entry.not_before = time.monotonic() + _BACK_OFF_SECONDS * min(entry.attempts, 10)
        blame = outcome.end == "failed" and ended.blame
        if stalled and blame:  # it was this sweep that ended it, however that looks from outside
            entry.text = f"ended: no progress for {_STALL_SECONDS:.0f} s"
            blame = self._place.claims(entry.name) > entry.claims  # else it never began
        if blame or outcome.end == "refused":
            self._record_failure(entry, entry.text, final=outcome.end == "refused")
            if self._given_up(entry):
                entry.state = "failed"

    def _record_failure(self, entry: Entry, text: str, *, final: bool) -> None:
        failures = self._place.failures(entry.name)
        failure = Failure(checkpoint=self._place.checkpoint(entry.name), text=text)
        if final:
            failure["final"] = True
        failures.append(failure)
        self._place.write_failures(entry.name, failures)

    def _given_up(self, entry: Entry) -> bool:
        failures = self._place.failures(entry.name)
        if failures:
            entry.text = failures[-1]["text"]
        return given_up(failures)

    def _update_standing(self, entry: Entry) -> None:
        standing = self._place.standing(entry.name)
        if standing != entry.standing:
            entry.standing, entry.changed = standing, time.monotonic()

    def _watch(self, runner: Runner) -> None:
        """Reads the progress of running attempts, and ends those without any for long."""
        for entry in self.entries:
            if entry.state == "running":
                self._update_standing(entry)
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
