"""The benchmark of exactness: learned metrics beside the exact ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from revbis.cli.console import print_table, run_missing

if TYPE_CHECKING:
    from revbis.representation.cells import Cell
    from revbis.representation.exactness_report import Results

_LARGEST = 20
_MOST_STEPS, _MOST_SEEDS, _MOST_WORKERS = 10**6, 1000, 1000
_STEPS, _SEEDS = 2000, 5
_QUICK_STEPS, _QUICK_SEEDS = 1000, 1
_QUICK_SCENARIOS = ("rooms", "rooms-off-policy")
_NORMALISATION = {"own": None, "on": True, "off": False}
_SPARE = (
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
    workers: int | None = None,
    out: Path = Path("revbis-probe"),
) -> None:
    """Trains encoders by objectives alone and compares learned with exact distances.

    Small MDPs are rendered as images: four rooms, a slippery grid, a random MDP; with random
    rewards, with noise in every pixel, with data of another policy. An encoder is trained by the
    objective alone, without maximising reward. Its distances are compared with the exact metric of
    the same method and with value gaps. All of it takes about 50 minutes on two cores, --quick at
    most 2. Finished parts are kept: after an interruption, repeat the command.
    Prints tables; writes probe.csv, probe.png, distances.png and a page, index.html.

    revbis probe --quick

    revbis probe --methods simsr simsr-rev --steps 1000

    revbis probe --objective my_package.my_module:make

    Args:
        methods: Objectives by name, such as simsr simsr-rev; all of them if neither --methods nor
            --objective is given.
        objective: Your own objectives as package.module:factory, with or without --methods.
        scenarios: Some of rooms, rooms-off-policy, rooms-noisy, slip, garnet, garnet-off-policy;
            all of them by default, with --quick the first two.
        quick: One seed, 1000 steps and two scenarios, unless you say otherwise.
        steps: Gradient steps of each training; 2000 by default.
        seeds: Number of seeds, starting at 0; 5 by default.
        size: Side of the grids.
        gamma: Discount factor.
        normalisation: Scale embeddings to length 1: on, off, or each objective's own default.
        workers: Number of processes; one for each core by default.
        out: Folder for the results.
    """
    from revbis.io import runtime, schema
    from revbis.io.plugins import FORM, is_factory_name
    from revbis.objectives.registry import OBJECTIVES

    for name in methods:
        schema.choice(name, OBJECTIVES, "--methods")
    for name in objective:
        if not is_factory_name(name):
            raise ValueError(f"--objective must be {FORM}, got {name!r}; pass names to --methods")
    steps = (_QUICK_STEPS if quick else _STEPS) if steps is None else steps
    seeds = (_QUICK_SEEDS if quick else _SEEDS) if seeds is None else seeds
    schema.integer(steps, "--steps", 1, _MOST_STEPS)
    schema.integer(seeds, "--seeds", 1, _MOST_SEEDS)
    if workers is not None:
        schema.integer(workers, "--workers", 1, _MOST_WORKERS)
    if size > _LARGEST:
        raise ValueError(
            f"--size must be at most {_LARGEST}, got {size}: distances of all pairs are compared"
        )
    schema.discount(gamma, "--gamma")
    runtime.prepare(1)  # the networks are too small to gain from more threads
    from revbis.representation.cells import plan, usable_cores
    from revbis.representation.exactness import ProbeSettings
    from revbis.representation.problems import SCENARIOS

    for name in scenarios:
        schema.choice(name, SCENARIOS, "--scenarios")
    chosen = scenarios or (_QUICK_SCENARIOS if quick else tuple(SCENARIOS))
    settings = ProbeSettings(gamma=gamma, steps=steps, normalisation=_NORMALISATION[normalisation])
    cells = plan(chosen, (*methods, *objective) or tuple(OBJECTIVES), seeds, size, settings)
    _run(cells, out, workers or usable_cores())


def _run(cells: dict[Cell, float], out: Path, workers: int) -> None:
    from revbis.representation.cells import read_cell, run_cells
    from revbis.representation.exactness_report import FILES, read_results, write_report

    out.mkdir(parents=True, exist_ok=True)
    problems = run_missing(
        cells,
        lambda cell: read_cell(cell, out),
        lambda missing, show: run_cells(missing, out, workers, show),
    )
    if len(problems) == len(cells):
        raise ValueError(next(iter(problems.values())))
    for problem in problems.values():
        print(f"revbis: warning: no result: {problem}", file=sys.stderr)
    results = read_results(cells, out)
    write_report(results, list(cells), out, list(problems.values()))
    _print(results)
    print(f"written to {out}/: {', '.join(name for name in FILES if (out / name).exists())}")


def _print(results: Results) -> None:
    from revbis.representation.problems import SCENARIOS

    for scenario in results.scenarios:
        title = f"{scenario}: {SCENARIOS[scenario].description}"
        print_table(title, results.table(scenario), _SPARE)
        print()
    if len(results.scenarios) > 1:
        print_table("ρ of φ with U / of ψ with G", results.overview())
        print()
    print("ρ: Spearman's rank correlation, pairs of different elements; [95% interval over seeds]")
