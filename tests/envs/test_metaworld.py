"""Meta-World: every task, seeds and goals, its own pixels turned upright, success."""

from typing import Any

import numpy as np
import pytest

from revbis.envs import make_env, task_names
from revbis.envs.distractors import Distractor

pytestmark = pytest.mark.env("metaworld")

NAMES = [task.removeprefix("metaworld:") for task in task_names("metaworld")]
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (8, 4)).astype(np.float32)


def own(name: str, seed: int, pixels: int) -> Any:
    """The task as Meta-World makes it, with the camera of the specification."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    sides = {"height": pixels, "width": pixels}
    env = ALL_V3_ENVIRONMENTS[f"{name}-v3"](render_mode="rgb_array", camera_name="corner2", **sides)
    env.model.cam_pos[env.model.camera("corner2").id] = [0.75, 0.075, 0.7]
    env._set_task_called, env._freeze_rand_vec, env.seeded_rand_vec = True, False, True
    env._partially_observable = False
    env.seed(seed)
    return env


def own_picture(env: Any) -> np.ndarray:
    """What it renders into its own context, turned by half a turn."""
    if env.mujoco_renderer.viewer is not None:
        env.mujoco_renderer.viewer.make_context_current()
    return env.render()[::-1, ::-1]


def test_the_50_tasks() -> None:
    assert len(NAMES) == len(set(NAMES)) == 50


@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_made_reset_and_stepped(name: str) -> None:
    # Every fifth is drawn, which takes most of the time: arm, table and camera are the same.
    pictures = {"pixels": 16, "quality": "fast", "frame_stack": 2}
    drawn = NAMES.index(name) % 5 == 0
    env = make_env(f"metaworld:{name}", seed=1, **pictures if drawn else {"observation": "state"})

    def start(**seed: int) -> tuple[Any, ...]:
        observation, info = env.reset(**seed)
        assert observation in env.observation_space and observation.std() > (1 if drawn else 0)
        assert info["success"] is False and info["frames"] == 0
        after, reward, terminated, truncated, later = env.step(ACTIONS[0])
        assert after in env.observation_space and np.isfinite(reward)
        assert not terminated and not truncated
        assert later["frames"] == 2 and later["discount"] == 1.0
        assert isinstance(later["success"], bool)
        assert np.isfinite(later["state"]).all() and (later["state"] != info["state"]).any()
        return observation, info["state"], after, later["state"], reward

    fresh, other, again = start(), start(), start(seed=1)
    assert (fresh[1] != other[1]).any()  # drawn anew at each reset
    for first, second in zip(fresh, again, strict=True):
        np.testing.assert_array_equal(first, second)
    assert env.simulation.horizon == 500
    env.close()


# ---- seeds


def goals(env: Any, *seeds: int | None) -> list[list[float]]:
    return [env.reset(seed=seed)[1]["state"][-3:].tolist() for seed in seeds]


def test_seeds_settle_the_goals() -> None:
    def new(seed: int) -> Any:
        return make_env("metaworld:drawer-close", seed=seed, observation="state")

    first = goals(new(1), None, None, None)
    assert first == goals(new(1), None, None, None)
    assert first == goals(new(2), 1, None, None)
    assert first == goals(new(2), None, None, 1, None, None)[2:]
    assert len({tuple(goal) for goal in first}) == 3
    assert first != goals(new(2), None, None, None)


def test_the_global_random_state_plays_no_part() -> None:
    starts = []
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        env = make_env("metaworld:hand-insert", seed=5, observation="state")
        starts.append([env.reset()[1]["state"], *(env.step(a)[4]["state"] for a in ACTIONS)])
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    np.testing.assert_array_equal(*starts)


# ---- pixels


@pytest.mark.parametrize("name", ["hammer", "hand-insert"])
def test_full_quality_is_meta_worlds_own_picture_upright(name: str) -> None:
    env = make_env(f"metaworld:{name}", seed=3, pixels=84, frame_stack=1, action_repeat=2)
    theirs = own(name, 3, 84)
    for _ in range(2):
        observation, info = env.reset()
        theirs.reset()
        for action in ACTIONS[:2]:
            np.testing.assert_array_equal(observation.transpose(1, 2, 0), own_picture(theirs))
            state = np.concatenate([theirs.data.qpos, theirs.data.qvel, theirs._target_pos])
            np.testing.assert_array_equal(info["state"], state)
            observation, reward, *_, info = env.step(action)
            rewards = [theirs.step(action.astype(np.float64))[1] for _ in range(2)]
            assert reward == sum(rewards)
        np.testing.assert_array_equal(observation.transpose(1, 2, 0), own_picture(theirs))
    env.close()
    theirs.close()


def test_the_picture_is_upright() -> None:
    env = make_env("metaworld:reach", seed=1, pixels=48, quality="fast", frame_stack=1)
    env.reset()
    data = env.simulation._env.data
    camera = env.simulation._env.model.camera("corner2").id
    up = data.cam_xmat[camera].reshape(3, 3)[:, 1]
    assert up[2] < -0.5  # the camera hangs head down, so its picture is turned
    background_mask = env.simulation.background_mask()
    assert (
        background_mask[:12].mean() > 0.5 > 0.1 > background_mask[-12:].mean()
    )  # wall above, table below


def test_fast_differs_a_little_and_only_in_pixels() -> None:
    frames, states = [], []
    for quality in ("full", "fast"):
        env = make_env("metaworld:hammer", seed=1, quality=quality)
        env.reset()
        observation, *_, info = env.step(ACTIONS[0])
        frames.append(observation.astype(int))
        states.append(info["state"])
    np.testing.assert_array_equal(*states)
    assert 0 < np.abs(frames[0] - frames[1]).mean() < 10


def test_a_background_is_only_behind_the_task() -> None:
    settings = {"seed": 1, "pixels": 48, "frame_stack": 1, "quality": "fast"}
    plain = make_env("metaworld:hammer", **settings)
    env = make_env("metaworld:hammer", **settings, distractor="shapes", distractor_split="eval")
    background = Distractor("shapes", 48, split="eval")
    background.reset(1)
    without, seen = plain.reset()[0], env.reset()[0]
    for action in ACTIONS[:3]:
        background_mask, wanted = env.simulation.background_mask(), without.copy()
        background.paint(wanted, background_mask)
        np.testing.assert_array_equal(seen, wanted)
        assert 0.2 < background_mask.mean() < 0.6
        seen, without = env.step(action)[0], plain.step(action)[0]
    # The red arm is no background: where it is drawn, it stays.
    red = (without[0] > 90) & (without[1] < 40)
    assert red.sum() > 30
    np.testing.assert_array_equal(seen[:, red], without[:, red])


# ---- episodes and success


def test_an_episode_is_500_steps_and_truncates() -> None:
    env = make_env("metaworld:reach", seed=1, observation="state", action_repeat=3)
    for _ in range(2):
        env.reset()
        frames = 0
        for frames in range(3, 501, 3):
            _, _, terminated, truncated, info = env.step(np.zeros(4))
            assert (terminated, truncated, info["frames"]) == (False, False, frames)
        _, _, terminated, truncated, info = env.step(np.zeros(4))
        assert (terminated, truncated, info["frames"]) == (False, True, 500)
        assert info["discount"] == 1.0


@pytest.mark.filterwarnings("ignore:Constant:UserWarning")  # Meta-World's
def test_an_expert_succeeds_and_leaves_again() -> None:
    from metaworld.policies import ENV_POLICY_MAP

    expert = ENV_POLICY_MAP["reach-v3"]()
    env = make_env("metaworld:reach", seed=2, observation="state", action_repeat=1)
    observation, info = env.reset()
    while not info["success_last"]:
        assert info["success_any"] is False and info["success"] is False
        action = expert.get_action(observation.astype(np.float64))
        observation, _, _, truncated, info = env.step(np.clip(action, -1, 1).astype(np.float32))
        assert not truncated, "the expert fails"
    assert info["success_any"] is True
    for _ in range(60):
        *_, info = env.step(np.float32([0, -1, 1, 0]))
    assert info["success_last"] is False
    assert info["success_any"] is True and info["success"] is True
    _, info = env.reset()
    assert info["success_any"] is False


# ---- the vector


def test_a_vector_shows_the_goal() -> None:
    env = make_env("metaworld:reach", seed=1, observation="state", action_repeat=1)
    theirs = own("reach", 1, 16)
    theirs.__dict__.pop("sawyer_observation_space", None)
    observation, info = env.reset()
    wanted, _ = theirs.reset()
    assert env.observation_space.shape == (39,) and observation in env.observation_space
    np.testing.assert_array_equal(observation, wanted.astype(np.float32))
    np.testing.assert_allclose(observation[-3:], info["state"][-3:], rtol=1e-6)
    observation, *_, info = env.step(ACTIONS[0])
    np.testing.assert_array_equal(
        observation, theirs.step(ACTIONS[0].astype(np.float64))[0].astype(np.float32)
    )
    np.testing.assert_allclose(observation[-3:], info["state"][-3:], rtol=1e-6)


# ---- several at once


@pytest.mark.env("dmc", "metaworld")
def test_environments_do_not_disturb_each_other() -> None:
    settings = [
        ("metaworld:hammer", {"quality": "full"}),
        ("metaworld:hammer", {"quality": "fast", "distractor": "noise"}),
        ("dmc:cartpole_balance", {"quality": "fast"}),
    ]

    def new(number: int) -> Any:
        task, changes = settings[number]
        return make_env(task, seed=number, pixels=24, frame_stack=1, **changes)

    def plan(env: Any) -> np.ndarray:
        return ACTIONS[:3, : env.action_space.shape[0]]

    alone = []
    for number in range(3):
        env = new(number)
        alone.append([env.reset()[0], *(env.step(action)[0] for action in plan(env))])
        env.close()
    theirs = own("reach", 1, 24)
    theirs.reset()
    picture = own_picture(theirs)
    envs = [new(number) for number in range(3)]
    together = [[env.reset()[0]] for env in envs]
    for step in range(3):
        for env, frames in zip(envs, together, strict=True):
            frames.append(env.step(plan(env)[step])[0])
            np.testing.assert_array_equal(own_picture(theirs), picture)
    for number in range(3):
        np.testing.assert_array_equal(alone[number], together[number])
    theirs.close()


def test_the_identity_has_versions() -> None:
    identity = make_env("metaworld:reach", seed=1).identity
    assert identity["versions"] == {"metaworld": "3.1.1", "mujoco": "3.3.0"}
    assert identity["quality"] == "full"
