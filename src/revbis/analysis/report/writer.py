"""Writes the page about runs, once or again whenever their records change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from revbis import checks
from revbis.analysis.files import run_folders
from revbis.analysis.report import Media, Trainings, write_report
from revbis.analysis.report.media import MediaMaker, best_run
from revbis.analysis.scores import Study, read_study
from revbis.training.folder import ABOUT, CONFIG, FAILURES, PAGE, RECORDS, RESULT

# Shows progress over so many steps: a function to call at each of them, with its name.
Bar = Callable[[int], AbstractContextManager[Callable[[str], None]]]

_LOG = logging.getLogger("revbis")
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
        videos: Add a video and nearest states of the best seed of each task and method; the page of
            a single run has them by default, unless it is watched.
        live: Whether runs are watched: the page reloads itself.
        baseline: A method that all others are compared with, seed by seed; None for no such part.
    """

    def __init__(
        self,
        runs: Sequence[Path],
        folder: Path,
        bar: Bar,
        *,
        videos: bool,
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
            checks.choice(self._baseline, study.labels, "--baseline")
        self._warn(study.problems)
        media = self._make_media(study)
        return write_report(
            study,
            self.folder,
            media,
            trainings=self._trainings,
            refresh=self._live and not last,
            baseline=self._baseline,
        )

    def _make_media(self, study: Study) -> dict[Path, Media]:
        """Videos and pictures: of a single run by default, of several on request."""
        if not self._videos and (self._live or len(study.runs) > 1):
            return {}
        chosen = [best_run(group) for group in study.groups]
        media = {}
        with self._bar(2 * len(chosen)) as advance:
            for run in chosen:
                text = f"video and neighbours: {run.config.task}, {run.config.method}"
                advance(text)
                media[run.folder] = self._media.of(run)
                advance(text)
        return media

    def _warn(self, problems: Sequence[str]) -> None:
        new = [problem for problem in problems if problem not in self._warned]
        if self._live:  # unfinished runs are the reason to watch
            new = [problem for problem in new if " is not finished: " not in problem]
        for problem in new[:_WARNINGS]:
            _LOG.warning("%s", problem)
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
    shown = ""
    try:
        while True:
            start, now = time.monotonic(), _stamps(writer.runs)
            if now != before:
                before = now
                try:
                    text = f"open {writer.write()}"
                except (ValueError, OSError) as problem:
                    text = f"waiting: {problem}"
                if text != shown:
                    show(text)
                    shown = text
            time.sleep(max(_PAUSE_SECONDS, _SHARE * (time.monotonic() - start)))
    except KeyboardInterrupt:
        if shown.startswith("open "):
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
