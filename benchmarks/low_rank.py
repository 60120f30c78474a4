"""The low-rank solver on a grid world of a million states, on one thread.

The revised metric of the uniform policy on a 1000 × 1000 grid, γ = 0.9, certified error 1e-6. The
full matrix would take 8 TB. Times are CPU times, which on one thread are what a clock shows on an
idle machine. Resident memory counts everything this process has held, the construction of the MDP
included.

The check takes U(s,t) − E|r_s − r_t| − γ E U(s',t') on random pairs, half of them near the goal and
the edges, where distances are not 0; a result within ε of the fixed point passes with (1 + γ) ε.
"""

from __future__ import annotations

from time import process_time

import numpy as np
from numpy.typing import NDArray

from _measure import finish, one_thread, peak_gigabytes, print_table, timed
from revbis.tabular import FiniteMDP, MetricResult, revised
from revbis.tabular.examples import grid_world
from revbis.tabular.operators import Chain, state_chain

SIDE, GAMMA, TOL, PAIRS = 1000, 0.9, 1e-6, 4000
MOST_SECONDS, MOST_GIGABYTES = 60, 4
Array = NDArray[np.float64]
Index = NDArray[np.int64]


def low_rank(mdp: FiniteMDP, policy: Array) -> MetricResult:
    return revised(mdp, policy, GAMMA, tol=TOL, solver="low_rank")


def sample_states(rng: np.random.Generator, count: int) -> Index:
    """Half anywhere, a quarter near the goal in the corner, a quarter on the upper edge."""
    anywhere = rng.integers(SIDE**2, size=count // 2)
    corner = SIDE - 1 - rng.integers(12, size=(2, count // 4))
    edge = rng.integers(SIDE, size=count - count // 2 - count // 4)
    return rng.permutation(np.concatenate([anywhere, corner[0] * SIDE + corner[1], edge]))


def residual(result: MetricResult, chain: Chain, s: int, t: int) -> float:
    """|U(s,t) − (T U)(s,t)|."""
    here, there = chain.P[s], chain.P[t]
    gaps = np.abs(chain.values[s][:, None] - chain.values[t])
    now = chain.weights[s] @ gaps @ chain.weights[t]
    later = here.data @ result.pairs(here.indices[:, None], there.indices) @ there.data
    return abs(float(result.pairs(s, t)) - now - GAMMA * later)


def largest_residual(result: MetricResult, chain: Chain) -> float:
    rng = np.random.default_rng(0)
    pairs = zip(sample_states(rng, PAIRS), sample_states(rng, PAIRS), strict=True)
    return max(residual(result, chain, int(s), int(t)) for s, t in pairs)


def main() -> None:
    low_rank(*grid_world(20))
    build_seconds, (mdp, policy) = timed(lambda: grid_world(SIDE), process_time)
    build_memory = peak_gigabytes()
    seconds, result = timed(lambda: low_rank(mdp, policy), process_time)
    memory = peak_gigabytes()
    worst = largest_residual(result, state_chain(mdp, policy))
    print(
        f"{SIDE} × {SIDE} grid, γ = {GAMMA}, certified error {result.error_bound:.1e}, one thread"
    )
    rows = [("build the MDP", build_seconds, build_memory), ("solve", seconds, memory)]
    print_table(("", "seconds", "peak GB so far"), rows)
    allowed = (1 + GAMMA) * result.error_bound
    print(f"rank {result.rank}; largest Bellman residual of {PAIRS} pairs {worst:.1e}")
    missed = []
    if result.error_bound > TOL or worst > allowed:
        missed.append(f"residual {worst:.1e}, wanted at most {allowed:.1e}")
    if seconds > MOST_SECONDS:
        missed.append(f"{seconds:.0f} s, wanted at most {MOST_SECONDS}")
    if memory > MOST_GIGABYTES:
        missed.append(f"{memory:.2f} GB, wanted at most {MOST_GIGABYTES}")
    figures = {"seconds": seconds, "gigabytes": memory, "residual": worst}
    finish("low_rank", figures | {"error_bound": result.error_bound}, missed)


if __name__ == "__main__":
    one_thread()
    main()
