"""Solvers of the W1 metrics: π-bisimulation, bisimulation and lax bisimulation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from revbis.io.compiled import compiled
from revbis.tabular.linear import EPS
from revbis.tabular.registry import OnIteration, Solution
from revbis.tabular.transport import first_basis, marginals, scratch, transport_cost

if TYPE_CHECKING:
    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.operators import Chain

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@compiled
def hausdorff_couple(
    distance: Array, m: int, k: int
) -> tuple[int, int]:  # pragma: no cover - compiled
    """The couple whose distance is the Hausdorff distance of two sets at m × k distances."""
    worst, row, column = -1e300, 0, 0
    for i in range(m):
        nearest = 0
        for j in range(k):
            if distance[i, j] < distance[i, nearest]:
                nearest = j
        if distance[i, nearest] > worst:
            worst, row, column = distance[i, nearest], i, nearest
    for j in range(k):
        nearest = 0
        for i in range(m):
            if distance[i, j] < distance[nearest, j]:
                nearest = i
        if distance[nearest, j] > worst:
            worst, row, column = distance[nearest, j], nearest, j
    return row, column


@compiled
def count_rows(
    rows: Any, action_sets: Any, couple: Index, offset: Index, span: tuple[int, int], space: Any
) -> float:  # pragma: no cover - compiled
    """Basis sizes of the couples of states in `span`; returns the largest mass that moves."""
    indptr, indices, data, _ = rows
    first, action_set, matched, _, _ = action_sets
    left, supply, right, demand = space[0], space[1], space[2], space[3]
    n = action_set.shape[0]
    most = 0.0
    for s in range(span[0], span[1]):
        q = couple[s]
        for t in range(s + 1, n):
            if matched and action_set[s] != action_set[t]:
                continue
            for x in range(first[s], first[s + 1]):
                begin, end = first[t], first[t + 1]
                if matched:
                    begin = first[t] + x - first[s]
                    end = begin + 1
                for y in range(begin, end):
                    m, k = marginals(indptr, indices, data, x, y, True, left, supply, right, demand)
                    offset[q + 1] = max(0, m + k - 1)
                    q += 1
                    most = max(most, supply[:m].sum())
    return most


@compiled
def _couple_cost(
    rows: Any,
    flags: Any,
    basis: Any,
    d: Array,
    largest: float,
    x: int,
    y: int,
    q: int,
    space: Any,
    position: Index,
) -> tuple[float, float]:  # pragma: no cover - compiled
    """W1(d)(P_x, P_y) and a bound on its error; the basis of couple q is read and written."""
    indptr, indices, data, _ = rows
    cancel, keep, warm, _ = flags
    _, offset, cell, flow = basis
    left, supply, right, demand, basis_row, basis_column, local_flow = space[:7]
    m, k = marginals(indptr, indices, data, x, y, cancel, left, supply, right, demand)
    if m == 0:
        return 0.0, 0.0
    n = d.shape[0]
    if warm:
        for i in range(m):
            position[0, left[i]] = i
        for j in range(k):
            position[1, right[j]] = j
        for e in range(m + k - 1):
            code = cell[offset[q] + e]
            state = code // n
            basis_row[e] = position[0, state]
            basis_column[e] = position[1, code - state * n]
            local_flow[e] = flow[offset[q] + e]
    else:
        first_basis(d, m, k, space)
    cost, slack = transport_cost(d, largest, m, k, space)
    if keep:
        # Frozen sweeps read these flows: their sum must be the mass that moves, unperturbed.
        share = supply[:m].sum() / local_flow[: m + k - 1].sum()
        for e in range(m + k - 1):
            cell[offset[q] + e] = left[basis_row[e]] * n + right[basis_column[e]]
            flow[offset[q] + e] = local_flow[e] * share
    return cost, slack


@compiled
def exact_rows(
    rows: Any,
    action_sets: Any,
    flags: Any,
    basis: Any,
    d: Array,
    largest: float,
    span: tuple[int, int],
    space: Any,
    work: Any,
    out: Array,
) -> tuple[float, float]:  # pragma: no cover - compiled
    """out[s, t] = (T d)(s, t) for s in `span` and t > s (t ≥ s with the diagonal flag)."""
    reward = rows[3]
    first, action_set, matched, far, discount = action_sets
    keep, diagonal = flags[1], flags[3]
    distance, position = work
    n = action_set.shape[0]
    change = slack = 0.0
    for s in range(span[0], span[1]):
        q = basis[0][s] if keep else 0
        for t in range(s if diagonal else s + 1, n):
            value = -1e300
            if matched and action_set[s] != action_set[t]:
                value = far
            elif matched:
                for i in range(first[s + 1] - first[s]):
                    x, y = first[s] + i, first[t] + i
                    cost, off = _couple_cost(
                        rows, flags, basis, d, largest, x, y, q, space, position
                    )
                    value = max(value, abs(reward[x] - reward[y]) + discount * cost)
                    slack = max(slack, off)
                    q += 1
            else:
                for i in range(first[s + 1] - first[s]):
                    for j in range(first[t + 1] - first[t]):
                        x, y = first[s] + i, first[t] + j
                        cost, off = _couple_cost(
                            rows, flags, basis, d, largest, x, y, q, space, position
                        )
                        distance[i, j] = abs(reward[x] - reward[y]) + discount * cost
                        slack = max(slack, off)
                        q += 1
                i, j = hausdorff_couple(distance, first[s + 1] - first[s], first[t + 1] - first[t])
                value = distance[i, j]
            change = max(change, abs(value - d[s, t]))
            out[s, t] = value
            out[t, s] = value
    return change, slack


@compiled
def _frozen_value(
    reward: Array, x: int, y: int, basis: Any, q: int, discount: float, flat: Array
) -> float:  # pragma: no cover - compiled
    """Weighted reward gap plus the cost of couple q's frozen coupling."""
    _, offset, cell, flow = basis
    total = 0.0
    for e in range(offset[q], offset[q + 1]):
        total += flow[e] * flat[cell[e]]
    return float(abs(reward[x] - reward[y]) + discount * total)


@compiled
def frozen_rows(
    reward: Array,
    action_sets: Any,
    basis: Any,
    choice: NDArray[np.int32],
    d: Array,
    span: tuple[int, int],
    decide: bool,
    work: Any,
) -> float:  # pragma: no cover - compiled
    """Sweeps the rows in `span` of d in place with frozen couplings; returns the largest change.

    With `decide` all couples of a pair are merged, and the one that decides is noted in `choice`;
    without, that one alone is evaluated.
    """
    first, action_set, matched, far, discount = action_sets
    distance = work[0]
    n = action_set.shape[0]
    flat = d.reshape(-1)
    change = 0.0
    for s in range(span[0], span[1]):
        q = basis[0][s]
        m = first[s + 1] - first[s]
        for t in range(s + 1, n):
            k = first[t + 1] - first[t]
            if matched and action_set[s] != action_set[t]:
                value = far
            elif not decide:
                e = choice[s, t]
                x = first[s] + (e if matched else e // k)
                y = first[t] + (e if matched else e % k)
                value = _frozen_value(reward, x, y, basis, q + e, discount, flat)
                q += m if matched else m * k
            elif matched:
                value = -1.0
                for i in range(m):
                    x, y = first[s] + i, first[t] + i
                    option = _frozen_value(reward, x, y, basis, q, discount, flat)
                    q += 1
                    if option > value:
                        value = option
                        choice[s, t] = i
            else:
                for i in range(m):
                    for j in range(k):
                        x, y = first[s] + i, first[t] + j
                        distance[i, j] = _frozen_value(reward, x, y, basis, q, discount, flat)
                        q += 1
                i, j = hausdorff_couple(distance, m, k)
                value = distance[i, j]
                choice[s, t] = i * k + j
            change = max(change, abs(value - d[s, t]))
            d[s, t] = value
            d[t, s] = value
    return change


@dataclass(frozen=True)
class TransportProblem:
    """A W1 metric on a finite MDP or a chain.

    Attributes:
        laws: CSR (X, n): the next-state law of each row.
        reward: (X,) weighted reward of each row, w·r.
        first: (n + 1,): rows first[s] to first[s + 1] belong to state s.
        action_set: (n,): states with equal numbers have the same available actions.
        matched: Couple rows by position and take the maximum; else couple all, Hausdorff.
        discount: λ.
        reward_error: Bound on the rounding error of a weighted reward.
    """

    laws: Any
    reward: Array
    first: Index
    action_set: Index
    matched: bool
    discount: float
    reward_error: float = 0.0

    @property
    def n(self) -> int:
        """Number of states."""
        return len(self.action_set)

    @property
    def support(self) -> int:
        """The largest number of successors of a row."""
        return int(np.diff(self.laws.indptr).max())

    @property
    def scale(self) -> float:
        """The largest possible distance: that of states with different available actions."""
        return float(np.ptp(self.reward)) / (1 - self.discount)

    @property
    def is_deterministic(self) -> bool:
        """Whether each row has one successor."""
        return self.support == 1

    def apply(self, d: Array) -> tuple[Array, float]:
        """T d for any matrix d, symmetric or not, and the largest error of an entry."""
        upper, error = self._apply_upper(np.ascontiguousarray(d))
        lower = upper
        if not np.array_equal(d, d.T):
            lower, other = self._apply_upper(np.ascontiguousarray(d.T))
            error = max(error, other)
        return np.triu(upper) + np.triu(lower, 1).T, error

    def _apply_upper(self, d: Array) -> tuple[Array, float]:
        out, largest, worst = np.zeros_like(d), float(np.abs(d).max()), 0.0
        for span in row_blocks(self, 1 << 15):
            _, slack = exact_rows(
                _rows(self),
                action_sets(self),
                (False, False, False, True),
                _NO_BASIS,
                d,
                largest,
                span,
                scratch(self.support),
                _work(self),
                out,
            )
            worst = max(worst, slack)
        return out, self.discount * worst + self.rounding(largest)

    def rounding(self, scale: float) -> float:
        """Bound on the rounding error of an entry of T d when entries of d are at most `scale`."""
        return 2 * self.reward_error + EPS * (2 * self.support + 8) * (scale + self.scale)


def chain_problem(chain: Chain, reward_weight: float, discount: float) -> TransportProblem:
    """π-bisimulation: one row for each state."""
    n = chain.n
    return TransportProblem(
        laws=chain.P,
        reward=chain.mean_reward * reward_weight,
        first=np.arange(n + 1),
        action_set=np.zeros(n, dtype=np.int64),
        matched=True,
        discount=discount,
        reward_error=reward_weight * chain.reward_error,
    )


def mdp_problem(
    mdp: FiniteMDP, matched: bool, reward_weight: float, discount: float
) -> TransportProblem:
    """Bisimulation (`matched`) or lax bisimulation: one row for each available action."""
    states, actions = mdp.state_actions.T
    _, action_set = np.unique(mdp.available, axis=0, return_inverse=True)
    laws = mdp.transitions[states * mdp.n_actions + actions]
    laws.sort_indices()
    return TransportProblem(
        laws=sp.csr_matrix(laws),
        reward=mdp.rewards[states, actions] * reward_weight,
        first=np.concatenate([[0], np.cumsum(mdp.available.sum(axis=1))]).astype(np.int64),
        action_set=np.asarray(action_set).ravel().astype(np.int64),
        matched=matched,
        discount=discount,
    )


def policy_iteration(problem: TransportProblem, tol: float, on_iteration: OnIteration) -> Solution:
    """Exact sweeps with cheap sweeps under frozen couplings between them."""
    couplings = Couplings(problem)
    modulus = problem.discount * couplings.most_moved
    d, out = np.zeros((problem.n, problem.n)), np.zeros((problem.n, problem.n))
    best, patience, sweeps = np.inf, 0, 0
    while True:
        change, slack = couplings.exact_sweep(d, out)
        d, out = out, d
        sweeps += 1
        roundoff = problem.discount * slack + problem.rounding(problem.scale)
        bound = (modulus * change + roundoff) / (1 - modulus)
        on_iteration(sweeps, bound)
        patience = 0 if bound < best else patience + 1
        best = min(best, bound)
        if bound <= tol or patience == 10:
            return Solution(bound, sweeps, matrix=d)
        enough = max(
            0.02 * change * (1 - problem.discount),
            0.05 * tol * (1 - modulus),
            problem.rounding(problem.scale),
        )
        couplings.relax(d, enough)


class Couplings:
    """The optimal basis of every couple, kept between sweeps."""

    def __init__(self, problem: TransportProblem) -> None:
        self.problem = problem
        counts = _couples_per_row(problem)
        self._couple = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._offset = np.zeros(int(self._couple[-1]) + 1, dtype=np.int64)
        self.most_moved = 0.0
        for span in row_blocks(problem, 1 << 20):
            moved = count_rows(
                _rows(problem),
                action_sets(problem),
                self._couple,
                self._offset,
                span,
                scratch(problem.support),
            )
            self.most_moved = max(self.most_moved, min(moved, 1.0))
        np.cumsum(self._offset, out=self._offset)
        self._cell = np.zeros(int(self._offset[-1]), dtype=_cell_type(problem.n))
        self._flow = np.zeros(len(self._cell))
        self._choice = np.zeros((problem.n, problem.n), dtype=np.int32)
        self._warm = False

    def exact_sweep(self, d: Array, out: Array) -> tuple[float, float]:
        """Out = T d. Returns the largest change and the largest error of a transport cost."""
        change = slack = 0.0
        largest = float(max(d.max(), -d.min()))  # jumps may go below 0
        for span in row_blocks(self.problem, 1 << 17):
            a, b = exact_rows(
                _rows(self.problem),
                action_sets(self.problem),
                (True, True, self._warm, False),
                (self._couple, self._offset, self._cell, self._flow),
                d,
                largest,
                span,
                scratch(self.problem.support),
                _work(self.problem),
                out,
            )
            change, slack = max(change, a), max(slack, b)
        self._warm = largest > 0.0  # a basis for zero costs is not a useful start
        return change if np.isfinite(d).all() else np.inf, slack

    def relax(self, d: Array, enough: float) -> None:
        """Sweeps d in place with the couplings as they are until it changes by `enough` or less.

        Most sweeps follow the couple that decided each pair last. Inside a Hausdorff distance that
        may cycle; where it repeatedly does not help, every sweep decides anew, which contracts.
        Occasionally d is extrapolated to the limit of a geometric series of such changes; a jump
        that makes the next change larger is undone, and the budget of jumps shrinks.
        """
        follow = 10 if len(self.problem.reward) > self.problem.n else 0
        least, setbacks, jumps = np.inf, 0, 50
        before, backup, change_at_jump = np.empty_like(d), np.empty_like(d), np.inf
        for _ in range(5000):
            change = self._frozen_sweep(d, decide=True)
            if change <= enough:
                return
            if change > change_at_jump:
                d[:], jumps = backup, jumps // 4
            decision_change, change_at_jump = change, np.inf
            setbacks += change >= least
            least = min(least, change)
            if setbacks > 5 and not self.problem.matched:
                follow = 0
            for step in range(1, (follow or 7) + 1):
                if step == (follow or 7):
                    before[:] = d
                last, change = change, self._frozen_sweep(d, decide=not follow)
                if change <= enough / 4:
                    break
            else:
                if jumps and change < last:
                    backup[:], jumps, change_at_jump = d, jumps - 1, decision_change
                    self._jump(before, d, min(change / last, self.problem.discount))

    def _jump(self, before: Array, d: Array, ratio: float) -> None:
        """Moves d along its last change to the limit of a geometric series; overwrites `before`."""
        before -= d
        before *= ratio / (ratio - 1)
        d += before
        np.clip(d, 0.0, self.problem.scale, out=d)

    def _frozen_sweep(self, d: Array, decide: bool) -> float:
        change = 0.0
        for span in row_blocks(self.problem, 1 << 20):
            moved = frozen_rows(
                self.problem.reward,
                action_sets(self.problem),
                (self._couple, self._offset, self._cell, self._flow),
                self._choice,
                d,
                span,
                decide,
                _work(self.problem),
            )
            change = max(change, moved)
        return change


def memory_needed(problem: TransportProblem) -> int:
    """An upper bound on the bytes that `policy_iteration` needs."""
    couples = int(_couples_per_row(problem).sum())
    cell = 8 + np.dtype(_cell_type(problem.n)).itemsize
    return 36 * problem.n**2 + couples * (8 + cell * (2 * problem.support - 1))


def _cell_type(n: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if n * n < 1 << 31 else np.int64


_NO_BASIS = (np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1))


def _rows(problem: TransportProblem) -> tuple[Any, ...]:
    return problem.laws.indptr, problem.laws.indices, problem.laws.data, problem.reward


def action_sets(problem: TransportProblem) -> tuple[Any, ...]:
    """What the compiled sweeps need to know about states and weights."""
    return problem.first, problem.action_set, problem.matched, problem.scale, problem.discount


def _work(problem: TransportProblem) -> tuple[Array, Index]:
    """Work space: the distances of one pair's couples, and positions of states in marginals."""
    most = int(np.diff(problem.first).max())
    return np.zeros((most, most)), np.zeros((2, problem.n), dtype=np.int64)


def _couples_per_row(problem: TransportProblem) -> Index:
    """How many couples the pairs (s, t), t > s, have together, for each s."""
    sizes = np.diff(problem.first)
    if problem.matched:
        later = np.zeros(problem.n, dtype=np.int64)
        for kind in np.unique(problem.action_set):
            members = np.flatnonzero(problem.action_set == kind)
            later[members] = np.arange(len(members) - 1, -1, -1)
        return sizes * later
    return np.asarray(sizes * (sizes.sum() - np.cumsum(sizes)))


def row_blocks(problem: TransportProblem, couples: int) -> list[tuple[int, int]]:
    """Ranges of rows with about so many couples each, so that Ctrl-C is handled between them."""
    done = np.cumsum(_couples_per_row(problem))
    size = max(1, couples // max(1, problem.support // 8) ** 2)
    edges = np.searchsorted(done, np.arange(size, int(done[-1]) + size, size)) + 1
    marks = np.unique(np.concatenate([[0], np.minimum(edges, problem.n), [problem.n]]))
    return [(int(a), int(b)) for a, b in pairwise(marks)]
