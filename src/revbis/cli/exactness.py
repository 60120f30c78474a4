"""The benchmark of exactness: learned metrics beside the exact ones."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from revbis.cli.console import print_table, progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from revbis.representation.cells import Cell, Record
    from revbis.representation.exactness import ExactnessCell
    from revbis.representation.exactness_report import Results
    from revbis.representation.workers import Steps, W

_LARGEST = 20
_MOST_STEPS, _MOST_SEEDS, _MOST_WORKERS = 10**6, 1000, 1000
_STEPS, _SEEDS = 2000, 5
_QUICK_STEPS, _QUICK_SEEDS = 600, 1
_QUICK_SCENARIOS = ("rooms", "rooms-off-policy")
_NORMALISATION = {"own": None, "on": True, "off": False}
_SPARE = (
    *(f"share of {name}" for name in ("controllable, relevant", "controllable, irrelevant")),
    *(f"share of {name}" for name in ("exogenous, relevant", "exogenous, irrelevant")),
    *("ψ: stress", "ψ: spread", "ψ: neighbours", "ψ: ρ with ΔQ", "ψ: error", "c", "φ: stress"),
    *("φ: spread", "φ: neighbours", "φ: ρ with ΔV", "φ: error"),
)


def command(
    methods: tuple[str, ...] = (),
    objective: tuple[str, ...] = (),
    scenarios: tuple[str, ...] = (),
    quick: bool = False,
    steps: int | None = None,
    seeds: int | None = None,
    size: int = 9,
    gamma: float = 0.9,
    normalisation: Literal["own", "on", "off"] = "own",
    learning_rate: float = 3e-3,
    workers: int | None = None,
    out: Path = Path("revbis-exactness"),
) -> None:
    """Trains encoders by objectives alone and compares learned with exact distances.

    Small MDPs are rendered as images: four rooms, a slippery grid, a random MDP; with random
    rewards, with noise in every pixel, with data of another policy. An encoder is trained by the
    objective alone, without maximising reward. Its distances are compared with the exact metric of
    the same method and with value gaps. On two cores that are free, all of it takes about 50
    minutes, --quick about 2. Finished parts are kept: after an interruption, repeat the command.
    Prints tables; writes exactness.csv, exactness.png, distances.png and a page, index.html; with
    factors also factors.png, what φ keeps of each. What --out has of other methods with the same
    settings stays in all of them.

    revbis exactness --quick

    revbis exactness --methods simsr simsr-rev --steps 1000

    revbis exactness --objective my_package.my_module:make

    revbis exactness --scenarios factors factors-mixed --out revbis-factors

    Args:
        methods: Objectives by name, such as simsr simsr-rev; all of them if neither --methods nor
            --objective is given.
        objective: Your own objectives as package.module:factory, with or without --methods.
        scenarios: Some of rooms, rooms-off-policy, rooms-noisy, slip, garnet, garnet-off-policy,
            which are the default, with --quick the first two; and factors and factors-mixed, of
            four factors, two of them irrelevant, which also show what φ keeps of each.
        quick: One seed, 600 steps and two scenarios, unless you say otherwise.
        steps: Gradient steps of each training; 2000 by default.
        seeds: Number of seeds, starting at 0; 5 by default.
        size: Side of the grids.
        gamma: Discount factor.
        normalisation: Scale embeddings to length 1: on, off, or each objective's own default.
        learning_rate: Of the encoder and the objective's heads; it falls to 0 in equal steps.
        workers: Number of processes; one for each core by default.
        out: Folder for the results.
    """
    from revbis.io import runtime, schema
    from revbis.objectives.registry import OBJECTIVES

    steps = (_QUICK_STEPS if quick else _STEPS) if steps is None else steps
    seeds = (_QUICK_SEEDS if quick else _SEEDS) if seeds is None else seeds
    check_flags(methods, objective, steps, seeds, workers)
    if size > _LARGEST:
        raise ValueError(
            f"--size must be at most {_LARGEST}, got {size}: distances of all pairs are compared"
        )
    schema.discount(gamma, "--gamma")
    schema.positive(learning_rate, "--learning-rate")
    runtime.prepare(1)  # the networks are too small to gain from more threads
    from revbis.io.machine import usable_cores
    from revbis.representation.exactness import ExactnessSettings, plan
    from revbis.representation.problems import SCENARIOS, USUAL

    for name in scenarios:
        schema.choice(name, SCENARIOS, "--scenarios")
    chosen = scenarios or (_QUICK_SCENARIOS if quick else USUAL)
    settings = ExactnessSettings(
        gamma=gamma,
        steps=steps,
        normalisation=_NORMALISATION[normalisation],
        learning_rate=learning_rate,
    )
    cells = plan(chosen, (*methods, *objective) or tuple(OBJECTIVES), seeds, size, settings)
    _run(cells, out, workers or usable_cores())


def check_flags(
    methods: Sequence[str], objective: Sequence[str], steps: int, seeds: int, workers: int | None
) -> None:
    """Refuses names and counts that no training of objectives alone can have.

    Raises:
        ValueError: With what was wanted.
    """
    from revbis.io import schema
    from revbis.io.plugins import FORM, is_factory_name
    from revbis.objectives.registry import OBJECTIVES

    for name in methods:
        schema.choice(name, OBJECTIVES, "--methods")
    for name in objective:
        if not is_factory_name(name):
            raise ValueError(f"--objective must be {FORM}, got {name!r}; pass names to --methods")
    schema.integer(steps, "--steps", 1, _MOST_STEPS)
    schema.integer(seeds, "--seeds", 1, _MOST_SEEDS)
    if workers is not None:
        schema.integer(workers, "--workers", 1, _MOST_WORKERS)


def run_cells(
    cells: dict[W, float],
    out: Path,
    read: Callable[[W, Path], Record | None],
    run: Callable[[Path, W, Steps], None],
    workers: int,
) -> list[str]:
    """Runs the cells that have no result yet; those that fail are warnings, and are returned.

    Raises:
        ValueError: If all failed.
    """
    from revbis.representation.workers import run_all

    out.mkdir(parents=True, exist_ok=True)
    missing = {cell: cost for cell, cost in cells.items() if read(cell, out) is None}
    if len(missing) < len(cells):
        print(f"{len(cells) - len(missing)} of {len(cells)} cells are there already")
    if not missing:
        return []
    try:
        with progress_bar("starting", sum(missing.values())) as show:
            problems = list(run_all(missing, partial(run, out), workers, show).values())
    except KeyboardInterrupt:
        print("\nfinished cells are kept: repeat the command to continue", file=sys.stderr)
        raise
    if len(problems) == len(cells):
        raise ValueError(problems[0])
    for problem in problems:
        print(f"revbis: warning: no result: {problem}", file=sys.stderr)
    return problems


def _run(cells: dict[ExactnessCell, float], out: Path, workers: int) -> None:
    from revbis.representation.exactness import read_exactness, run_cell
    from revbis.representation.exactness_report import FILES, read_results, write_report

    problems = run_cells(cells, out, read_exactness, run_cell, workers)
    results = read_results(cells, out)
    write_report(results, list(cells), out, problems)
    _print(results)
    print(f"written to {out}/: {', '.join(name for name in FILES if (out / name).exists())}")
    say_others(list(cells), out)


def say_others(cells: Sequence[Cell], out: Path) -> None:
    """Says what a folder has that is not in its tables now."""
    from revbis.representation.cells import count_others

    if others := count_others(cells, out):
        print(
            f"not among them: {others} results in {out} of other settings; repeat their command to "
            "see them again, or give each settings an --out of their own"
        )


def _print(results: Results) -> None:
    from revbis.representation.exactness_report import intervals_text
    from revbis.representation.problems import SCENARIOS

    for scenario in results.scenarios:
        title = f"{scenario}: {SCENARIOS[scenario].description}"
        table = results.table(scenario)
        print_table(title, table, [name for name in _SPARE if name in table[0]])
        print()
    if len(results.scenarios) > 1:
        print_table("ρ of φ with U / of ψ with G", results.overview())
        print()
    print("ρ: Spearman's rank correlation, pairs of different elements")
    print(intervals_text(results.rows))
