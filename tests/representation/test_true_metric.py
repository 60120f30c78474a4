"""The true metric of a policy on a simulator: by hand, against exact metrics, and in two ways."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from tests.runs import Forgetful

from revbis import tabular
from revbis.representation.episodes import NotReproducibleError, collect_episodes, play_on
from revbis.representation.measures import clustered_correlation, rank_correlation
from revbis.representation.true_metric import true_distances
from revbis.representation.yardsticks import Pool, euclidean, measure_agent
from revbis.runs.presets import preset_config

GAMMA = 0.8
CHAIN, CHAIN_POLICY = tabular.examples.garnet(n_states=5, n_actions=2, branching=2, seed=3)


def test_distances_by_hand() -> None:
    """Three moments at γ = ½: rewards 1 0 1 (cut off), 0 0 (cut off), 1 then an end.

    Two rewards are compared. U = 1 + 0; 0 + 0; 1 + 0; the first and the third have the same.
    The rewards are in [0, 1], so what follows adds at most ½² · 1/(1 − ½) = ½.
    """
    rewards = [[np.array([1.0, 0.0, 1.0])], [np.array([0.0, 0.0])], [np.array([1.0])]]
    found = true_distances(rewards, [[False], [False], [True]], 0.5)
    assert found.matrix.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert (found.lags, found.tail) == (2, 0.5)


def test_a_trajectory_that_ends_by_itself_has_no_tail() -> None:
    """1 + ½ · 1 against nothing after the first reward: U = 0 + ½ · 1."""
    found = true_distances([[np.array([1.0, 1.0])], [np.array([1.0])]], [[True], [True]], 0.5)
    assert found.matrix[0, 1] == 0.5 and (found.lags, found.tail) == (2, 0.0)


def test_several_trajectories_are_averaged_over_all_pairs() -> None:
    """Rewards 0 or 2 against 1 or 1, and against each other: |r − r'| = 1 always, or 0 and 2."""
    rewards = [[np.array([0.0]), np.array([2.0])], [np.array([1.0]), np.array([1.0])]]
    found = true_distances(rewards, [[False, False]] * 2, 0.5)
    assert found.matrix.tolist() == [[1, 1], [1, 0]]


def test_the_interval_is_the_jackknife_over_clusters() -> None:
    """Against a plain loop: leave out a cluster, correlate, transform, t with 3 degrees."""
    generator = np.random.default_rng(0)
    points, cluster = generator.normal(size=(12, 2)), np.repeat([3, 5, 6, 9], 3)
    moved = points + 0.5 * generator.normal(size=points.shape)
    x, y = (np.linalg.norm(p[:, None] - p, axis=2) for p in (points, moved))

    def correlation(without: int) -> float:
        pairs = [
            (x[i, j], y[i, j])
            for i in range(12)
            for j in range(i)
            if cluster[i] != cluster[j] and without not in (cluster[i], cluster[j])
        ]
        return rank_correlation(*np.array(pairs).T)

    found = clustered_correlation(x, y, cluster)
    assert found is not None and found.value == pytest.approx(correlation(-1))
    z = np.arctanh([correlation(each) for each in (3, 5, 6, 9)])
    half = 3.182446 * np.sqrt(3 / 4 * ((z - z.mean()) ** 2).sum())
    ends = np.tanh(np.arctanh(found.value) + np.array([-half, half]))
    assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-6)


def test_few_clusters_have_no_interval() -> None:
    x = np.arange(9.0).reshape(3, 3)
    assert clustered_correlation(x, x, np.zeros(3, np.int64)) is None
    found = clustered_correlation(x, x, np.arange(3))
    assert found is not None and found.value == 1.0 and np.isnan([found.low, found.high]).all()
    many = np.random.default_rng(0).random((50, 50))
    same = clustered_correlation(many, many, np.arange(50))
    assert same is not None and same[0] == pytest.approx(1) and same[1] > 0.999


class Chain(gymnasium.Env[Any, Any]):
    """A finite MDP; half of the actions are the first one, and what is seen is the state."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (5,), np.float32)
    metadata: ClassVar = {"render_modes": []}
    limit = 60

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(5)), 0
        return self._seen(), {}

    def step(self, action):
        chosen = int(self.np_random.random() > CHAIN_POLICY[self.at, 0])
        reward = float(CHAIN.rewards[self.at, chosen])
        row = CHAIN.transitions[2 * self.at + chosen].toarray().ravel()
        self.at = int(self.np_random.choice(5, p=row / row.sum()))
        self.steps += 1
        return self._seen(), reward, False, self.steps >= self.limit, {}

    def _seen(self):
        return np.eye(5, dtype=np.float32)[self.at]


class Passive:
    """Does nothing, and embeds what it sees."""

    def begin_episode(self) -> None:
        pass

    def act(self, observation: np.ndarray, step: int, *, explore: bool) -> np.ndarray:
        return np.zeros(1, np.float32)

    def embed(self, observations: torch.Tensor) -> torch.Tensor:
        return observations.float()

    def distance(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x, y)


def environment(task: str, **settings: Any) -> dict[str, Any]:
    given = {"observation": "state", "action_repeat": 1} | settings
    return preset_config("cpu", task).with_settings(**given).environment


def test_a_finite_mdp_as_a_task_has_its_exact_metric() -> None:
    """Every state is a moment; the exact metric is within the intervals of 60 rollouts each."""
    given = environment("tests.representation.test_true_metric:Chain")
    episodes = collect_episodes(given, Passive(), [1, 2])  # type: ignore[arg-type]
    rows = {}
    for episode in episodes:
        for row in range(10):
            rows.setdefault(int(episode.states[row].argmax()), (episode, row))
    assert sorted(rows) == [0, 1, 2, 3, 4]
    moments = [rows[state] for state in range(5)]
    found = play_on(given, Passive(), moments, 40, 60, 0)  # type: ignore[arg-type]
    laws = tabular.estimate_laws([[rewards for rewards, _ in each] for each in found])
    exact = tabular.revised(CHAIN, CHAIN_POLICY, gamma=GAMMA).matrix()
    of = laws.distance(gamma=GAMMA, confidence=0.99)
    assert ((of.low <= exact) & (exact <= of.high)).all()
    truth = true_distances(
        [[rewards for rewards, _ in each] for each in found], [[False] * 60] * 5, GAMMA
    )
    i, j = np.triu_indices(5, 1)
    assert truth.matrix[i, j] == pytest.approx(of.estimate[i, j], rel=1e-12)
    assert (truth.lags, truth.tail) == (40, pytest.approx(of.tail[0, 1]))


def test_rollouts_come_nearer_to_the_exact_metric() -> None:
    """An embedding that is the state, compared by the exact metric."""
    given = environment("tests.representation.test_true_metric:Chain")
    episodes = collect_episodes(given, Passive(), range(1, 6))  # type: ignore[arg-type]
    exact = torch.tensor(tabular.revised(CHAIN, CHAIN_POLICY, gamma=GAMMA).matrix())

    def distance(_: str, z: torch.Tensor) -> torch.Tensor:
        at = z.argmax(dim=1)
        return exact[at][:, at]

    pool = Pool(given, GAMMA, episodes, 0)
    once = pool.measure(lambda x: {"phi": x}, distance)
    pool.roll_out(Passive(), 6, lambda: None)  # type: ignore[arg-type]
    averaged = pool.measure(lambda x: {"phi": x}, distance)
    # Most moments are in one state: noise orders their distances, which are all the same.
    assert 0.55 < once["phi_true"] < averaged["phi_true"] - 0.05
    assert averaged["phi_true_low"] < averaged["phi_true"] < averaged["phi_true_high"]
    assert averaged["phi_state_r2"] == once["phi_state_r2"]


def test_a_task_that_does_not_repeat_itself_has_no_rollouts(caplog) -> None:
    assert Forgetful
    given = environment("tests.runs:Forgetful")
    episodes = collect_episodes(given, Passive(), [1, 2])  # type: ignore[arg-type]
    with pytest.raises(NotReproducibleError, match="does not come to the same state again"):
        play_on(given, Passive(), [(episodes[0], 3)], 5, 1, 0)  # type: ignore[arg-type]
    values = measure_agent(given, 0.9, Passive(), [1, 2], rollouts=2)  # type: ignore[arg-type]
    assert "phi_true" in values
    assert "no rollouts, so U is that of the episodes themselves: tests.runs:For" in caplog.text


class Swing(Passive):
    """Pushes where the pole moves to."""

    def act(self, observation: np.ndarray, step: int, *, explore: bool) -> np.ndarray:
        return np.tanh(3 * observation[-1:]).astype(np.float32)


@pytest.mark.env("dmc", gl=False)
def test_recorded_and_repeated_trajectories_agree_on_cartpole() -> None:
    """Nothing is random, so playing again from a moment gives the rewards that followed it."""
    given = environment("dmc:cartpole_swingup", action_repeat=20)
    episodes = collect_episodes(given, Swing(), [1, 2, 3])  # type: ignore[arg-type]
    rewards = np.concatenate([each.rewards for each in episodes])
    assert rewards.std() > 0.1
    moments = [(each, row) for each in episodes for row in (0, 3, 11)]
    again = play_on(given, Swing(), moments, 20, 2, 0)  # type: ignore[arg-type]
    repeated = true_distances(
        [[rewards for rewards, _ in each] for each in again], [[False] * 2] * 9, GAMMA
    )
    recorded = true_distances(
        [[episode.rewards[row : row + 20]] for episode, row in moments], [[False]] * 9, GAMMA
    )
    assert np.abs(repeated.matrix - recorded.matrix).max() < 1e-9
    assert recorded.matrix.max() > 0.1 and np.diag(repeated.matrix).max() == 0.0


def test_correlations_are_between_different_episodes() -> None:
    """Moments of one episode are near in time: an embedding of time alone would look good."""
    given = environment("tests.runs:Walk")
    episodes = collect_episodes(given, Passive(), [1, 2])  # type: ignore[arg-type]
    values = Pool(given, 0.9, episodes, 0).measure(
        lambda x: {"phi": x.float()}, lambda _, z: euclidean(z)
    )
    assert "phi_true" in values and "phi_true_low" not in values  # two episodes: no interval
