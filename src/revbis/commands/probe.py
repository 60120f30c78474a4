"""Compares learned metrics with exact ones, on a grid world rendered as images."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from revbis.commands.console import print_table, step_bar

_LARGEST = 40
_SPARE = ("neighbours", "(exact)", "self-distance", "stress", "compares", "ρ of φ, states")
_SCALED = {"both": (True, False), "on": (True,), "off": (False,)}


def command(
    methods: tuple[str, ...] = (),
    objective: tuple[str, ...] = (),
    size: int = 9,
    gamma: float = 0.9,
    steps: int = 2000,
    seeds: int = 1,
    normalisation: Literal["both", "on", "off"] = "both",
    out: Path = Path("revbis-probe"),
) -> None:
    """Trains encoders by objectives alone and compares learned with exact distances.

    A four-room grid world is rendered as small images. Transitions are collected under the uniform
    policy; an encoder is trained by the objective alone, without maximising reward. The learned
    distances are compared with the exact fixed point of the same method and with value gaps.
    Takes a few minutes on two cores. Prints a table; writes probe.csv and probe.png.

    revbis probe --methods simsr simsr-rev --steps 1000

    revbis probe --objective my_package.my_module:make

    Args:
        methods: Objectives by name, such as simsr simsr-rev; all of them if neither --methods nor
            --objective is given.
        objective: Your own objectives as package.module:factory, with or without --methods.
        size: Side of the grid.
        gamma: Discount factor.
        steps: Gradient steps for each objective.
        seeds: Number of seeds, starting at 0.
        normalisation: Scale embeddings to length 1: on, off, or both in turn. Your own objectives
            are probed once, as they are.
        out: Folder for the results.
    """
    from revbis import checks
    from revbis.objectives.registry import OBJECTIVES
    from revbis.system import runtime
    from revbis.system.factories import FORM, is_factory_name

    runtime.prepare(1)  # the networks are too small to gain from more threads
    from revbis.tabular import examples
    from revbis.yardsticks.probe import ProbeSettings, plan, probe_seeds
    from revbis.yardsticks.probe_report import draw, summary, write_csv

    for name in methods:
        checks.choice(name, OBJECTIVES, "--methods")
    for name in objective:
        if not is_factory_name(name):
            raise ValueError(f"--objective must be {FORM}, got {name!r}; pass names to --methods")
    for flag, value in (("--steps", steps), ("--seeds", seeds)):
        checks.whole(value, flag, 1)
    if size > _LARGEST:
        raise ValueError(
            f"--size must be at most {_LARGEST}, got {size}: distances of all pairs are compared"
        )
    checks.discount(gamma, "--gamma")
    mdp, policy = examples.four_rooms(size)
    names = (*methods, *objective) or tuple(OBJECTIVES)
    settings = ProbeSettings(gamma=gamma, steps=steps)
    runs = plan(names, mdp, settings, _SCALED[normalisation])
    out.mkdir(parents=True, exist_ok=True)
    with step_bar(len(runs) * seeds * steps) as advance:
        groups = [probe_seeds(mdp, policy, *run, seeds, advance) for run in runs]
    write_csv(groups, out / "probe.csv")
    draw([group[0] for group in groups], out / "probe.png")
    title = f"four rooms: {mdp.n_states} states, γ = {gamma:g}, {steps} steps, {seeds} seed(s)"
    print_table(title, [summary(group) for group in groups], _SPARE)
    print("ρ: Spearman's rank correlation, before → after training; raw: not normalised")
    print(f"written to {out}/: probe.csv, probe.png")
