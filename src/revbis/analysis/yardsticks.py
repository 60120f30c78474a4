"""The yardsticks of runs' embeddings, over seeds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.analysis import compare, stats
from revbis.analysis.layout import Cell, Column, Table
from revbis.yardsticks.names import EMBEDDINGS, MEASURES, NO_NOISE

if TYPE_CHECKING:
    from revbis.analysis.scores import Group, Study

_CAPTION = (
    "Mean ± one standard deviation (n − 1) over the N seeds that were measured at the furthest "
    "frame. DF, "
    "the denoising factor, is 1 if noise does not move an embedding and 0 if it moves it as much "
    "as other states do. State R²: how much of the simulator's state a linear map finds, on "
    "held-out episodes. Effective rank: dimensions in use. ρ with ΔV: rank correlation of "
    "distances with differences of returns."
)
_NONE = "–"


def yardstick_table(study: Study) -> Table:
    """Every measure of every embedding, of each method on each task.

    Raises:
        ValueError: If they were measured of no run.
    """
    lines = [
        line
        for group in study.groups
        for embedding in EMBEDDINGS
        if (line := _line(group, embedding)) is not None
    ]
    if not lines:
        raise ValueError(
            "there are no yardsticks: measure them with revbis yardstick RUN, or during training "
            "with --yardstick-every"
        )
    rows, records = zip(*lines, strict=True)
    columns = tuple(Column(name, "measured") for name in (*MEASURES.values(), "N"))
    without = any("denoising_id" not in record for record in records)
    notes = (f"{_NONE}: {NO_NOISE}.",) if without else ()
    return Table(_CAPTION, "task, method and embedding", columns, rows, notes, records)


def _line(
    group: Group, embedding: str
) -> tuple[tuple[str, tuple[Cell, ...]], dict[str, Any]] | None:
    """A group's row and its numbers; None if the embedding was measured of no seed."""
    measured = [run for run in group.runs if f"{embedding}_effective_rank" in run.yardsticks]
    if not measured:
        return None
    frames = max(run.yardstick_frames for run in measured)
    measured = [run for run in measured if run.yardstick_frames == frames]
    seeds = [run.config.seed for run in measured]
    record: dict[str, Any] = {"task": group.task, "method": group.label, "embedding": embedding}
    cells = []
    for measure in MEASURES:
        key = f"{embedding}_{measure}"
        values = [run.yardsticks[key] for run in measured if key in run.yardsticks]
        if not values:
            cells.append(Cell(_NONE))
            continue
        mean, deviation, error, _ = stats.summary(np.asarray(values))
        spread = "" if math.isnan(deviation) else f" ± {deviation:.2f}"
        cells.append(Cell(f"{mean:.2f}{spread}"))
        record |= {measure: mean, f"{measure}_deviation": deviation, f"{measure}_error": error}
    count, every = len(measured), len(group.seeds)
    cells.append(Cell(str(count) if count == every else f"{count} of {every}"))
    name = f"{compare.short_name(group.task)}, {group.label}, {EMBEDDINGS[embedding]}"
    return (name, tuple(cells)), record | {
        "frames": frames,
        "n": count,
        "seeds": " ".join(map(str, seeds)),
    }
