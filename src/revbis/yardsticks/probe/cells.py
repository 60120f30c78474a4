"""Cells of the benchmark: a scenario, a method and a seed; each result is a small file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import revbis.objectives
from revbis.system.files import whole_file
from revbis.tabular.npz import read_npz
from revbis.yardsticks.probe.measurement import Compared, Measurement, measure
from revbis.yardsticks.probe.scenarios import SCENARIOS, build
from revbis.yardsticks.results import (
    Record,
    checksum,
    code_checksum,
    own_code,
    read_result,
    write_result,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.yardsticks.probe.training import ProbeSettings

_PARTS = ("exact", "images", "measurement", "measures", "problem", "scenarios", "training")
_MOST_DOTS = 1500
_FOLDER = "cells"


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        scenario: A name of `SCENARIOS`.
        method: An objective's name, or package.module:factory.
        seed: The seed.
        size: Side of the grids.
        settings: What is trained, and for how long.
    """

    scenario: str
    method: str
    seed: int
    size: int
    settings: ProbeSettings

    @property
    def title(self) -> str:
        """The cell in a few words."""
        return f"{self.method} on {self.scenario}, seed {self.seed}"

    @property
    def steps(self) -> int:
        """Gradient steps."""
        return self.settings.steps

    @property
    def key(self) -> Record:
        """Everything that the result depends on."""
        return {
            "scenario": [self.scenario, asdict(SCENARIOS[self.scenario])],
            "method": self.method,
            "seed": self.seed,
            "size": self.size,
            "settings": asdict(self.settings),
            "code": _code(),
            "own_code": own_code(self.method),
            "torch": torch.__version__,
        }

    def path(self, out: Path) -> Path:
        """Where its result is, or goes."""
        name = self.method.replace(":", ".")
        return out / _FOLDER / f"{self.scenario}.{name}.{self.seed}.{checksum(self.key)}.json"


def run_cell(cell: Cell, out: Path, progress: Callable[[int], None]) -> None:
    """Measures a cell and writes its result.

    Raises:
        ValueError: If the objective cannot be made, or raises.
        NonFiniteError: If training diverges.
        OSError: If the result cannot be written.
    """
    problem = build(cell.scenario, cell.size, cell.settings.gamma)
    result = measure(problem, cell.method, cell.seed, cell.settings, progress)
    path = cell.path(out)
    if cell.seed == 0:  # for the picture
        with whole_file(path.with_suffix(".npz")) as file:
            np.savez_compressed(file, allow_pickle=False, **_dots(result))
    write_result(path, cell.key, _record(cell, result))


def read_cell(cell: Cell, out: Path) -> Record | None:
    """The result of a cell, None if there is none; one that cannot be read counts as none."""
    if cell.seed == 0:
        try:
            read_dots(cell, out)
        except (OSError, ValueError, KeyError):
            return None
    return read_result(cell.path(out), cell.key)


def read_dots(cell: Cell, out: Path) -> dict[str, np.ndarray]:
    """Learned and exact distances of some pairs, kept with seed 0: `phi` and `psi`, (2, n)."""
    return read_npz(cell.path(out).with_suffix(".npz"))


def _record(cell: Cell, result: Measurement) -> Record:
    """The result as one flat row."""
    row: Record = {
        "scenario": cell.scenario,
        "method": cell.method,
        "seed": cell.seed,
        "metric": result.metric,
        "claims": result.claims,
        "c": result.c,
    }
    for name, compared in (("phi", result.phi), ("psi", result.psi)):
        row |= _columns(name, compared)
    return row | {
        "denoising": result.denoising,
        "denoising_untrained": result.untrained_denoising,
    }


def _columns(name: str, compared: Compared | None) -> Record:
    if compared is None:
        return {}
    row = {f"{name}_{key}": value for key, value in asdict(compared.target).items()}
    if compared.behaviour is not None:
        others = asdict(compared.behaviour).items()
        row |= {f"{name}_behaviour_{key}": value for key, value in others}
    return row | {f"{name}_spearman_untrained": compared.untrained}


def _dots(result: Measurement) -> dict[str, np.ndarray]:
    dots = {}
    for name, compared in (("phi", result.phi), ("psi", result.psi)):
        if compared is None:
            continue
        i, j = np.triu_indices(len(compared.exact), 1)
        count = min(_MOST_DOTS, len(i))
        chosen = np.random.default_rng(0).choice(len(i), count, replace=False)
        pairs = (i[chosen], j[chosen])
        dots[name] = np.stack([compared.learned[pairs], compared.exact[pairs]]).astype(np.float32)
    return dots


@cache
def _code() -> str:
    """A checksum of the code that decides results: objectives, and the probe's own."""
    objectives = sorted(Path(revbis.objectives.__path__[0]).glob("*.py"))
    own = [Path(__file__).with_name(f"{name}.py") for name in _PARTS]
    return code_checksum((*objectives, *own))
