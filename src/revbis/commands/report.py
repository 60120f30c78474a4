"""A page about runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from revbis.commands.console import step_bar


def command(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = (Path("runs"),),
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    watch: bool = False,
    videos: bool = False,
) -> None:
    """Writes one HTML page about runs: scores, curves, statistics, ablations, timing, settings.

    The page opens from disk and needs no network. For a single run it also has a video and a
    picture of nearest states; what cannot be made or read is left out with a warning.

    Args:
        runs: Folders of runs, or folders above them.
        out: Folder of the page; for a single run `page` in its folder, otherwise `report`.
        watch: Update the page while runs continue, until Ctrl-C; an open page reloads itself.
        videos: Add a video and nearest states of the best seed of each task and method; the page of
            a single run has them by default, unless it is watched.
    """
    from revbis.analysis.report.writer import PageWriter, page_folder
    from revbis.analysis.report.writer import watch as watch_runs

    writer = PageWriter(runs, out or page_folder(runs), step_bar, videos=videos, live=watch)
    if watch:
        watch_runs(writer, partial(print, flush=True))
    else:
        print(f"open {writer.write()}")
