"""A page about runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from revbis.commands.console import step_bar

if TYPE_CHECKING:
    from revbis.analysis.report import Media
    from revbis.analysis.scores import Study

_LOG = logging.getLogger("revbis")
_PAUSE_SECONDS = 3.0
_SHARE = 4  # watching pauses this many times as long as it works
_WARNINGS = 20
_FILES = ("config.json", "run.json", "result.json", "failures.json") + (
    *("eval.jsonl", "train.jsonl", "alarms.jsonl"),
)


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
    alone = len(runs) == 1 and (runs[0] / "config.json").exists()
    folder = out or (runs[0] / "page" if alone else Path("report"))
    writer = _Writer(runs, folder, videos, watch)
    if not watch:
        print(f"open {writer.write()}")
        return
    try:
        _watch(writer)
    except KeyboardInterrupt:
        writer.finish()


class _Writer:
    """Writes the page any number of times, and each warning once."""

    def __init__(self, runs: Sequence[Path], folder: Path, videos: bool, watch: bool) -> None:
        from revbis.analysis.report import Trainings
        from revbis.analysis.report.media import MediaMaker

        self.runs, self.folder = runs, folder
        self.videos, self.watch, self.refresh = videos, watch, watch
        self._trainings, self._media = Trainings(), MediaMaker(folder)
        self._warned: set[str] = set()

    def write(self) -> Path:
        from revbis.analysis.report import write_report
        from revbis.analysis.scores import read_study

        study = read_study(self.runs)
        self._warn(study.problems)
        media = self._show(study)
        return write_report(
            study, self.folder, media, trainings=self._trainings, refresh=self.refresh
        )

    def finish(self) -> None:
        """Writes the page for the last time: it no longer reloads itself."""
        self.refresh = False
        if (self.folder / "index.html").exists():
            print(f"\nopen {self.write()}")

    def _show(self, study: Study) -> dict[Path, Media]:
        """Videos and pictures: of a single run by default, of several on request."""
        from revbis.analysis.report.media import best_run

        if not self.videos and (self.watch or len(study.runs) > 1):
            return {}
        chosen = [best_run(group) for group in study.groups]
        media = {}
        with step_bar(2 * len(chosen)) as advance:
            for run in chosen:
                text = f"video and neighbours: {run.config.task}, {run.config.method}"
                advance(text)
                media[run.folder] = self._media.of(run)
                advance(text)
        return media

    def _warn(self, problems: Sequence[str]) -> None:
        new = [problem for problem in problems if problem not in self._warned]
        if self.watch:  # unfinished runs are the reason to watch
            new = [problem for problem in new if " is not finished: " not in problem]
        for problem in new[:_WARNINGS]:
            _LOG.warning("%s", problem)
        if len(new) > _WARNINGS:
            _LOG.warning("and %d more: the page lists all of them", len(new) - _WARNINGS)
        self._warned.update(new)


def _watch(writer: _Writer) -> None:
    """Writes the page whenever a record has changed; waits for the first one."""
    before: dict[Path, tuple[int, int]] | None = None
    printed = ""
    while True:
        began, now = time.monotonic(), _stamps(writer.runs)
        if now != before:
            before = now
            try:
                text = f"open {writer.write()}"
            except (ValueError, OSError) as problem:
                text = f"waiting: {problem}"
            if text != printed:
                print(text, flush=True)
                printed = text
        time.sleep(max(_PAUSE_SECONDS, _SHARE * (time.monotonic() - began)))


def _stamps(runs: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """When each record of the runs was written, and how long it is."""
    from revbis.analysis.files import run_folders

    stamps = {}
    for folder in {path for run in runs for path in run_folders(run)}:
        for path in (folder / name for name in _FILES):
            try:
                stat = path.stat()
            except OSError:
                continue
            stamps[path] = (stat.st_mtime_ns, stat.st_size)
    return stamps
