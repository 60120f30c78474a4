"""Writes the page about runs, once or again whenever their records change."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revbis.analysis.page import Trainings, write_page
from revbis.analysis.page.sections import Media
from revbis.analysis.problems import Kind, StudyProblem
from revbis.analysis.runs import run_folders
from revbis.analysis.scores import curve
from revbis.analysis.study import Study, read_study
from revbis.io import schema
from revbis.io.files import atomic_path, shown_path
from revbis.runs.folder import (
    ABOUT,
    CHECKPOINTS,
    CONFIG,
    FAILURES,
    MANIFEST,
    NEIGHBOURS,
    PAGE,
    RECORDS,
    RESULT,
    checkpoint_frames,
)

if TYPE_CHECKING:
    from revbis.analysis.runs import Run
    from revbis.analysis.study import RunGroup
    from revbis.runs.config import Config

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

    def of(self, run: Run, *, alone: bool) -> Media:
        """Videos and a picture; what cannot be made is left out with a warning.

        Args:
            run: The run.
            alone: Whether the page is about it alone, and also shows its untrained agent.
        """
        stamp = _newest_checkpoint(run.folder)
        known = self._made.get(run.folder)
        if known is None or known[0] != stamp:
            known = (stamp, _without(run) if run.config.code else self._make(run, stamp, alone))
            self._made[run.folder] = known
        return known[1]

    def _make(self, run: Run, stamp: float, alone: bool) -> Media:
        folder = self._folder / _name(run)

        @cache
        def agent() -> tuple[Config, Any]:
            from revbis.io import runtime

            runtime.prepare()  # before torch is imported
            from revbis.runs.run import open_run

            opened = open_run(run.folder)
            return opened.config, opened.agent

        def untrained() -> tuple[Config, Any]:
            from revbis.runs.run import open_untrained

            return run.config, open_untrained(run.config)

        video = _file(folder / "episode.mp4", stamp, lambda path: _record(*agent(), path))
        before = None
        if alone and video is not None:
            before = _file(folder / "untrained.mp4", 0.0, lambda path: _record(*untrained(), path))
        drawn = None
        if run.config.observation == "pixels":  # others cannot be drawn
            drawn = _file(folder / NEIGHBOURS, stamp, lambda path: _draw(*agent(), path))
        return Media(video, drawn, before)


def _without(run: Run) -> Media:
    """No video and no picture: a report imports nothing that a run's folder names."""
    _LOG.warning(
        "no video and neighbours: %s names code of its author's, %s, which a report does not "
        "import; revbis eval --video and revbis neighbours do, with --trust",
        shown_path(run.folder),
        " and ".join(run.config.code),
    )
    return Media()


def best_run(group: RunGroup) -> Run:
    """The run of a group with the best evaluation."""
    return max(group.runs, key=lambda run: max(curve(run).scores, default=-math.inf))


def _file(path: Path, stamp: float, make: Callable[[Path], None]) -> Path | None:
    """The file if it is new enough or can be made; it gets its name once it is complete."""
    if path.exists() and path.stat().st_mtime >= stamp:
        return path
    try:
        with atomic_path(path) as unfinished:
            make(unfinished)
    except Exception as problem:  # noqa: BLE001 (simulators, OpenGL, codecs: the page matters more)
        _LOG.warning("no %s: %s", path.name, problem)
        return None
    return path


def _record(config: Config, agent: Any, path: Path) -> None:
    from revbis.runs.evaluate import record_episode

    record_episode(config.environment, agent, config.seed, path)


def _draw(config: Config, agent: Any, path: Path) -> None:
    from revbis.representation.neighbours import draw_neighbours, find_neighbours

    nearest = find_neighbours(config, agent, episodes=4, queries=5, count=6, seed=config.seed)
    draw_neighbours(nearest, path, f"{config.task}, {config.system}")


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
    readable = re.sub(r"[^\w.-]+", "-", f"{config.task}-{config.system}-seed-{config.seed}")
    return f"{readable}-{blake2b(str(run.folder).encode(), digest_size=4).hexdigest()}"


# Shows progress over so many steps: a function to call at each of them, with its name.
Bar = Callable[[int], AbstractContextManager[Callable[[str], None]]]

_PAUSE_SECONDS = 3.0
_SHARE = 4  # watching pauses this many times as long as it works
_WARNINGS = 20
_WATCHED = (CONFIG, ABOUT, RESULT, FAILURES, *RECORDS)


def page_folder(runs: Sequence[Path]) -> Path:
    """Where the page goes by default: for a single run `page` in its folder, otherwise `report`."""
    alone = len(runs) == 1 and (runs[0] / CONFIG).exists()
    return runs[0] / PAGE if alone else Path("report")


class PageWriter:
    """Writes the page any number of times, and each warning once.

    Args:
        runs: Folders of runs, or folders above them.
        folder: Where the page goes.
        bar: Shows the progress of videos and pictures.
        videos: Whether to add a video and nearest states of the best seed of each task and method;
            None for those of a single run, unless it is watched.
        live: Whether runs are watched: the page reloads itself.
        baseline: A method that all others are compared with, seed by seed; None for no such part.
    """

    def __init__(
        self,
        runs: Sequence[Path],
        folder: Path,
        bar: Bar,
        *,
        videos: bool | None,
        live: bool,
        baseline: str | None = None,
    ) -> None:
        self.runs, self.folder = runs, folder
        self._bar, self._videos, self._live, self._baseline = bar, videos, live, baseline
        self._trainings, self._media = Trainings(), MediaMaker(folder)
        self._warned: set[str] = set()

    def write(self, *, last: bool = False) -> Path:
        """Reads the runs and writes the page; the last one no longer reloads itself.

        Returns:
            The page's path.

        Raises:
            ValueError: If there is no run to read, or none of the baseline.
            OSError: If the page cannot be written.
        """
        study = read_study(self.runs)
        if self._baseline is not None:  # before videos are made
            schema.choice(self._baseline, study.labels, "--baseline")
        self._warn(study.problems)
        media = self._make_media(study)
        return write_page(
            study,
            self.folder,
            media,
            trainings=self._trainings,
            refresh=self._live and not last,
            baseline=self._baseline,
        )

    def _make_media(self, study: Study) -> dict[Path, Media]:
        """Videos and pictures: of a single run by default, of several on request."""
        alone = len(study.runs) == 1 and not self._live
        if not (alone if self._videos is None else self._videos):
            return {}
        chosen = [best_run(group) for group in study.groups]
        media = {}
        with self._bar(2 * len(chosen)) as advance:
            for run in chosen:
                text = f"video and neighbours: {run.config.task}, {run.config.system}"
                advance(text)
                media[run.folder] = self._media.of(run, alone=len(study.runs) == 1)
                advance(text)
        return media

    def _warn(self, problems: Sequence[StudyProblem]) -> None:
        if self._live:  # unfinished runs are the reason to watch
            problems = [problem for problem in problems if problem.kind is not Kind.UNFINISHED]
        new = [text for text in map(str, problems) if text not in self._warned]
        for text in new[:_WARNINGS]:
            _LOG.warning("%s", text)
        if len(new) > _WARNINGS:
            _LOG.warning("and %d more: the page lists all of them", len(new) - _WARNINGS)
        self._warned.update(new)


def watch(writer: PageWriter, show: Callable[[str], None]) -> None:
    """Writes the page whenever a record has changed, until Ctrl-C; waits until there is a run.

    Args:
        writer: Writes the page.
        show: Called with the page's path, or what is waited for, whenever that changes.
    """
    before: dict[Path, tuple[int, int]] | None = None
    shown, page = "", None
    try:
        while True:
            start, now = time.monotonic(), _stamps(writer.runs)
            if now != before:
                before = now
                try:
                    page = writer.write()
                    text = f"open {page}"
                except (ValueError, OSError) as problem:
                    page, text = None, f"waiting: {problem}"
                if text != shown:
                    show(text)
                    shown = text
            time.sleep(max(_PAUSE_SECONDS, _SHARE * (time.monotonic() - start)))
    except KeyboardInterrupt:
        if page is not None:
            show(f"\nopen {writer.write(last=True)}")


def _stamps(runs: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """When each record of the runs was written, and its size."""
    stamps = {}
    for folder in {path for run in runs for path in run_folders(run)}:
        for path in (folder / name for name in _WATCHED):
            try:
                stat = path.stat()
            except OSError:
                continue
            stamps[path] = (stat.st_mtime_ns, stat.st_size)
    return stamps
