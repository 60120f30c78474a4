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
    name for name, d in DESIGNS.items() if d.follows == "states" and not (d.released or d.means)
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


@pytest.mark.parametrize("name", [name for name, d in DESIGNS.items() if d.tied and not d.means])
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


END = 5  # the absorbing state of `ending_world`
COMPLETE = [name for name, d in DESIGNS.items() if d.independent and not d.means]


def ending_world():
    """A garnet of five states, some of whose transitions end: in a state with reward 0 for ever."""
    mdp, policy = tabular.examples.garnet(END, 3, 3, seed=4)
    P = np.zeros((END + 1, 3, END + 1))
    P[:END, :, :END] = mdp.transitions.toarray().reshape(END, 3, END)
    ends = np.zeros((END, 3))
    ends[0, 1], ends[2, 0], ends[3] = 1.0, 0.3, 0.6
    P[:END] *= 1 - ends[..., None]
    P[:END, :, END] = ends
    P[END, :, END] = 1
    available = np.ones((END + 1, 3), dtype=bool)
    available[END, 1:] = False
    rewards = np.vstack([mdp.rewards, np.zeros(3)])
    policy = np.vstack([policy, np.eye(3)[0]])
    return tabular.FiniteMDP(P, rewards, available), policy


def ending_output(objective, mdp, embedding, c, rows, drawn):
    """The objective on the transitions of an agent, whose episodes end with a discount of 0."""
    s, a, t = rows
    one_hot = torch.eye(mdp.n_actions, dtype=torch.float64)
    if objective.coefficient is not None:
        with torch.no_grad():
            objective.coefficient.raw_c.copy_(torch.tensor([np.log(1 - c), np.log(c)]))
    anything = torch.full((1, embedding.shape[1]), 7.0, dtype=torch.float64)
    return objective(
        embedding[s],
        one_hot[a],
        torch.from_numpy(mdp.rewards[s, a]),
        torch.from_numpy(np.where(t == END, 0, GAMMA)),
        torch.cat([embedding[:END], anything])[t],  # a last observation, not a state
        policy_action=one_hot[drawn],
        next_policy_action=one_hot[drawn],
    )


@pytest.mark.parametrize("name", COMPLETE)
def test_a_terminated_episode_stays_where_rewards_are_0(name) -> None:
    """The exact twin has the absorbing state as a state of its own."""
    mdp, wanted = ending_world()
    design = DESIGNS[name]
    torch.manual_seed(0)
    objective = make_objective(name, 4, 3, hidden=8, reward_scale="none").double()
    embedding = torch.cat([torch.randn(END, 4, dtype=torch.float64), objective.absorbing.z])
    row, s, a, t, p = (np.repeat(x[:-1], 3) for x in every_transition(mdp))
    assert (s < END).all() and len(mdp.state_actions) == 3 * END + 1
    drawn = np.tile(np.arange(3), len(s) // 3)
    out = ending_output(objective, mdp, embedding, 0.3, (s, a, t), drawn)

    # Distances of all state-action pairs; at the end one action, 0, stands for all.
    with torch.no_grad():
        of_state, of_action = mdp.state_actions.T.copy()
        actions = torch.eye(3, dtype=torch.float64)[of_action]
        actions[-1] = 0
        x = objective.embed(embedding[of_state], actions)
        of_pairs = objective.distance(x, x).numpy()
        states = objective.scale(embedding)
        U = objective.distance(states, states).numpy()
    if design.follows == "pairs":
        U = operators.state_distance(mdp, wanted, of_pairs)
    U[END, END] = 0  # the two never differ

    likely = p * (wanted[s, drawn] if design.tied else 1 / 3)
    if design.follows == "pairs":
        likely = p * np.where(t == END, 1 / 3, wanted[t, drawn])
    weight = np.append(likely / np.bincount(row, likely)[row], 1)  # and the row of the end
    G = expected_over(np.append(row, 3 * END), weight, 3 * END + 1, learned_target(out))
    weights = (0.7, 0.3) if design.adaptive else (1.0, GAMMA)
    exact = operators.state_action_distance(mdp, U, *weights)
    assert np.abs(G - exact).max() < 1e-6
    gaps = weights[0] * mdp.rewards[:END].ravel()
    assert (exact[:-1, -1] - gaps).max() > 0.01  # what follows an end matters
    if design.tied:
        given_state = likely * 1 / np.bincount(s, likely)[s]
        weight, s = np.append(given_state, 1), np.append(s, END)
        tied = expected_over(s, weight, END + 1, out.tie_target.numpy())
        assert np.abs(tied - operators.state_distance(mdp, wanted, of_pairs)).max() < 1e-6


@pytest.mark.parametrize("name", ["energy", "energy-rev-full", "simsr-rev-full-no-c"])
def test_with_equal_rewards_the_metric_is_how_soon_episodes_end(name) -> None:
    """Steps 0 → 1 → 2 → end with reward 1: U(s, t) sums over the steps that one lasts longer."""
    adaptive = DESIGNS[name].adaptive
    options = {"coefficient": 0.5} if adaptive else {}
    mdp = tabular.FiniteMDP(np.array([[1], [2], [3], [3]]), [[1.0], [1.0], [1.0], [0.0]])
    c = {"c": 0.5} if adaptive else {}
    exact = tabular.revised(mdp, np.ones((4, 1)), 0.5, **c).matrix()[:3, :3]
    unit = 0.5 if adaptive else 1.0
    assert np.allclose(
        exact / unit, [[0, 0.25, 0.75], [0.25, 0, 0.5], [0.75, 0.5, 0]]
    )  # ½² and ½ + ½²
    torch.manual_seed(0)
    options |= {"hidden": 32, "loss": "squared", "reward_scale": "none"}
    objective = make_objective(name, 4, 1, **options)
    states = torch.randn(3, 4, requires_grad=True)
    optimiser = torch.optim.Adam([states, *objective.parameters()], lr=0.05)
    s = torch.arange(9) % 3
    for _ in range(800):
        z, action = states[s], torch.ones(9, 1)
        discount = 0.5 * (s < 2)
        following = states.detach()[(s + 1).clamp_max(2)]
        inputs = (z, action, torch.ones(9), discount, following)
        loss = objective(*inputs, policy=lambda z: torch.ones(len(z), 1)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        x = objective.scale(states)
        learned = objective.distance(x, x).numpy()
    beside = ~np.eye(3, dtype=bool)  # softplus is slow to reach 0, the energy's self-distances
    assert np.abs(learned - exact)[beside].max() < 0.06
