"""One page about a study: it holds all it needs and opens from disk, with no network."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from revbis import __version__, schema
from revbis.analysis import compare
from revbis.analysis.report import sections, settings
from revbis.analysis.report.data import embedded, page_data
from revbis.analysis.report.markup import Html, element, join, text
from revbis.analysis.report.sections import Media
from revbis.analysis.report.summary import summary
from revbis.analysis.report.training import Trainings
from revbis.analysis.scores import Study, as_study
from revbis.files import write_whole

_SCRIPTS = ("series.js", "marks.js", "charts.js", "drawings.js", "page.js")
_REFRESH_SECONDS = 10


def write_report(
    study: Study,
    folder: Path,
    media: Mapping[Path, Media] | None = None,
    *,
    trainings: Trainings | None = None,
    refresh: bool = False,
) -> Path:
    """Writes the page.

    Args:
        study: The runs.
        folder: Where index.html goes.
        media: Videos and pictures to show, by run folder; they become part of the page.
        trainings: Reads train.jsonl; to be given again when the page is written again.
        refresh: Whether the page reloads itself, as while runs go on.

    Returns:
        The page's path.

    Raises:
        ValueError: If study is none, or folder no path.
        OSError: If it cannot be written; an earlier page is then untouched.
    """
    as_study(study)
    place: Path = schema.convert(folder, Path, "folder")
    path = place / "index.html"
    page = _page(study, media or {}, trainings or Trainings(), refresh)
    write_whole(path, page.encode(errors="replace"))  # half a surrogate pair is no text
    return path


def _page(study: Study, media: Mapping[Path, Media], trainings: Trainings, refresh: bool) -> str:
    root, at = _root(study), compare.budgets(study)
    odd = [text for run in study.runs for text in trainings.of(run).odd]
    episodes, skipped = sections.episodes(study, media)
    # The script reloads the page, as it keeps what was chosen; a browser without scripts does too.
    meta = f'<noscript><meta http-equiv="refresh" content="{_REFRESH_SECONDS}"></noscript>'
    made = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
    parts = {
        "title": text(sections.title(study)),
        "refresh": Html(f' data-refresh="{_REFRESH_SECONDS}"' if refresh else ""),
        "reload": Html(meta if refresh else ""),
        "style": Html(_file("vendor/uPlot.min.css") + _file("page.css")),
        "headline": sections.headline(study),
        "messages": join(
            [
                sections.failing(study, root),
                sections.messages(study, root, [*odd, *skipped]),
                sections.alarms(study),
            ]
        ),
        "summary": summary(study, at),
        "timing": sections.timing(study, trainings),
        "episodes": episodes,
        "settings": join([settings.settings(study), settings.commands(study)]),
        "versions": settings.versions(study),
        "footer": element("p", f"revbis {__version__} · made {made} · runs in {root}"),
        "data": Html(embedded(page_data(study, trainings, at))),
        "licence": Html(_file("vendor/LICENSE")),
        "charts": Html(_file("vendor/uPlot.iife.min.js")),
        "script": Html("\n".join(map(_file, _SCRIPTS))),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _file("page.html"))


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _root(study: Study) -> Path:
    """The folder that all runs are in, so that it need not be said again and again."""
    return Path(os.path.commonpath([run.folder.parent for run in study.runs]))


__all__ = ["Media", "Trainings", "write_report"]
