import numpy as np
import pytest

from revbis.tabular import estimate_laws, examples, revised
from revbis.tabular.operators import state_chain


def naive(a, b, gamma):
    """Σ γ^k |R_k − R'_k| of two terminated sequences."""
    length = max(len(a), len(b))
    a, b = (np.pad(x, (0, length - len(x))) for x in (a, b))
    return sum(gamma**k * abs(x - y) for k, (x, y) in enumerate(zip(a, b, strict=True)))


def rollouts(chain, state, count, length, rng):
    """Reward sequences from a state of a chain."""
    P, found = chain.P.toarray(), np.empty((count, length))
    for row in found:
        s = state
        for k in range(length):
            row[k] = rng.choice(chain.values[s], p=chain.weights[s])
            s = rng.choice(chain.n, p=P[s])
    return list(found)


def random_sequences(rng, moments=3, each=4):
    return [[rng.normal(size=rng.integers(1, 6)) for _ in range(each)] for _ in range(moments)]


def test_estimates_are_means_over_pairs_of_different_trajectories():
    episodes = random_sequences(np.random.default_rng(0))
    laws = estimate_laws(episodes, terminated=True)
    U, rho = laws.distance(gamma=0.7).estimate, laws.reduced(gamma=0.7).estimate
    for x, first in enumerate(episodes):
        for y, second in enumerate(episodes):
            pairs = [
                naive(a, b, 0.7)
                for i, a in enumerate(first)
                for j, b in enumerate(second)
                if x != y or i != j
            ]
            assert U[x, y] == pytest.approx(np.mean(pairs))
    assert np.allclose(rho, U - np.diag(U) / 2 - np.diag(U)[:, None] / 2)
    weighted = laws.distance(c=0.7)
    assert np.allclose(weighted.estimate, 0.3 * U)
    assert weighted.matrix() is weighted.estimate
    assert weighted.pairs([0, 1], 2) == pytest.approx(0.3 * U[[0, 1], 2])


def test_parts_of_one_episode_never_meet():
    # Moment 1 is one step after moment 0 in both episodes: only parts of different ones are paired.
    first, second = np.array([1.0, 2.0, 3.0]), np.array([0.0, 5.0, 1.0])
    episodes = [[first, second], [first[1:], second[1:]]]
    laws = estimate_laws(episodes, terminated=True, source=[[0, 1], [0, 1]])
    U = laws.distance(gamma=0.5).estimate
    assert U[0, 1] == pytest.approx(
        (naive(first, second[1:], 0.5) + naive(second, first[1:], 0.5)) / 2
    )
    assert U[0, 0] == pytest.approx(naive(first, second, 0.5))
    alone = estimate_laws([[first], [first[1:]]], terminated=True, source=[[0], [0]])
    read = alone.distance(gamma=0.5)
    assert np.isnan(read.estimate).all()  # one episode says nothing about a distance
    assert (read.low == 0).all()
    assert (read.high == 3 / 0.5).all()


def test_what_follows_a_truncated_sequence_is_bounded_by_the_range_of_rewards():
    laws = estimate_laws(
        [[[1.0, 0.0]], [[0.0, 0.0, 1.0]]],
        terminated=[[False], [True]],
        reward_range=(-1.0, 1.0),
    )
    read = laws.distance(gamma=0.5)
    assert read.estimate[0, 1] == 1.0  # the third reward of the first is not known
    assert read.tail[0, 1] == pytest.approx(0.5**2 / 0.5 * 2)
    both = estimate_laws([[[1.0, 0.0]], [[0.0, 0.0, 1.0]]], terminated=True).distance(gamma=0.5)
    assert both.estimate[0, 1] == 1.25
    assert both.tail[0, 1] == 0


@pytest.mark.parametrize(("interval", "least"), [("t", 0.83), ("certain", 1.0)])
def test_intervals_cover(interval, least):
    """On a finite MDP, where the exact metric is known: U and ρ, self-distances included."""
    mdp, policy = examples.grid_world(2)
    chain, rng = state_chain(mdp, policy), np.random.default_rng(1)
    exact = revised(mdp, policy, 0.6)
    inside, inside_reduced, total, repetitions = 0, 0, np.zeros((3, 3)), 120
    for _ in range(repetitions):
        episodes = [rollouts(chain, s, 10, 20, rng) for s in (0, 2, 3)]
        laws = estimate_laws(episodes, reward_range=(-0.1, 1.0))
        read = laws.distance(0.6, confidence=0.9, interval=interval)
        U = exact.matrix()[np.ix_([0, 2, 3], [0, 2, 3])]
        inside += ((read.low <= U) & (read.high >= U)).mean()
        rho = laws.reduced(0.6, confidence=0.9, interval=interval)
        true = exact.reduced()[np.ix_([0, 2, 3], [0, 2, 3])]
        off = ~np.eye(3, dtype=bool)
        inside_reduced += ((rho.low <= true) & (rho.high >= true))[off].mean()
        total += read.estimate
    assert inside / repetitions >= 0.89
    assert inside_reduced / repetitions >= least
    # Exact in expectation: the mean of 120 estimates is within four of its standard errors.
    assert abs(total / repetitions - U).max() < 0.05


@pytest.mark.parametrize("interval", ["t", "certain"])
def test_intervals_cover_when_moments_share_episodes(interval):
    mdp, policy = examples.grid_world(2)
    chain, rng = state_chain(mdp, policy), np.random.default_rng(2)
    # The moment after state 0: U of the mixture of its successors, by one more step of the chain.
    U, P = revised(mdp, policy, 0.6).matrix(), chain.P.toarray()
    true = np.array([[U[0, 0], U[0] @ P[0]], [U[0] @ P[0], P[0] @ U @ P[0]]])
    inside = np.zeros((2, 2))
    for _ in range(120):
        whole = rollouts(chain, 0, 10, 21, rng)
        laws = estimate_laws(
            [whole, [each[1:] for each in whole]],
            source=[range(10), range(10)],
            reward_range=(-0.1, 1.0),
        )
        read = laws.distance(0.6, confidence=0.9, interval=interval)
        inside += (read.low <= true) & (read.high >= true)
    assert (inside / 120 >= 0.85).all()


def test_a_single_trajectory_gives_an_estimate_and_says_that_nothing_is_certain():
    laws = estimate_laws([[[1.0]], [[0.0]]], terminated=True, reward_range=(0, 1))
    read = laws.distance(gamma=0.5)
    assert (read.estimate[0, 1], read.low[0, 1], read.high[0, 1]) == (1.0, 0.0, 2.0)
    assert np.isnan(read.estimate[0, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate_laws([]), "episodes is empty"),
        (lambda: estimate_laws([[]]), r"episodes\[0\] is empty: each moment needs"),
        (lambda: estimate_laws([[1.0]]), r"episodes\[0\]\[0\] must be a sequence of rewards"),
        (lambda: estimate_laws([[[np.nan]]]), r"episodes\[0\]\[0\] must be finite"),
        (lambda: estimate_laws("abc"), "episodes must be a list"),
        (lambda: estimate_laws([[[1.0]]], terminated=[[True, True]]), "terminated must have one"),
        (lambda: estimate_laws([[[1.0]]], source=[[0.5]]), "source must hold whole numbers"),
        (lambda: estimate_laws([[[3.0]]], reward_range=(0, 1)), "0 to 1, but there are rewards"),
        (lambda: estimate_laws([[[1.0]]]).distance(), "give gamma"),
        (lambda: estimate_laws([[[1.0]]]).distance(0.9, c=0.5), "not both"),
        (lambda: estimate_laws([[[1.0]]]).distance(0.9, confidence=1), "confidence must be above"),
        (lambda: estimate_laws([[[1.0]]]).distance(0.9, interval="z"), "interval must be one of"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_episode_that_passes_a_moment_often_counts_once():
    """Rewards of one episode are alike; y always earns 0, so U(x, y) at γ = 0 is ½."""
    rng, covered, trials = np.random.default_rng(0), 0, 60
    often, others = 60, 19
    source = [[0] * often + list(range(1, others + 1)), list(range(100, 100 + others))]
    for _ in range(trials):
        coins = rng.integers(0, 2, others + 1).astype(float)
        visits = [np.array([coins[0]])] * often + [np.array([coin]) for coin in coins[1:]]
        laws = estimate_laws(
            [visits, [np.zeros(1)] * others],
            terminated=True,
            source=source,
            reward_range=(0.0, 1.0),
        )
        found = laws.distance(gamma=0.0, interval="certain")
        assert found.estimate[0, 1] == pytest.approx(coins.mean())
        covered += bool(found.low[0, 1] <= 0.5 <= found.high[0, 1])
    assert covered == trials


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        ([1, 2, 3], [4, 5], 2),  # none on both sides: as many as the smaller has
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 2),  # (1, 2) and (3, 4)
        ([1, 2, 3, 4], [1, 2], 1),  # (1, 2) uses up both of the second
        ([1], [1], 0),
    ],
)
def test_independent_pairs(first, second, pairs):
    from revbis.tabular.samples import _Pair

    source = np.array([*first, *second])
    x, y = np.arange(len(first)), len(first) + np.arange(len(second))
    empty = np.zeros((len(source), len(source)))
    assert _Pair(empty, empty, empty > 0, source, x, y).independent() == pairs
