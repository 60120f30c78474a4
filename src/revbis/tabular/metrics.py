"""The metrics, one function each. `revised` documents the arguments they share."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from revbis.tabular.linear import Progress
from revbis.tabular.mdp import FiniteMDP
from revbis.tabular.result import MetricResult
from revbis.tabular.solver import solve


def revised(
    mdp: FiniteMDP,
    policy: ArrayLike,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    level: str = "state",
    solver: str = "auto",
    progress: Progress | None = None,
) -> MetricResult:
    r"""The revised bisimulation metric (Eq. 2–3; Eq. 9 with `c`).

    .. math:: U(s,t) = E_{a \sim π(s), b \sim π(t)}\, G((s,a),(t,b)), \quad
              G((s,a),(t,b)) = |r(s,a) − r(t,b)| + γ E\,U(s',t')

    Args:
        mdp: The MDP.
        policy: (S, A) probabilities, or (S,) integers naming one action a state.
        gamma: Discount in [0, 1).
        tol: Wanted sup-norm error.
        c: Weighted form: weights (1−c) on the reward gap and c on the next-state term instead of
            (1, γ). A sequence c_1, …, c_N applies the operator with each coefficient in turn,
            starting from 0; `error_bound` is then the certified distance of the last iterate from
            the fixed point at c_N. If c_n → c it tends to 0. Small steps alone do not suffice:
            a sequence that keeps wandering has no limit, only a bounded distance.
        level: "state" for U, "state_action" for G on the pairs on offer (`mdp.state_actions`).
        solver: "auto", or one of doubling, jacobi, low_rank, in_place, pointer_doubling.
        progress: Called as progress(iteration, bound) while it runs.

    Returns:
        A `MetricResult` with a certified `error_bound`.

    Raises:
        ValueError: For arguments that make no sense.
        MemoryError: When no solver fits into memory; before it is allocated.

    Warns:
        ToleranceWarning: When `tol` cannot be met; names the bound reached and a remedy.

    Example:
        >>> from revbis.tabular import examples
        >>> mdp, policy = examples.toy()
        >>> result = revised(mdp, policy, gamma=0.5)
        >>> result.matrix().round(4)
        array([[0.7619, 0.7619, 0.6667],
               [0.7619, 0.7619, 0.6667],
               [0.6667, 0.6667, 0.    ]])
    """
    return solve("revised", mdp, policy, gamma, tol, c, level, solver, progress)


def mico(
    mdp: FiniteMDP,
    policy: ArrayLike,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    level: str = "state",
    solver: str = "auto",
    progress: Progress | None = None,
) -> MetricResult:
    r"""The MICo distance (Castro et al. 2021); arguments as for `revised`.

    .. math:: U(s,t) = |r_π(s) − r_π(t)| + γ E\,U(s',t'), \quad s' \sim P_π(s), t' \sim P_π(t)

    Between state-action pairs it is the revised metric's G.
    """
    return solve("mico", mdp, policy, gamma, tol, c, level, solver, progress)


def pi_bisimulation(
    mdp: FiniteMDP,
    policy: ArrayLike,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    level: str = "state",
    solver: str = "auto",
    progress: Progress | None = None,
) -> MetricResult:
    r"""The π-bisimulation metric (Castro 2020, Eq. 1); arguments as for `revised`.

    .. math:: d(s,t) = |r_π(s) − r_π(t)| + γ W_1(d)(P_π(s), P_π(t))

    Solvers: policy_iteration, and pointer_doubling where everything is deterministic.
    """
    return solve("pi_bisimulation", mdp, policy, gamma, tol, c, level, solver, progress)


def bisimulation(
    mdp: FiniteMDP,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    solver: str = "auto",
    progress: Progress | None = None,
) -> MetricResult:
    r"""The bisimulation metric (Ferns et al. 2004); other arguments as for `revised`.

    .. math:: d(s,t) = \max_a [\,|r(s,a) − r(t,a)| + γ W_1(d)(P(s,a), P(t,a))]

    States that do not offer the same actions are as far apart as states can be: range(R)/(1−γ).
    Solvers: policy_iteration, and gather for deterministic transitions.
    """
    return solve("bisimulation", mdp, None, gamma, tol, c, "state", solver, progress)


def lax_bisimulation(
    mdp: FiniteMDP,
    gamma: float,
    *,
    tol: float = 1e-6,
    c: float | Sequence[float] | None = None,
    solver: str = "auto",
    progress: Progress | None = None,
) -> MetricResult:
    r"""The lax bisimulation metric (Taylor et al. 2008): actions may be matched to others.

    .. math:: d(s,t) = \max\{\max_a \min_b δ((s,a),(t,b)), \max_b \min_a δ((s,a),(t,b))\}, \quad
              δ((s,a),(t,b)) = |r(s,a) − r(t,b)| + γ W_1(d)(P(s,a), P(t,b))

    Other arguments as for `bisimulation`.
    """
    return solve("lax_bisimulation", mdp, None, gamma, tol, c, "state", solver, progress)
