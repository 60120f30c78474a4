"""Writes a page about runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from revbis.cli.console import print_table, step_bar
from revbis.cli.interrupts import finishing
from revbis.io.text import line_width, wrap


def command(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = (Path("runs"),),
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    watch: bool = False,
    videos: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    no_videos: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    baseline: str | None = None,
) -> None:
    """Writes one HTML page about runs: scores, curves, statistics, ablations, timing, settings.

    The page opens from disk and requires no network. For a single run it also has a video and a
    picture of nearest states. Anything that cannot be read or drawn is left out with a warning.

    Args:
        runs: Folders of runs, or folders or zip files that contain runs.
        out: Folder for the page; by default `page` in the folder of a single run, else `report`.
        watch: Update the page while runs continue, until Ctrl-C; an open page reloads itself.
        videos: Add a video and nearest states of the best seed of each task and method; a single
            run has them by default, unless --watch is set.
        no_videos: Add none, not even of a single run.
        baseline: Compare every other method with this one, seed by seed: a table of the differences
            with 95% intervals, printed and on the page with a forest plot, and as differences.csv
            and .png.
    """
    from revbis.analysis.page.writer import PageWriter, page_folder
    from revbis.analysis.page.writer import watch as watch_runs

    if videos and no_videos:
        raise ValueError("--videos and --no-videos contradict each other: drop one of them")
    wanted = True if videos else False if no_videos else None
    folder = out or page_folder(runs)
    writer = PageWriter(runs, folder, step_bar, videos=wanted, live=watch, baseline=baseline)
    if watch:
        with finishing("writing the page for the last time"):
            watch_runs(writer, partial(print, flush=True))
        return
    page = writer.write()
    if baseline is not None:
        _print_differences(runs, baseline)
    print(f"open {page}")


def _print_differences(runs: Sequence[Path], baseline: str) -> None:
    from revbis.analysis.differences import difference_table, differences
    from revbis.analysis.study import read_study

    try:
        table = difference_table(differences(read_study(runs), baseline))
    except ValueError as problem:  # the page says it, too
        print(f"nothing is compared: {problem}")
        return
    rows = []
    for name, cells in table.rows:
        texts = [f"{cell.text} ({cell.remark})" if cell.remark else cell.text for cell in cells]
        labels = (column.label for column in table.columns)
        rows.append({table.corner: name} | dict(zip(labels, texts, strict=True)))
    print_table(f"final scores minus those of {baseline}", rows, ("left out", "p", "pairs"))
    for text in (table.caption, *table.notes):
        print("\n".join(wrap(text, line_width())))
