"""The exact metrics: one `Metric` record each, found by name.

A new metric is a function and a record in `metrics.py`, and one line in `BUILT_IN`. Outside the
package, `register_metric` takes the record itself. Names are known without loading NumPy or Numba;
a record is loaded when it is first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.result import Query

    Array = NDArray[np.float64]

BUILT_IN = {
    "revised": "revbis.tabular.metrics:REVISED",
    "mico": "revbis.tabular.metrics:MICO",
    "pi_bisimulation": "revbis.tabular.metrics:PI_BISIMULATION",
    "bisimulation": "revbis.tabular.metrics:BISIMULATION",
    "lax_bisimulation": "revbis.tabular.metrics:LAX_BISIMULATION",
}
LEVELS = ("state", "state_action")
ALL = "all"  # what the command line calls all of them

OnIteration = Callable[[int, float], None]
"""Called as on_iteration(iteration, error_bound) while a solver runs."""


class FixedPointProblem(Protocol):
    """A fixed-point problem d = T d, as far as certificates need to know it.

    T must be monotone, and T(d + κ) = T d + λκ for constants κ, with λ the `discount`. Pairs that
    do not move with κ are allowed where the metric's record says so (`Metric.pinned`).
    """

    @property
    def n(self) -> int:
        """Number of rows of d."""

    @property
    def discount(self) -> float:
        """The modulus λ."""

    def apply(self, d: Array, /) -> tuple[Array, float]:
        """T d for any matrix d, and the largest error of an entry."""


@dataclass(frozen=True)
class Solution:
    r"""A solver's result: a matrix, or factors with \(U = u1^\top + 1u^\top − 2 ZZ^\top\)."""

    error_bound: float
    iterations: int
    matrix: Array | None = None
    factors: tuple[Array, Array] | None = None


P = TypeVar("P", bound=FixedPointProblem)


@dataclass(frozen=True)
class Solver(Generic[P]):
    """One way to solve a problem.

    Attributes:
        name: As in `solve(..., solver=name)`.
        run: Called as run(problem, tol, on_iteration). None means that it gave up, and that the
            next candidate is to be tried.
        memory: Bytes it needs at its peak.
        applies: Whether it can solve a problem.
    """

    name: str
    run: Callable[[P, float, OnIteration], Solution | None]
    memory: Callable[[P], int]
    applies: Callable[[P], bool] = lambda _: True


@dataclass(frozen=True)
class Metric(Generic[P]):
    """One exact metric: what the rest of the package asks, instead of looking at names.

    Attributes:
        name: As in `solve(name, ...)` and `--metric name`.
        problem: The fixed-point problem of a query: of its `mdp`, `policy`, `level`,
            `reward_weight` and `discount`.
        solvers: The solvers a user may name; those that apply to a problem are offered.
        candidates: The solvers that "auto" tries, in order, called as candidates(problem, tol);
            by default the first of `solvers` that applies.
        levels: "state", "state_action" or both.
        needs_policy: Whether it is a metric of a policy. It bounds gaps of V (of Q between
            state-action pairs) if so, and gaps of V* otherwise.
        weighted: Whether it has the weighted form with a coefficient c.
        reward_range: For metrics whose reduced distance ρ is a squared Euclidean (Cramér) distance:
            the range of the rewards in the bound |ΔV| ≤ √(range·ρ/(1−γ)). None for the others.
        pinned: Whether some pairs of an MDP do not move when all distances are shifted.
        unmergeable: Why states that are close cannot be aggregated; empty where they can.
        remedy: What to do when the solvers do not fit into memory.
    """

    name: str
    problem: Callable[[Query], P]
    solvers: tuple[Solver[P], ...]
    candidates: Callable[[P, float], Iterable[Solver[P]]] | None = None
    levels: tuple[str, ...] = LEVELS
    needs_policy: bool = True
    weighted: bool = True
    reward_range: Callable[[P], float] | None = None
    pinned: Callable[[FiniteMDP], bool] = lambda _: False
    unmergeable: str = ""
    remedy: str = "use fewer states"

    @property
    def title(self) -> str:
        """The name as a reader writes it."""
        return self.name.replace("_", " ")

    @property
    def is_euclidean(self) -> bool:
        """Whether √ρ is a Euclidean distance."""
        return self.reward_range is not None


class _Registry(Mapping[str, Metric[Any]]):
    """The records by name; built-in ones are imported on first use."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._entries: dict[str, str | Metric[Any]] = dict(modules)

    def __getitem__(self, name: str) -> Metric[Any]:
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, record = entry.partition(":")
            entry = self._entries[name] = getattr(import_module(module), record)
            assert isinstance(entry, Metric)
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"METRICS({', '.join(self)})"

    def add(self, metric: Metric[Any]) -> None:
        self._entries[metric.name] = metric

    def remove(self, name: str) -> None:
        del self._entries[name]


_REGISTRY = _Registry(BUILT_IN)
METRICS: Mapping[str, Metric[Any]] = _REGISTRY
"""The records by name; iterating gives the names."""


def find_metric(name: str) -> Metric[Any]:
    """The record of a metric.

    Raises:
        ValueError: For an unknown name, with the known ones.
    """
    from revbis.io import schema

    return METRICS[schema.choice(name, METRICS, "metric")]


def register_metric(metric: Metric[Any]) -> None:
    """Adds a metric of your own: `solve`, `certify` and the command line then know its name.

    Raises:
        ValueError: For what is not a `Metric`, and for a name that is taken or not an identifier.
    """
    if not isinstance(metric, Metric):
        raise ValueError(f"metric must be a Metric record, got {type(metric).__name__}")
    if not re.fullmatch("[a-z][a-z0-9_]*", metric.name) or metric.name == ALL:
        raise ValueError(
            f"a metric's name must be a lower-case identifier other than {ALL!r}, "
            f"got {metric.name!r:.80}"
        )
    if metric.name in METRICS:
        raise ValueError(f"there is a metric named {metric.name!r} already: choose another name")
    _REGISTRY.add(metric)


def unregister_metric(name: str) -> None:
    """Removes a metric that `register_metric` added.

    Raises:
        ValueError: If there is none of that name, or it is built in.
    """
    if name in BUILT_IN or name not in METRICS:
        raise ValueError(f"{name!r:.80} is not a metric that register_metric added")
    _REGISTRY.remove(name)
