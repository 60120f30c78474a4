"""Example MDPs, small and large. Random ones take a seed."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from revbis.io import schema
from revbis.tabular.mdp import FiniteMDP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MOST_STATES = 10_000_000


class Example(NamedTuple):
    """An MDP and a policy on it, (S, A)."""

    mdp: FiniteMDP
    policy: NDArray[np.float64]


def toy(scaling: str = "stated") -> Example:
    """The paper's three-state example: s1 and s2 have the same mean rewards, by different actions.

    The policy draws a0 or a1 in s1, a0 or a2 in s2, and a0 in s3; a0 stays, the others go to s3.

    Args:
        scaling: "stated" has the rewards that the paper states (1, and 1/2 in s3). "printed" halves
            them, which gives the distances that the paper prints.
    """
    scale = {"stated": 1.0, "printed": 0.5}[
        schema.choice(scaling, ("stated", "printed"), "scaling")
    ]
    successors = np.array([[0, 2, 0], [1, 0, 2], [2, 0, 0]])
    rewards = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.0]]) * scale
    mask = np.array([[True, True, False], [True, False, True], [True, False, False]])
    policy = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    return Example(FiniteMDP(successors, rewards, mask=mask), policy)


def grid_world(
    rows: int = 8,
    columns: int | None = None,
    *,
    slip: float = 0.2,
    walls: Sequence[tuple[int, int]] = (),
    goal: tuple[int, int] | None = None,
) -> Example:
    """A grid with four moves (up, right, down, left) and the uniform policy.

    A move slips to either side with probability slip/2 each. The reward is 1 for a move aimed at
    the goal, and −0.1 for one aimed at a wall or the edge, which stays.

    Args:
        rows: Height.
        columns: Width; equal to rows when None.
        slip: Probability of slipping, in [0, 1].
        walls: Cells that are not states.
        goal: The goal cell; the lower right corner when None.
    """
    rows = schema.integer(rows, "rows", 1, _MOST_STATES)
    columns = rows if columns is None else schema.integer(columns, "columns", 1, _MOST_STATES)
    schema.integer(rows * columns, "the number of cells", 1, _MOST_STATES)
    slip = schema.number(slip, "slip")
    if not 0 <= slip <= 1:
        raise ValueError(f"slip must be in [0, 1], got {slip:g}")
    goal = (rows - 1, columns - 1) if goal is None else _cell(goal, rows, columns)
    free = np.ones((rows, columns), dtype=bool)
    for wall in _cells(walls):
        free[_cell(wall, rows, columns)] = False
    if not free[goal]:
        raise ValueError(f"the goal {goal} is a wall")
    number = np.full(free.shape, -1)
    number[free] = np.arange(free.sum())
    targets = np.stack([_aim(number, move) for move in ((-1, 0), (0, 1), (1, 0), (0, -1))], axis=1)
    blocked = targets == np.arange(len(targets))[:, None]
    rewards = np.where(targets == number[goal], 1.0, np.where(blocked, -0.1, 0.0))
    moves = [sp.csr_matrix((np.ones(len(a)), a, np.arange(len(a) + 1))) for a in targets.T]
    for move in moves:
        move.resize(len(targets), len(targets))
    P = [
        (1 - slip) * moves[a] + slip / 2 * (moves[(a + 1) % 4] + moves[(a + 3) % 4])
        for a in range(4)
    ]
    mdp = FiniteMDP(P, rewards, grid=np.argwhere(free))
    return Example(mdp, mdp.uniform_policy())


def four_rooms(size: int = 11, *, slip: float = 0.2) -> Example:
    """A square grid world divided by two walls with a door in each half."""
    size = schema.integer(size, "size", 5, int(_MOST_STATES**0.5))
    middle = size // 2
    doors = {middle // 2, middle + 1 + (size - middle - 1) // 2}
    cross = [
        cell
        for i in range(size)
        for cell in ((i, middle), (middle, i))
        if i == middle or i not in doors
    ]
    return grid_world(size, slip=slip, walls=sorted(set(cross)))


def garnet(
    n_states: int,
    n_actions: int = 3,
    branching: int = 5,
    *,
    reward_levels: int | None = None,
    seed: int = 0,
) -> Example:
    """A random MDP: `branching` successors for each pair, Dirichlet weights, a random policy.

    Args:
        n_states: S.
        n_actions: A.
        branching: Successors of each state-action pair.
        reward_levels: Number of equally spaced levels in [0, 1] that rewards are drawn from; they
            are uniform in [0, 1] when None.
        seed: Seed of the random generator.
    """
    n_states = schema.integer(n_states, "n_states", 1, _MOST_STATES)
    n_actions = schema.integer(n_actions, "n_actions", 1, _MOST_STATES)
    branching = schema.integer(branching, "branching", 1)
    if branching > n_states:
        raise ValueError(f"branching must be in 1..{n_states} (n_states), got {branching}")
    entries = n_states * n_actions * branching
    schema.integer(entries, "n_states × n_actions × branching", 1, 10 * _MOST_STATES)
    if reward_levels is not None:
        reward_levels = schema.integer(reward_levels, "reward_levels", 2, _MOST_STATES)
    seed = schema.integer(seed, "seed", 0)
    rng = np.random.default_rng(seed)
    P = []
    for _ in range(n_actions):
        steps = np.stack([rng.choice(n_states, branching, replace=False) for _ in range(n_states)])
        weights = rng.dirichlet(np.ones(branching), size=n_states)
        starts = np.arange(0, n_states * branching + 1, branching)
        P.append(sp.csr_matrix((weights.ravel(), steps.ravel(), starts), shape=(n_states,) * 2))
    shape = (n_states, n_actions)
    if reward_levels is None:
        rewards = rng.random(shape)
    else:
        rewards = rng.integers(reward_levels, size=shape) / (reward_levels - 1)
    policy = rng.dirichlet(np.ones(n_actions), size=n_states)
    return Example(FiniteMDP(P, rewards), policy)


def delay_chain(steps: int = 20) -> Example:
    """Two chains of `steps` steps; only the first ends in a reward of 1 at every step.

    The chains start in states 0 and steps + 1. Their values differ by γ^steps/(1−γ), but in the
    weighted metric with coefficient c this difference is discounted by c^steps: for c < γ it does
    not bound the value gap.
    """
    steps = schema.integer(steps, "steps", 1, _MOST_STATES // 2)
    length = steps + 1
    following = np.minimum(np.arange(length) + 1, steps)
    successors = np.concatenate([following, following + length])[:, None]
    rewards = np.zeros((2 * length, 1))
    rewards[steps] = 1.0
    mdp = FiniteMDP(successors, rewards)
    return Example(mdp, mdp.uniform_policy())


def two_coins() -> Example:
    """Two states, 0 and 1, with the same law of the reward at every lag; only the coin differs.

    State 0 leads to 2, which tosses a coin for the reward in the next state: 5 earns 1, 6 earns 0.
    State 1 tosses it one step earlier: it leads to 3 or 4, and these to 5 or 6. State 7 is the end.
    The revised metric does not see when the coin is tossed: the reduced distance of 0 and 1 is 0.
    Their π-bisimulation distance is γ²/2.
    """
    A, B, X, Y1, Y0, Z1, Z0, end = range(8)
    P, R = np.zeros((8, 1, 8)), np.zeros((8, 1))
    P[A, 0, X] = P[Y1, 0, Z1] = P[Y0, 0, Z0] = 1
    P[X, 0, [Z1, Z0]] = P[B, 0, [Y1, Y0]] = 0.5
    P[[Z1, Z0, end], 0, end] = 1
    R[Z1] = 1
    mdp = FiniteMDP(P, R)
    return Example(mdp, mdp.uniform_policy())


def _cells(walls: Any) -> list[Any]:
    try:
        return list(walls)
    except TypeError:
        raise ValueError(f"walls must be (row, column) cells, got {walls!r:.80}") from None


def _cell(value: Any, rows: int, columns: int) -> tuple[int, int]:
    """Row and column of a cell inside the grid."""
    try:
        row, column = value
        row, column = operator.index(row), operator.index(column)
    except (TypeError, ValueError):
        raise ValueError(f"a cell must be (row, column), got {value!r:.80}") from None
    if not (0 <= row < rows and 0 <= column < columns):
        raise ValueError(f"cell {value} lies outside the {rows}×{columns} grid")
    return row, column


def _aim(number: NDArray[np.int64], move: tuple[int, int]) -> NDArray[np.int64]:
    """The state that each state's move is aimed at: itself at a wall or the edge."""
    padded = np.pad(number, 1, constant_values=-1)
    rows, columns = number.shape
    neighbour = padded[1 + move[0] : 1 + move[0] + rows, 1 + move[1] : 1 + move[1] + columns]
    return np.where(neighbour >= 0, neighbour, number)[number >= 0]
