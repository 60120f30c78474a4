"""Writes a run's agent as an export, all at once."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from revbis.analysis.runs import read_run
from revbis.config import Config, RunSettings
from revbis.export.agent import acting_of, check_method, load
from revbis.export.card import card
from revbis.export.files import (
    CARD,
    FORMAT,
    SETTINGS,
    WEIGHTS,
    read_settings,
    write_settings,
    write_weights,
)
from revbis.system.files import digest, naming, new_folder, sync_folder, write_whole
from revbis.training.folder import CONFIG
from revbis.training.run import open_run_at

if TYPE_CHECKING:
    from pathlib import Path

    from revbis.schema import ExportFile


def write_export(run: Path, out: Path) -> None:
    """Writes the agent of a run's newest checkpoint: weights, settings and a model card.

    Args:
        run: The run's folder.
        out: The folder to write; an earlier export in it is replaced.

    Raises:
        ValueError: If the folder is no run or has no checkpoint, if its agent cannot be exported,
            or if `out` has other files in it.
        OSError: For example if the disk is full; `out` is then what it was before.
    """
    out = out.resolve()
    check_method(Config.read(run / CONFIG).method)
    _check_replaceable(out)
    unfinished = out.with_name(f".{os.getpid()}-{out.name}")
    with new_folder(out.parent), naming(out):
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            _write(run, unfinished, out.name)
            load(unfinished)  # what cannot be loaded is not kept
            _put(unfinished, out)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _write(run: Path, folder: Path, name: str) -> None:
    config, agent, frames = open_run_at(run)
    parts = acting_of(config.method, agent)
    read = read_run(run, lambda _: None)
    about = read.about if read is not None else {}
    write_weights(folder, parts.tensors)
    path = folder / WEIGHTS
    # Where the run was written, and on what, is nobody's business who loads it.
    shared = replace(config, out=RunSettings.out, device=RunSettings.device, wandb=None)
    content: ExportFile = {
        "format": FORMAT,
        "config": shared.as_dict(),
        "frames": frames,
        "observation_shape": list(parts.observation_shape),
        "action_size": parts.action_size,
        "numbers": {**parts.numbers},
        "weights": {"bytes": path.stat().st_size, "digest": digest(path)},
        "versions": about.get("versions", {}),
        "revision": about.get("revision"),
    }
    write_settings(folder, content)
    evaluations = read.evaluations if read is not None else []
    write_whole(folder / CARD, card(shared, content, evaluations, name).encode())


def _check_replaceable(out: Path) -> None:
    """Refuses a folder with anything in it but an export."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"{out} is a file: choose another --out")
    names = {path.name for path in out.iterdir()}
    if not names:
        return
    foreign = sorted(names - {WEIGHTS, SETTINGS, CARD})
    if foreign:
        raise ValueError(f"{out} has other files in it ({foreign[0]!r:.80}): choose another --out")
    try:
        read_settings(out)
    except ValueError as problem:
        raise ValueError(f"{problem}; it is not replaced: choose another --out") from None


def _put(unfinished: Path, out: Path) -> None:
    """Gives the new folder its name; the one before is deleted once that has worked."""
    before = out.with_name(f".{os.getpid()}-before-{out.name}")
    replaced = out.exists()
    if replaced:
        out.rename(before)
    try:
        unfinished.rename(out)
    except BaseException:
        if replaced:
            before.rename(out)
        raise
    sync_folder(out.parent)
    shutil.rmtree(before, ignore_errors=True)
