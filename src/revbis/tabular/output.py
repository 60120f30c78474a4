"""The files that `revbis tabular` writes: distances, value gaps, classes, pictures."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.system.files import whole_file, write_whole
from revbis.tabular.aggregation import Aggregation, class_value
from revbis.tabular.pictures import draw, draw_classes
from revbis.tabular.settings import Source, digits, name_of_file
from revbis.tabular.values import bounded_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from revbis.tabular.gaps import ValueGaps
    from revbis.tabular.result import MetricResult

MATRIX_UP_TO = 5000  # a low-rank result above is written as an embedding
_CSV_UP_TO = 1000


def file_name(source: Source, result: MetricResult, target_gamma: float | None = None) -> str:
    """A name that says all that the content depends on, so that nothing else is overwritten.

    Args:
        source: Where the MDP comes from.
        result: The metric.
        target_gamma: The discount of the values, where the file is about values.
    """
    parts = [source.name]
    if source.policy != Source.policy and result.policy is not None:
        is_word = source.policy in ("uniform", "optimal")
        parts.append(source.policy if is_word else name_of_file(source.policy))
    parts.append(result.metric)
    if result.level != "state":
        parts.append(result.level)
    c, gamma = result.c, result.gamma
    parts.append(f"gamma-{digits(gamma)}" if c is None else f"c-{digits(result.discount)}")
    if target_gamma is not None and target_gamma != result.discount:
        parts.append(f"target-{digits(target_gamma)}")
    return re.sub(r"[^\w.+-]+", "-", "-".join(parts))


def write(result: MetricResult, origin: int, path: Path, name: str) -> list[str]:
    """Writes `path` with .npz, .csv (up to 1000 rows) and .png appended; returns these endings.

    The .npz of a low-rank result above 5000 rows holds an exact embedding and the self-distances
    instead of the matrix.

    Args:
        result: The metric.
        origin: The state whose distances the map on a grid shows.
        path: Folder and beginning of the names.
        name: Of the MDP, for the record and the picture.

    Raises:
        OSError: As when the disk is full, with the file's name.
    """
    arrays: dict[str, Any] = {
        "mdp": np.array(name),
        "metric": np.array(result.metric),
        "level": np.array(result.level),
        "gamma": np.array(result.gamma),
        "c": np.array(np.nan if result.c is None else result.discount),
        "error_bound": np.array(result.error_bound),
        "solver": np.array(result.solver),
        "iterations": np.array(result.iterations),
    }
    if has_matrix(result):
        arrays["matrix"] = result.matrix()
    else:
        exact = result.embedding()
        arrays |= {"embedding": exact.coordinates, "self_distance": exact.self_distances}
    with whole_file(_with(path, ".npz")) as file:
        np.savez(file, allow_pickle=False, **arrays)
    endings = [".npz"]
    if result.n <= _CSV_UP_TO:
        labels, matrix = row_names(result), result.matrix()
        rows = ([label, *_exact(row)] for label, row in zip(labels, matrix, strict=True))
        _write_csv(_with(path, ".csv"), ["", *labels], rows)
        endings.append(".csv")
    draw(result, bounded_value(result, result.gamma), origin, _with(path, ".png"), name)
    return [*endings, ".png"]


def has_matrix(result: MetricResult) -> bool:
    """Whether the file holds the matrix: if it is small, or there is no smaller form."""
    return result.n <= MATRIX_UP_TO or result.rank is None


def write_gaps(gaps: ValueGaps, path: Path) -> list[str]:
    """Writes `path` with .csv appended: a row for each pair; returns this ending."""
    names = row_names(gaps.rule.result)
    columns = (gaps.distance, gaps.bound, gaps.gap)
    rows = (
        [names[i], names[j], *_exact(numbers)]
        for i, j, *numbers in zip(gaps.i, gaps.j, *columns, strict=True)
    )
    _write_csv(_with(path, ".csv"), ["first", "second", "distance", "bound", "gap"], rows)
    return [".csv"]


def write_classes(result: MetricResult, merged: Aggregation, path: Path, name: str) -> list[str]:
    """Writes `path` with .csv, .npz and for grids .png appended; returns these endings.

    The .csv has a row for each state. The .npz is the MDP on the classes with its policy, which
    `FiniteMDP.load` and `--mdp` read.
    """
    value, merged_value = bounded_value(result, result.gamma), class_value(merged, result.gamma)
    numbers = np.stack([value, merged_value[merged.labels]], axis=1)
    rows = (
        [state, label, merged.representatives[label], *_exact(row)]
        for state, (label, row) in enumerate(zip(merged.labels, numbers, strict=True))
    )
    header = ["state", "class", "representative", "value", "class_value"]
    _write_csv(_with(path, ".csv"), header, rows)
    merged.mdp.save(_with(path, ".npz"), merged.policy)
    if result.mdp.grid is None:
        return [".csv", ".npz"]
    draw_classes(result, merged, np.abs(numbers[:, 0] - numbers[:, 1]), _with(path, ".png"), name)
    return [".csv", ".npz", ".png"]


def row_names(result: MetricResult) -> list[str]:
    """The states, or the pairs as state:action."""
    if result.level == "state":
        return [str(s) for s in range(result.n)]
    return [f"{s}:{a}" for s, a in result.mdp.state_actions]


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def _exact(numbers: Iterable[float]) -> list[str]:
    """Numbers that are read back as they were."""
    return [repr(float(x)) for x in numbers]


def _with(path: Path, ending: str) -> Path:
    """The path with an ending after its whole name, which may hold dots of its own."""
    return path.with_name(path.name + ending)
