"""Videos and pictures of neighbours for the page, made from checkpoints."""

from __future__ import annotations

import logging
import math
import re
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from revbis.analysis import curves
from revbis.analysis.report.sections import Media
from revbis.system.files import named_when_whole
from revbis.training.folder import CHECKPOINTS, MANIFEST, NEIGHBOURS, checkpoint_frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from revbis.analysis.runs import Run
    from revbis.analysis.scores import Group
    from revbis.config import Config

_LOG = logging.getLogger("revbis")


class MediaMaker:
    """Makes videos and pictures of runs' agents, once for each checkpoint.

    Files that are newer than the run's newest checkpoint are used as they are.

    Args:
        folder: The report's folder; files go to `media` in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "media"
        self._made: dict[Path, tuple[float, Media]] = {}

    def of(self, run: Run) -> Media:
        """A video and a picture; what cannot be made is left out with a warning."""
        stamp = _newest_checkpoint(run.folder)
        known = self._made.get(run.folder)
        if known is None or known[0] != stamp:
            known = (stamp, self._make(run, stamp))
            self._made[run.folder] = known
        return known[1]

    def _make(self, run: Run, stamp: float) -> Media:
        folder = self._folder / _name(run)
        opened: list[tuple[Config, Any]] = []

        def agent() -> tuple[Config, Any]:
            if not opened:
                from revbis.system import runtime

                runtime.prepare()  # before torch is imported
                from revbis.training.run import open_run

                opened.append(open_run(run.folder))
            return opened[0]

        return Media(
            video=_file(folder / "episode.mp4", stamp, lambda path: _record(*agent(), path)),
            neighbours=_file(folder / NEIGHBOURS, stamp, lambda path: _draw(*agent(), path)),
        )


def best_run(group: Group) -> Run:
    """The run of a group with the best evaluation."""
    return max(group.runs, key=lambda run: max(curves.curve(run).scores, default=-math.inf))


def _file(path: Path, stamp: float, make: Callable[[Path], None]) -> Path | None:
    """The file if it is new enough or can be made; it gets its name once it is complete."""
    if path.exists() and path.stat().st_mtime >= stamp:
        return path
    try:
        with named_when_whole(path) as unfinished:
            make(unfinished)
    except Exception as problem:  # noqa: BLE001 (simulators, OpenGL, codecs: the page matters more)
        _LOG.warning("no %s: %s", path.name, problem)
        return None
    return path


def _record(config: Config, agent: Any, path: Path) -> None:
    from revbis.inspect.video import record_episode

    record_episode(config, agent, config.seed, path)


def _draw(config: Config, agent: Any, path: Path) -> None:
    from revbis.inspect.neighbours import draw, find_neighbours

    nearest = find_neighbours(config, agent, episodes=4, queries=5, count=6, seed=config.seed)
    draw(nearest, path, f"{config.task}, {config.method}")


def _newest_checkpoint(folder: Path) -> float:
    """When the newest checkpoint was written; one that is deleted meanwhile is skipped."""
    times = []
    for path in (folder / CHECKPOINTS).glob(f"*/{MANIFEST}"):
        if checkpoint_frames(path.parent.name) is not None:
            with suppress(OSError):
                times.append(path.stat().st_mtime)
    return max(times, default=math.inf)


def _name(run: Run) -> str:
    """A readable folder name that no other run has."""
    config = run.config
    readable = re.sub(r"[^\w.-]+", "-", f"{config.task}-{config.method}-seed-{config.seed}")
    return f"{readable}-{blake2b(str(run.folder).encode(), digest_size=4).hexdigest()}"
