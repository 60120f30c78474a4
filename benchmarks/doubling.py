"""Doubling beside plain iteration on dense matrices, to the same certified error.

Both solve U = D + γ P U Pᵀ (the revised metric) at γ = 0.99. The plain iteration is two matrix
products a step. Its certificate is γ/(1−γ) times the largest change in the last step: the change
itself is not the error. It is handed P and D ready-made; doubling starts from the MDP.

Times are CPU times, which on one thread are what a clock shows on an idle machine.

The requirement is for 500 states with Dirichlet rows. Such a chain mixes at once, so most of that
ratio is the interval certificate: the last column gives it to the plain iteration too.
The grid world, which mixes slowly, shows what doubling itself is worth.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from time import process_time

import numpy as np
from numpy.typing import NDArray

from _measure import finish, in_turn, median_ratio, one_thread, print_table
from revbis.tabular import FiniteMDP, MetricResult, revised
from revbis.tabular.examples import grid_world
from revbis.tabular.operators import reward_gap, state_chain

STATES, ACTIONS, SIDE = 500, 2, 16
GAMMA, TOL = 0.99, 1e-6
ROUNDS, REQUIRED = 3, 50
Array = NDArray[np.float64]
Row = tuple[str, float, int, float, int, int, float, float]


def dense_mdp(seed: int = 0) -> tuple[FiniteMDP, Array]:
    """Dirichlet rows over all states, uniform rewards, a Dirichlet policy."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS))
    mdp = FiniteMDP(P, rng.random((STATES, ACTIONS)))
    return mdp, rng.dirichlet(np.ones(ACTIONS), size=STATES)


def plain_iteration(P: Array, D: Array, interval: bool) -> tuple[Array, int]:
    """U ← D + γ P U Pᵀ until the certified error is TOL; returns U and the number of steps."""
    U, left, new = D.copy(), np.empty_like(D), np.empty_like(D)
    steps, ratio = 0, GAMMA / (1 - GAMMA)
    while True:
        np.matmul(P, U, out=left)
        np.matmul(left, P.T, out=new)
        new *= GAMMA
        new += D
        np.subtract(new, U, out=U)
        low, high = float(U.min()), float(U.max())
        U, new = new, U
        steps += 1
        if interval and (high - low) / 2 * ratio <= TOL:
            return U + (high + low) / 2 * ratio, steps
        if max(high, -low) * ratio <= TOL:
            return U, steps


def doubling(mdp: FiniteMDP, policy: Array) -> MetricResult:
    return revised(mdp, policy, GAMMA, tol=TOL, solver="doubling")


def compare(name: str, mdp: FiniteMDP, policy: Array) -> tuple[Row, list[str]]:
    """One line of the table, and what is wrong if the solvers disagree."""
    chain = state_chain(mdp, policy)
    P, D = chain.P.toarray(), reward_gap(chain.values, chain.weights)
    doubling(mdp, policy)
    runs = [
        partial(doubling, mdp, policy),
        partial(plain_iteration, P, D, False),
        partial(plain_iteration, P, D, True),
    ]
    (fast, slow, helped), (result, (plain, steps), (_, fewer)) = in_turn(runs, ROUNDS, process_time)
    apart = float(np.abs(plain - result.matrix()).max())
    agree = apart <= TOL + result.error_bound
    ratios = median_ratio(slow, fast), median_ratio(helped, fast)
    row = (name, median(fast), result.iterations, median(slow), steps, fewer, *ratios)
    return row, [] if agree else [f"{name}: they differ by {apart:.1e}, more than certified"]


def main() -> None:
    dense, wrong = compare(f"Dirichlet, {STATES} states", *dense_mdp())
    grid, also_wrong = compare(f"grid world, {SIDE**2} states", *grid_world(SIDE))
    print(f"γ = {GAMMA}, certified error {TOL:g}, one thread, medians of {ROUNDS}")
    header = ("", "doubling s", "steps", "plain s", "steps", "steps*", "ratio", "ratio*")
    print_table(header, [dense, grid])
    print("ratio: plain iteration / doubling; * the plain iteration with the interval certificate")
    ratio = dense[-2]
    missed = [*wrong, *also_wrong]
    if ratio < REQUIRED:
        missed.append(f"ratio {ratio:.1f} on the Dirichlet chain, wanted at least {REQUIRED}")
    figures = {"ratio": ratio, "ratio_with_interval": dense[-1], "seconds": dense[1]}
    grid_figures = {"grid_ratio": grid[-2], "grid_ratio_with_interval": grid[-1]}
    finish("doubling", figures | grid_figures, missed)


if __name__ == "__main__":
    one_thread()
    main()
