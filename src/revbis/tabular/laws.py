r"""Reward laws: the revised metric of every horizon from one solve.

With \(R_k(s)\) the reward k steps after s and \(F_k(s)(x) = Pr(R_k(s) ≤ x)\) its law, on two
independent trajectories

.. math:: U(s,t) = \sum_k γ^k E|R_k(s) − R_k(t)| =
          \sum_k γ^k \int F_k(s)(1 − F_k(t)) + F_k(t)(1 − F_k(s))\,dx.

The laws obey \(F_{k+1} = P F_k\) and do not depend on γ: weights \((1−c)c^k\) give the metric with
coefficient c, \(\sum_k γ^k E R_k\) the value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from revbis.io import schema
from revbis.io.machine import ensure_fits
from revbis.tabular.krylov import (
    EPS,
    Demand,
    Lags,
    distance_error,
    krylov_lags,
    plain_lags,
    tail_bound,
    tail_interval,
)
from revbis.tabular.mdp import row_indices
from revbis.tabular.operators import Chain, reward_distribution, state_action_chain, state_chain
from revbis.tabular.registry import Solution
from revbis.tabular.result import MetricResult, Query
from revbis.tabular.solver import ToleranceWarning, make_query

if TYPE_CHECKING:
    from revbis.tabular.mdp import FiniteMDP

Array = NDArray[np.float64]
REMEDY = "use fewer thresholds (thresholds=32), fewer lags or a larger tol"
_PLAIN_UP_TO = 300  # states: a basis saves nothing below
_FEW_THRESHOLDS, _MOST_COLUMNS = 64, 1000


@dataclass(frozen=True, eq=False)
class LawTable:
    """Laws of the rewards of a chain, and how to read distances from them.

    Attributes:
        levels: The thresholds and the largest reward, (K + 1,).
        lags: The laws.
        grid_error: How far a grid of thresholds can move E|R − R'|; upwards only.
        reward_error: Bound on the rounding error of a reward.
    """

    levels: Array
    lags: Lags
    grid_error: float
    reward_error: float

    @property
    def gaps(self) -> Array:
        """Gaps between the levels, (K,)."""
        return np.diff(self.levels)

    def read(self, reward_weight: float, discount: float, tol: float) -> Solution:
        """U = Σ w λ^k E|R_k − R'_k| with its certificate."""
        lags, gaps = self.lags, reward_weight * self.gaps
        used = self._lags_for(gaps, discount, tol)
        weights = np.outer(discount ** np.arange(used), gaps).ravel()
        rest = discount**used / (1 - discount)
        m = lags.centres[:used].ravel()
        last, _ = tail_interval(lags.centres[used], lags.radii[used])
        X = lags.coordinates[:, :used].reshape(len(lags.coordinates), len(m))
        constant = float(weights @ (m * (1 - m))) + rest * float(gaps @ (last * (1 - last)))
        linear = X @ (weights * (1 - 2 * m))
        X = X * np.sqrt(weights)
        gram = X @ X.T
        radius = lags.radii[:used].ravel()
        size = constant + float(weights @ (radius * (1 + radius)))
        bound = float(discount ** np.arange(used) @ distance_error(gaps, lags.errors[:used]))
        bound += rest * float(tail_bound(gaps, lags.centres[used], lags.radii[used]))
        bound += (self.grid_error + 2 * self.reward_error) * reward_weight / (1 - discount)
        bound += 8 * EPS * (X.shape[1] + 8) * size
        if lags.basis is None:
            gram *= -2.0
            gram += linear[:, None] + constant
            gram += linear + constant
            return Solution(bound, used, matrix=gram)
        Z, dropped = _factor(lags.basis, gram, tol / 16)
        u = constant + lags.basis @ linear
        bound += dropped + 8 * EPS * len(gram) * float(np.abs(u).max(initial=0.0))
        return Solution(bound, used, factors=(u, Z))

    def read_value(self, discount: float) -> tuple[Array, float]:
        """Σ λ^k E R_k, (n,), and a bound on its error."""
        lags, gaps = self.lags, self.gaps
        weights = discount ** np.arange(len(lags.errors))
        rest = discount ** len(weights) / (1 - discount)
        part = np.einsum("l,rlk,k->r", weights, lags.coordinates, gaps)
        below = part if lags.basis is None else lags.basis @ part
        last, radius = tail_interval(lags.centres[-1], lags.radii[-1])
        mean = float(weights @ (lags.centres[:-1] @ gaps)) + rest * float(last @ gaps)
        bound = float(weights @ (lags.errors @ gaps)) + rest * float(radius @ gaps)
        size = float(np.abs(self.levels).max()) / (1 - discount)
        bound += self.reward_error / (1 - discount)
        bound += 8 * EPS * (len(weights) + len(lags.coordinates) + 8) * size
        return self.levels[-1] / (1 - discount) - mean - below, bound

    def _lags_for(self, gaps: Array, discount: float, tol: float) -> int:
        """So many lags are used: those after them are within a sixteenth of the tolerance."""
        lags = self.lags
        factor = discount ** np.arange(len(lags.radii)) / (1 - discount)
        enough = factor * tail_bound(gaps, lags.centres, lags.radii) <= tol / 16
        enough[0], enough[-1] = False, True
        return int(enough.argmax())


def law_table(
    chain: Chain,
    discount: float,
    tol: float,
    *,
    lags: int | None = None,
    thresholds: int | None = None,
) -> LawTable:
    """The laws of a chain; arguments as for `reward_laws`.

    They are stored in a basis where that has far fewer columns than the chain has states.
    """
    grid_error = 0.0
    if thresholds is not None and len(np.unique(chain.values)) > thresholds:
        chain, grid_error = on_grid(chain, thresholds)
    F, gaps = reward_distribution(chain)
    demand, solved = Demand(gaps, discount, tol, lags), None
    what = f"laws of {chain.n} states at {len(gaps)} thresholds"
    if chain.n > _PLAIN_UP_TO and len(gaps) <= _FEW_THRESHOLDS:

        def columns(count: int) -> None:
            ensure_fits(8 * chain.n * (2 * count + 4 * len(gaps)), what, REMEDY)

        solved = krylov_lags(chain.P, F, demand, min(chain.n // 4, _MOST_COLUMNS), columns)
    if solved is None:

        def rows(count: int) -> None:
            ensure_fits(16 * F.size * count, f"{what} and {count} lags", REMEDY)

        solved = plain_lags(chain.P, F, demand, rows)
    error = chain.values.shape[1] * EPS
    solved = replace(solved, radii=solved.radii + error, errors=solved.errors + error)
    return LawTable(np.unique(chain.values), solved, grid_error, chain.reward_error)


def on_grid(chain: Chain, thresholds: int) -> tuple[Chain, float]:
    """The chain with rewards on a grid of levels, and how far E|R − R'| can move.

    The mass of a reward is split between the two nearest levels so that its mean stays. Then
    E|R − R'| changes only where both rewards lie between the same two levels, by 0 to half the
    distance of the levels; values do not change at all.
    """
    levels = np.linspace(chain.values.min(), chain.values.max(), thresholds)
    cell = np.clip(np.searchsorted(levels, chain.values, side="right") - 1, 0, thresholds - 2)
    width = levels[cell + 1] - levels[cell]
    upper = np.clip((chain.values - levels[cell]) / width, 0.0, 1.0)
    values = np.concatenate([levels[cell], levels[cell + 1]], axis=1)
    weights = np.concatenate([chain.weights * (1 - upper), chain.weights * upper], axis=1)
    split = Chain(chain.P, values, weights, chain.reward_error + 8 * EPS * float(np.ptp(levels)))
    return split, float(width.max()) / 2


@dataclass(frozen=True, eq=False)
class ReducedDistance:
    """Reduced distances ρ(s,t) = U(s,t) − ½(U(s,s) + U(t,t)), the squared distances of the laws.

    Attributes:
        distance: The metric U.
        error_bound: No entry is further than this from the exact one.
    """

    distance: MetricResult
    error_bound: float

    def matrix(self) -> Array:
        """All pairs, (n, n)."""
        return self.distance.reduced()

    def pairs(self, i: ArrayLike, j: ArrayLike) -> Array:
        """The pairs (i, j); index arrays broadcast against each other."""
        return self.distance.reduced_pairs(i, j)


@dataclass(frozen=True, eq=False)
class LawValue:
    """Values read from laws.

    Attributes:
        values: V of each state, or Q of each state-action pair, (n,).
        error_bound: No entry is further than this from the exact one.
    """

    values: Array
    error_bound: float


@dataclass(frozen=True, eq=False)
class RewardLaws:
    """The law of the reward at each lag, for each state or state-action pair.

    Attributes:
        query: What was asked for; its `gamma` is the largest discount that the laws were made for.
        table: The laws.
        explicit: Whether the number of lags was given.
    """

    query: Query
    table: LawTable
    explicit: bool

    def __repr__(self) -> str:
        return (
            f"RewardLaws(level={self.query.level}, n={self.n}, lags={self.n_lags}, "
            f"thresholds={len(self.thresholds)}, rank={self.rank})"
        )

    @property
    def n(self) -> int:
        """Number of states, or of state-action pairs."""
        return self.query.n

    @property
    def n_lags(self) -> int:
        """Number of lags; what comes later is bounded by `tail`."""
        return len(self.table.lags.errors)

    @property
    def thresholds(self) -> Array:
        """The thresholds x of F_k(s)(x), (K,): the rewards, or the grid, without the largest."""
        return self.table.levels[:-1]

    @property
    def rank(self) -> int | None:
        """Number of columns that carry the laws, None if they are stored as they are."""
        return None if self.table.lags.basis is None else self.table.lags.basis.shape[1]

    def at(self, lag: int) -> Array:
        """F_k(s)(x) = Pr(R_k(s) ≤ x) at one lag, (n, K); 1 from the largest reward on."""
        lags = self.table.lags
        lag = int(row_indices(schema.integer(lag, "lag", 0), "lag", self.n_lags))
        part = lags.coordinates[:, lag]
        moved = part if lags.basis is None else lags.basis @ part
        return np.asarray(np.clip(lags.centres[lag] + moved, 0.0, 1.0))

    def error_at(self, lag: int) -> float:
        """No entry of the law at this lag is further than this from the exact one.

        On a grid of thresholds: from the exact law of the rewards on the grid.
        """
        lag = int(row_indices(schema.integer(lag, "lag", 0), "lag", self.n_lags))
        return float(self.table.lags.errors[lag].max(initial=0.0))

    @property
    def tail(self) -> Array:
        """The least and the largest F(x) of any state at any later lag, (2, K)."""
        centre, radius = tail_interval(self.table.lags.centres[-1], self.table.lags.radii[-1])
        return np.stack([centre - radius, centre + radius])

    def distance(self, gamma: float | None = None, *, c: float | None = None) -> MetricResult:
        """The revised metric with weights γ^k, or (1−c)c^k.

        Args:
            gamma: Discount in [0, 1). Beside c, it is only the discount of the values of interest.
            c: The coefficient of the weighted form.

        Returns:
            What `revised` returns, to within the sum of both error bounds.

        Warns:
            ToleranceWarning: When it is read at a larger discount than the laws were made for, and
                not within their tolerance.
        """
        query = self._query(gamma, c)
        solution = self.table.read(query.reward_weight, query.discount, query.tol)
        grid = self.table.grid_error * query.reward_weight / (1 - query.discount)
        if solution.error_bound - grid > query.tol and not self.explicit:
            warn(
                f"reward laws made for discounts up to {self.query.gamma:g}, read at "
                f"{query.discount:g}: tolerance {query.tol:.1e} not met, certified error "
                f"{solution.error_bound:.1e}; pass a larger gamma, or a larger tol, to reward_laws",
                ToleranceWarning,
                stacklevel=2,
            )
        if solution.matrix is not None:
            solution.matrix.setflags(write=False)
        return MetricResult(
            **vars(query),
            error_bound=solution.error_bound,
            iterations=solution.iterations,
            solver="laws",
            _matrix=solution.matrix,
            _factors=solution.factors,
        )

    def reduced(self, gamma: float | None = None, *, c: float | None = None) -> ReducedDistance:
        """Σ_k γ^k ∫ (F_k(s) − F_k(t))² dx; arguments as for `distance`."""
        result = self.distance(gamma, c=c)
        return ReducedDistance(result, 2 * result.error_bound)

    def value(self, gamma: float) -> LawValue:
        """V(s) = Σ_k γ^k E R_k(s), or Q of state-action pairs."""
        return LawValue(*self.table.read_value(schema.discount(gamma)))

    def _query(self, gamma: float | None, c: float | None) -> Query:
        if gamma is None and c is None:
            raise ValueError("give gamma (weights γ^k) or c (weights (1−c)c^k)")
        c = None if c is None else schema.discount(c, "c")
        gamma = c if gamma is None else schema.discount(gamma)
        return Query(**vars(self.query) | {"gamma": gamma, "c": c})


def reward_laws(
    mdp: FiniteMDP,
    policy: ArrayLike,
    gamma: float = 0.99,
    *,
    tol: float = 1e-6,
    lags: int | None = None,
    level: str = "state",
    thresholds: int | None = None,
) -> RewardLaws:
    r"""The law of the reward k steps ahead, for each k: \(F_0(s,a) = [r ≤ x], F_{k+1} = P F_k\).

    From these laws the revised metric, its reduced form and the value are read for every discount
    and every coefficient c, each with a certified error bound.

    Args:
        mdp: The MDP.
        policy: (S, A) probabilities, or (S,) integers: one action for each state.
        gamma: The largest discount (or c) that distances will be read at.
        tol: Target error of these distances.
        lags: Number of lags; as many as the tolerance takes when None. What is left out is bounded
            by the spread of the last law, so chains that mix need few.
        level: "state", or "state_action" for laws of the available pairs (`mdp.state_actions`).
        thresholds: At most so many levels of rewards: with more distinct ones, rewards are put
            on a grid, which keeps their means and adds at most half the grid's spacing over 1−γ
            to the error bound of a distance. All distinct rewards when None.

    Raises:
        ValueError: For invalid arguments.
        MemoryError: When the laws do not fit into memory.

    Example:
        >>> from revbis.tabular import examples
        >>> laws = reward_laws(*examples.toy())
        >>> laws.at(0)  # s1 and s2 earn 0 or 1, s3 earns ½
        array([[0.5, 0.5],
               [0.5, 0.5],
               [0. , 1. ]])
        >>> laws.distance(gamma=0.5).matrix().round(4)
        array([[0.7619, 0.7619, 0.6667],
               [0.7619, 0.7619, 0.6667],
               [0.6667, 0.6667, 0.    ]])
    """
    query = make_query("revised", mdp, policy, gamma, tol=tol, level=level)
    lags = None if lags is None else schema.integer(lags, "lags", 1)
    if thresholds is not None:
        thresholds = schema.integer(thresholds, "thresholds", 2)
    assert query.policy is not None
    make_chain = state_chain if level == "state" else state_action_chain
    chain = make_chain(mdp, query.policy)
    table = law_table(chain, query.gamma, query.tol, lags=lags, thresholds=thresholds)
    return RewardLaws(query, table, lags is not None)


def _factor(basis: Array, gram: Array, budget: float) -> tuple[Array, float]:
    """Thin Z with Z Zᵀ = B S Bᵀ, and a bound on 2|Z Zᵀ − B S Bᵀ| for what was dropped."""
    values, vectors = np.linalg.eigh(gram)
    longest = float(np.einsum("ij,ij->i", basis, basis).max(initial=0.0))
    largest = float(np.abs(values).max(initial=0.0))
    noise = len(gram) * EPS * largest
    keep = values > max(budget / 2 / max(longest, EPS), noise)
    dropped = float(np.abs(values[~keep]).max(initial=0.0))
    Z = basis @ (vectors[:, keep] * np.sqrt(values[keep]))
    return Z, 2 * longest * (dropped + 8 * noise)
