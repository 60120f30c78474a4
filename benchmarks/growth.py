"""How each solver's time grows with the number of states, and how far 16 GB would take it.

Every solver runs on the kind of MDP it is for, one thread, γ = 0.9, certified error 1e-6, on larger
and larger MDPs until the next run would take more than about 20 seconds. Runs under a second are
medians of three. The ceiling is the largest number of states whose memory estimate, the one the
package itself refuses by, fits 16 GB (the MDP itself not counted); times up to there are
extrapolated from the last three sizes.

Writes docs/solver-growth.png and results/tabular/growth.csv.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from _measure import ROOT, finish, machine, one_thread, print_table, revision, timed
from revbis.tabular import FiniteMDP
from revbis.tabular.examples import garnet, grid_world
from revbis.tabular.registry import METRICS
from revbis.tabular.solver import make_problem, make_query, solve

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

GAMMA, TOL, MOST_SECONDS, MEMORY = 0.9, 1e-6, 20.0, 16e9
PICTURE, RECORD = ROOT / "docs/solver-growth.png", ROOT / "results/tabular/growth.csv"


def dense(n: int) -> tuple[FiniteMDP, Any]:
    rng = np.random.default_rng(0)
    mdp = FiniteMDP(rng.dirichlet(np.ones(n), size=(n, 1)), rng.random((n, 1)))
    return mdp, mdp.uniform_policy()


def slip_grid(n: int) -> tuple[FiniteMDP, Any]:
    return grid_world(math.isqrt(n))


def fixed_moves(n: int) -> tuple[FiniteMDP, Any]:
    """A grid without slip and a random deterministic policy: one successor a state."""
    mdp, _ = grid_world(math.isqrt(n), slip=0.0)
    return mdp, np.random.default_rng(0).integers(4, size=mdp.n_states)


@dataclass
class Case:
    """A solver, what it is measured on, and what was measured."""

    solver: str
    metric: str
    family: str
    make: Callable[[int], tuple[FiniteMDP, Any]]
    colour: str
    marker: str
    sizes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def slope(self, values: list[Any]) -> float:
        """The exponent of n, fitted to the last three sizes."""
        return float(np.polyfit(np.log(self.sizes[-3:]), np.log(values[-3:]), 1)[0])

    @property
    def ceiling(self) -> int:
        """The most states that fit; the estimates are powers of n up to lower terms."""
        return int(self.sizes[-1] * (MEMORY / self.memory[-1]) ** (1 / self.slope(self.memory)))

    def predict(self, n: int) -> float:
        """Seconds at n states, from the last sizes."""
        return self.seconds[-1] * (n / self.sizes[-1]) ** self.slope(self.seconds)


# Colours of Okabe and Ito, told apart with any kind of colour vision.
def cases() -> list[Case]:
    return [
        Case("low_rank", "revised", "slip grid", slip_grid, "#009E73", "o"),
        Case("in_place", "revised", "Garnet", garnet, "#56B4E9", "v"),
        Case("pointer_doubling", "revised", "deterministic grid", fixed_moves, "#CC79A7", "D"),
        Case("gather", "bisimulation", "deterministic grid", fixed_moves, "#999999", "P"),
        Case("jacobi", "revised", "Garnet", garnet, "#0072B2", "s"),
        Case("doubling", "revised", "dense", dense, "#000000", "^"),
        Case("policy_iteration", "bisimulation", "slip grid", slip_grid, "#E69F00", "X"),
        Case("policy_iteration", "pi_bisimulation", "Garnet", garnet, "#D55E00", "*"),
    ]


def measure(case: Case, n: int) -> None:
    """Adds one size to a case."""
    mdp, policy = case.make(n)
    run = partial(solve, case.metric, mdp, policy, GAMMA, TOL, solver=case.solver)
    if not case.sizes:
        run()  # compiles, or loads what was compiled
    times = [timed(run)[0]]
    if times[0] < 1:
        times += [timed(run)[0] for _ in range(2)]
    problem = make_problem(make_query(case.metric, mdp, policy, GAMMA))
    case.sizes.append(mdp.n_states)
    case.seconds.append(median(times))
    solvers = {each.name: each for each in METRICS[case.metric].solvers}
    case.memory.append(solvers[case.solver].memory(problem))


def grow(case: Case) -> None:
    """Doubles n while the next run would be short enough; a million states are enough."""
    n = 128
    while n <= 1 << 20:
        measure(case, n)
        n *= 2
        if len(case.sizes) > 2 and case.predict(n) > MOST_SECONDS:
            return


def write_record(found: list[Case]) -> None:
    lines = [
        "# command: python benchmarks/growth.py",
        f"# machine: {machine()}; one thread",
        f"# revision: {revision()}",
        f"# gamma {GAMMA}, tol {TOL:g}; memory_bytes is the package's own estimate",
        "solver,metric,family,n,seconds,memory_bytes",
    ]
    for case in found:
        for n, seconds, memory in zip(case.sizes, case.seconds, case.memory, strict=True):
            row = (case.solver, case.metric, case.family, n, f"{seconds:.6g}", memory)
            lines.append(",".join(map(str, row)))
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text("\n".join(lines) + "\n")


def draw(found: list[Case]) -> None:
    mpl.use("Agg")
    figure, axes = plt.subplots(figsize=(8, 6.4), layout="constrained")
    for case in found:
        draw_case(axes, case)
    axes.set(xscale="log", yscale="log", xlabel="states", ylabel="seconds")
    title = f"Time to a certified error of {TOL:g} at γ = {GAMMA}, one thread"
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(True, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    legend_title = "filled: measured; dashed to hollow: extrapolated to the most states in 16 GB"
    style = {"fontsize": 8.5, "title_fontsize": 8.5, "frameon": False, "ncols": 2}
    figure.legend(loc="outside lower center", title=legend_title, **style)
    figure.savefig(PICTURE, dpi=150)


def draw_case(axes: Axes, case: Case) -> None:
    """Measured points, and a dashed line to the ceiling."""
    top = case.ceiling
    metric = case.metric.replace("pi_", "π-")
    label = f"{case.solver}: {metric}, {case.family} ({format_bytes(top)})"
    style = {"color": case.colour, "linewidth": 1.4}
    axes.plot(case.sizes, case.seconds, marker=case.marker, markersize=5, label=label, **style)
    far = [case.sizes[-1], top], [case.seconds[-1], case.predict(top)]
    axes.plot(*far, linestyle=(0, (2, 2)), **style)
    axes.plot(far[0][1], far[1][1], case.marker, markersize=8, markerfacecolor="white", **style)


def format_bytes(n: int) -> str:
    """Two digits: 5.2M, 22k."""
    value, unit = (n / 1e6, "M") if n >= 1e6 else (n / 1e3, "k")
    return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"


def main() -> None:
    logging.getLogger("revbis").setLevel(logging.ERROR)  # it says how much memory a run takes
    found = cases()
    for case in found:
        grow(case)
    rows = [
        (f"{c.solver}, {c.metric}, {c.family}", c.sizes[-1], c.seconds[-1], c.slope(c.seconds))
        + (format_bytes(c.ceiling),)
        for c in found
    ]
    print_table(("solver, metric, MDP", "largest n", "seconds", "exponent", "most in 16 GB"), rows)
    write_record(found)
    draw(found)
    print(f"wrote {PICTURE.relative_to(ROOT)} and {RECORD.relative_to(ROOT)}")
    finish("growth", {f"{c.solver}/{c.metric}": c.slope(c.seconds) for c in found}, [])


if __name__ == "__main__":
    one_thread()
    main()
