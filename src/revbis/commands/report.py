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
_SHARE = 4  # watching rests this many times as long as it works
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
    """Writes one HTML page about runs: scores, curves, losses, ablations, timing, settings.

    The page opens from disk and needs no network. For one run it has a video and a picture of
    nearest states too; what cannot be made or read is left out with a warning.

    Args:
        runs: Folders of runs, or folders above them.
        out: Folder of the page; for one run `page` in its folder, otherwise `report`.
        watch: Write the page again while runs go on, until Ctrl-C; an open page reloads itself.
        videos: A video and nearest states of the best seed of each task and method; one run has
            them anyway, unless it is watched.
    """
    from revbis.system import runtime

    runtime.prepare()
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
    """Writes the page, as often as it is asked to; each warning is said once."""

    def __init__(self, runs: Sequence[Path], folder: Path, videos: bool, watch: bool) -> None:
        from revbis.analysis.report import Trainings
        from revbis.analysis.report.media import MediaMaker

        self.runs, self.folder = runs, folder
        self.videos, self.watch, self.refresh = videos, watch, watch
        self._trainings, self._media = Trainings(), MediaMaker(folder)
        self._said: set[str] = set()

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
        """Writes the page a last time: it no longer reloads itself."""
        self.refresh = False
        if (self.folder / "index.html").exists():
            print(f"\nopen {self.write()}")

    def _show(self, study: Study) -> dict[Path, Media]:
        """Videos and pictures: always of a run alone, else when asked for."""
        from revbis.analysis.report.media import best_run

        if not self.videos and (self.watch or len(study.runs) > 1):
            return {}
        chosen = [best_run(group) for group in study.groups]
        found = {}
        with step_bar(2 * len(chosen)) as advance:
            for run in chosen:
                text = f"video and neighbours: {run.config.task}, {run.config.method}"
                advance(text)
                found[run.folder] = self._media.of(run)
                advance(text)
        return found

    def _warn(self, problems: Sequence[str]) -> None:
        new = [problem for problem in problems if problem not in self._said]
        if self.watch:  # that runs go on is why they are watched
            new = [problem for problem in new if " is not finished: " not in problem]
        for problem in new[:_WARNINGS]:
            _LOG.warning("%s", problem)
        if len(new) > _WARNINGS:
            _LOG.warning("and %d more, all of them on the page", len(new) - _WARNINGS)
        self._said.update(new)


def _watch(writer: _Writer) -> None:
    """Writes the page whenever a record has changed, and waits where there is none yet."""
    before: dict[Path, tuple[int, int]] | None = None
    said = ""
    while True:
        began, now = time.monotonic(), _stamps(writer.runs)
        if now != before:
            before = now
            try:
                text = f"open {writer.write()}"
            except (ValueError, OSError) as problem:
                text = f"waiting: {problem}"
            if text != said:
                print(text, flush=True)
                said = text
        time.sleep(max(_PAUSE_SECONDS, _SHARE * (time.monotonic() - began)))


def _stamps(runs: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """When each record of the runs was written, and how long it is."""
    from revbis.analysis.files import run_folders

    found = {}
    for folder in {path for run in runs for path in run_folders(run)}:
        for path in (folder / name for name in _FILES):
            try:
                stat = path.stat()
            except OSError:
                continue
            found[path] = (stat.st_mtime_ns, stat.st_size)
    return found
