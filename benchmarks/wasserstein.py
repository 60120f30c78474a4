"""The W1 metrics beside a loop of `ot.emd2`, to the same certified error of 1e-6 at γ = 0.99.

The loop is value iteration as one would write it with POT: one call for each pair s < t (and each
action), the cost restricted to the two supports, which are looked up beforehand. Whole runs of it
take minutes to hours, so they are EXTRAPOLATED:

    seconds of one sweep of the loop × number of sweeps that value iteration needs

The number of sweeps is measured: value iteration from 0 with this package's exact sweep, until
γ/(1−γ) times the largest change is at most 1e-6. Whole sweeps of the loop are timed from its
iterates after 10 and 100 sweeps and from the last, each beside a run of this package's solver; a
ratio is the median of the three. Times are CPU times, which on one thread are what a clock shows on
an idle machine. The loop's sweeps are checked against ours.

Most of an `ot.emd2` call on small supports is Python. The last column puts POT's compiled core in
its place, called without any checks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import ot
from numpy.typing import NDArray
from ot.lp.emd_wrap import emd_c

from _measure import finish, in_turn, median_ratio, one_thread, print_table
from revbis.tabular.examples import Example, garnet, grid_world
from revbis.tabular.solver import make_problem, make_query, solve
from revbis.tabular.wasserstein import Couplings, TransportProblem

GAMMA, TOL, STAGES = 0.99, 1e-6, (10, 100)
Array = NDArray[np.float64]
Cost = Callable[[Array, Array, Array], float]


class Instance(NamedTuple):
    """A metric on an MDP, and the ratio wanted."""

    name: str
    metric: str
    example: Example
    wanted: int


class Couple(NamedTuple):
    """Two rows whose laws are to be coupled, one of each state of a pair."""

    pair: tuple[int, int]
    gap: float
    laws: tuple[Array, Array]
    supports: tuple[Any, ...]


class Comparison(NamedTuple):
    """What was measured on an instance; times of the loop are extrapolated."""

    seconds: float
    sweep_seconds: float
    sweeps: int
    ratio: float
    core_ratio: float
    apart: float


def instances() -> dict[str, Instance]:
    pi = "pi_bisimulation"
    return {
        "garnet": Instance("π, Garnet 100, b=5, 3 actions", pi, garnet(100, 3, 5), 500),
        "garnet_one_action": Instance("π, Garnet 100, b=5, 1 action", pi, garnet(100, 1, 5), 500),
        "slip_grid": Instance("Ferns, slip grid 14 × 14", "bisimulation", grid_world(14), 1000),
    }


def value_iteration(problem: TransportProblem) -> tuple[list[Array], int]:
    """Iterates to time the loop on, and the number of sweeps to a certified error of TOL."""
    couplings, kept, sweeps = Couplings(problem), [], 0
    d, out = np.zeros((problem.n, problem.n)), np.zeros((problem.n, problem.n))
    while True:
        change, _ = couplings.exact_sweep(d, out)
        d, out, sweeps = out, d, sweeps + 1
        done = change * GAMMA / (1 - GAMMA) <= TOL
        if done or sweeps in STAGES:
            kept.append(d.copy())
        if done:
            return kept, sweeps


def list_couples(problem: TransportProblem) -> list[Couple]:
    """The couples of each pair s < t, equal actions coupled."""
    laws, reward = problem.laws, problem.reward
    rows = [slice(a, b) for a, b in zip(laws.indptr, laws.indptr[1:], strict=False)]
    actions = len(reward) // problem.n
    return [
        Couple(
            (s, t),
            abs(float(reward[x] - reward[y])),
            (laws.data[rows[x]], laws.data[rows[y]]),
            np.ix_(laws.indices[rows[x]], laws.indices[rows[y]]),
        )
        for s in range(problem.n)
        for t in range(s + 1, problem.n)
        for x, y in zip(
            range(s * actions, (s + 1) * actions),
            range(t * actions, (t + 1) * actions),
            strict=True,
        )
    ]


def loop_sweep(couples: list[Couple], d: Array, cost: Cost) -> Array:
    """One sweep of value iteration with a call for each couple."""
    out = np.zeros_like(d)
    for pair, gap, (p, q), supports in couples:
        out[pair] = max(out[pair], gap + GAMMA * cost(p, q, d[supports]))
    return out + out.T


def core_cost(p: Array, q: Array, M: Array) -> float:
    """POT's compiled solver without the Python around it."""
    return float(emd_c(p, q, M, 100_000, 1)[1])


def compare(instance: Instance) -> Comparison:
    mdp, policy = instance.example
    problem = make_problem(make_query(instance.metric, mdp, policy, GAMMA))
    ours = partial(solve, instance.metric, mdp, policy, GAMMA, TOL)
    matrix = ours().matrix()
    iterates, sweeps = value_iteration(problem)
    couples = list_couples(problem)
    apart = float(np.abs(matrix - iterates[-1]).max())
    fast, slow, core = [], [], []
    for d in iterates:
        loops = [partial(loop_sweep, couples, d, cost) for cost in (ot.emd2, core_cost)]
        times, (_, swept, _) = in_turn([ours, *loops], 1, process_time)
        for record, (spent,) in zip((fast, slow, core), times, strict=True):
            record.append(spent)
        apart = max(apart, float(np.abs(swept - problem.apply(d)[0]).max()))
    ratio, core_ratio = (sweeps * median_ratio(times, fast) for times in (slow, core))
    return Comparison(median(fast), median(slow), sweeps, ratio, core_ratio, apart)


def main() -> None:
    rows, missed, ratios = [], [], {}
    for key, instance in instances().items():
        found = compare(instance)
        whole = found.sweeps * found.sweep_seconds
        measured = (found.seconds, found.sweep_seconds, found.sweeps)
        rows.append((instance.name, *measured, whole, found.ratio, found.core_ratio))
        ratios[key], ratios[f"{key}_core"] = found.ratio, found.core_ratio
        if found.ratio < instance.wanted:
            missed.append(f"{instance.name}: {found.ratio:.0f}×, wanted {instance.wanted}×")
        if found.apart > 2 * TOL:
            missed.append(f"{instance.name}: the loop and the solver differ by {found.apart:.1e}")
    print(f"γ = {GAMMA}, certified error {TOL:g}, one thread; * extrapolated: sweep s × sweeps")
    header = ("", "this s", "sweep s", "sweeps", "emd2 loop s*", "ratio*", "core ratio*")
    print_table(header, rows)
    finish("wasserstein", ratios, missed)


if __name__ == "__main__":
    one_thread()
    main()
