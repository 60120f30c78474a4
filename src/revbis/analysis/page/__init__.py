"""One page about a study: it holds all it needs and opens from disk, with no network."""

from __future__ import annotations

import os
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from revbis import __version__
from revbis.analysis.page import sections
from revbis.analysis.page.data import Trainings, page_data
from revbis.analysis.page.sections import Media, paired_part, summary_rows
from revbis.analysis.problems import failure_text
from revbis.analysis.scores import Pooled, budget_notes, budgets, measure_of, pool_scores
from revbis.analysis.study import Study, as_study
from revbis.analysis.tables import (
    PUBLISHED,
    PUBLISHED_NOTE,
    gap_table,
    has_published,
    yardstick_table,
)
from revbis.io import schema
from revbis.io.files import atomic_write, shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFRESH_SECONDS = 10


def write_page(
    study: Study,
    folder: Path,
    media: Mapping[Path, Media] | None = None,
    *,
    trainings: Trainings | None = None,
    refresh: bool = False,
    baseline: str | None = None,
) -> Path:
    """Writes the page.

    Args:
        study: The runs.
        folder: Where index.html goes.
        media: Videos and pictures to show, by run folder; they become part of the page.
        trainings: Reads train.jsonl; pass the same one when the page is updated.
        refresh: Whether the page reloads itself, for runs that are training.
        baseline: A method that all others are compared with, seed by seed; table and figure are
            also written to the folder, as differences.csv and .png.

    Returns:
        The page's path.

    Raises:
        ValueError: If study is none, folder no path, or the baseline not in the study.
        OSError: If it cannot be written; an earlier page is then untouched.
    """
    as_study(study)
    place: Path = schema.convert(folder, Path, "folder")
    path = place / "index.html"
    values = _values(study, media or {}, trainings or Trainings())
    values["paired"] = None if baseline is None else paired_part(study, baseline, place)
    refresh_seconds = _REFRESH_SECONDS if refresh else None
    page = _templates().get_template("page.html").render(values, refresh=refresh_seconds)
    atomic_write(path, page.encode(errors="replace"))  # half a surrogate pair is no text
    return path


def _values(study: Study, media: Mapping[Path, Media], trainings: Trainings) -> dict[str, Any]:
    """What the templates lay out."""
    root, at, now = _root(study), budgets(study), datetime.now().astimezone()
    unread = [each for run in study.runs for each in trainings.of(run).problems]
    episodes, skipped = sections.episodes(study, media)
    phases, timing = sections.timing(study, trainings)
    pool, not_pooled = _pooled(study)
    common, differing, differences = sections.settings(study)
    return {
        "study": study,
        "tasks": study.tasks,
        "labels": study.labels,
        "title": sections.title(study),
        "tiles": sections.tiles(study),
        "failing": sections.failing(study, root),
        "messages": sections.messages(study, root, [*unread, *skipped]),
        "alarms": sections.alarms(study),
        "summary": summary_rows(study, at),
        "published": PUBLISHED if has_published(study.tasks) else "",
        "published_note": PUBLISHED_NOTE,
        "gaps": sections.table_or_none(gap_table, study),
        "yardsticks": sections.table_or_none(yardstick_table, study),
        "has_success": any(measure_of(task) == "success" for task in study.tasks),
        "budget_notes": [f"{note}." for note in budget_notes(study, at)],
        "pool": pool,
        "not_pooled": not_pooled,
        "statistics": sections.statistics(study) if pool else [],
        "metrics": {n.rpartition("/")[2] for run in study.runs for n in trainings.of(run).values},
        "phases": phases,
        "timing": timing,
        "episodes": episodes,
        "common": common,
        "differing": differing,
        "differences": differences,
        "commands": sections.commands(study),
        "versions": sections.versions(study),
        "about": (
            f"revbis {__version__} · made {now:%Y-%m-%d %H:%M:%S} · runs in {shown_path(root)}"
        ),
        "data": page_data(study, trainings, at, pool),
    }


def _pooled(study: Study) -> tuple[Pooled | None, str]:
    """Scores pooled over tasks, or why there are none; one run alone has no statistics."""
    if len(study.runs) == 1:
        return None, ""
    try:
        return pool_scores(study, "final"), ""
    except ValueError as problem:
        return None, str(problem)


@cache
def _templates() -> Environment:
    """Every value is escaped but for the files of this package, which templates call safe."""
    templates = Environment(
        loader=PackageLoader(__name__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    templates.globals |= {"file": _file, "counted": sections.counted}
    templates.filters |= {"duration": sections.duration, "failure_text": failure_text}
    return templates


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _root(study: Study) -> Path:
    """The folder that all runs are in, which messages then leave out."""
    return Path(os.path.commonpath([run.folder.parent for run in study.runs]))


__all__ = ["Media", "Trainings", "write_page"]
