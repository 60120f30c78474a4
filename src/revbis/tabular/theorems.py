"""Every inequality that the metrics satisfy, and some that they do not, tested on an MDP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from revbis.tabular.aggregation import aggregate, value_loss
from revbis.tabular.bounds import certify
from revbis.tabular.embedding import negative_type
from revbis.tabular.mdp import FiniteMDP, as_mdp, as_policy
from revbis.tabular.operators import (
    mean_state_chain,
    reward_gap,
    state_action_distance,
    state_chain,
    state_distance,
)
from revbis.tabular.registry import METRICS, OnIteration
from revbis.tabular.solver import solve
from revbis.tabular.values import action_value, optimal_policy, policy_value

if TYPE_CHECKING:
    from revbis.tabular.result import MetricResult

Array = NDArray[np.float64]
_MOST_PAIRS = 4000
_ORDERED = ("revised", "mico", "pi_bisimulation", "bisimulation", "lax_bisimulation")


@dataclass(frozen=True)
class Theorem:
    """One inequality on one MDP.

    Attributes:
        text: The inequality.
        proved: Whether it holds on every MDP. The others are often expected to, but do not.
        margin: The smallest difference, right side minus left side; negative means violated.
        allowance: How much of the margin solver and rounding errors can account for.
    """

    text: str
    proved: bool
    margin: float
    allowance: float

    @property
    def holds(self) -> bool:
        """Whether the margin is non-negative, up to the allowance."""
        return self.margin >= -self.allowance


def check_theorems(
    mdp: FiniteMDP,
    policy: ArrayLike,
    gamma: float,
    *,
    c: float = 0.5,
    tol: float = 1e-8,
    seed: int = 0,
    progress: OnIteration | None = None,
) -> list[Theorem]:
    """Tests every inequality of the theory on an MDP.

    Args:
        mdp: The MDP, with at most 4000 state-action pairs.
        policy: The policy.
        gamma: Discount.
        c: Coefficient of the weighted form.
        tol: Certified error of the metrics.
        seed: Seed of the random matrices that contraction and certificates are tested with.
        progress: As for `revised`.
    """
    if len(as_mdp(mdp).state_actions) > _MOST_PAIRS:
        raise ValueError(
            f"the theorems need matrices over all state-action pairs, and there are "
            f"{len(mdp.state_actions)}; at most {_MOST_PAIRS} are supported"
        )
    facts = _Facts(mdp, as_policy(mdp, policy), gamma, c, tol, seed, progress)
    return [
        *_value_bounds(facts),
        *_orders(facts),
        *_shape(facts),
        *_embeddings(facts),
        *_operators(facts),
        *_weighted(facts),
        *_certificates(facts),
    ]


class _Facts:
    """The metrics and values that the theorems are about, each computed once."""

    def __init__(
        self,
        mdp: FiniteMDP,
        policy: Array,
        gamma: float,
        c: float,
        tol: float,
        seed: int,
        progress: OnIteration | None,
    ) -> None:
        self.mdp, self.policy, self.gamma, self.c = mdp, policy, gamma, c
        self._tol, self._progress = tol, progress
        self._solved: dict[tuple[str, str, float | None], MetricResult] = {}
        self.rng = np.random.default_rng(seed)
        self.value = policy_value(mdp, policy, gamma)
        self.gap = _gaps(self.value)
        self.q_gap = _gaps(action_value(mdp, self.value, gamma)[mdp.available])
        self.optimal_gap = _gaps(optimal_policy(mdp, gamma)[0])

    def metric(self, name: str, level: str = "state", c: float | None = None) -> MetricResult:
        """A metric of the MDP, solved on first use."""
        key = (name, level, c)
        if key not in self._solved:
            self._solved[key] = solve(
                *(name, self.mdp, self.policy, self.gamma, self._tol, c, level),
                progress=self._progress,
            )
        return self._solved[key]


def _gaps(value: Array) -> Array:
    return np.abs(value[:, None] - value[None, :])


def _least(difference: Array) -> float:
    return float(difference.min())


def _at_most(text: str, left: Array, right: Array, allowance: float, proved: bool) -> Theorem:
    rounding = 1e-12 * (1 + float(np.abs(right).max()))
    return Theorem(text, proved, _least(right - left), allowance + rounding)


def _equal(text: str, left: Array, right: Array, allowance: float) -> Theorem:
    rounding = 1e-12 * (1 + float(np.abs(right).max()))
    return Theorem(text, True, -float(np.abs(left - right).max()), allowance + rounding)


def _value_bounds(f: _Facts) -> list[Theorem]:
    revised, G = f.metric("revised"), f.metric("revised", "state_action")
    pi, ferns, lax = (f.metric(x) for x in ("pi_bisimulation", "bisimulation", "lax_bisimulation"))
    U, rho, e = revised.matrix(), revised.reduced(), revised.error_bound
    spread = float(np.ptp(state_chain(f.mdp, f.policy).values))
    cramer = np.sqrt(spread * (rho + 2 * e) / (1 - f.gamma))
    return [
        _at_most("|V(s) − V(t)| ≤ U(s,t)", f.gap, U, e, True),
        _at_most("|Q(x) − Q(y)| ≤ G(x,y)", f.q_gap, G.matrix(), G.error_bound, True),
        _at_most("|ΔV| ≤ √(range(R)·ρ/(1−γ))", f.gap, cramer, 0.0, True),
        _at_most("|ΔV| ≤ π-bisimulation", f.gap, pi.matrix(), pi.error_bound, True),
        _at_most("|ΔV*| ≤ bisimulation", f.optimal_gap, ferns.matrix(), ferns.error_bound, True),
        _at_most("|ΔV*| ≤ lax bisimulation", f.optimal_gap, lax.matrix(), lax.error_bound, True),
        _at_most("|ΔV| ≤ ρ", f.gap, rho, 2 * e, False),
        _at_most("|ΔV| ≤ bisimulation", f.gap, ferns.matrix(), ferns.error_bound, False),
    ]


def _orders(f: _Facts) -> list[Theorem]:
    metrics = [f.metric(name) for name in _ORDERED]
    U, M, W, B, L = (metric.matrix() for metric in metrics)
    u, m, w, b, x = (metric.error_bound for metric in metrics)
    chain, mean = state_chain(f.mdp, f.policy), mean_state_chain(f.mdp, f.policy)
    expected = reward_gap(chain.values, chain.weights)
    return [
        _at_most(
            "|E r(s) − E r(t)| ≤ E|r(s) − r(t)|", reward_gap(mean.values), expected, 0.0, True
        ),
        _at_most("MICo ≤ revised", M, U, m + u, True),
        _at_most("π-bisimulation ≤ MICo", W, M, w + m, True),
        _at_most("lax bisimulation ≤ bisimulation", L, B, x + b, True),
        _at_most("revised ≤ bisimulation", U, B, u + b, False),
        _at_most("bisimulation ≤ revised", B, U, u + b, False),
    ]


def _shape(f: _Facts) -> list[Theorem]:
    result = f.metric("revised")
    U, e = result.matrix(), result.error_bound
    own = np.diag(U)
    detour = min(_least(U[:, k, None] + U[None, k, :] - U) for k in range(len(U)))
    centre = (own[:, None] + own[None, :]) / 2
    return [
        Theorem("U(s,t) ≤ U(s,x) + U(x,t)", True, detour, 3 * e + 1e-12 * (1 + own.max())),
        _at_most("½(U(s,s) + U(t,t)) ≤ U(s,t)", centre, U, 2 * e, True),
        _at_most("U(s,s) ≤ U(s,t)", np.repeat(own[:, None], len(U), 1), U, 2 * e, False),
        _at_most("U(s,s) ≤ 0", own, np.zeros_like(own), e, False),
    ]


def _embeddings(f: _Facts) -> list[Theorem]:
    """U(x,y) = (n(x) + n(y))/2 + ‖e(x) − e(y)‖² for some points e: a spectrum without negatives."""
    of = {
        "√ρ is Euclidean: MICo (least eigenvalue)": ("mico", "state", True),
        "√ρ is Euclidean: U (least eigenvalue)": ("revised", "state", True),
        "√ρ is Euclidean: G (least eigenvalue)": ("revised", "state_action", True),
        "√bisimulation is Euclidean (least eigenvalue)": ("bisimulation", "state", False),
    }
    theorems = []
    for text, (name, level, proved) in of.items():
        result = f.metric(name, level)
        verdict = negative_type(result.matrix(), result.error_bound)
        theorems.append(Theorem(text, proved, verdict.smallest, verdict.allowance))
    return theorems


def _operators(f: _Facts) -> list[Theorem]:
    n, k = f.mdp.n_states, len(f.mdp.state_actions)
    states, pairs = f.metric("revised"), f.metric("revised", "state_action")
    U, G, error = states.matrix(), pairs.matrix(), states.error_bound + pairs.error_bound
    X, Y = f.rng.random((2, n, n))
    gap = float(np.abs(X - Y).max())
    GX, GY = (state_action_distance(f.mdp, Z, 1.0, f.gamma) for Z in (X, Y))
    lifted = float(np.abs(GX - GY).max())
    contracted = float(
        np.abs(state_distance(f.mdp, f.policy, GX) - state_distance(f.mdp, f.policy, GY)).max()
    )
    A, B = f.rng.random((2, k, k))
    averaged = float(
        np.abs(state_distance(f.mdp, f.policy, A) - state_distance(f.mdp, f.policy, B)).max()
    )
    rounding = 1e-12
    return [
        _equal("G = F_g U", state_action_distance(f.mdp, U, 1.0, f.gamma), G, error),
        _equal("U = F_u G", state_distance(f.mdp, f.policy, G), U, error),
        Theorem("‖F_g X − F_g Y‖ ≤ γ‖X − Y‖", True, f.gamma * gap - lifted, rounding),
        Theorem("‖F_u A − F_u B‖ ≤ ‖A − B‖", True, float(np.abs(A - B).max()) - averaged, rounding),
        Theorem("‖F_u F_g X − F_u F_g Y‖ ≤ γ‖X − Y‖", True, f.gamma * gap - contracted, rounding),
    ]


def _weighted(f: _Facts) -> list[Theorem]:
    result = f.metric("revised", c=f.c)
    Uc, e = result.matrix(), result.error_bound
    plain = solve("revised", f.mdp, f.policy, f.c, result.tol)
    own_gap = _gaps(policy_value(f.mdp, f.policy, f.c))
    allowance = e + plain.error_bound
    theorems = [
        _equal("U_c = (1−c)·U at discount c", Uc, (1 - f.c) * plain.matrix(), allowance),
        _at_most("(1−c)|ΔV_c| ≤ U_c", (1 - f.c) * own_gap, Uc, e, True),
    ]
    far = (1 - f.c) * f.gap
    if f.gamma <= f.c:
        return [*theorems, _at_most("(1−c)|ΔV_γ| ≤ U_c for γ ≤ c", far, Uc, e, True)]
    repaired = Uc + (f.gamma - f.c) * float(np.ptp(f.value))
    return [
        *theorems,
        _at_most("(1−c)|ΔV_γ| ≤ U_c + (γ−c)·span(V_γ)", far, repaired, e, True),
        _at_most("(1−c)|ΔV_γ| ≤ U_c for c < γ", far, Uc, e, False),
    ]


def _certificates(f: _Facts) -> list[Theorem]:
    theorems = []
    for name in METRICS:
        if "state" not in METRICS[name].levels:
            continue
        result = f.metric(name)
        d = f.rng.random((result.n, result.n)) * float(result.matrix().max() + 1)
        certificate = certify(f.mdp, f.policy, d, name, f.gamma)
        missing = result.matrix() - d
        margin = min(
            _least(missing) - certificate.lower,
            certificate.upper - float(missing.max()),
            certificate.error_bound - float(np.abs(missing).max()),
        )
        text = f"a random matrix is no further from {METRICS[name].title} than certified"
        theorems.append(Theorem(text, True, margin, result.error_bound))
    merged = aggregate(f.metric("revised"), eps=0.1 * float(np.ptp(f.value)))
    loss = float(value_loss(f.metric("revised"), merged).max())
    text = f"aggregation to {merged.n_classes} classes loses no more than certified"
    theorems.append(Theorem(text, True, merged.value_loss_bound - loss, 1e-9))
    return theorems
