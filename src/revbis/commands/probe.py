"""Learned metrics beside the exact ones, on a grid world rendered as images."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from revbis.commands.console import print_table, step_bar

if TYPE_CHECKING:
    from revbis.probe import Measurement

_LARGEST = 40
_SPARE = ("neighbours", "(exact)", "self-distance", "stress", "compares", "ρ of φ, states")


def command(
    methods: tuple[str, ...] = (),
    size: int = 9,
    gamma: float = 0.9,
    steps: int = 2000,
    seeds: int = 1,
    normalisation: Literal["both", "on", "off"] = "both",
    out: Path = Path("revbis-probe"),
) -> None:
    """Trains encoders by objectives alone and measures how near they come to the exact metric.

    A four-room grid world is rendered as small images; transitions are collected under the uniform
    policy; an encoder and the objective are trained, with no reward maximised; the learned
    distances are compared with the exact fixed point of the same method and with value gaps.
    Takes a few minutes on two cores. Prints a table; writes probe.csv and probe.png.

    revbis probe --methods simsr simsr-rev --steps 1000

    Args:
        methods: Objectives to probe, such as simsr simsr-rev; all of them when not given.
        size: Side of the grid.
        gamma: Discount factor.
        steps: Gradient steps of each method.
        seeds: Number of seeds, from 0.
        normalisation: Embeddings scaled to length 1, or not, or both in turn.
        out: Folder for the results.
    """
    from revbis import checks, runtime

    runtime.prepare(1)  # the networks are tiny: a second thread only waits
    from revbis.objectives import OBJECTIVES, NonFiniteError
    from revbis.probe import ProbeSettings, probe
    from revbis.probe_report import draw, summary, write_csv
    from revbis.tabular import examples

    names = methods or OBJECTIVES
    for name in names:
        checks.choice(name, OBJECTIVES, "--methods")
    for flag, value in (("--steps", steps), ("--seeds", seeds)):
        checks.whole(value, flag, 1)
    if size > _LARGEST:
        raise ValueError(
            f"--size must be at most {_LARGEST}, got {size}: distances of all pairs are compared"
        )
    checks.discount(gamma, "--gamma")
    scaled = {"both": (True, False), "on": (True,), "off": (False,)}[normalisation]
    mdp, policy = examples.four_rooms(size)
    out.mkdir(parents=True, exist_ok=True)
    groups: list[list[Measurement]] = []
    with step_bar(len(names) * len(scaled) * seeds * steps) as advance:
        for normalise in scaled:
            settings = ProbeSettings(gamma=gamma, steps=steps, normalisation=normalise)
            for name in names:
                text = name if normalise else f"{name}, not normalised"
                step = partial(advance, text)
                try:
                    groups.append(
                        [probe(mdp, policy, name, seed, settings, step) for seed in range(seeds)]
                    )
                except NonFiniteError as problem:
                    raise ValueError(f"{text}: {problem}") from None
    write_csv(groups, out / "probe.csv")
    draw([group[0] for group in groups], out / "probe.png")
    title = f"four rooms: {mdp.n_states} states, γ = {gamma:g}, {steps} steps, {seeds} seed(s)"
    print_table(title, [summary(group) for group in groups], _SPARE)
    print("ρ: Spearman's rank correlation, before → after training; raw: not normalised")
    print(f"written to {out}/: probe.csv, probe.png")
