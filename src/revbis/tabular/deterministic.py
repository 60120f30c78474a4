"""Bisimulation where every action has one successor: gathers instead of transport.

For bisimulation, fix which action attains the maximum at each pair: every pair then has one
successor pair, and the values on that graph are exact in one pass over it (a path, or a cycle in
closed form). Improving the actions and evaluating again is Howard's policy iteration, which ends
after a few rounds. Lax bisimulation has a minimum inside the maximum and is solved by sweeps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from revbis.io.compiled import compiled
from revbis.tabular.registry import OnIteration, Solution
from revbis.tabular.wasserstein import TransportProblem, action_sets, hausdorff_couple, row_blocks

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def gather(problem: TransportProblem, tol: float, on_iteration: OnIteration) -> Solution:
    """Solves bisimulation or lax bisimulation on deterministic transitions."""
    successor = problem.laws.indices.astype(np.int64)
    d = np.zeros((problem.n, problem.n))
    if problem.matched:
        return _howard(problem, successor, d, tol, on_iteration)
    return _sweeps(problem, successor, d, tol, on_iteration)


def gather_memory(problem: TransportProblem) -> int:
    """Bytes that `gather` needs: distances; for bisimulation also choices, marks, a stack."""
    return (8 + 2 + 1 + 4) * problem.n**2


def _howard(
    problem: TransportProblem, successor: Index, d: Array, tol: float, on_iteration: OnIteration
) -> Solution:
    n = problem.n
    choice = np.zeros((n, n), dtype=np.int16)
    stack = np.empty(n * (n - 1) // 2 + 1, dtype=np.int64)
    roundoff = problem.rounding(problem.scale)
    rounds = 0
    while True:
        residual, improved = 0.0, 0
        backwards = rounds % 2 == 1
        for span in row_blocks(problem, 1 << 22)[:: -1 if backwards else 1]:
            change, better = _improve(
                problem.reward, action_sets(problem), successor, d, choice, span, backwards
            )
            residual, improved = max(residual, change), improved + better
        bound = (residual + roundoff) / (1 - problem.discount)
        on_iteration(rounds, bound)
        if bound <= tol or (rounds and not improved):
            return Solution(bound, rounds, matrix=d)
        _evaluate(problem.reward, action_sets(problem), successor, choice, stack, d)
        rounds += 1


def _sweeps(
    problem: TransportProblem, successor: Index, d: Array, tol: float, on_iteration: OnIteration
) -> Solution:
    most = int(np.diff(problem.first).max())
    work = np.empty((most, most))
    roundoff = problem.rounding(problem.scale)
    best, patience, sweeps = np.inf, 0, 0
    while True:
        for write in (True, False):
            residual = 0.0
            for span in row_blocks(problem, 1 << 22):
                change = _lax_rows(
                    problem.reward, action_sets(problem), successor, d, work, span, write
                )
                residual = max(residual, change)
            if residual > tol * (1 - problem.discount):
                break
        sweeps += 1
        bound = (residual + roundoff) / (1 - problem.discount)
        on_iteration(sweeps, bound)
        patience = 0 if bound < best else patience + 1
        best = min(best, bound)
        if not write and (bound <= tol or patience >= 3):
            return Solution(bound, sweeps, matrix=d)


@compiled
def _improve(
    reward: Array,
    offered: Any,
    successor: Index,
    d: Array,
    choice: NDArray[np.int16],
    span: tuple[int, int],
    backwards: bool,
) -> tuple[float, int]:  # pragma: no cover - compiled
    """Picks a better action where there is one; returns the largest change and how many changed.

    Distances are raised in place, in alternating order, so that changes cross the graph in a pass.
    They stay below the values of the chosen actions, so evaluating those raises them further.
    """
    first, action_set, _, far, discount = offered
    residual, improved = 0.0, 0
    n = d.shape[0]
    for row in range(span[0], span[1]):
        s = span[0] + span[1] - 1 - row if backwards else row
        for column in range(s + 1, n):
            t = s + n - column if backwards else column
            if action_set[s] != action_set[t]:
                residual = max(residual, abs(far - d[s, t]))
                continue
            top = d[s, t]
            margin = 1e-14 * (1.0 + top)
            value = 0.0
            for i in range(first[s + 1] - first[s]):
                x, y = first[s] + i, first[t] + i
                candidate = abs(reward[x] - reward[y]) + discount * d[successor[x], successor[y]]
                value = max(value, candidate)
                if candidate > top + margin:
                    top = candidate
                    choice[s, t] = i
            residual = max(residual, abs(value - d[s, t]))
            if top > d[s, t]:
                improved += 1
                d[s, t] = top
                d[t, s] = top
    return residual, improved


@compiled
def _evaluate(  # noqa: C901
    reward: Array, offered: Any, successor: Index, choice: NDArray[np.int16], stack: Index, d: Array
) -> None:  # pragma: no cover - compiled
    """Exact values of the chosen actions, in place; each pair is visited once."""
    first, action_set, _, far, discount = offered
    n = d.shape[0]
    mark = np.zeros((n, n), dtype=np.uint8)  # 1: on the current path, 2: known
    for s in range(n):
        for t in range(s + 1, n):
            top = 0
            u, v = s, t
            while True:
                if u > v:
                    u, v = v, u
                if u == v:
                    value = 0.0
                    break
                if action_set[u] != action_set[v]:
                    value = far
                    d[u, v] = far
                    d[v, u] = far
                    mark[u, v] = 2
                    break
                if mark[u, v] == 2:
                    value = d[u, v]
                    break
                if mark[u, v] == 1:  # the path closed a cycle, which has a closed form
                    tail = top - 1
                    while stack[tail] != u * n + v:
                        tail -= 1
                    value, weight = 0.0, 1.0
                    for e in range(tail, top):
                        i, j = stack[e] // n, stack[e] % n
                        a = choice[i, j]
                        value += weight * abs(reward[first[i] + a] - reward[first[j] + a])
                        weight *= discount
                    value /= 1.0 - weight
                    break
                mark[u, v] = 1
                stack[top] = u * n + v
                top += 1
                a = choice[u, v]
                u, v = successor[first[u] + a], successor[first[v] + a]
            while top > 0:
                top -= 1
                i, j = stack[top] // n, stack[top] % n
                a = choice[i, j]
                value = abs(reward[first[i] + a] - reward[first[j] + a]) + discount * value
                d[i, j] = value
                d[j, i] = value
                mark[i, j] = 2


@compiled
def _lax_rows(
    reward: Array,
    offered: Any,
    successor: Index,
    d: Array,
    distance: Array,
    span: tuple[int, int],
    write: bool,
) -> float:  # pragma: no cover - compiled
    """One sweep of the lax operator, in place or without writing; returns the largest change."""
    first, _, _, _, discount = offered
    change = 0.0
    for s in range(span[0], span[1]):
        for t in range(s + 1, d.shape[0]):
            m, k = first[s + 1] - first[s], first[t + 1] - first[t]
            for i in range(m):
                x = first[s] + i
                for j in range(k):
                    y = first[t] + j
                    following = d[successor[x], successor[y]]
                    distance[i, j] = abs(reward[x] - reward[y]) + discount * following
            i, j = hausdorff_couple(distance, m, k)
            value = distance[i, j]
            change = max(change, abs(value - d[s, t]))
            if write:
                d[s, t] = value
                d[t, s] = value
    return change
