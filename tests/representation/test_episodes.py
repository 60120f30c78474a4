"""Disturbances drawn again: first the same as the environment's, then others."""

from typing import Any

import numpy as np
import pytest
import torch

from revbis.envs import make_env
from revbis.envs.instances import filmed
from revbis.envs.state_noise import projection
from revbis.representation.episodes import (
    Disturbance,
    collect_episodes,
    feature_count,
    irrelevant_factors,
    observations,
)
from revbis.representation.measures import returns_to_go
from revbis.representation.yardsticks import Pool, embeddings, euclidean
from revbis.runs.presets import preset_config

STACK = 3
WALK = {"task": "tests.runs:Walk", "pixels": 24, "action_repeat": 4}
PIXELS = {**WALK, "distractor": "gaussian", "distractor_strength": 0.2}
VECTOR = {**WALK, "observation": "state", "state_noise": 6}
DRIFTING = {**VECTOR, "state_noise_kind": "walk"}
PREDICTABLE = {**VECTOR, "state_noise_kind": "instance+shadow", "reward_gate": True}
SHAPES = {
    "task": "dmc:cartpole_balance",
    "pixels": 24,
    "action_repeat": 100,
    "distractor": "shapes",
}
INSTANCE = SHAPES | {"distractor": "instance"}
EVERY = [
    pytest.param(PIXELS, id="gaussian"),
    pytest.param(VECTOR, id="vector"),
    pytest.param(DRIFTING, id="walk"),
    pytest.param(PREDICTABLE, id="instance+shadow"),
    pytest.param(WALK, id="none"),
    pytest.param(SHAPES, id="shapes", marks=pytest.mark.env("dmc")),
    pytest.param(INSTANCE, id="instance", marks=pytest.mark.env("dmc")),
]


def environment(settings: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in settings.items() if name != "task"}
    return preset_config("cpu", settings["task"]).with_settings(**given).environment


class Watcher:
    """Pushes to the right, and keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def begin_episode(self) -> None:
        pass

    def act(self, observation: np.ndarray, step: int, *, explore: bool) -> np.ndarray:
        assert not explore
        self.seen.append(observation)
        return np.array([0.3], np.float32)


@pytest.mark.parametrize("settings", EVERY)
def test_the_agent_sees_what_it_sees_in_the_environment(settings: dict[str, Any]) -> None:
    agent, env = Watcher(), make_env(**environment(settings), seed=0, distractor_split="eval")
    episodes = collect_episodes(environment(settings), agent, [5, 6])
    wanted, rewards, states = [], [], []
    for seed in (5, 6):
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            wanted.append(observation)
            states.append(info["state"])
            observation, reward, ended, cut, info = env.step(np.array([0.3], np.float32))
            rewards.append(reward)
            over = ended or cut
    assert len(wanted) == len(agent.seen) == sum(map(len, episodes))
    assert all(np.array_equal(a, b) for a, b in zip(wanted, agent.seen, strict=True))
    assert np.concatenate([each.rewards for each in episodes]).tolist() == rewards
    assert np.array_equal(np.concatenate([each.states for each in episodes]), states)
    assert [each.seed for each in episodes] == [5, 6]
    # The same again from the clean frames, with the episode's own seed.
    stack = 1 if settings.get("observation") == "state" else STACK
    disturbance = Disturbance(environment(settings), feature_count(episodes[0]), "eval")
    again = [observations(e, np.arange(len(e)), disturbance, e.seed, stack) for e in episodes]
    assert np.array_equal(np.concatenate(again), np.stack(wanted))


@pytest.mark.parametrize("settings", EVERY)
def test_other_seeds_change_the_noise_alone(settings: dict[str, Any]) -> None:
    (episode,) = collect_episodes(environment(settings), Watcher(), [5])
    moments = np.array([0, 1, 4, len(episode) - 1])
    stack = 1 if settings.get("observation") == "state" else STACK
    views = {}
    for split in ("train", "eval"):
        disturbance = Disturbance(environment(settings), feature_count(episode), split)
        views[split] = [observations(episode, moments, disturbance, s, stack) for s in (5, 7, 7)]
    first, second, same = views["eval"]
    assert np.array_equal(second, same)
    disturbed = settings is not WALK
    assert np.array_equal(first, second) != disturbed
    assert np.array_equal(second, views["train"][1]) != disturbed
    if settings in (SHAPES, INSTANCE):  # the task itself is not touched, in any frame of a stack
        newest = episode.masks[moments]  # type: ignore[index]
        assert 0 < newest.mean() < 1
        for view in (first, second):
            frames = view[:, -3:].transpose(0, 2, 3, 1)
            clean = episode.frames[moments].transpose(0, 2, 3, 1)
            assert np.array_equal(frames[~newest], clean[~newest])
    if stack == STACK:  # before the first frame, that one is repeated, with its noise
        oldest, middle, newest = np.split(first[0], 3)
        assert np.array_equal(oldest, newest) and np.array_equal(middle, newest)


@pytest.mark.parametrize("settings", EVERY)
def test_a_moment_looks_the_same_whichever_others_are_asked_for(settings: dict[str, Any]) -> None:
    (episode,) = collect_episodes(environment(settings), Watcher(), [5])
    stack = 1 if settings.get("observation") == "state" else STACK
    disturbance = Disturbance(environment(settings), feature_count(episode), "train")
    every = observations(episode, np.arange(len(episode)), disturbance, 7, stack)
    for moments in (np.array([0, 1, 6, len(episode) - 1]), np.array([len(episode) - 2])):
        some = observations(episode, moments, disturbance, 7, stack)
        assert np.array_equal(some, every[moments])


def pool(settings: dict[str, Any], seeds: tuple[int, ...] = (1, 2, 3, 4)) -> Pool:
    given = environment(settings)
    return Pool(given, 0.9, collect_episodes(given, Watcher(), seeds), 0)


def measured(settings: dict[str, Any], embed: Any) -> dict[str, float]:
    return pool(settings).measure(
        lambda batch: {"phi": embed(batch.float())}, lambda _, z: euclidean(z)
    )


def test_embeddings_whose_measures_are_known() -> None:
    """The vector is Q (place, time, noise): Q's inverse tells state and noise apart."""
    inverse = torch.from_numpy(projection("tests.runs:Walk", 2, 6).copy()).float()
    clean = measured(VECTOR, lambda x: (x @ inverse)[:, :2])
    assert clean["phi_denoising_id"] > 0.99999 and clean["phi_denoising_ood"] > 0.99999
    assert clean["phi_state_r2"] > 0.99
    assert 1 < clean["phi_effective_rank"] <= 2
    noise = measured(VECTOR, lambda x: (x @ inverse)[:, 2:])
    assert noise["phi_denoising_id"] < 0 and noise["phi_denoising_ood"] < 0
    assert noise["phi_state_r2"] < 0.1
    constant = measured(VECTOR, lambda x: torch.ones(len(x), 4))
    assert constant == {
        "phi_denoising_id": 0.0,
        "phi_denoising_ood": 0.0,
        "phi_state_r2": 0.0,
        "phi_effective_rank": 1.0,
        "phi_gaussian_r2": 0.0,
        "phi_value": 0.0,
        "phi_true": 0.0,
        "phi_true_low": 0.0,
        "phi_true_high": 0.0,
        "task_gaussian_r2": pytest.approx(0.0, abs=0.05),  # independent of the state
        "true_lags": constant["true_lags"],
        "true_tail": constant["true_tail"],
    }


def test_what_is_kept_of_each_factor_is_known() -> None:
    """Q's inverse tells place and time, gate, instance and shadow apart."""
    inverse = torch.from_numpy(projection("tests.runs:Walk", 4, 12).copy()).float()
    parts = {"state": (0, 2), "gate": (2, 4), "instance": (4, 10), "shadow": (10, 16)}
    itself = measured(PREDICTABLE, lambda x: (x @ inverse)[:, :2])
    for factor in ("gate", "instance", "shadow"):  # what the state alone tells of each
        assert itself[f"task_{factor}_r2"] == pytest.approx(itself[f"phi_{factor}_r2"], abs=0.02)
    for kept, (first, last) in parts.items():
        found = measured(PREDICTABLE, lambda x, a=first, b=last: (x @ inverse)[:, a:b])
        assert found[f"phi_{kept}_r2"] > 0.98
        for other in ("instance", "shadow"):
            if kept not in (other, "shadow"):  # the same push drives the shadow and the walk
                assert found[f"phi_{other}_r2"] < 0.9
    assert not any("gate" in name or "walk" in name for name in measured(VECTOR, lambda x: x))
    assert measured(VECTOR, lambda x: x)["phi_gaussian_r2"] > 0.99


@pytest.mark.env("dmc")
def test_what_is_kept_of_another_instance_is_that_of_its_simulator() -> None:
    given = environment(INSTANCE)
    (episode,) = collect_episodes(given, Watcher(), [5])
    disturbance = Disturbance(given, 0, "eval")
    states = irrelevant_factors(episode, disturbance)["instance"]
    look = (24, given["quality"])
    recorded = [filmed("dmc:cartpole_balance", 100, "eval", n, *look) for n in range(6)]
    assert any(
        np.array_equal(states, np.resize(np.roll(each.states, -start, axis=0), states.shape))
        for each in recorded
        for start in range(len(each.states))
    )


def test_without_noise_there_is_no_denoising_factor() -> None:
    plain = {**WALK, "observation": "state"}
    values = measured(plain, lambda x: x)
    truth = {"phi_true", "phi_true_low", "phi_true_high", "true_lags", "true_tail"}
    assert set(values) == {"phi_state_r2", "phi_effective_rank", "phi_value"} | truth
    assert values["phi_state_r2"] > 0.99


def test_distances_by_return_have_rank_correlation_1() -> None:
    given = environment({**WALK, "observation": "state"})
    episodes = collect_episodes(given, Watcher(), [1, 2])
    returns = {
        row.tobytes(): value
        for each in episodes
        for row, value in zip(each.frames, returns_to_go(each.rewards, 0.9), strict=True)
    }

    def embed(batch: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"phi": torch.tensor([[returns[row.numpy().tobytes()]] for row in batch])}

    values = Pool(given, 0.9, episodes, 0).measure(embed, lambda _, z: euclidean(z))
    assert values["phi_value"] == pytest.approx(1.0)


def test_the_same_seed_measures_the_same() -> None:
    first, second = (measured(PIXELS, lambda x: x.flatten(1)[:, ::50]) for _ in range(2))
    assert first == second
    assert 0 < first["phi_denoising_id"] < 1


def test_an_embedding_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="embedding phi is not finite: its training has diverged"):
        measured(VECTOR, lambda x: x * torch.nan)


def test_one_episode_is_refused() -> None:
    with pytest.raises(ValueError, match="yardsticks need at least 2 episodes"):
        pool(VECTOR, (1,))


def test_an_agent_with_one_embedding_has_phi_alone() -> None:
    class Simple(Watcher):
        def embed(self, observations: torch.Tensor) -> torch.Tensor:
            return observations[:, :2]

    batch = torch.eye(3)
    found = embeddings(Simple(), batch)  # type: ignore[arg-type]
    assert list(found) == ["phi"] and torch.equal(found["phi"], batch[:, :2])
