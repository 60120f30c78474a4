"""Starts and resumes runs, and reads their files."""

from __future__ import annotations

import json
import logging
import platform
import shutil
import subprocess
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from revbis import __version__
from revbis.envs import make_env
from revbis.envs.suites import packages
from revbis.io import schema
from revbis.io.files import (
    Record,
    atomic_write,
    read_records,
    remove_unfinished,
    shown_path,
)
from revbis.io.machine import blas, conditions, processor, thread_counts
from revbis.io.runtime import use_threads
from revbis.io.schema import AboutFile
from revbis.runs import preflight
from revbis.runs.checkpoint import (
    Checkpoints,
    DamagedError,
    read_agent,
    read_state,
    saved_evaluations,
)
from revbis.runs.config import Change, Config
from revbis.runs.folder import (
    ABOUT,
    ATTEMPTS,
    CHECKPOINTS,
    CONFIG,
    EVALUATIONS,
    OUTPUTS,
    RECORDS,
    RESULT,
    RunFolder,
    check_writable,
    checkpoint_frames,
    is_finished,
    read_result,
    unpacked,
)
from revbis.runs.presets import command_line
from revbis.runs.records import Records, write_records
from revbis.runs.trainer import Trainer, build_agent, resolve_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from revbis.agents import Agent
    from revbis.io.schema import ResultFile
    from revbis.runs.records import Status

_LOG = logging.getLogger("revbis")
_DISCARDED = "discarded-"


def train(
    config: Config,
    *,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[Status], None] = lambda _: None,
    evaluated: Callable[[Record], None] = lambda _: None,
    home: RunFolder | None = None,
    restart: bool = False,
) -> bool:
    """Trains a run, from frame 0 or from its newest checkpoint.

    Args:
        config: The run; it determines the folder.
        stop: Called after every step of training, evaluation and yardsticks; if it returns True,
            the run is saved and stops. An evaluation that it interrupts is repeated on resuming.
        report: Called after every step; of an evaluation, the status has the episode's number.
        evaluated: Called after every evaluation, with its line of eval.jsonl.
        home: The run's folder, already claimed; claimed here if None.
        restart: Discard the run in the folder and start at frame 0; it is kept if the new one
            cannot start. Otherwise a run with records is resumed or refused, never restarted.

    Returns:
        Whether the run is finished; a finished run is not changed.

    Raises:
        ValueError: If the run was started with other settings, has no intact checkpoint to resume
            from, or cannot be trained.
        TrainingFailedError: If a loss, a weight or an action is not finite.
        SupersededError: If another process has taken over the run.
        OSError: For example if the disk is full; the last checkpoint is untouched.
    """
    folder = config.directory
    check_writable(folder)
    if not restart:
        changed = _check_settings(config)
        if finished(config):
            _restore_evaluations(folder)
            return True
        for change in changed:
            _LOG.warning("%s", change)
    preflight.check(config)
    device = resolve_device(config.device)
    use_threads(config.threads)
    ours = home is None
    home = home or RunFolder(folder)
    if ours:
        home.claim()
    try:
        with _discarding(home) if restart else nullcontext():
            trainer = _start(config, device, home, evaluated)
        with closing(trainer.records):
            done = trainer.run(lambda: home.beat(trainer.status) or stop(), report, home.saved)
            if done:
                _write_result(folder, trainer)
                home.saved()
            return done
    except BaseException as problem:
        if isinstance(problem, Exception):
            home.check()  # what a later attempt changed meanwhile is no failure of this one
        if ours:
            home.abandon()
        raise


def _check_settings(config: Config) -> list[Change]:
    """Refuses other settings than those of the run in the folder; returns what else has changed."""
    folder = config.directory
    before = read_config(folder)
    if before is None and (folder / CHECKPOINTS).exists():
        _LOG.warning(
            "%s has no %s, and neither have its checkpoints: that it was started with these "
            "settings cannot be checked",
            folder,
            CONFIG,
        )
    changed = [] if before is None else preflight.check_unchanged(before, config, folder)
    return [each for each in changed if each.name != "out"]  # the folder may have moved


def _start(
    config: Config, device: str, home: RunFolder, evaluated: Callable[[Record], None]
) -> Trainer:
    """One run's trainer with its records, at its last checkpoint if there is one."""
    folder = config.directory
    remove_unfinished(folder, OUTPUTS)
    checkpoints = Checkpoints(folder / CHECKPOINTS, config.keep_checkpoints, home.check)
    checkpoint = checkpoints.resume()
    if checkpoint is None:
        _refuse_to_restart(folder)
    records = Records(
        folder,
        tensorboard=config.tensorboard,
        wandb=config.wandb,
        run=config.as_dict(),
        resumed=None if checkpoint is None else checkpoint_frames(checkpoint.folder.name),
        guard=home.check,
        evaluated=evaluated,
    )
    try:
        trainer = Trainer(config, records, checkpoints, device)
        warning = None if checkpoint is None else trainer.restore(checkpoint)
        atomic_write(folder / CONFIG, json.dumps(config.as_dict(), indent=2).encode())
        about = _about(config, trainer.env.identity)
        changed = ""
        if checkpoint is not None:
            about, changed = _with_first_machine(folder, about)
        atomic_write(folder / ABOUT, json.dumps(about, indent=2).encode())
        if checkpoint is None:
            trainer.save()  # before the first record, so that a run with records can be resumed
            home.saved()
        else:
            _LOG.warning("resumed at frame %s", f"{trainer.progress.frames:,}")
            for text in filter(None, (warning, changed)):
                _LOG.warning("%s", text)
    except BaseException:
        records.close()
        raise
    return trainer


@contextmanager
def _discarding(home: RunFolder) -> Iterator[None]:
    """Sets a run's outputs aside until the new run has started, then deletes them.

    If it cannot start, they are put back. Checkpoints are moved first and put back last: a kill
    cannot mix two runs.
    """
    folder, aside = home.path, home.path / ATTEMPTS / f"{_DISCARDED}{home.attempt:04d}"
    aside.mkdir(parents=True)
    old = [name for name in OUTPUTS if (folder / name).exists()]
    try:
        for name in old:
            (folder / name).rename(aside / name)
        yield
    except BaseException:
        home.check()  # what a later attempt has written is not deleted
        for name in reversed(OUTPUTS):
            if name not in old or (aside / name).exists():
                _delete(folder / name)  # of the run that could not start
            if (aside / name).exists():
                (aside / name).rename(folder / name)
        aside.rmdir()
        raise
    for each in aside.parent.glob(f"{_DISCARDED}*"):  # those of killed processes too
        shutil.rmtree(each, ignore_errors=True)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _refuse_to_restart(folder: Path) -> None:
    """Refuses to start at frame 0 in a folder with records."""
    paths = (folder / name for name in (*RECORDS, RESULT))
    written = [path.name for path in paths if path.exists() and path.stat().st_size]
    if written:
        raise ValueError(
            f"{folder} has records ({', '.join(written)}) but no intact checkpoint to resume from; "
            "pass --restart to revbis train to discard them and train from frame 0, or another "
            "--out to keep them"
        )


def read_config(folder: Path) -> Config | None:
    """The settings that a run was started with, by its config.json, else by its newest checkpoint.

    None if neither has them: there is no run yet, it is of an earlier version, or no checkpoint is
    intact.

    Raises:
        ValueError: If they cannot be read.
    """
    if (folder / CONFIG).exists():
        return Config.read(folder / CONFIG)
    saved = _saved_state(folder).get("config")
    if saved is None:
        return None
    try:
        return Config.from_saved(schema.convert(saved, dict[str, Any], "its config"))
    except ValueError as problem:
        raise ValueError(f"the newest checkpoint in {folder} cannot be read: {problem}") from None


def _restore_evaluations(folder: Path) -> None:
    """Writes a finished run's eval.jsonl again if it is gone: its checkpoints contain it."""
    if (folder / EVALUATIONS).exists():
        return
    if lines := saved_evaluations(folder / CHECKPOINTS):
        write_records(folder / EVALUATIONS, lines)
        _LOG.warning("%s was missing: restored from the checkpoint", EVALUATIONS)


def _saved_state(folder: Path) -> dict[str, Any]:
    """The state in a run's newest intact checkpoint; empty without one."""
    try:
        return read_state(folder / CHECKPOINTS) or {}
    except DamagedError:
        return {}


def _about(config: Config, identity: dict[str, Any]) -> AboutFile:
    """Versions, revision, command and machine of a run."""
    versions = {"revbis": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", *packages()):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "environment": identity,
        "versions": versions,
        "revision": _revision(),
        "command": command_line(config),
        "machine": platform.platform(),
        "processor": processor(),
        "threads": thread_counts(),
        "blas": blas(),
    }


_MACHINE = ("processor", "threads", "blas")


def _with_first_machine(folder: Path, about: AboutFile) -> tuple[AboutFile, str]:
    """A resumed run's record with the processor, threads and BLAS of its first start.

    Returns:
        The record, and what is not as it was, in a line; empty if nothing is known to differ.
    """
    first: AboutFile = {}
    with suppress(OSError, ValueError):
        first = schema.parse_json((folder / ABOUT).read_bytes(), AboutFile, ABOUT)
    before, now = conditions(first), conditions(about)
    changed = [
        f"{name} is {now[name]}, was {value}"
        for name, value in before.items()
        if now.get(name, value) != value
    ]
    own = {name: value for name, value in about.items() if name not in _MACHINE}
    kept = {name: value for name, value in first.items() if name in _MACHINE}
    where = "the run started elsewhere, and seeds do not reproduce across the difference"
    text = f"{where}: {'; '.join(changed)}" if changed else ""
    return cast("AboutFile", own | kept), text


def _revision() -> str | None:
    """The commit of this package's source, with a plus for uncommitted changes."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        head, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=False)
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "."])
        )
    except OSError:
        return None
    return None if head.returncode else head.stdout.strip() + ("+" if changes.stdout else "")


def _write_result(folder: Path, trainer: Trainer) -> None:
    last = trainer.records.evaluations[-1]
    result: ResultFile = {
        "frames": trainer.progress.frames,
        "mean_return": last["mean_return"],
        "seconds": trainer.clock.total,
    }
    atomic_write(folder / RESULT, json.dumps(result, indent=2).encode())


def finished(config: Config) -> bool:
    """Whether a run has spent its budget."""
    try:
        return is_finished(read_result(config.directory), config.frames)
    except (OSError, ValueError):
        return False


class OpenedRun(NamedTuple):
    """A run's agent at its newest checkpoint, on the CPU.

    Attributes:
        config: The run.
        agent: The agent.
        frames: The frame of the checkpoint.
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action.
    """

    config: Config
    agent: Agent
    frames: int
    observation_shape: tuple[int, ...]
    action_size: int


def check_trusted(config: Config, folder: Path) -> None:
    """Refuses a run whose folder names code: whoever wrote the folder chose what it does.

    Raises:
        ValueError: With the names, and how to allow them.
    """
    if config.code:
        raise ValueError(
            f"{shown_path(folder)} names code of its author's, {' and '.join(config.code)}, which "
            "would be imported and run; pass --trust (trust=True in Python) if you trust it"
        )


def open_run(folder: Path, *, trust: bool = False) -> OpenedRun:
    """A run's agent at its newest checkpoint.

    Args:
        folder: The run's folder.
        trust: Whether code that the folder names, as package.module:factory, may be imported.

    Raises:
        ValueError: If the folder is not a run, has no checkpoint yet, or names code that is not
            trusted.
    """
    copy = unpacked(folder)
    config = Config.read(copy / CONFIG)
    if not trust:
        check_trusted(config, folder)
    newest = read_agent(copy / CHECKPOINTS)
    if newest is None:
        raise ValueError(f"{shown_path(folder)} {_without_checkpoint(copy)}")
    frames, state = newest
    agent, shape, size = _inference(config)
    try:
        agent.load_state_dict(state)
    except Exception as problem:  # noqa: BLE001 (a forged state can fail in any way; ours cannot)
        reason = schema.reason(problem)
        raise ValueError(f"the checkpoint in {folder} does not fit its config: {reason}") from None
    return OpenedRun(config, agent, frames, shape, size)


def open_untrained(config: Config) -> Agent:
    """The agent that a run begins with, on the CPU."""
    return _inference(config)[0]


def _inference(config: Config) -> tuple[Agent, tuple[int, ...], int]:
    """An untrained agent on the CPU, and the shape of its observations and size of its actions."""
    env = make_env(**config.environment, seed=config.seed)
    agent = build_agent(replace(config, agent=config.agent.for_inference()), env, "cpu")
    env.close()
    return agent, env.observation_space.shape, int(env.action_space.shape[0])


def _without_checkpoint(folder: Path) -> str:
    """Why a run without checkpoints has none, and what to do."""
    if (folder / RESULT).exists():
        return "is finished, but its checkpoints are not here; to train it again, pass --restart"
    return "has no checkpoint yet; train the run first"


def read_evaluations(folder: Path) -> list[Record]:
    """The lines of a run's eval.jsonl."""
    return read_records(folder / EVALUATIONS)
