"""The learned target, on an enumerable MDP, is the exact operator.

The encoder is tabular: one row a state. A batch that holds every (s, a, s') is weighted by how
likely each is; the weighted mean of the learned targets must equal one application of the exact
operator to the distances of the embeddings.
"""

import numpy as np
import pytest
import torch

from revbis import tabular
from revbis.objectives import DESIGNS, make_objective, reward_gap, target
from revbis.tabular import operators

GAMMA = 0.9


@pytest.fixture(params=["garnet", "toy", "grid"])
def world(request):
    if request.param == "garnet":
        return tabular.examples.garnet(6, 3, 3, seed=1)
    if request.param == "toy":
        return tabular.examples.toy()
    return tabular.examples.grid_world(3)


def every_transition(mdp):
    """All (row of state_actions, s, a, s') with positive probability, and the probability."""
    rows = []
    for row, (s, a) in enumerate(mdp.state_actions):
        law = mdp.transitions[[s * mdp.n_actions + a]]
        rows += [(row, s, a, t, p) for t, p in zip(law.indices, law.data, strict=True)]
    row, s, a, t, p = (np.array(x) for x in zip(*rows, strict=True))
    return row, s, a, t, p


def output(objective, mdp, embedding, c, rows, policy_action=None):
    """The objective on these (s, a, s'); weights (1−c, c) or (1, γ)."""
    s, a, t = rows
    one_hot = torch.eye(mdp.n_actions, dtype=torch.float64)
    if objective.coefficient is not None:
        with torch.no_grad():  # softmax(raw_c) = (1−c, c)
            objective.coefficient.raw_c.copy_(torch.tensor([np.log(1 - c), np.log(c)]))
    drawn = one_hot[a if policy_action is None else policy_action]
    return objective(
        embedding[s],
        one_hot[a],
        torch.from_numpy(mdp.rewards[s, a]),
        torch.full((len(s),), GAMMA, dtype=torch.float64),
        embedding[t],
        policy_action=drawn,
        next_policy_action=drawn,
    )


def learned_target(out):
    return target(out.gap, out.following, out.reward_weight, out.next_weight).numpy()


def expected_over(rows: np.ndarray, weights: np.ndarray, n: int, values: np.ndarray) -> np.ndarray:
    average = np.zeros((n, len(rows)))
    average[rows, np.arange(len(rows))] = weights
    return average @ values @ average.T


FOLLOWED_BY_STATES = [
    name for name, d in DESIGNS.items() if d.follows == "states" and not d.released
]


@pytest.mark.parametrize("name", FOLLOWED_BY_STATES)
def test_one_learned_target_is_one_exact_operator(name, world) -> None:
    mdp, policy = world
    torch.manual_seed(0)
    objective = make_objective(name, 4, mdp.n_actions, hidden=8, reward_scale="none").double()
    embedding = torch.randn(mdp.n_states, 4, dtype=torch.float64)
    states = objective.scale(embedding)
    U = objective.distance(states, states).numpy()
    row, s, a, t, p = every_transition(mdp)
    c = 0.3
    weights = (1 - c, c) if DESIGNS[name].adaptive else (1.0, GAMMA)
    learned = learned_target(output(objective, mdp, embedding, c, (s, a, t)))
    G = expected_over(row, p, len(mdp.state_actions), learned)
    exact_G = operators.state_action_distance(mdp, U, *weights)
    assert np.abs(G - exact_G).max() < 1e-6
    # Without ψ the same targets are averaged over the policy's actions: the state operator.
    learned_U = expected_over(s, p * policy[s, a], mdp.n_states, learned)
    exact_U = operators.state_distance(mdp, policy, exact_G)
    assert np.abs(learned_U - exact_U).max() < 1e-6
    assert np.abs(exact_U - U).max() > 1e-3  # the operator did something


def behaviour_and_target(mdp):
    """The policy that acts, and another one whose metric is wanted."""
    generator = np.random.default_rng(5)
    draws = generator.dirichlet(np.ones(mdp.n_actions), size=(2, mdp.n_states))
    draws *= mdp.available
    return draws / draws.sum(axis=2, keepdims=True)


def pair_distances(objective, mdp, embedding):
    """ψ's own distances between all state-action pairs, in the order of `state_actions`."""
    s, a = mdp.state_actions.T.copy()
    with torch.no_grad():
        x = objective.embed(embedding[s], torch.eye(mdp.n_actions, dtype=torch.float64)[a])
        return objective.distance(x, x).numpy()


@pytest.mark.parametrize("name", [name for name, d in DESIGNS.items() if d.tied])
def test_both_equations_are_exact_when_the_data_are_another_policys(name, world) -> None:
    """Data of one policy; the tie averages over the other's actions, so U is the other's."""
    mdp, _ = world
    behaviour, wanted = behaviour_and_target(mdp)
    torch.manual_seed(0)
    objective = make_objective(name, 4, mdp.n_actions, hidden=8, reward_scale="none").double()
    embedding = torch.randn(mdp.n_states, 4, dtype=torch.float64)
    states = objective.scale(embedding)
    U = objective.distance(states, states).numpy()
    row, s, a, t, p = (np.repeat(x, mdp.n_actions) for x in every_transition(mdp))
    drawn = np.tile(np.arange(mdp.n_actions), len(s) // mdp.n_actions)
    likely = p * behaviour[s, a] * wanted[s, drawn]
    c = 0.3
    out = output(objective, mdp, embedding, c, (s, a, t), drawn)

    # How often the behaviour policy takes an action does not matter: G is conditioned on it.
    given_pair = likely / np.bincount(row, likely)[row]
    G = expected_over(row, given_pair, len(mdp.state_actions), learned_target(out))
    weights = (1 - c, c) if DESIGNS[name].adaptive else (1.0, GAMMA)
    assert np.abs(G - operators.state_action_distance(mdp, U, *weights)).max() < 1e-6
    given_state = likely / np.bincount(s, likely)[s]
    tied = expected_over(s, given_state, mdp.n_states, out.tie_target.numpy())
    of_pairs = pair_distances(objective, mdp, embedding)
    assert np.abs(tied - operators.state_distance(mdp, wanted, of_pairs)).max() < 1e-6
    assert np.abs(tied - operators.state_distance(mdp, behaviour, of_pairs)).max() > 1e-4


@pytest.mark.parametrize("name", [name for name, d in DESIGNS.items() if d.follows == "pairs"])
def test_what_follows_may_be_pairs_under_another_policy(name, world) -> None:
    mdp, _ = world
    _, wanted = behaviour_and_target(mdp)
    torch.manual_seed(0)
    objective = make_objective(name, 4, mdp.n_actions, hidden=8).double()
    embedding = torch.randn(mdp.n_states, 4, dtype=torch.float64)
    row, s, a, t, p = (np.repeat(x, mdp.n_actions) for x in every_transition(mdp))
    drawn = np.tile(np.arange(mdp.n_actions), len(s) // mdp.n_actions)
    likely = p * wanted[t, drawn]
    out = output(objective, mdp, embedding, 0.3, (s, a, t), drawn)
    G = expected_over(row, likely, len(mdp.state_actions), learned_target(out))
    U = operators.state_distance(mdp, wanted, pair_distances(objective, mdp, embedding))
    assert np.abs(G - operators.state_action_distance(mdp, U, 0.7, 0.3)).max() < 1e-6


def test_a_sequence_of_coefficients_is_the_exact_sequence(world) -> None:
    """Iterating the learned target with c_n equals `revised(c=[...])`."""
    mdp, policy = world
    sequence = [0.5, 0.6, 0.65, 0.7, 0.4]
    row, s, a, t, p = every_transition(mdp)
    reward = torch.from_numpy(mdp.rewards[s, a])
    U = np.zeros((mdp.n_states, mdp.n_states))
    for c in sequence:
        following = torch.from_numpy(U[np.ix_(t, t)])
        targets = target(reward_gap(reward, reward), following, 1 - c, c).numpy()
        G = expected_over(row, p, len(mdp.state_actions), targets)
        U = operators.state_distance(mdp, policy, G)
    with pytest.warns(tabular.ToleranceWarning, match="append more terms"):
        exact = tabular.revised(mdp, policy, GAMMA, c=sequence)
    assert np.abs(U - exact.matrix()).max() < 1e-6


def test_under_a_deterministic_policy_the_sampled_target_is_mico() -> None:
    """Sampled rewards give E|r − r'|: MICo's gap of means only where rewards are certain."""
    mdp, policy = tabular.examples.garnet(6, 3, 3, seed=2)
    certain = np.eye(3)[policy.argmax(axis=1)]
    U = np.abs(np.random.default_rng(0).normal(size=(6, 6)))
    for pi, same in ((certain, True), (policy, False)):
        chain = operators.mean_state_chain(mdp, pi)
        following = operators.independent_coupling(chain.P, U)
        mico = operators.target(operators.reward_gap(chain.values), following, 1.0, GAMMA)
        sampled = operators.state_distance(
            mdp, pi, operators.state_action_distance(mdp, U, 1.0, GAMMA)
        )
        assert np.allclose(mico, sampled) == same
        assert (sampled >= mico - 1e-12).all()


def test_released_targets_hold_no_reward_of_their_pair() -> None:
    mdp, _ = tabular.examples.garnet(6, 3, 3, seed=3)
    objective = make_objective("mico-rev-released", 4, 3, hidden=8).double()
    embedding = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, s, a, t, _ = every_transition(mdp)
    one_hot = torch.eye(3, dtype=torch.float64)[a]
    discount = torch.full((len(s),), GAMMA, dtype=torch.float64)
    reward = torch.from_numpy(mdp.rewards[s, a])
    targets = []
    for seed in (0, 0, 1):
        g = torch.Generator().manual_seed(7)
        order = torch.randperm(len(s), generator=torch.Generator().manual_seed(seed))
        out = objective(embedding[s], one_hot, reward[order], discount, embedding[t], generator=g)
        targets.append(target(out.gap, out.following, out.reward_weight, out.next_weight))
    spread = (targets[0] - targets[2]).std()
    assert torch.equal(targets[0], targets[1])
    assert spread < 1e-12  # shuffling the rewards among pairs shifts all targets alike
