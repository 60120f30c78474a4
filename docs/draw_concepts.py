"""Draws the pictures of docs/concepts.md.

Every number in them is computed here or read from results/. Run it as
`python docs/draw_concepts.py [FOLDER]`; a test checks that the committed pictures show it.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from revbis import tabular
from revbis.objectives import mico_distance, simsr_distance
from revbis.representation.problems import near_greedy
from revbis.tabular import operators

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

HERE = Path(__file__).parent
EXACTNESS = HERE.parent / "results" / "exactness" / "exactness.csv"
GAMMA = 0.9
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
STATES = ("s1", "s2", "s3")
Array = NDArray[np.float64]

# Text stays text, so that it can be read and compared; no date and no random names.
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "revbis",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def toy_distances() -> dict[str, Array]:
    """Distances between the states of the toy MDP, by metric."""
    mdp, policy = tabular.examples.toy()
    solved = tabular.revised(mdp, policy, GAMMA)
    return {
        "π-bisimulation": tabular.pi_bisimulation(mdp, policy, GAMMA).matrix(),
        "MICo": tabular.mico(mdp, policy, GAMMA).matrix(),
        "revised, U": solved.matrix(),
        "reduced, ρ": solved.reduced(),
    }


def draw_reward_gap() -> Figure:
    """The first problem: metrics that compare mean rewards are 0 on the toy MDP."""
    distances = toy_distances()
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    for panel, (name, matrix) in zip(
        figure.subplots(1, len(distances)), distances.items(), strict=True
    ):
        _heat_map(panel, matrix, STATES, top=1.3)
        panel.set_title(name)
    return figure


def sensitivity(delay: int, coefficients: Array) -> Array:
    """Distance of two states that differ in a reward `delay` steps ahead, relative to no delay."""
    chain, only = tabular.examples.delay_chain(delay)
    values = []
    for c in coefficients:
        solved = tabular.revised(chain, only, gamma=GAMMA, c=float(c), tol=1e-12)
        values.append(solved.pairs(0, delay + 1) / solved.pairs(delay, 2 * delay + 1))
    return np.array(values)


def draw_weights() -> Figure:
    """The second problem: fixed weights fix how far ahead a metric looks."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    panel = figure.subplots()
    coefficients = np.linspace(0.5, 0.98, 25)
    for delay, colour in ((1, BLUE), (5, GREEN), (20, ORANGE)):
        values = sensitivity(delay, coefficients)
        panel.plot(coefficients, values, color=colour)
        panel.annotate(
            f"{delay} step{'s' if delay > 1 else ''} ahead",
            (coefficients[-1], values[-1]),
            xytext=(5, -3),
            textcoords="offset points",
            color=colour,
        )
    panel.set(xlabel="c, the weight of the next states", ylim=(0, 1.02), xlim=(0.5, 0.98))
    panel.set_ylabel("distance, relative to\nthe same reward now")
    return figure


WALK = 21  # positions; the reward is the position, from 0 to 1
STARTS = (4, 14)
LAGS = 40


def walk_laws() -> tabular.RewardLaws:
    """Laws of a walk on a line: by up to two positions in a step, and not beyond the ends."""
    moves = np.arange(-2, 3)
    places = np.repeat(np.arange(WALK)[:, None], len(moves), axis=1)
    mdp = tabular.FiniteMDP((places + moves).clip(0, WALK - 1), places / (WALK - 1))
    return tabular.reward_laws(mdp, mdp.uniform_policy(), gamma=GAMMA)


def gaps_by_lag(laws: tabular.RewardLaws) -> Array:
    """∫ (F_k(s) − F_k(t))² dx of the two starts, for each lag."""
    s, t = STARTS
    width = 1 / (WALK - 1)
    found = [laws.at(k)[s] - laws.at(k)[t] for k in range(laws.n_lags)]
    return np.array([width * np.square(each).sum() for each in found])


def draw_laws() -> Figure:
    """Two states' laws over lags, the laws at one lag, and distances that are read from them."""
    laws = walk_laws()
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    fans, one, read = figure.subplots(1, 3, width_ratios=(1.25, 1, 1.1))
    for start, colour, name in zip(STARTS, (BLUE, ORANGE), ("s", "t"), strict=True):
        _fan(fans, laws, start, colour, name)
    fans.set(xlabel="lag k, steps ahead", ylabel="reward", xlim=(0, LAGS), ylim=(0, 1))
    fans.set_title("Each state has a fan of rewards to come.", fontsize=10)
    lag = 10
    fans.axvline(lag, color=GREY, lw=1, ls=":")
    _two_laws(one, laws, lag)
    gaps = gaps_by_lag(laws)
    for height, gamma, colour in ((0.46, 0.9, "black"), (0.41, 0.7, GREEN), (0.36, 0.5, GREY)):
        parts = gamma ** np.arange(len(gaps)) * gaps
        read.plot(parts[:21], color=colour)
        read.text(5, height, f"γ = {gamma}: the sum is {parts.sum():.2f}", color=colour, fontsize=9)
    read.set(xlabel="lag k", ylabel="γᵏ · gap at lag k", xlim=(0, 20), ylim=(0, 0.52))
    read.set_title("Summed over lags, gaps are ρ(s, t).", fontsize=10)
    return figure


def _fan(panel: Axes, laws: tabular.RewardLaws, start: int, colour: str, name: str) -> None:
    """Bands that hold 90 and 50% of the rewards at each lag, and their median."""
    lags = np.arange(LAGS + 1)
    F = np.stack([np.concatenate([[0.0], laws.at(k)[start], [1.0]]) for k in lags])
    ends = (np.arange(WALK + 1) - 0.5) / (WALK - 1)  # a position is spread half a step around it

    def quantile(share: float) -> Array:
        return np.array([np.interp(share, row, ends) for row in F]).clip(0, 1)

    for low, alpha in ((0.05, 0.2), (0.25, 0.35)):
        panel.fill_between(lags, quantile(low), quantile(1 - low), color=colour, alpha=alpha, lw=0)
    panel.plot(lags, quantile(0.5), color=colour)
    height = start / (WALK - 1)
    panel.text(0.7, height + (0.17 if name == "t" else -0.17), name, color=colour, weight="bold")


def _two_laws(panel: Axes, laws: tabular.RewardLaws, lag: int) -> None:
    """Distribution functions of both starts at one lag, and what is between them."""
    places = np.append(laws.thresholds, 1.0)
    s, t = (np.append(laws.at(lag)[start], 1.0) for start in STARTS)
    panel.fill_between(places, s, t, step="post", color=GREY, alpha=0.25, lw=0)
    for law, colour in ((s, BLUE), (t, ORANGE)):
        panel.step(places, law, where="post", color=colour)
    panel.text(0.17, 0.8, "F(s)", color=BLUE, ha="right")
    panel.text(0.8, 0.3, "F(t)", color=ORANGE)
    panel.text(0.46, 0.55, "gap:\n∫ (F(s) − F(t))² dx", ha="center", va="center", fontsize=8)
    panel.set(xlabel="reward x", ylabel=f"probability of at most x, k = {lag}", xlim=(0, 1))
    panel.set_title(f"At lag {lag} two laws leave a gap.", fontsize=10)


def residuals() -> tuple[Array, Array, float]:
    """U and G of the toy MDP, and the largest error of the two equations."""
    mdp, policy = tabular.examples.toy()
    U = tabular.revised(mdp, policy, GAMMA).matrix()
    G = tabular.revised(mdp, policy, GAMMA, level="state_action").matrix()
    from_states = operators.state_action_distance(mdp, U, 1.0, GAMMA)
    from_pairs = operators.state_distance(mdp, policy, G)
    return U, G, float(max(np.abs(G - from_states).max(), np.abs(U - from_pairs).max()))


def draw_two_equations() -> Figure:
    """U and G of the toy MDP, each computed from the other."""
    U, G, _ = residuals()
    mdp, _ = tabular.examples.toy()
    pairs = [f"{STATES[s]}, a{a}" for s, a in mdp.state_actions]
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(3, 3.4, 5))
    _heat_map(left, U, STATES, top=2)
    left.set_title("U, between states")
    _heat_map(right, G, pairs, top=2)
    right.set_title("G, between state-action pairs")
    middle.axis("off")
    middle.set(xlim=(0, 1), ylim=(0, 1))
    for height, ends, colour, title, formula in (
        (0.70, (0, 1), BLUE, "one step", "G = |r − r'| + γ · E U(s', t')"),
        (0.24, (1, 0), ORANGE, "mean over actions", "U = E G, a ~ π(s), b ~ π(t)"),
    ):
        middle.annotate(
            "",
            (ends[1], height),
            (ends[0], height),
            arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2.5, "mutation_scale": 18},
        )
        middle.text(0.5, height + 0.05, title, ha="center", color=colour, weight="bold")
        middle.text(0.5, height - 0.09, formula, ha="center", color=colour, fontsize=9)
    return figure


def exactness_correlations(path: Path = EXACTNESS) -> dict[tuple[str, str], list[float]]:
    """ρ of φ with the exact metric for every seed, by scenario and method."""
    values = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            values[row["scenario"], row["method"]].append(float(row["phi_spearman"]))
    return dict(values)


def draw_tie() -> Figure:
    """ρ with the exact metric, without and with the second equation."""
    values = exactness_correlations()
    scenarios = list(dict.fromkeys(scenario for scenario, _ in values))
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, base in zip(panels, ("simsr-rev", "mico-rev"), strict=True):
        for offset, method, colour in ((-0.2, base, GREY), (0.2, f"{base}-full", BLUE)):
            seeds = [values[scenario, method] for scenario in scenarios]
            means = [float(np.mean(each)) for each in seeds]
            places = np.arange(len(scenarios)) + offset
            panel.bar(places, means, 0.38, color=colour, label=method)
            for place, each, mean in zip(places, seeds, means, strict=True):
                panel.plot([place] * len(each), each, ".", color="black", ms=3)
                height = max(0.0, *each)
                panel.text(place, height + 0.03, f"{mean:.2f}", ha="center", fontsize=7)
        panel.set_xticks(np.arange(len(scenarios)), scenarios, rotation=30, ha="right", fontsize=8)
        panel.axhline(0, color="black", lw=0.8)
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, 1.18), ncols=2, frameon=False)
    panels[0].set(ylabel="ρ of φ with the exact metric", ylim=(-0.2, 1.12))
    return figure


def reach() -> tuple[float, float]:
    """How far MICo's distance exceeds the mean self-distance, and SimSR's largest distance."""
    x = torch.eye(2, dtype=torch.float64)
    mico = mico_distance(torch.cat([x, -x]), torch.cat([x, -x]))
    simsr = simsr_distance(torch.cat([x, -x]), torch.cat([x, -x]))
    return float((mico - 1).max()), float(simsr.max())


def exact_pairs() -> tuple[Array, Array, tabular.MetricResult]:
    """Mean self-distance and distance of every pair of states, and the metric: four rooms."""
    mdp, _ = tabular.examples.four_rooms()
    solved = tabular.revised(mdp, near_greedy(mdp, GAMMA), GAMMA)
    i, j = np.triu_indices(solved.n, 1)
    own = solved.self_distance()
    return (own[i] + own[j]) / 2, solved.matrix()[i, j], solved


def draw_exact_distance() -> Figure:
    """What each distance can represent, and how many dimensions the exact one needs."""
    own, distances, solved = exact_pairs()
    excess, largest = reach()
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    ends = np.array([0, 1.05 * own.max()])
    top = 1.05 * distances.max()
    left.fill_between(ends, ends, top, color=GREEN, alpha=0.12, lw=0, label="energy: all of it")
    left.fill_between(
        ends, ends, ends + excess, color=ORANGE, alpha=0.7, lw=0, label="MICo: the band"
    )
    left.plot([0, 0], [0, largest], color=BLUE, lw=4, clip_on=False, label="SimSR: the line")
    left.plot(own, distances, ".", color="black", ms=2, alpha=0.4, rasterized=True)
    left.set(
        xlim=(0, ends[1]), ylim=(0, top), xlabel="mean of the two self-distances", ylabel="U(s, t)"
    )
    left.legend(frameon=False, loc="upper right", fontsize=8)
    left.set_title("every pair of states, and what can represent it", fontsize=10)
    sizes = (1, 2, 3, 5, 7, 10, 15, 20)  # beyond, rounding decides
    errors = [solved.embedding(size).error_bound for size in sizes]
    right.semilogy(sizes, errors, "o-", color=GREEN, ms=4)
    right.set(xlabel="dimensions of e", ylabel="largest error of a distance", ylim=(1e-9, 10))
    right.set_xticks((1, 5, 10, 15, 20))
    right.set_title("energy distance of points e, certified", fontsize=10)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "reward-gap.svg": draw_reward_gap,
    "weights.svg": draw_weights,
    "laws.svg": draw_laws,
    "two-equations.svg": draw_two_equations,
    "tie.svg": draw_tie,
    "exact-distance.svg": draw_exact_distance,
}


def draw(name: str, folder: Path) -> None:
    """Writes one of the pictures."""
    with mpl.rc_context(STYLE):
        PICTURES[name]().savefig(folder / name, metadata={"Date": None})


def _heat_map(panel: Axes, matrix: Array, names: tuple[str, ...] | list[str], top: float) -> None:
    panel.imshow(matrix, cmap="Blues", vmin=0, vmax=top)
    places = np.arange(len(names))
    panel.set_xticks(places, names, rotation=90 if len(names) > 3 else 0, fontsize=8)
    panel.set_yticks(places, names, fontsize=8)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            colour = "white" if value > 0.6 * top else "black"
            panel.text(
                j, i, f"{abs(value):.2f}", ha="center", va="center", fontsize=8, color=colour
            )


if __name__ == "__main__":
    for picture in PICTURES:
        draw(picture, Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
