"""Value functions of finite MDPs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import spsolve

from revbis.io import schema
from revbis.tabular.mdp import FiniteMDP, as_mdp, as_policy
from revbis.tabular.operators import mean_state_chain

if TYPE_CHECKING:
    from revbis.tabular.result import MetricResult

Array = NDArray[np.float64]
_DIRECT_UP_TO = 20_000


def policy_value(mdp: FiniteMDP, policy: ArrayLike, gamma: float) -> Array:
    """V of the policy, (S,)."""
    gamma = schema.discount(gamma)
    chain = mean_state_chain(mdp, as_policy(mdp, policy))
    return _chain_value(chain.P, chain.mean_reward, gamma)


def action_value(mdp: FiniteMDP, value: ArrayLike, gamma: float) -> Array:
    """Q(s, a) = r(s, a) + γ E V(s'), (S, A); −inf where the action is not available."""
    value = schema.finite_matrix(value, (as_mdp(mdp).n_states,), "value")
    gamma = schema.discount(gamma)
    q = mdp.rewards + gamma * (mdp.transitions @ value).reshape(mdp.rewards.shape)
    return np.where(mdp.available, q, -np.inf)


def optimal_policy(mdp: FiniteMDP, gamma: float) -> tuple[Array, Array]:
    """The optimal value (S,) and a deterministic policy (S, A) that attains it."""
    as_mdp(mdp)
    gamma = schema.discount(gamma)
    choice = action_value(mdp, np.zeros(mdp.n_states), gamma).argmax(axis=1)
    everyone = np.arange(mdp.n_states)
    while True:
        policy = np.zeros(mdp.rewards.shape)
        policy[everyone, choice] = 1.0
        value = policy_value(mdp, policy, gamma)
        q = action_value(mdp, value, gamma)
        margin = 1e-12 * float(np.abs(mdp.rewards).max()) / (1 - gamma)
        better = q.max(axis=1) > q[everyone, choice] + margin
        if not better.any():
            return value, policy
        choice = np.where(better, q.argmax(axis=1), choice)


def bounded_value(result: MetricResult, gamma: float) -> Array:
    """The values whose gaps a metric bounds, (n,): V or Q of its policy, V* if it has none."""
    if result.policy is None:
        return optimal_policy(result.mdp, gamma)[0]
    value = policy_value(result.mdp, result.policy, gamma)
    if result.level == "state":
        return value
    return action_value(result.mdp, value, gamma)[result.mdp.available]


def _chain_value(P: Any, reward: Array, gamma: float) -> Array:
    """Solves V = r + γ P V: directly, or by iteration with an interval when P is large."""
    n = len(reward)
    if n <= _DIRECT_UP_TO:
        return np.atleast_1d(spsolve(sp.csc_matrix(sp.identity(n) - gamma * P), reward))
    tolerance = 1e-12 * (float(np.abs(reward).max()) / (1 - gamma) + 1e-300)
    value = reward.copy()
    while True:
        change = reward + gamma * (P @ value) - value
        low, high = float(change.min()), float(change.max())
        value += change
        if (high - low) * gamma / (1 - gamma) <= tolerance:
            return np.asarray(value + (high + low) / 2 * gamma / (1 - gamma))
