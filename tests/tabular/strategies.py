"""Random MDPs for Hypothesis: a seed and a few shapes, so that failures shrink to small ones."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from revbis.tabular import FiniteMDP

GAMMAS = (0.0, 0.5, 0.9, 0.99)
KINDS = ("dense", "sparse", "deterministic", "equal_masses")
REWARDS = ("few", "continuous", "constant")


def few(examples):
    """Settings with so many examples, no deadline: the first call may compile."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


@st.composite
def mdps(draw, max_states=6, max_actions=3, kinds=KINDS, masked=True, rewards=REWARDS):
    """An MDP of any kind and a policy on it that may leave actions out."""
    n = draw(st.integers(1, max_states), label="states")
    m = draw(st.integers(1, max_actions), label="actions")
    kind = draw(st.sampled_from(kinds), label="kind")
    prize = draw(st.sampled_from(rewards), label="rewards")
    hide = masked and draw(st.booleans(), label="masked")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    mask = rng.random((n, m)) < 0.6 if hide else np.ones((n, m), dtype=bool)
    mask[np.arange(n), rng.integers(m, size=n)] = True
    mdp = FiniteMDP(transition_array(rng, n, m, kind), reward_array(rng, (n, m), prize), mask=mask)
    return mdp, policy_array(rng, mask, draw(st.sampled_from(("any", "pure")), label="policy"))


def transition_array(rng, n, m, kind):
    """(S, A, S) rows of one kind."""
    if kind == "dense":
        return rng.dirichlet(np.ones(n), size=(n, m))
    P = np.zeros((n, m, n))
    width = {"sparse": min(3, n), "deterministic": 1, "equal_masses": min(2, n)}[kind]
    for row in P.reshape(n * m, n):
        where = rng.choice(n, width, replace=False)
        row[where] = 1 / width if kind == "equal_masses" else rng.dirichlet(np.ones(width))
    return P


def reward_array(rng, shape, kind):
    """(S, A) rewards: three levels, any, or all the same."""
    if kind == "few":
        return rng.choice([-0.5, 0.0, 1.0], size=shape)
    return rng.normal(size=shape) if kind == "continuous" else np.full(shape, 0.3)


def policy_array(rng, mask, kind="any"):
    """(S, A) probabilities of the actions on offer, one action a state if pure."""
    weight = rng.gamma(1.0, size=mask.shape) * mask * (rng.random(mask.shape) < 0.8)
    weight += 1e-3 * mask * (weight.sum(axis=1, keepdims=True) == 0)
    if kind == "pure":
        return np.eye(mask.shape[1])[weight.argmax(axis=1)]
    return weight / weight.sum(axis=1, keepdims=True)
