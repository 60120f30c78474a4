"""A run's folder from the outside: beginning, taking up again, and reading it."""

from __future__ import annotations

import json
import logging
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from revbis import __version__, preflight, schema
from revbis.checkpoint import Checkpoints, read_agent
from revbis.config import Config
from revbis.envs import make_env
from revbis.files import write_whole
from revbis.folders import RunFolder
from revbis.presets import command_line
from revbis.progress import Status
from revbis.records import RECORDS, Records, read_records
from revbis.runtime import use_threads
from revbis.schema import Result
from revbis.train import Trainer

_LOG = logging.getLogger("revbis")
_PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "dm_control", "metaworld")


def train(
    config: Config,
    *,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[Status], None] = lambda status: None,
    home: RunFolder | None = None,
    restart: bool = False,
) -> bool:
    """Trains a run, from its beginning or from its newest checkpoint.

    Args:
        config: The run; its folder follows from it.
        stop: Asked after every agent step; True saves and leaves.
        report: Called after every agent step.
        home: The run's folder, already claimed; claimed here when not given.
        restart: Discard what the folder holds and begin at frame 0. Otherwise a run with records
            is resumed or refused, never begun anew.

    Returns:
        Whether the run is finished; a finished one is left as it is.

    Raises:
        ValueError: If the run was begun with other settings, has no intact checkpoint to resume
            from, and for whatever cannot be trained.
        TrainingFailedError: If a loss is not finite.
        SupersededError: If another process has taken the run over.
        OSError: As when the disk is full; the last checkpoint is untouched.
    """
    folder = config.directory
    if not restart:
        _show_changes(config, folder)
        if finished(config):
            return True
    preflight.check(config)
    device = resolve_device(config.device)
    use_threads(config.threads)
    if home is not None:
        return _train(config, device, home, restart, stop, report)
    home = RunFolder(folder)
    home.claim()
    try:
        return _train(config, device, home, restart, stop, report)
    except BaseException:
        home.abandon()
        raise


def _train(
    config: Config,
    device: str,
    home: RunFolder,
    restart: bool,
    stop: Callable[[], bool],
    report: Callable[[Status], None],
) -> bool:
    """The composition root: environment, replay, agent, records and checkpoints of one run."""
    folder = config.directory
    if restart:
        _discard(folder)
    checkpoints = Checkpoints(folder / "checkpoints", config.keep_checkpoints, home.check)
    checkpoint = checkpoints.resume()
    if checkpoint is None:
        _refuse_to_restart(folder)
    records = Records(
        folder,
        tensorboard=config.tensorboard,
        wandb=config.wandb,
        run=config.as_dict(),
        guard=home.check,
    )
    try:
        trainer = Trainer(config, records, checkpoints, device)
        write_whole(folder / "config.json", json.dumps(config.as_dict(), indent=2).encode())
        about = _about(config, trainer.env.identity)
        write_whole(folder / "run.json", json.dumps(about, indent=2).encode())
        if checkpoint is None:
            trainer.save()  # before the first record: what has records can be resumed
            home.saved()
        else:
            warning = trainer.restore(checkpoint)
            _LOG.warning("resumed at frame %s", f"{trainer.progress.frames:,}")
            if warning:
                _LOG.warning("%s", warning)
        done = trainer.run(partial(_stops, home, trainer, stop), report, home.saved)
        if done:
            _write_result(folder, trainer)
            home.saved()
        return done
    finally:
        records.close()


def _discard(folder: Path) -> None:
    """Deletes a run's checkpoints, then its records: a kill in between cannot mix two runs."""
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for name in (*RECORDS, "result.json", "failures.json"):
        (folder / name).unlink(missing_ok=True)


def _refuse_to_restart(folder: Path) -> None:
    """A run without a checkpoint may begin at frame 0 only if nothing was recorded yet."""
    written = [name for name in (*RECORDS, "result.json") if _size(folder / name)]
    if written:
        raise ValueError(
            f"{folder} has records ({', '.join(written)}) but no intact checkpoint to resume from; "
            "pass --restart to revbis train to discard them and train from frame 0, or another "
            "--out to keep them"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _stops(home: RunFolder, trainer: Trainer, stop: Callable[[], bool]) -> bool:
    """Whether to stop here; tells others how far the run is on the way."""
    return home.beat(trainer.status) or stop()


def finished(config: Config) -> bool:
    """Whether a run has spent its budget."""
    try:
        text = (config.directory / "result.json").read_bytes()
        result: Result = schema.parse_json(text, Result, "result.json")
        return result["frames"] >= config.frames
    except (OSError, ValueError):
        return False


def resolve_device(name: str) -> str:
    """The device a name stands for: `auto` is the best there is."""
    import torch

    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def open_run(folder: Path) -> tuple[Config, Any]:
    """A run's config and its agent at the newest checkpoint, on the CPU.

    Raises:
        ValueError: If the folder is no run, or has no checkpoint yet.
    """
    from revbis.agents import DrQV2

    config = Config.read(folder / "config.json")
    state = read_agent(folder / "checkpoints")
    if state is None:
        raise ValueError(f"{folder} has no checkpoint yet; train it further")
    env = make_env(**config.environment, seed=config.seed)
    shape, size = env.observation_space.shape, int(env.action_space.shape[0])
    env.close()
    settings = replace(config.agent, compile=False, mixed_precision=False)
    agent = DrQV2(shape, size, settings, seed=config.seed)
    try:
        agent.load_state_dict(state)
    except ValueError as problem:
        raise ValueError(f"the checkpoint in {folder} does not fit its config: {problem}") from None
    return config, agent


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's eval.jsonl."""
    return read_records(folder / "eval.jsonl")


def _show_changes(config: Config, folder: Path) -> None:
    """Refuses settings with which the run in the folder cannot go on; shows the others."""
    path = folder / "config.json"
    if path.exists():
        for change in preflight.check_unchanged(Config.read(path), config, folder):
            _LOG.warning("%s", change)


def _about(config: Config, identity: dict[str, Any]) -> dict[str, Any]:
    """What is to be known about a run besides its settings."""
    versions = {"revbis": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
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
    }


def _revision() -> str | None:
    """The commit of this package's source, with a plus if it has been changed since."""
    here = Path(__file__).parent
    git = ["git", "-C", str(here)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        if head.returncode:
            return None
        changed = subprocess.run([*git, "status", "--porcelain", "."], capture_output=True)
    except OSError:
        return None
    return head.stdout.strip() + ("+" if changed.stdout else "")


def _write_result(folder: Path, trainer: Trainer) -> None:
    last = trainer.records.evaluations[-1]
    result = {
        "frames": trainer.progress.frames,
        "mean_return": last["mean_return"],
        "seconds": trainer.clock.total,
    }
    write_whole(folder / "result.json", json.dumps(result, indent=2).encode())
