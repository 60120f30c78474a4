"""The page's part about a baseline: differences over equal seeds, also as files of their own."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from revbis.analysis.differences import difference_table, differences
from revbis.system.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from revbis.analysis.layout import Table
    from revbis.analysis.scores import Study

_NAME = "differences"


class Row(NamedTuple):
    """Which methods and which task a row of the table is about, by index; None for all tasks."""

    labels: str
    task: int | None


class PairedPart(NamedTuple):
    """What the page shows of it.

    Attributes:
        baseline: Its label.
        problem: Why there is nothing to show; empty if there is.
        table: The differences.
        rows: What each row of the table is about.
        picture: The forest plot as a data URL.
    """

    baseline: str
    problem: str
    table: Table | None = None
    rows: Sequence[Row] = ()
    picture: str = ""


def paired_part(study: Study, baseline: str, folder: Path) -> PairedPart:
    """Compares every method with the baseline and writes table and forest plot.

    Args:
        study: The runs.
        baseline: One of its labels.
        folder: Where differences.csv, .png, .svg and .pdf go, if there is anything to compare.

    Raises:
        ValueError: If the baseline is not in the study.
    """
    found = differences(study, baseline)
    try:
        table = difference_table(found)
    except ValueError as problem:
        return PairedPart(baseline, str(problem))
    from revbis.analysis import plots  # matplotlib takes a second

    png, *_ = plots.save(plots.forest(study, found), folder, _NAME)
    write_whole(folder / f"{_NAME}.csv", table.csv().encode())
    rows = [
        Row(
            " ".join(str(study.labels.index(label)) for label in (row.label, baseline)),
            None if row.task is None else study.tasks.index(row.task),
        )
        for row in found.rows
    ]
    picture = f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}"
    return PairedPart(baseline, "", table, rows, picture)
