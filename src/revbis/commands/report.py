"""A page about a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import tyro


def command(
    run: Annotated[Path, tyro.conf.Positional],
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
) -> None:
    """Writes one HTML page about a run: curves, c, timing, a video, nearest states, settings.

    The page opens from disk and needs no network. A video or a picture of neighbours that cannot be
    made is left out with a warning.

    Args:
        run: The run's folder.
        out: Folder of the page; `page` in the run's folder when not given.
    """
    from revbis import runtime

    runtime.prepare()
    from revbis.neighbours import draw, find_neighbours
    from revbis.page import write_page
    from revbis.runs import open_run
    from revbis.video import record_episode

    log = logging.getLogger("revbis")
    folder = out or run / "page"
    config, agent = open_run(run)
    video: Path | None = folder / "episode.mp4"
    picture: Path | None = folder / "neighbours.png"
    try:
        record_episode(config, agent, config.seed, folder / "episode.mp4")
    except (OSError, ValueError, ModuleNotFoundError) as problem:
        log.warning("no video: %s", problem)
        video = None
    try:
        found = find_neighbours(config, agent, episodes=4, queries=5, count=6, seed=config.seed)
        draw(found, folder / "neighbours.png", f"{config.task}, {config.method}")
    except ValueError as problem:
        log.warning("no picture of neighbours: %s", problem)
        picture = None
    write_page(run, folder / "index.html", video=video, neighbours=picture)
    print(f"open {folder / 'index.html'}")
