"""What is asked of a solver, and what it returns: a metric with its certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from revbis.io import schema
from revbis.io.machine import ensure_fits
from revbis.tabular.embedding import Embedding, embed
from revbis.tabular.mdp import row_indices, row_pairs

if TYPE_CHECKING:
    from revbis.tabular.mdp import FiniteMDP

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Query:
    """A metric that is wanted, checked by `revbis.tabular.solver.make_query`.

    Attributes:
        metric: Name of the metric.
        level: "state", or "state_action": rows are then `mdp.state_actions`.
        mdp: The MDP.
        policy: (S, A), or None for metrics without one.
        gamma: The discount of the values of interest.
        c: The coefficient of the weighted form, its sequence, or None.
        tol: The requested tolerance.
    """

    metric: str
    level: str
    mdp: FiniteMDP
    policy: Array | None
    gamma: float
    c: float | tuple[float, ...] | None
    tol: float

    @property
    def n(self) -> int:
        """Number of states, or of state-action pairs."""
        return self.mdp.n_states if self.level == "state" else len(self.mdp.state_actions)

    @property
    def discount(self) -> float:
        """The weight λ of the next-state term: γ, or the (last) coefficient c."""
        if self.c is None:
            return self.gamma
        return self.c[-1] if isinstance(self.c, tuple) else self.c

    @property
    def reward_weight(self) -> float:
        """The weight of the reward gap: 1, or 1 − c."""
        return 1.0 if self.c is None else 1.0 - self.discount


@dataclass(frozen=True, eq=False)
class MetricResult(Query):
    """A bisimulation metric on the states (or state-action pairs) of an MDP.

    It has the attributes of the `Query` that it answers, and these.

    Attributes:
        error_bound: No entry is further than this from the exact metric.
        iterations: Number of iterations of the solver.
        solver: The solver used.
    """

    error_bound: float
    iterations: int
    solver: str
    _matrix: Array | None = field(default=None, repr=False)
    _factors: tuple[Array, Array] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return (
            f"MetricResult({self.metric}, level={self.level}, n={self.n}, "
            f"error_bound={self.error_bound:.1e}, solver={self.solver}, "
            f"iterations={self.iterations})"
        )

    @property
    def rank(self) -> int | None:
        """Number of columns of the low-rank form, None for a full matrix."""
        return None if self._factors is None else self._factors[1].shape[1]

    def matrix(self) -> Array:
        """The distances as an array (n, n).

        A low-rank result forms it on demand, and raises MemoryError if it does not fit.
        """
        if self._factors is None:
            assert self._matrix is not None
            return self._matrix
        u, Z = self._factors
        ensure_fits(8 * self.n**2, f"a {self.n} × {self.n} matrix", "use .pairs() or .embedding()")
        out = Z @ Z.T
        out *= -2.0
        out += u[:, None]
        out += u[None, :]
        return out

    def pairs(self, i: ArrayLike, j: ArrayLike) -> Array:
        """Distances of the pairs (i, j); index arrays broadcast against each other."""
        i, j = row_pairs(i, j, self.n)
        if self._matrix is not None:
            return np.asarray(self._matrix[i, j])
        assert self._factors is not None
        u, Z = self._factors
        return np.asarray(u[i] + u[j] - 2 * np.einsum("...r,...r->...", Z[i], Z[j]))

    def row(self, i: int) -> Array:
        """Distances from i to everything, (n,)."""
        schema.integer(i, "i", 0)
        if self._factors is None:
            return self.pairs(i, np.arange(self.n))
        at = row_indices(i, "i", self.n)
        u, Z = self._factors
        return np.asarray(u[at] + u - 2 * (Z @ Z[at]))

    def self_distance(self) -> Array:
        """Distances from each state to itself, (n,): the spread of its future rewards."""
        index = np.arange(self.n)
        return self.pairs(index, index)

    def reduced(self) -> Array:
        """Reduced distances ρ(s,t) = U(s,t) − ½(U(s,s) + U(t,t)), (n, n).

        For the linear metrics ρ is the discounted squared Cramér distance of the reward laws, and
        √ρ is Euclidean. The W1 metrics have no self-distance: ρ is the metric itself.
        """
        U, own = self.matrix().copy(), self.self_distance()
        U -= own[:, None] / 2
        U -= own[None, :] / 2
        return np.maximum(U, 0.0, out=U)

    def reduced_pairs(self, i: ArrayLike, j: ArrayLike) -> Array:
        """Reduced distances of the pairs (i, j)."""
        own = self.pairs(i, i) / 2 + self.pairs(j, j) / 2
        return np.asarray(np.maximum(self.pairs(i, j) - own, 0.0))

    def embedding(self, dimension: int | None = None) -> Embedding:
        """Points e and self-distances n with U(x,y) = (n(x) + n(y))/2 + ‖e(x) − e(y)‖².

        In all dimensions it is exact, as far as U is: up to rounding and `error_bound`. In fewer,
        the points give the best low-rank approximation of the centred Gram matrix, and distances
        come out smaller. The `error_bound` of the embedding covers this. A low-rank result is not
        expanded. Others take three more (n, n) arrays, or a few vectors for up to 50 dimensions.

        Args:
            dimension: The number of coordinates; as many as it takes when None.

        Raises:
            ValueError: For the W1 metrics, which are not of negative type; and if an eigenvalue is
                more negative than `error_bound` allows, which would disprove the theorem.
            MemoryError: When the arrays do not fit into memory.
        """
        factor = None if self._factors is None else self._factors[1]
        return embed(self, factor, dimension)


def as_result(value: object) -> MetricResult:
    """The value, which must be a solved metric."""
    if not isinstance(value, MetricResult):
        raise ValueError(
            f"expected a MetricResult, as returned by solve, got {type(value).__name__}"
        )
    return value
