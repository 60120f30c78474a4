"""Slow and obvious: what the library is tested against."""

import numpy as np
import ot

LONG = np.longdouble


def dense(mdp):
    """P as (S, A, S); rows of actions that are not on offer are zero."""
    return mdp.transitions.toarray().reshape(mdp.n_states, mdp.n_actions, mdp.n_states)


def chain(mdp, policy, metric="revised", level="state", dtype=np.float64):
    """The state (or state-action) chain and its reward gap, by the definitions."""
    T, R, pi = (x.astype(dtype) for x in (dense(mdp), mdp.rewards, policy))
    n, m = R.shape
    if level == "state_action":
        on = mdp.available.ravel()
        P = np.einsum("sat,tb->satb", T, pi).reshape(n * m, n * m)[np.ix_(on, on)]
        r = R.ravel()[on]
        return P, abs(r[:, None] - r)
    P = np.einsum("sa,sat->st", pi, T)
    if metric == "revised":
        gap = abs(R[:, :, None, None] - R)
        return P, np.einsum("sa,tb,satb->st", pi, pi, gap)
    r = (pi * R).sum(axis=1)
    return P, abs(r[:, None] - r)


def kronecker(P, gap, discount):
    """The solution of U = gap + λ P U Pᵀ by one dense solve of size n²."""
    n = len(P)
    system = np.eye(n * n) - discount * np.kron(P, P)
    return np.linalg.solve(system, gap.ravel()).reshape(n, n)


def long_double(P, gap, discount):
    """The same in extended precision: the series, doubled until nothing is left of it."""
    U, weight = gap.astype(LONG), LONG(discount)
    while weight > 0:
        term = weight * (P @ U @ P.T)
        U = U + term
        if abs(term).max() * weight < 1e-22 * (1 - weight):
            break
        P, weight = P @ P, weight * weight
    return U


def w1(p, q, d):
    """Cheapest coupling of p and q at costs d, by POT; only positive masses are passed on."""
    i, j = np.flatnonzero(p), np.flatnonzero(q)
    cost = d[np.ix_(i, j)]
    least = cost.min()  # POT wants costs from 0; a constant on all of them is paid in any case
    return least + ot.emd2(p[i] / p[i].sum(), q[j] / q[j].sum(), cost - least)


def apply(metric, mdp, policy, d, discount, weight=1.0):
    """One application of a W1 metric's operator, pair by pair."""
    n, P, R, action_sets = mdp.n_states, dense(mdp), mdp.rewards, mdp.available
    if metric == "pi_bisimulation":
        P, R = np.einsum("sa,sat->st", policy, P)[:, None], (policy * R).sum(axis=1)[:, None]
        action_sets = np.ones((n, 1), dtype=bool)
    far = weight * np.ptp(R[action_sets]) / (1 - discount)
    out = np.empty((n, n))
    for s, t in np.ndindex(n, n):
        if metric != "lax_bisimulation" and (action_sets[s] != action_sets[t]).any():
            out[s, t] = far
            continue
        couples = np.full((action_sets.shape[1],) * 2, np.nan)
        for a, b in np.argwhere(np.outer(action_sets[s], action_sets[t])):
            if metric == "lax_bisimulation" or a == b:
                gap = weight * abs(R[s, a] - R[t, b])
                couples[a, b] = gap + discount * w1(P[s, a], P[t, b], d)
        couples = couples[np.ix_(action_sets[s], action_sets[t])]
        lax = metric == "lax_bisimulation"
        out[s, t] = hausdorff(couples) if lax else np.diag(couples).max()
    return out


def hausdorff(couples):
    """max of max-min and min-max."""
    return max(couples.min(axis=1).max(), couples.min(axis=0).max())


def w1_fixed_point(metric, mdp, policy, discount, weight=1.0, error=1e-8):
    """The W1 metric by value iteration from 0, to within `error`."""
    d = np.zeros((mdp.n_states, mdp.n_states))
    while True:
        new = apply(metric, mdp, policy, d, discount, weight)
        change = abs(new - d).max()
        d = new
        if change * discount <= error * (1 - discount):
            return d


def values(mdp, policy, gamma):
    """V of a policy by a dense solve."""
    P = np.einsum("sa,sat->st", policy, dense(mdp))
    return np.linalg.solve(np.eye(len(P)) - gamma * P, (policy * mdp.rewards).sum(axis=1))


def optimal_values(mdp, gamma, error=1e-10):
    """V* by value iteration."""
    V = np.zeros(mdp.n_states)
    while True:
        Q = np.where(mdp.available, mdp.rewards + gamma * dense(mdp) @ V, -np.inf)
        change = abs(Q.max(axis=1) - V).max()
        V = Q.max(axis=1)
        if change * gamma <= error * (1 - gamma):
            return V


def gaps(V):
    """|V(s) − V(t)| for all pairs."""
    return abs(V[:, None] - V)
