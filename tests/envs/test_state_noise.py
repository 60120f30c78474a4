"""Irrelevant numbers in state vectors: the rotation, the two kinds of noise, seeds and splits."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.envs import make_env, state_noise
from revbis.envs.distractors import VARIANTS
from revbis.envs.state_noise import RANGES, StateNoise, offset_and_scale, projection

TASK = "dmc:walker_walk"
DRAWN = ("gaussian", "walk")  # the others are in test_instances.py
ZEROS = np.zeros(3, dtype=np.float32)


def generator(*entropy: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def make(count: int = 5, kind: Any = "gaussian", **settings: Any) -> StateNoise:
    return StateNoise(count, kind, **{"features": 3, "task": TASK, **settings})


def played(noise: StateNoise, steps: int = 6) -> np.ndarray:
    """What is observed of a state of zeros, [steps, features + count]."""
    return np.stack([noise.observe(np.zeros(noise.features)) for _ in range(steps)])


def unit_noise(noise: StateNoise, steps: int) -> np.ndarray:
    """ξ of the next steps, [steps, count]: rotated back, without offset and scale."""
    together = played(noise, steps) @ projection(TASK, noise.features, noise.count)
    offset, scale = offset_and_scale(noise.variant, noise.count)
    return (together[:, noise.features :] - offset) / scale


# ---- the rotation


@given(features=st.integers(0, 9), count=st.integers(1, 9), task=st.text(max_size=9))
def test_the_projection_is_orthogonal(features, count, task):
    matrix = projection(task, features, count)
    size = features + count
    assert matrix.shape == (size, size)
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(size), atol=1e-13)


def test_the_projection_is_the_rotation_of_a_gaussian_matrix():
    # Q is uniform if Q R = G, where G is Gaussian and R triangular with a positive diagonal.
    name = int.from_bytes(state_noise.sha256(TASK.encode()).digest()[:8], "big")
    gaussian = state_noise.normals(generator(4, name, 3, 5), (8, 8))
    triangle = projection(TASK, 3, 5).T @ gaussian
    np.testing.assert_allclose(np.tril(triangle, -1), 0.0, atol=1e-12)
    assert (np.diag(triangle) > 0).all()


def test_task_and_lengths_alone_determine_the_projection():
    first = projection(TASK, 3, 5)
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 0.0
    projection.cache_clear()
    np.testing.assert_array_equal(projection(TASK, 3, 5), first)
    for other in (("dmc:walker_run", 3, 5), (TASK, 4, 4), (TASK, 5, 3)):
        assert np.abs(projection(*other) - first).max() > 0.1


# ---- the noise


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("kind", DRAWN)
def test_against_the_slow_way(kind, split):
    """Number by number, from the same generator, over two episodes of one seed."""
    features, count, seed = [0.5, -2.0], 3, 11
    noise = make(count, kind, features=2, split=split)
    matrix, rng = projection(TASK, 2, count), generator(1001, seed)
    pool = list(range(60)) if split == "train" else list(range(60, 90))
    for episode in range(2):
        noise.reset(seed if episode == 0 else None)
        variant = pool[math.floor(len(pool) * rng.random())]
        assert noise.variant == variant
        offset, scale = offset_and_scale(variant, count)
        walk: list[float] = []
        for _ in range(4):
            radii, angles = ([rng.random() for _ in range(count)] for _ in range(2))
            pairs = zip(radii, angles, strict=True)
            drawn = [math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v) for u, v in pairs]
            if kind == "walk" and walk:
                decay = math.exp(-1 / 20)
                spread = math.sqrt(1 - math.exp(-1 / 10))
                drawn = [decay * w + spread * x for w, x in zip(walk, drawn, strict=True)]
            walk = drawn
            together = features + [offset[i] + scale * drawn[i] for i in range(count)]
            wanted = [sum(matrix[row, i] * together[i] for i in range(5)) for row in range(5)]
            got = noise.observe(np.array(features))
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


# What version 1 is, so that nobody changes it without a new version.
def test_a_version_does_not_change():
    offset, scale = offset_and_scale(63, 2)
    np.testing.assert_allclose([*offset, scale], [0.55362598, 0.82872138, 1.75698788], atol=1e-7)
    for kind, second in (("gaussian", -0.38580638), ("walk", -0.36171743)):
        noise = make(2, kind, features=1)
        noise.reset(7)
        np.testing.assert_allclose(
            noise.observe(np.ones(1)), [-0.2911074, 2.292851, -0.1365063], atol=1e-6
        )
        assert noise.observe(np.ones(1))[0] == pytest.approx(second, abs=1e-6)


def test_gaussian_noise_is_independent_with_deviation_one():
    noise = make(100)
    noise.reset(1)
    drawn = unit_noise(noise, 500)
    assert abs(drawn.mean()) < 0.02 and abs(drawn.std() - 1) < 0.02
    assert abs((drawn[1:] * drawn[:-1]).mean()) < 0.02
    assert abs((drawn[:, 1:] * drawn[:, :-1]).mean()) < 0.02
    assert abs((np.abs(drawn) < 1).mean() - math.erf(math.sqrt(0.5))) < 0.01


def test_a_walk_is_stationary_and_forgets_in_twenty_steps():
    noise = make(200, "walk")
    first, later = [], []
    for seed in range(40):
        noise.reset(seed)
        drawn = unit_noise(noise, 41)
        first.append(drawn[0])
        later.append(drawn)
    starts, walks = np.stack(first), np.stack(later)
    assert abs(starts.std() - 1) < 0.03
    assert abs(walks[:, -1].std() - 1) < 0.03
    for lag in (1, 20, 40):
        correlation = (walks[:, lag] * walks[:, 0]).mean()
        assert correlation == pytest.approx(math.exp(-lag / 20), abs=0.05)
    assert abs((walks[:, :, 1:] * walks[:, :, :-1]).mean()) < 0.05


# ---- variants, seeds


@pytest.mark.parametrize("split", ["train", "eval"])
def test_variants_are_in_the_ranges_of_their_split(split):
    for variant in VARIANTS[split]:
        offset, scale = offset_and_scale(variant, 50)
        assert RANGES[split].scale[0] <= scale < RANGES[split].scale[1]
        low, high = RANGES[split].offset
        assert (np.abs(offset) >= low).all() and (np.abs(offset) < high).all()
        assert (offset < 0).any() and (offset > 0).any()
        np.testing.assert_array_equal(offset_and_scale(variant, 50)[0], offset)


def test_the_ranges_of_the_splits_do_not_overlap():
    train, held_out = RANGES["train"], RANGES["eval"]
    assert train.scale[1] < held_out.scale[0] and train.offset[1] <= held_out.offset[0]
    assert np.mean(train.scale) == pytest.approx(1.0)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_episodes_have_all_variants_of_their_split_only(split):
    noise = make(split=split)
    seen = []
    for episode in range(600):
        noise.reset(5 if episode == 0 else None)
        seen.append(noise.variant)
    assert sorted(set(seen)) == list(VARIANTS[split])


@pytest.mark.parametrize("kind", DRAWN)
def test_a_seed_determines_the_episodes(kind):
    def episodes(seed: int) -> np.ndarray:
        noise = make(kind=kind)
        noise.reset(99)
        played(noise, 3)  # what came before plays no part
        shown = []
        for number in range(3):
            noise.reset(seed if number == 0 else None)
            shown.append(played(noise))
        return np.stack(shown)

    np.testing.assert_array_equal(episodes(1), episodes(1))
    assert (episodes(1) != episodes(2)).all()
    assert (episodes(1)[0] != episodes(1)[1]).all()


def test_without_any_seed_there_is_noise_too():
    noise = make()
    noise.reset(None)
    assert noise.variant in VARIANTS["train"] and np.ptp(played(noise), axis=0).all()


def test_the_global_random_state_plays_no_part():
    def shown() -> np.ndarray:
        noise = make()
        noise.reset(3)
        return played(noise)

    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = shown()
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    np.testing.assert_array_equal(shown(), first)


@pytest.mark.parametrize("kind", DRAWN)
def test_it_survives_pickling_in_the_middle_of_an_episode(kind):
    noise = make(kind=kind)
    noise.reset(3)
    played(noise)
    copy = pickle.loads(pickle.dumps(noise))
    np.testing.assert_array_equal(played(copy), played(noise))


# ---- environments


TASKS = [
    "envs.toys:Good",
    pytest.param("gym:Pendulum-v1", marks=pytest.mark.env("gym", gl=False)),
    pytest.param("dmc:walker_walk", marks=pytest.mark.env("dmc", gl=False)),
    pytest.param("dmc:reach_site", marks=pytest.mark.env("dmc", gl=False)),
    pytest.param("metaworld:reach", marks=pytest.mark.env("metaworld", gl=False)),
]


def episode(task: str, steps: int = 6, **settings: Any) -> tuple[np.ndarray, np.ndarray, list]:
    """Observations, the simulator's states and rewards of one episode with fixed actions."""
    env = make_env(task, seed=4, observation="state", **settings)
    observation, info = env.reset()
    observations, states, rewards = [observation], [info["state"]], []
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, *env.action_space.shape))
    for action in actions.astype(np.float32):
        observation, reward, _, _, info = env.step(action)
        assert observation in env.observation_space and observation.dtype == np.float32
        observations.append(observation)
        states.append(info["state"])
        rewards.append(reward)
    env.close()
    return np.stack(observations), np.stack(states), rewards


@pytest.mark.parametrize("task", TASKS)
def test_the_inverse_rotation_recovers_the_state(task):
    clean, states, rewards = episode(task)
    features = clean.shape[1]
    for kind in DRAWN:
        noisy, same_states, same_rewards = episode(task, state_noise=7, state_noise_kind=kind)
        assert noisy.shape == (len(clean), features + 7)
        recovered = noisy @ projection(task, features, 7)
        np.testing.assert_allclose(
            recovered[:, :features], clean, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(clean).max())
        )
        np.testing.assert_allclose(
            np.linalg.norm(noisy, axis=1), np.linalg.norm(recovered, axis=1), rtol=1e-5
        )
        # The task itself does not notice.
        np.testing.assert_array_equal(same_states, states)
        assert same_rewards == rewards


@pytest.mark.parametrize("kind", DRAWN)
def test_time_is_counted_in_agent_steps(kind):
    settings = {"action_repeat": 3}
    clean, _, _ = episode("envs.toys:Good", **settings)
    noisy, _, _ = episode("envs.toys:Good", state_noise=4, state_noise_kind=kind, **settings)
    noise = StateNoise(4, kind, 2, task="envs.toys:Good")
    noise.reset(4)
    np.testing.assert_array_equal(noisy, [noise.observe(state) for state in clean])


def test_environments_of_one_seed_agree_and_splits_differ():
    settings = {"state_noise": 4, "state_noise_kind": "walk"}
    first, again, held_out = (
        episode("envs.toys:Good", **settings, distractor_split=split)[0]
        for split in ("train", "train", "eval")
    )
    np.testing.assert_array_equal(first, again)
    assert (first != held_out).all()
    # Under the same rotation: the same states are in both.
    rotation = projection("envs.toys:Good", 2, 4)
    np.testing.assert_allclose((first @ rotation)[:, :2], (held_out @ rotation)[:, :2], atol=1e-5)


def test_without_noise_nothing_is_added():
    plain, zero = (
        make_env("envs.toys:Good", seed=1, observation="state", **settings)
        for settings in ({}, {"state_noise": 0, "state_noise_kind": "walk"})
    )
    assert plain.identity == zero.identity and "state_noise" not in plain.identity
    assert plain.observation_space == zero.observation_space
    observation, _ = zero.reset()
    np.testing.assert_array_equal(observation, zero.simulation.features())


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("kind", DRAWN)
def test_the_identity_names_kind_version_count_and_split(kind, split):
    settings = {"state_noise": 4, "state_noise_kind": kind, "distractor_split": split}
    env = make_env("envs.toys:Good", seed=1, observation="state", **settings)
    assert env.identity["state_noise"] == f"{kind}-v1(4)/{split}"
