"""DeepMind Control: every task by name, and the pixels, rewards and discounts of its own."""

from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from revbis.envs import make_env, task_names
from revbis.envs.distractors import Distractor

pytestmark = pytest.mark.env("dmc")

NAMES = [task.removeprefix("dmc:") for task in task_names("dmc")]
OF_THE_PAPER = [
    "acrobot_swingup",
    "cheetah_run",
    "walker_run",
    "reach_duplo",
    "reacher_hard",
    "finger_turn_hard",
    "quadruped_walk",
    "quadruped_run",
    "hopper_hop",
]


def is_manipulation(name: str) -> bool:
    from dm_control import manipulation

    return f"{name}_vision" in manipulation.ALL


def own(name: str, seed: int) -> Any:
    """The task as dm_control's users load it."""
    from dm_control import manipulation, suite

    if is_manipulation(name):
        return manipulation.load(f"{name}_vision", seed=seed)
    domain = next(d for d, t in suite.ALL_TASKS if f"{d}_{t}" == name)
    return suite.load(domain, name.removeprefix(f"{domain}_"), task_kwargs={"random": seed})


def scaled(action: np.ndarray, theirs: Any) -> np.ndarray:
    """From [−1, 1] to the task's own bounds."""
    spec = theirs.action_spec()
    low = np.where(spec.minimum < -1e6, -1.0, spec.minimum)
    high = np.where(spec.maximum > 1e6, 1.0, spec.maximum)
    return (low + high) / 2 + action.astype(np.float64) * (high - low) / 2


def actions(shape: tuple[int, ...], count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, *shape)).astype(np.float32)


def test_the_63_tasks() -> None:
    assert len(NAMES) == len(set(NAMES)) == 63
    assert set(OF_THE_PAPER) < set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_made_reset_stepped_and_drawn(name: str) -> None:
    env = make_env(f"dmc:{name}", seed=1, pixels=16, quality="fast", frame_stack=2)

    def start(**seed: int) -> tuple[Any, ...]:
        observation, info = env.reset(**seed)
        assert observation in env.observation_space and observation.std() > 1
        assert info["frame"].shape == (3, 16, 16) and info["frames"] == 0
        after, reward, terminated, truncated, later = env.step(action)
        assert after in env.observation_space and np.isfinite(reward)
        assert not terminated and not truncated
        assert later["frames"] == 2 and later["discount"] == 1.0 and later["success"] is None
        assert np.isfinite(later["state"]).all() and (later["state"] != info["state"]).any()
        return observation, info["state"], after, later["state"], reward

    action = actions(env.action_space.shape, 1)[0]
    fresh = start()
    env.simulation.reset(None)
    assert (fresh[1] != env.simulation.state()).any()  # an episode of its own
    again = start(seed=1)
    for first, second in zip(fresh, again, strict=True):
        np.testing.assert_array_equal(first, second)
    limit = {"lqr": None}.get(name[:3], 250 if is_manipulation(name) else 1000)
    assert env.simulation.horizon == limit
    env.close()


@pytest.mark.parametrize("name", ["lqr_lqr_2_1", "stack_2_of_3_bricks_random_order"])
def test_what_is_drawn_when_a_task_is_loaded_follows_the_seed(name: str) -> None:
    made = {seed: make_env(f"dmc:{name}", seed=seed, observation="state") for seed in (1, 2, 3)}
    for env in made.values():
        env.reset()
    made[3].step(made[3].action_space.sample())
    made[3].reset(seed=1)
    models = {seed: env.simulation._env.physics.model for seed, env in made.items()}
    action = np.ones(made[1].action_space.shape, dtype=np.float32)
    states = {seed: env.step(action)[4]["state"] for seed, env in made.items()}
    np.testing.assert_array_equal(states[1], states[3])
    np.testing.assert_array_equal(models[1].jnt_stiffness, models[3].jnt_stiffness)
    assert (states[1] != states[2]).any()


# ---- full quality is dm_control's own


def assert_equals_own(
    name: str, camera: int | str, agent_steps: int, *, pixels: int, repeat: int, seed: int = 3
) -> int:
    """Plays both side by side, frame by frame; returns the number of simulator steps."""
    env = make_env(f"dmc:{name}", seed=seed, pixels=pixels, action_repeat=repeat, frame_stack=1)
    theirs = own(name, seed)
    observation, info = env.reset()
    theirs.reset()
    frames = 0
    for action in actions(env.action_space.shape, agent_steps):
        picture = theirs.physics.render(pixels, pixels, camera_id=camera)
        np.testing.assert_array_equal(observation.transpose(1, 2, 0), picture)
        np.testing.assert_array_equal(info["state"], theirs.physics.get_state())
        observation, reward, terminated, truncated, info = env.step(action)
        expected, discount = 0.0, 1.0
        for _ in range(repeat):
            moment = theirs.step(scaled(action, theirs))
            frames += 1
            expected, discount = expected + moment.reward, discount * moment.discount
            if moment.last():
                break
        assert reward == expected and info["discount"] == discount
        assert info["frames"] == frames
        assert (terminated or truncated) == moment.last()
        assert terminated == (moment.last() and discount == 0.0)
        if moment.last():
            break
    picture = theirs.physics.render(pixels, pixels, camera_id=camera)
    np.testing.assert_array_equal(observation.transpose(1, 2, 0), picture)
    env.close()
    return frames


@pytest.mark.slow
def test_a_whole_episode_is_dm_controls_own() -> None:
    frames = assert_equals_own("cheetah_run", 0, 1000, pixels=84, repeat=25)
    assert frames == 1000


def test_a_new_terrain_is_seen() -> None:
    env = make_env("dmc:quadruped_escape", seed=2, pixels=48, frame_stack=1)
    theirs = own("quadruped_escape", 2)
    for _ in range(3):  # each episode has another height field
        seen = env.reset()[0]
        theirs.reset()
        picture = theirs.physics.render(48, 48, camera_id=2)
        np.testing.assert_array_equal(seen.transpose(1, 2, 0), picture)
    env.close()


@pytest.mark.parametrize(
    ("name", "camera", "pixels", "repeat"),
    [
        ("cheetah_run", 0, 84, 2),
        ("quadruped_walk", 2, 84, 2),
        ("quadruped_escape", 2, 48, 2),
        ("pendulum_swingup", 0, 100, 3),
        ("lqr_lqr_2_1", 0, 32, 2),
    ],
)
def test_the_first_frames_are_dm_controls_own(
    name: str, camera: int | str, pixels: int, repeat: int
) -> None:
    assert assert_equals_own(name, camera, 5, pixels=pixels, repeat=repeat) == 5 * repeat


def test_the_vision_task_shows_its_camera_observation() -> None:
    env = make_env("dmc:reach_duplo", seed=4, pixels=84, frame_stack=1, action_repeat=1)
    theirs = own("reach_duplo", 4)
    seen, moment = env.reset()[0], theirs.reset()
    for action in actions(env.action_space.shape, 2):
        picture = moment.observation["front_close"][0]  # 84 × 84, with a buffer of one in front
        np.testing.assert_array_equal(seen.transpose(1, 2, 0), picture)
        seen, reward, *_ = env.step(action)
        moment = theirs.step(scaled(action, theirs))
        assert reward == moment.reward
    for _ in range(2):  # a new model is built for each episode
        seen, moment = env.reset()[0], theirs.reset()
        np.testing.assert_array_equal(seen.transpose(1, 2, 0), moment.observation["front_close"][0])


def test_rewards_of_a_whole_manipulation_episode_and_its_time_limit() -> None:
    env = make_env("dmc:reach_site", seed=2, observation="state", action_repeat=3)
    theirs = own("reach_site", 2)
    for observable in theirs.task.observables.values():
        observable.enabled = False
    for _ in range(2):
        env.reset()
        theirs.reset()
        done, frames = False, 0
        for action in actions(env.action_space.shape, 100):
            _, reward, terminated, done, info = env.step(action)
            expected = 0.0
            for _ in range(3):
                moment = theirs.step(scaled(action, theirs))
                expected, frames = expected + moment.reward, frames + 1
                if moment.last():
                    break
            assert (reward, done, terminated) == (expected, moment.last(), False)
            if done:
                break
        assert info["frames"] == frames == env.simulation.horizon == 250


def test_time_limits_truncate_and_lqr_terminates() -> None:
    env = make_env("dmc:cartpole_balance", seed=1, observation="state", action_repeat=300)
    env.reset()
    ends = [env.step(np.zeros(1))[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]
    env = make_env("dmc:lqr_lqr_2_1", seed=1, observation="state", action_repeat=4)
    env.reset()
    physics = env.simulation._env.physics
    assert env.step(np.zeros(1))[2:4] == (False, False)
    with physics.reset_context():
        physics.set_state(np.zeros_like(physics.get_state()))
    _, _, terminated, truncated, info = env.step(np.zeros(1))
    assert (terminated, truncated, info["discount"]) == (True, False, 0.0)
    assert info["frames"] == 5  # it ended at the first of four


def test_unbounded_actions_get_a_scale() -> None:
    env = make_env("dmc:lqr_lqr_6_2", seed=1, observation="state")
    np.testing.assert_array_equal(env.scaled(np.float32([1, -0.5])), [1, -0.5])


# ---- the vector of the task


@pytest.mark.parametrize("name", ["cartpole_balance", "walker_run", "reach_duplo", "lqr_lqr_6_2"])
def test_a_vector_is_all_of_the_tasks_observations(name: str) -> None:
    from dm_control import manipulation

    env = make_env(f"dmc:{name}", seed=3, observation="state", action_repeat=1)
    features = is_manipulation(name)
    theirs = manipulation.load(f"{name}_features", seed=3) if features else own(name, 3)
    seen, moment = env.reset()[0], theirs.reset()
    for action in actions(env.action_space.shape, 3):
        wanted = np.concatenate([np.ravel(part) for part in moment.observation.values()])
        assert seen in env.observation_space
        np.testing.assert_array_equal(seen, wanted.astype(np.float32))
        seen, moment = env.step(action)[0], theirs.step(scaled(action, theirs))


# ---- fast quality


# Without shadows some lamps do not light the ground: reacher's is darker.
@pytest.mark.parametrize(("name", "most"), [("cheetah_run", 2), ("reacher_hard", 35)])
def test_fast_differs_a_little(name: str, most: float) -> None:
    frames, states = {}, {}
    for quality in ("full", "fast"):
        env = make_env(f"dmc:{name}", seed=1, quality=quality)
        env.reset()
        observation, *_, info = env.step(actions(env.action_space.shape, 1)[0])
        frames[quality], states[quality] = observation.astype(int), info["state"]
        assert env.identity["quality"] == quality
        env.close()
    np.testing.assert_array_equal(states["full"], states["fast"])
    difference = np.abs(frames["full"] - frames["fast"])
    assert 0 < difference.mean() < most


def test_fast_has_no_shadows_no_reflections_and_no_blended_edges() -> None:
    env = make_env("dmc:cheetah_run", seed=1, pixels=16, quality="fast")
    env.reset()
    import mujoco

    (renderer,) = env.simulation._camera._renderers.values()
    for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
        assert not renderer._scene.flags[flag]
    assert renderer._context.offSamples == 0 and renderer._context.shadowSize == 0
    model = env.simulation._env.physics.model
    assert model.vis.quality.shadowsize > 0  # the model itself is as it was


# ---- backgrounds


@pytest.mark.parametrize(("name", "quality"), [("cheetah_run", "full"), ("reach_duplo", "fast")])
def test_a_background_is_only_behind_the_task(name: str, quality: str) -> None:
    settings = {"seed": 1, "pixels": 48, "frame_stack": 1, "quality": quality}
    plain = make_env(f"dmc:{name}", **settings)
    env = make_env(f"dmc:{name}", **settings, distractor="noise")
    background = Distractor("noise", 48)
    without, seen = plain.reset()[0], env.reset()[0]
    background.reset(1)
    for action in actions(env.action_space.shape, 3):
        background_mask = env.simulation.background_mask()
        wanted = without.copy()
        background.paint(wanted, background_mask)
        np.testing.assert_array_equal(seen, wanted)
        assert 0.5 < background_mask.mean() < 0.99
        seen, without = env.step(action)[0], plain.step(action)[0]


@pytest.mark.parametrize("name", ["cheetah_run", "quadruped_escape", "dog_run"])
def test_behind_is_where_dm_control_sees_ground_or_sky(name: str) -> None:
    import mujoco

    env = make_env(f"dmc:{name}", seed=1, pixels=84, quality="fast")
    env.reset()
    physics, camera = env.simulation._env.physics, env.simulation._camera.camera
    ids, kinds = physics.render(84, 84, camera_id=camera, segmentation=True).transpose(2, 0, 1)
    flat = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
    is_ground = np.isin(physics.model.geom_type, flat)
    theirs = (ids < 0) | ((kinds == int(mujoco.mjtObj.mjOBJ_GEOM)) & is_ground[ids])
    assert (theirs == env.simulation.background_mask()).mean() > 0.99


def test_a_background_begins_anew_with_its_seed() -> None:
    env = make_env("dmc:cartpole_balance", seed=1, pixels=16, quality="fast", distractor="noise")
    episodes = [env.reset()[0], env.reset()[0], env.reset(seed=1)[0], env.reset()[0]]
    np.testing.assert_array_equal(episodes[0], episodes[2])
    np.testing.assert_array_equal(episodes[1], episodes[3])
    assert (episodes[0] != episodes[1]).any()
    moved = env.step(np.zeros(1))[0]
    assert (moved[-3:] != moved[-6:-3]).mean() > 0.1  # time goes on


@pytest.mark.parametrize(
    ("changes", "distractor"),
    [
        ({}, None),
        ({"distractor": "noise"}, "noise-v1/train"),
        ({"distractor": "shapes", "distractor_split": "eval"}, "shapes-v1/eval"),
    ],
)
def test_the_identity_has_versions_quality_and_background(changes: dict, distractor: Any) -> None:
    env = make_env("dmc:cartpole_balance", seed=1, quality="fast", **changes)
    assert env.identity == {
        "task": "dmc:cartpole_balance",
        "observation": "pixels",
        "action_repeat": 2,
        "versions": {name: version(name) for name in ("dm_control", "mujoco")},
        "pixels": 84,
        "frame_stack": 3,
        "quality": "fast",
        "distractor": distractor,
    }


# ---- several at once


def test_environments_do_not_disturb_each_other() -> None:
    names = ("dmc:cheetah_run", "dmc:reach_site", "dmc:cheetah_run")

    def new(number: int) -> Any:
        quality = ("full", "fast", "fast")[number]
        return make_env(names[number], seed=number, pixels=32, frame_stack=1, quality=quality)

    plans, alone = [], []
    for number in range(3):
        env = new(number)
        plans.append(actions(env.action_space.shape, 3))
        alone.append([env.reset()[0], *(env.step(action)[0] for action in plans[-1])])
        env.close()
    theirs = own("cartpole_balance", 1)
    theirs.reset()
    picture = theirs.physics.render(24, 24)
    envs = [new(number) for number in range(3)]
    together = [[env.reset()[0]] for env in envs]
    for step in range(3):
        for number, env in enumerate(envs):
            together[number].append(env.step(plans[number][step])[0])
            np.testing.assert_array_equal(theirs.physics.render(24, 24), picture)
        if step == 1:
            extra = new(1)  # one comes and goes
            extra.reset()
            extra.close()
    for number in range(3):
        np.testing.assert_array_equal(alone[number], together[number])


def test_the_time_spent_drawing_is_counted() -> None:
    env = make_env("dmc:cartpole_balance", seed=1, pixels=16)
    assert env.render_seconds == 0.0
    env.reset()
    before = env.render_seconds
    env.step(np.zeros(1))
    assert 0.0 < before < env.render_seconds
