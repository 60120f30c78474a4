"""Writes a run's agent for others to load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro


def command(
    run: Annotated[Path, tyro.conf.Positional],
    out: Path | None = None,
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Writes the agent of a run's newest checkpoint as weights, settings and a model card.

    The folder has what acting and embedding need and nothing else: no optimiser, no replay buffer.
    revbis.load(FOLDER) loads it, and executes nothing in it.

    Args:
        run: The run's folder.
        out: Folder to write; by default `export` in the run's folder. An earlier export is
            replaced; a folder with anything else in it is refused.
        trust: Import the task that the run's folder names as package.module:factory.
    """
    from revbis.export import write_export
    from revbis.runs.folder import EXPORT, check_writable

    if out is None:
        check_writable(run)
    folder = out or run / EXPORT
    write_export(run, folder, trust=trust)
    print(f"written to {folder}")
