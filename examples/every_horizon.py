"""One training of `laws`, read at three horizons, beside methods trained anew for each of them.

Run it: python examples/every_horizon.py --scenarios rooms --seeds 1
"""

import argparse
import csv
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import astuple, dataclass, fields, replace
from itertools import product
from pathlib import Path

import torch

from revbis import objectives, runtime
from revbis.representation.exactness import ExactnessSettings, Training, measure
from revbis.representation.measures import agreement
from revbis.representation.problems import (
    SCENARIOS,
    Problem,
    build,
    exact_distances,
    exact_value_gaps,
)

HORIZONS = (0.5, 0.7, 0.9)
TRAINED = ("energy-rev-full", "simsr-rev-full")
CLEAN = [name for name, scenario in SCENARIOS.items() if scenario.pixels != "noisy"]


@dataclass(frozen=True)
class Row:
    """φ's distances beside the exact metric with weights (1 − c, c)."""

    scenario: str
    method: str
    seed: int
    c: float
    phi_spearman: float
    phi_error: float


def read(problem: Problem, seed: int, settings: ExactnessSettings) -> Iterator[tuple[float, ...]]:
    """Trains `laws` once; c, ρ and error at each horizon."""
    training = Training(problem, "laws", seed, settings)
    training.run(lambda _: None)
    with torch.no_grad():
        z = training.encoder(problem.images)
        for c in HORIZONS:
            learned = training.objective.at(c=c).distance(z, z).double().numpy()
            exact = exact_distances(problem, "target", "revised", "state", settings.gamma, c)
            gaps = exact_value_gaps(problem, "target", "state", settings.gamma)
            found = agreement(learned, exact, gaps)
            yield c, found.spearman, found.error


def train(
    problem: Problem, method: str, c: float, seed: int, settings: ExactnessSettings
) -> tuple[float, ...]:
    """Trains a method with c fixed; c, ρ and error."""
    entry = objectives.OBJECTIVES[method]
    fixed = replace(entry, name=f"{method}, c = {c}", defaults={**entry.defaults, "coefficient": c})
    objectives.register(fixed)
    try:
        found = measure(problem, fixed.name, seed, settings)
    finally:
        objectives.unregister(fixed.name)
    return found.c, found.phi.target.spearman, found.phi.target.error


def compare(scenario: str, seed: int, settings: ExactnessSettings, size: int = 9) -> Iterator[Row]:
    """Everything in one scenario with one seed."""
    problem = build(scenario, size, settings.gamma)
    for found in read(problem, seed, settings):
        yield Row(scenario, "laws", seed, *found)
    for method in TRAINED:
        for c in HORIZONS:
            yield Row(scenario, method, seed, *train(problem, method, c, seed, settings))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenarios", nargs="+", choices=CLEAN, default=CLEAN)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    flags = parser.parse_args()
    settings = ExactnessSettings(steps=flags.steps)
    with flags.out.open("w", newline="") if flags.out else nullcontext() as file:
        writer = csv.writer(file, lineterminator="\n") if file else None
        if writer:
            writer.writerow(each.name for each in fields(Row))
        for seed, scenario in product(range(flags.seeds), flags.scenarios):
            for row in compare(scenario, seed, settings):
                found = f"ρ {row.phi_spearman:.3f}, error {row.phi_error:.3f}"
                print(f"{scenario}, {row.method}, seed {seed}, c = {row.c}: {found}", flush=True)
                if writer:
                    writer.writerow(astuple(row))
                    file.flush()


if __name__ == "__main__":
    runtime.prepare(threads=1)  # networks this small gain nothing from more threads
    main()
