r"""The operators whose fixed points are the metrics, as pure functions of arrays.

MICo and the revised metric are linear, \(T U = w\,D + \lambda\,P U P^\top\), where \(D\) is the
reward gap and \(P\) a Markov chain; (w, λ) is (1, γ), or (1−c, c) in the weighted form (Eq. 9).
The W1 metrics replace the independent coupling \(P U P^\top\) by the cheapest one
(`revbis.tabular.transport`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from revbis.io.compiled import compiled

if TYPE_CHECKING:
    from revbis.tabular.mdp import FiniteMDP

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Chain:
    """A Markov chain whose states carry a reward law.

    Attributes:
        P: CSR (n, n).
        values: Possible rewards of each state, (n, m).
        weights: Their probabilities, (n, m).
        reward_error: Bound on the rounding error of a value.
    """

    P: Any
    values: Array
    weights: Array
    reward_error: float = 0.0

    @property
    def n(self) -> int:
        """Number of states."""
        return int(self.P.shape[0])

    @property
    def mean_reward(self) -> Array:
        """Expected reward of each state, (n,)."""
        return np.asarray((self.values * self.weights).sum(axis=1))

    @property
    def is_deterministic(self) -> bool:
        """Whether each state has one successor and one reward."""
        return bool(np.diff(self.P.indptr).max() == 1 and self.values.shape[1] == 1)


def state_chain(mdp: FiniteMDP, policy: Array) -> Chain:
    """The chain of states under the policy; a state's reward law is that of r(s, a), a ~ π(s)."""
    return Chain(_policy_transitions(mdp, policy), *_pack_laws(mdp.rewards, policy))


def mean_state_chain(mdp: FiniteMDP, policy: Array) -> Chain:
    """The chain of states under the policy, each with its expected reward r_π(s)."""
    mean = (mdp.rewards * policy).sum(axis=1, keepdims=True)
    eps = float(np.finfo(np.float64).eps)
    error = (mdp.n_actions + 1) * eps * float(np.abs(mdp.rewards).max())
    return Chain(_policy_transitions(mdp, policy), mean, np.ones_like(mean), error)


def state_action_chain(mdp: FiniteMDP, policy: Array) -> Chain:
    """The chain of available state-action pairs, (s, a) → (s', a') with a' ~ π(s')."""
    states, actions = mdp.state_actions.T
    pairs = np.arange(len(states))
    draw = sp.csr_matrix(
        (policy[states, actions], (states, pairs)), shape=(mdp.n_states, len(states))
    )
    draw.eliminate_zeros()
    P = sp.csr_matrix(mdp.transitions[states * mdp.n_actions + actions] @ draw)
    P.sort_indices()
    values = mdp.rewards[states, actions][:, None]
    return Chain(P, values, np.ones_like(values))


def reward_gap(values: Array, weights: Array | None = None) -> Array:
    r"""Expected gap between two independent rewards, \(D(s,t) = E|r_s − r_t|\) (Δ1 of Eq. 6).

    Args:
        values: Possible rewards of each state, (n, m), or (n,) if each has one (Δ2 of Eq. 6 when
            they are means).
        weights: Their probabilities, (n, m); omitted for (n,).

    Returns:
        (n, n) array.
    """
    if weights is None:
        values = values.reshape(len(values), -1)
        weights = np.ones_like(values)
    gap = np.empty((len(values), len(values)))
    reward_gap_rows(
        np.ascontiguousarray(values.T), np.ascontiguousarray(weights.T), 0, len(gap), gap
    )
    return gap


def independent_coupling(P: Any, U: Array) -> Array:
    r"""\(E\,U(s', t')\) for independent successors: \(P U P^\top\), (n, n)."""
    return np.asarray(P @ (P @ U).T).T


def target(gap: Array, following: Array, reward_weight: float, next_weight: float) -> Array:
    """The right-hand side of every metric: weighted reward gap plus weighted next-state term."""
    return reward_weight * gap + next_weight * following


def state_action_distance(mdp: FiniteMDP, U: Array, reward_weight: float, discount: float) -> Array:
    r"""\(F_g\), Eq. 3 and 9: distances of state-action pairs from distances of states, (X, X)."""
    states, actions = mdp.state_actions.T
    rows = mdp.transitions[states * mdp.n_actions + actions]
    gap = reward_gap(mdp.rewards[states, actions])
    return target(gap, independent_coupling(rows, U), reward_weight, discount)


def state_distance(mdp: FiniteMDP, policy: Array, G: Array) -> Array:
    r"""\(F_u\), Eq. 2: distances of states, the mean of G over both states' actions, (S, S)."""
    states, actions = mdp.state_actions.T
    average = np.zeros((mdp.n_states, len(states)))
    average[states, np.arange(len(states))] = policy[states, actions]
    return average @ G @ average.T


def reward_distribution(chain: Chain) -> tuple[Array, Array]:
    r"""The reward laws as distribution functions.

    With \(x_1 < … < x_K\) the distinct rewards, \(F_k(s) = Pr(r_s ≤ x_k)\) and
    \(E|r_s − r_t| = Σ_k w_k [F_k(s)(1−F_k(t)) + F_k(t)(1−F_k(s))]\).

    Returns:
        F, (n, K−1), and the gaps w, (K−1,).
    """
    levels, index = np.unique(chain.values, return_inverse=True)
    n, m = chain.values.shape
    mass = np.zeros((n, len(levels)))
    np.add.at(mass, (np.repeat(np.arange(n), m), index.ravel()), chain.weights.ravel())
    return np.minimum(np.cumsum(mass, axis=1)[:, :-1], 1.0), np.diff(levels)


@compiled
def reward_gap_rows(
    values_t: Array, weights_t: Array, first: int, last: int, out: Array
) -> None:  # pragma: no cover - compiled
    """Rows first to last of the reward gap; laws transposed, (m, n), so that rows vectorise."""
    m, n = values_t.shape
    for s in range(first, last):
        row = out[s - first]
        row[:] = 0.0
        for i in range(m):
            p = weights_t[i, s]
            x = values_t[i, s]
            if p != 0.0:
                for j in range(m):
                    for t in range(n):
                        row[t] += p * weights_t[j, t] * abs(x - values_t[j, t])


def _policy_transitions(mdp: FiniteMDP, policy: Array) -> Any:
    n, m = mdp.rewards.shape
    average = sp.csr_matrix((policy.ravel().copy(), np.arange(n * m), np.arange(0, n * m + 1, m)))
    average.eliminate_zeros()
    P = sp.csr_matrix(average @ mdp.transitions)
    P.sort_indices()
    return P


def _pack_laws(values: Array, weights: Array) -> tuple[Array, Array]:
    """Merges equal rewards of a state and drops impossible ones: fewer columns, same laws."""
    order = np.argsort(np.where(weights > 0, values, np.inf), axis=1, kind="stable")
    values = np.take_along_axis(values, order, axis=1)
    weights = np.take_along_axis(weights, order, axis=1)
    new = weights > 0
    new[:, 1:] &= (values[:, 1:] != values[:, :-1]) | (weights[:, :-1] == 0)
    slot = np.maximum(np.cumsum(new, axis=1) - 1, 0)
    m = int(slot.max()) + 1
    n = len(values)
    packed_values, packed_weights = np.repeat(values[:, :1], m, axis=1), np.zeros((n, m))
    rows = np.repeat(np.arange(n), values.shape[1])
    np.add.at(packed_weights, (rows, slot.ravel()), weights.ravel())
    first = new.ravel()
    packed_values[rows[first], slot.ravel()[first]] = values.ravel()[first]
    return packed_values, packed_weights
