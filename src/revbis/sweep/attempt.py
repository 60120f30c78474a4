"""One attempt at a run, in a process of its own: on this machine or as a Ray task.

`python -m revbis.sweep.attempt JOB` is how a local sweep starts one. Its output goes to the
attempt's log; the last line on the real standard output says how it ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from revbis.io import runtime

End = Literal["finished", "stopped", "superseded", "failed", "refused"]
_PARENT_DEATH = 1  # of Linux's prctl


@dataclass(frozen=True)
class Job:
    """A run to train.

    Attributes:
        config: The run's settings, as `Config.as_dict` gives them.
        storage: fsspec URL of the sweep's folder; None when `out` is seen by every machine.
    """

    config: dict[str, Any]
    storage: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        end: finished, stopped (saved on request), superseded by another attempt, failed, or
            refused: a mistake that another attempt would only repeat.
        text: What failed.
    """

    end: End
    text: str = ""


def attempt(job: Job) -> Outcome:
    """Trains a run until it is finished, fails, is stopped, or is taken over by another attempt."""
    runtime.prepare(job.config["threads"])
    from revbis.runs.config import Config
    from revbis.runs.folder import MirroredFolder, RunFolder, SupersededError
    from revbis.runs.run import finished, train

    config = Config.from_dict(job.config)
    if job.storage is None:
        home = RunFolder(config.directory)
    else:
        config, home = _mirrored(config, job.storage, MirroredFolder)
    if job.storage is None and finished(config):
        return Outcome("finished")
    home.claim()
    home.log.parent.mkdir(parents=True, exist_ok=True)
    with home.log.open("a", buffering=1) as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    try:
        done = train(config, stop=lambda: bool(stopping), home=home)
        return Outcome("finished" if done else "stopped")
    except SupersededError as problem:
        return Outcome("superseded", str(problem))
    except Exception as problem:  # noqa: BLE001
        with suppress(OSError):  # the log may be on a full disk, too
            traceback.print_exc()
        with suppress(Exception):  # the log and the diagnosis, if that is still possible
            home.saved()
        text = str(problem) or "no message"
        end: End = "refused" if _is_final(problem) else "failed"
        return Outcome(end, f"{type(problem).__name__}: {text.splitlines()[0]}")
    finally:
        if job.storage is not None:
            shutil.rmtree(config.out, ignore_errors=True)


def _is_final(problem: Exception) -> bool:
    """Whether another attempt would end the same way: settings, tasks, losses that are not finite.

    Files that cannot be read, and what a machine lacks, may be there elsewhere or later.
    """
    from revbis.envs.rendering import RenderingError
    from revbis.runs.checkpoint import DamagedError
    from revbis.runs.preflight import UnfitMachineError

    passing = (DamagedError, RenderingError, UnfitMachineError, UnicodeError, json.JSONDecodeError)
    return isinstance(problem, ValueError) and not isinstance(problem, passing)


def _mirrored(config: Any, url: str, kind: Any) -> tuple[Any, Any]:
    """The run in a folder on this machine, for storage that cannot be written in place."""
    place = blake2b(url.encode(), digest_size=8).hexdigest()
    scratch = Path(tempfile.gettempdir()) / f"revbis-{place}-{os.getpid()}"
    local = config.with_settings(out=scratch)
    return local, kind(local.directory, f"{url.rstrip('/')}/{config.directory.as_posix()}")


def main() -> None:
    """Runs the job given as JSON."""
    if sys.platform == "linux":  # a SIGTERM when the sweep dies: no run trains on unnoticed
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which ends us
    answer = os.dup(1)
    outcome = attempt(Job(**json.loads(sys.argv[1])))
    os.write(answer, json.dumps(vars(outcome)).encode() + b"\n")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what a full disk did not take would fail once more at the very end
        os.dup2(nowhere, stream)


if __name__ == "__main__":
    main()
