"""Results over seeds: means with intervals, the order of methods, tables, and the CSV file."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from revbis.system.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from revbis.yardsticks.results import Record

_RESAMPLES = 10_000
_ENDS = (0.025, 0.975)
NONE = "–"

# Columns of tables: heading, name of the measure, whether its interval is shown.
COLUMNS = (
    ("φ: ρ with U", "phi_spearman", True),
    ("φ: ρ with U of the data's policy", "phi_behaviour_spearman", True),
    ("ψ: ρ with G", "psi_spearman", True),
    ("φ: error", "phi_error", False),
    ("ψ: error", "psi_error", False),
    ("φ: neighbours", "phi_overlap", False),
    ("ψ: neighbours", "psi_overlap", False),
    ("φ: stress", "phi_stress", False),
    ("ψ: stress", "psi_stress", False),
    ("φ: ρ with ΔV", "phi_value", False),
    ("ψ: ρ with ΔQ", "psi_value", False),
    ("φ: spread", "phi_spread", False),
    ("ψ: spread", "psi_spread", False),
    ("denoising", "denoising", True),
    ("c", "c", False),
)


class Interval(NamedTuple):
    """A mean over seeds with its 95% bootstrap interval; the ends are NaN for a single seed."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The mean, and the percentile bootstrap of it over seeds."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) == 1:
        return Interval(float(array[0]), np.nan, np.nan)
    generator = np.random.default_rng(0)
    means = array[generator.integers(len(array), size=(_RESAMPLES, len(array)))].mean(axis=1)
    low, high = np.quantile(means, _ENDS)
    return Interval(float(array.mean()), float(low), float(high))


@dataclass(frozen=True)
class Results:
    """Rows of finished cells.

    Attributes:
        rows: One for each cell.
        scenarios: Their names, in the order of the benchmark.
    """

    rows: Sequence[Record]
    scenarios: Sequence[str]

    def of(self, scenario: str, method: str, measure: str) -> Interval | None:
        """A measure over seeds; None where it has no meaning or no seed was finished."""
        values = [
            row[measure]
            for row in self.rows
            if (row["scenario"], row["method"]) == (scenario, method)
            and row.get(measure) is not None
        ]
        return interval(values) if values else None

    @cached_property
    def methods(self) -> list[str]:
        """The methods, the best first: by the mean over scenarios of φ's rank correlation."""
        names = dict.fromkeys(row["method"] for row in self.rows)
        return sorted(names, key=lambda name: -self._score(name))

    def seeds(self, scenario: str, method: str) -> int:
        """How many seeds were finished."""
        keys = [(row["scenario"], row["method"]) for row in self.rows]
        return keys.count((scenario, method))

    def overview(self) -> list[dict[str, str]]:
        """A row for each method: ρ of φ in each scenario and, after a stroke, ρ of ψ."""
        table = []
        for method in self.methods:
            row = {"method": method}
            for scenario in self.scenarios:
                parts = [self.of(scenario, method, f"{name}_spearman") for name in ("phi", "psi")]
                row[scenario] = " / ".join(f"{each.mean:.2f}" for each in parts if each) or NONE
            table.append(row)
        return table

    def table(self, scenario: str) -> list[dict[str, str]]:
        """A row for each method of a scenario; measures without a value for any are left out."""
        methods = [method for method in self.methods if self.seeds(scenario, method)]
        table = [{"method": method} for method in methods]
        for heading, measure, with_ends in COLUMNS:
            values = [self.of(scenario, method, measure) for method in methods]
            if any(value is not None for value in values):
                for row, value in zip(table, values, strict=True):
                    row[heading] = interval_text(value, with_ends)
        return table

    def _score(self, method: str) -> float:
        found = [self.of(scenario, method, "phi_spearman") for scenario in self.scenarios]
        return float(np.mean([each.mean for each in found if each is not None]))


def write_csv(results: Results, path: Path) -> None:
    """A row for each cell, in the order of the benchmark."""
    names = list(dict.fromkeys(name for row in results.rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    for row in results.rows:
        writer.writerow({name: _number(value) for name, value in row.items()})
    write_whole(path, text.getvalue().encode())


def _number(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def interval_text(value: Interval | None, with_ends: bool) -> str:
    """A mean with its interval, if that is wanted and known."""
    if value is None:
        return NONE
    if not with_ends or np.isnan(value.low):
        return f"{value.mean:.2f}"
    return f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}]"
