"""Registered Gymnasium tasks, and vector environments."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from PIL import Image

from revbis.envs import make_env


@pytest.mark.env("box2d", gl=False)
def test_car_racing() -> None:
    env = make_env("gym:CarRacing-v3", seed=7, frame_stack=1, action_repeat=2)
    theirs = gymnasium.make("CarRacing-v3", render_mode="rgb_array")
    assert theirs.action_space.low.tolist() == [-1, 0, 0]
    observation, info = env.reset()
    wanted, _ = theirs.reset(seed=7)
    for action in np.float32([[0.3, 1, -1], [-0.5, 0, -1], [0, -1, 1]]):
        small = Image.fromarray(wanted).resize((84, 84), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(observation.transpose(1, 2, 0), small)
        observation, reward, terminated, truncated, info = env.step(action)
        scaled = np.float32([action[0], (action[1] + 1) / 2, (action[2] + 1) / 2])
        rewards = []
        for _ in range(2):
            wanted, own, *_ = theirs.step(scaled)
            rewards.append(own)
        assert reward == sum(rewards) and not terminated and not truncated
    assert env.simulation.horizon == 1000 and info["success"] is None
    assert env.identity["task"] == "gym:CarRacing-v3"
    env.close()
    theirs.close()


@pytest.mark.env("box2d", gl=False)
def test_without_resizing_the_pixels_are_its_own() -> None:
    observation, info = make_env("gym:CarRacing-v3", seed=7, pixels=96).reset()
    theirs = gymnasium.make("CarRacing-v3").reset(seed=7)[0]
    np.testing.assert_array_equal(info["frame"].transpose(1, 2, 0), theirs)
    np.testing.assert_array_equal(observation[:3], observation[-3:])


def test_time_limits_truncate() -> None:
    env = make_env("gym:Pendulum-v1", seed=1, observation="state", action_repeat=3)
    assert env.simulation.horizon == 200
    env.reset()
    ends = [env.step(np.zeros(1))[2:4] for _ in range(67)]
    assert ends == [(False, False)] * 66 + [(False, True)]


def test_a_task_that_is_not_registered() -> None:
    with pytest.raises(ValueError, match=r"gym:pendulum-v1 cannot be made: .*Did you mean"):
        make_env("gym:pendulum-v1", seed=1)


@pytest.mark.env("dmc")
def test_gymnasiums_mujoco_draws_as_it_does_alone() -> None:
    """Its viewer draws into whichever context is current."""

    def frames(*between: gymnasium.Env) -> list[np.ndarray]:
        env = make_env("gym:HalfCheetah-v5", seed=3, pixels=24, frame_stack=1)
        for other in between:
            other.reset()
        seen = [env.reset()[0]]
        for _ in range(2):
            for other in between:
                other.step(np.zeros(other.action_space.shape))
            seen.append(env.step(np.full(6, 0.5))[0])
        assert env.simulation.state().shape == (18,)
        env.close()
        return seen

    other = make_env("dmc:cartpole_balance", seed=1, pixels=16, quality="fast")
    alone = frames()
    np.testing.assert_array_equal(alone, frames(other))
    assert (alone[0] != alone[2]).any()


@pytest.mark.env("dmc")
def test_dm_control_draws_as_before_after_gymnasiums_mujoco() -> None:
    from dm_control import suite

    theirs = suite.load("cheetah", "run", task_kwargs={"random": 1})
    theirs.reset()
    before = theirs.physics.render(24, 24, camera_id=0)
    env = make_env("gym:HalfCheetah-v5", seed=3, pixels=24)
    env.reset()
    env.step(np.zeros(6))
    np.testing.assert_array_equal(theirs.physics.render(24, 24, camera_id=0), before)


# ---- vectors of environments


@pytest.mark.env("dmc")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_vector_environments_equal_single_ones(kind: str) -> None:
    settings = {"pixels": 16, "quality": "fast", "action_repeat": 500}
    new = [partial(make_env, "dmc:cartpole_balance", seed=s, **settings) for s in (1, 2)]
    envs = (
        gymnasium.vector.AsyncVectorEnv(new, context="spawn")
        if kind == "async"
        else gymnasium.vector.SyncVectorEnv(new)
    )
    singles = [make() for make in new]
    zero = np.zeros((2, 1), dtype=np.float32)
    try:
        alone = [env.reset() for env in singles]
        observations, info = envs.reset()
        for observation, (wanted, own), state in zip(
            observations, alone, info["state"], strict=True
        ):
            np.testing.assert_array_equal(observation, wanted)
            np.testing.assert_array_equal(state, own["state"])
        for _ in range(2):
            observations, rewards, terminated, truncated, info = envs.step(zero)
            alone = [env.step(zero[0]) for env in singles]
            np.testing.assert_array_equal(observations, [answer[0] for answer in alone])
            np.testing.assert_array_equal(rewards, [answer[1] for answer in alone])
            np.testing.assert_array_equal(info["frame"], [answer[4]["frame"] for answer in alone])
        assert truncated.all() and not terminated.any()
        observations, info = envs.reset(seed=[2, 1])
        again = [env.reset(seed=seed)[0] for env, seed in zip(singles, (2, 1), strict=True)]
        np.testing.assert_array_equal(observations, again)
    finally:
        envs.close()
