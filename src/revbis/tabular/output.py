"""What `revbis tabular solve` leaves behind for each metric: distances and a picture."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from revbis.system.files import whole_file
from revbis.tabular.pictures import draw
from revbis.tabular.result import MetricResult
from revbis.tabular.values import bounded_value

MATRIX_UP_TO = 5000
_CSV_UP_TO = 1000


def write(result: MetricResult, origin: int, path: Path, name: str) -> list[str]:
    """Writes `path` with .npz, .csv (up to 1000 rows) and .png appended; returns these endings.

    Above 5000 rows the .npz holds an exact embedding and the self-distances, not the matrix.

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
    if result.n <= MATRIX_UP_TO:
        arrays["matrix"] = result.matrix()
    else:
        arrays |= {"embedding": result.embedding(), "self_distance": result.self_distance()}
    with whole_file(_with(path, ".npz")) as file:
        np.savez(file, allow_pickle=False, **arrays)
    endings = [".npz"]
    if result.n <= _CSV_UP_TO:
        _write_csv(result, _with(path, ".csv"))
        endings.append(".csv")
    draw(result, bounded_value(result, result.gamma), origin, _with(path, ".png"), name)
    return [*endings, ".png"]


def row_names(result: MetricResult) -> list[str]:
    """The states, or the pairs as state:action."""
    if result.level == "state":
        return [str(s) for s in range(result.n)]
    return [f"{s}:{a}" for s, a in result.mdp.state_actions]


def _write_csv(result: MetricResult, path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    labels = row_names(result)
    writer.writerow(["", *labels])
    for label, row in zip(labels, result.matrix(), strict=True):
        writer.writerow([label, *(repr(float(x)) for x in row)])
    with whole_file(path) as file:
        file.write(text.getvalue().encode())


def _with(path: Path, ending: str) -> Path:
    """The path with an ending after its whole name, which may hold dots of its own."""
    return path.with_name(path.name + ending)
