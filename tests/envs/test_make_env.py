"""What holds for every task: shapes, stacking, action repeat, endings, mistakes, missing extras."""

import json
import re
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.toys import run_python
from revbis.envs import make_env
from revbis.envs.environment import TaskEnv
from revbis.envs.gymnasium import resized
from revbis.envs.suite import SimulationStep
from revbis.io import plugins

NOTHING = np.zeros(2, dtype=np.float32)


def make(factory: str, **settings: Any) -> TaskEnv:
    return make_env(f"envs.toys:{factory}", **{"seed": 1, "pixels": 8, **settings})


def greys(observation: np.ndarray) -> list[int]:
    """The time each frame of a Clock's stack shows."""
    frames = observation.reshape(-1, 3, 8, 8)
    assert (frames == frames[:, :1, :1, :1]).all()
    return frames[:, 0, 0, 0].tolist()


# ---- frames


@pytest.mark.parametrize("stack", [1, 2, 3, 4])
def test_an_observation_is_the_last_frames_in_order_after_every_reset(stack: int) -> None:
    env = make("Clock", frame_stack=stack, action_repeat=1)
    for episode in range(4):  # of different lengths, so that the ring starts elsewhere
        observation, info = env.reset()
        shown = [20 * episode] * stack
        assert greys(observation) == shown
        assert greys(info["frame"]) == shown[-1:]
        for step in range(1, 8 - episode):
            observation, *_, info = env.step(NOTHING)
            shown = [*shown[1:], 20 * episode + step]
            assert greys(observation) == shown
            assert greys(info["frame"]) == shown[-1:]
            assert env.render()[0, 0].tolist() == shown[-1:] * 3
            assert info["frames"] == step


def test_spaces_and_types() -> None:
    env = make("Clock", frame_stack=2)
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (6, 8, 8), np.uint8)
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation, info = env.reset()
    assert observation in env.observation_space
    assert (info["frame"].shape, info["frame"].dtype) == ((3, 8, 8), np.uint8)
    observation, reward, terminated, truncated, info = env.step(NOTHING)
    assert observation in env.observation_space
    assert [type(value) for value in (reward, terminated, truncated)] == [float, bool, bool]
    assert (info["state"].dtype, info["state"].ndim) == (np.float64, 1)
    assert env.render().shape == (8, 8, 3)


def test_the_defaults() -> None:
    env = make_env("envs.toys:Clock", seed=1)
    assert env.observation_space.shape == (9, 84, 84)
    assert env.action_repeat == 2
    assert env.identity["quality"] == "full" and env.identity["distractor"] is None


def test_observations_are_nobodys_but_the_callers() -> None:
    env, twin = make("Clock"), make("Clock")
    kept = [env.reset()[0]]
    twin.reset()
    kept[0][...] = 255
    for _ in range(3):
        observation, *_, info = env.step(NOTHING)
        expected, *_ = twin.step(NOTHING)
        np.testing.assert_array_equal(observation, expected)
        kept.append(observation)
        assert not np.shares_memory(observation, info["frame"])
        observation[...] = 255
        env.render()[...] = 255
        info["frame"][...] = 255
    assert not any(np.shares_memory(a, b) for a in kept for b in kept if a is not b)


# ---- action repeat and endings


@pytest.mark.parametrize("repeat", [1, 2, 3, 7, 9])
@pytest.mark.parametrize(("factory", "terminates"), [("Clock", False), ("Ending", True)])
def test_rewards_are_summed_and_the_episode_ends_where_it_ends(
    factory: str, terminates: bool, repeat: int
) -> None:
    env = make(factory, action_repeat=repeat)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset first"):
        env.step(NOTHING)
    for _ in range(3):
        env.reset()
        done, frames = False, 0
        while not done:
            _, reward, terminated, truncated, info = env.step(NOTHING)
            until = min(frames + repeat, 7)
            assert reward == 2.0**until - 2.0**frames
            frames, done = until, until == 7
            assert info["frames"] == frames
            assert terminated == (done and terminates)
            assert truncated == (done and not terminates)
            assert info["discount"] == (0.0 if terminated else 1.0)
        with pytest.raises(gymnasium.error.ResetNeeded, match="reset first"):
            env.step(NOTHING)


def test_actions_are_scaled_to_the_bounds_and_clipped() -> None:
    env = make("Clock", action_repeat=3)
    env.reset()
    given = [[-1, -1], [1, 1], [0, 0], [0.5, -0.5], [-7, 7]]
    wanted = [[-2, 0], [2, 10], [0, 5], [1, 2.5], [-2, 10]]
    for action, scaled in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(env.scaled(np.float32(action)), scaled)
        env.reset()
        env.step(np.float32(action))
    taken = env.simulation._env.taken
    assert len(taken) == 15  # each is held for three steps
    np.testing.assert_array_equal(taken, np.repeat(wanted, 3, axis=0))


@pytest.mark.parametrize("factory", ["Succeeding", "IsSucceeding"])
def test_success_at_any_step_and_at_the_last(factory: str) -> None:
    env = make(factory, action_repeat=1)
    for _ in range(2):
        _, info = env.reset()
        assert not info["success"] and not info["success_any"]
        seen = [env.step(NOTHING)[4] for _ in range(7)]
        assert [info["success_last"] for info in seen] == [False, True] + [False] * 5
        assert [info["success_any"] for info in seen] == [False] + [True] * 6
        assert [info["success"] for info in seen] == [False] + [True] * 6


def test_success_between_two_agent_steps_counts() -> None:
    env = make("Succeeding", action_repeat=3)
    env.reset()
    info = env.step(NOTHING)[4]
    assert info["success_any"] is True and info["success_last"] is False


def test_success_is_none_where_there_is_no_such_notion() -> None:
    env = make("Clock")
    infos = [env.reset()[1], env.step(NOTHING)[4]]
    for info in infos:
        assert [info[f"success{end}"] for end in ("", "_any", "_last")] == [None] * 3


def test_a_success_that_was_said_once_is_remembered() -> None:
    env = make("SaysSuccessOnce", action_repeat=1)
    env.reset()
    assert [env.step(NOTHING)[4]["success_any"] for _ in range(4)][1:] == [True] * 3


class Fake:
    """A simulation of 5 steps that tells its outcomes beforehand."""

    low, high, horizon, feature_count = np.array([-1.0]), np.array([1.0]), 5, 1
    success_at_start: bool | None = False
    versions: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, outcomes: list[SimulationStep]) -> None:
        self.outcomes, self.closed = outcomes, 0

    def reset(self, seed: int | None) -> None:
        self.time, self.seed = 0, seed

    def step(self, action: np.ndarray) -> SimulationStep:
        self.time += 1
        return self.outcomes[self.time - 1]

    def state(self) -> np.ndarray:
        return np.array([self.time], dtype=np.float64)

    def features(self) -> np.ndarray:
        return np.array([self.time], dtype=np.float32)

    def close(self) -> None:
        self.closed += 1


def fake(outcomes: list[SimulationStep], repeat: int) -> TaskEnv:
    settings = {"seed": 5, "pixels": 0, "frame_stack": 1, "action_repeat": repeat}
    return TaskEnv(Fake(outcomes), identity={}, **settings)


def test_a_discount_of_the_simulators_own() -> None:
    env = fake([SimulationStep(1.0, 0.5, False, None), SimulationStep(1.0, 0.5, True, None)], 2)
    env.reset()
    _, reward, terminated, truncated, info = env.step(np.zeros(1))
    assert (reward, terminated, truncated, info["discount"]) == (2.0, False, True, 0.25)


def test_the_seed_is_for_the_first_episode_only() -> None:
    env = fake([SimulationStep(0.0, 1.0, True, None)], 1)
    seen = []
    for seed in (None, None, 7, None):
        env.reset(seed=seed)
        seen.append(env.simulation.seed)
    assert seen == [5, None, 7, None]
    assert env.np_random_seed == 7


# ---- seeds


@pytest.mark.parametrize("observation", ["pixels", "state"])
def test_seeds(observation: str) -> None:
    def starts(env: TaskEnv, *seeds: int | None) -> list[list[float]]:
        return [env.reset(seed=seed)[1]["state"].tolist() for seed in seeds]

    def new(seed: int) -> TaskEnv:
        return make("Good", seed=seed, observation=observation)

    first = starts(new(1), None, None, None)
    assert first == starts(new(1), None, None, None)
    assert first == starts(new(9), 1, None, None)
    assert first[1:] == starts(new(9), None, 1, None, None)[2:]
    assert first[0] != first[1] and first != starts(new(2), None, None, None)


def test_sampled_actions_follow_the_seed() -> None:
    samples = [make("Good", seed=seed).action_space.sample().tolist() for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]


def test_numbers_of_numpy() -> None:
    one = np.int64(1)
    env = make("Good", seed=one, frame_stack=one, pixels=np.int64(8), action_repeat=one)
    env.reset()
    assert json.loads(json.dumps(env.identity)) == make("Good", frame_stack=1).identity | {
        "action_repeat": 1
    }


# ---- custom factories


RED, GREEN, BLACK = [200, 0, 0], [0, 100, 0], [0, 0, 0]
GREY, DARK = [200] * 3, [100] * 3
COLOURED, UNCOLOURED = [RED, GREEN, BLACK, BLACK], [GREY, DARK, BLACK, BLACK]


@pytest.mark.parametrize(
    ("factory", "colours"),
    [
        ("Painting", COLOURED),
        ("PaintingChw", COLOURED),
        ("PaintingWide", COLOURED),
        ("PaintingChwWide", COLOURED),
        ("Rendered", COLOURED),
        ("PaintingHw", UNCOLOURED),
        ("PaintingHw1", UNCOLOURED),
        ("Painting1hw", UNCOLOURED),
        ("PaintingHwSmall", UNCOLOURED),
    ],
)
@pytest.mark.parametrize("pixels", [16, 24])
def test_every_layout_becomes_channels_first(
    factory: str, colours: list[list[int]], pixels: int
) -> None:
    env = make(factory, pixels=pixels, frame_stack=2)
    observation, info = env.reset()
    assert observation in env.observation_space
    np.testing.assert_array_equal(observation[:3], observation[3:])
    near, far = 2, pixels - 3  # inside the quarters
    corners = [
        info["frame"][:, row, column].tolist() for row in (near, far) for column in (near, far)
    ]
    assert corners == colours


def test_a_picture_three_pixels_high_is_not_taken_for_channels() -> None:
    picture = np.zeros((3, 12, 3), dtype=np.uint8)
    picture[..., 0] = 200
    assert resized(picture, 8)[:, 4, 4].tolist() == RED


@pytest.mark.parametrize("factory", ["Good", "Rendered"])
def test_a_vector_observation(factory: str) -> None:
    env = make(factory, observation="state")
    observation, info = env.reset()
    assert observation in env.observation_space and observation.dtype == np.float32
    assert env.observation_space.shape == (2,) and "frame" not in info
    np.testing.assert_array_equal(info["state"], observation)
    inner = env.simulation._env
    observation, *_ = env.step(NOTHING)
    np.testing.assert_array_equal(observation, inner.observed())
    observation[...] = 9
    assert not (env.simulation.features() == 9).any()
    with pytest.raises(ValueError, match="does not render"):
        env.render()


def test_dictionaries_can_be_rendered() -> None:
    env = make("DictOfObservations", pixels=24)
    observation, info = env.reset()
    assert observation.max() > 0 and info["state"].shape == (0,)


def test_a_factory_in_the_working_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_own_task.py").write_text("from envs.toys import Good as make\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert make_env("my_own_task:make", seed=1, pixels=8).reset()[0].shape == (9, 8, 8)


@pytest.mark.parametrize(
    ("factory", "settings", "message"),
    [
        ("OneChoice", {}, "there must be a choice of actions, got Discrete"),
        ("GridOfActions", {}, "actions must be continuous .* or a choice .Discrete., got Box"),
        ("NoPicture", {}, 'render_mode="rgb_array", or use observation="state"'),
        ("Painting", {"observation": "state"}, "needs a vector"),
        ("with_argument", {}, "without arguments.*size"),
        ("nothing", {}, "must return a gymnasium.Env, got .*NoneType"),
        ("NOT_CALLABLE", {}, "has no function 'NOT_CALLABLE'"),
    ],
)
def test_a_factory_that_will_not_do(factory: str, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(factory, **settings)


def test_a_discrete_action_is_the_largest_number() -> None:
    env = make("DiscreteActions", observation="state", action_repeat=2)
    assert env.discrete and env.action_space.shape == (3,)
    env.reset()
    for action in ([0.0, 0.0, 1.0], [-0.2, -0.1, -0.9], [7.0, 0.0, 0.0]):
        env.step(np.array(action, np.float32))
    assert env.simulation._env.unwrapped.chosen == [7, 7, 6, 6, 5, 5]
    assert not make("Good", observation="state").discrete


def test_a_render_that_will_not_do() -> None:
    with pytest.raises(ValueError, match=r"render\(\) must return uint8 .*, got uint8 \(.*, 4\)"):
        make("RendersFourChannels").reset()


def test_what_a_users_module_misses_is_not_hidden(tmp_path, monkeypatch) -> None:
    (tmp_path / "imports_more.py").write_text("import a_package_it_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_package_it_needs"):
        make_env("imports_more:make", seed=1)


def test_a_type_error_inside_a_factory_is_not_hidden() -> None:
    with pytest.raises(TypeError):
        make("broken_inside")


def test_closing() -> None:
    env = fake([SimulationStep(0.0, 1.0, False, None)], 1)
    env.reset()
    env.close()
    env.close()
    assert env.simulation.closed == 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(1))
    with pytest.raises(ValueError, match="closed; make a new one"):
        env.reset()


# ---- Gymnasium


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("envs.toys:Good", {}),
        ("envs.toys:Good", {"observation": "state"}),
        ("envs.toys:Good", {"observation": "state", "state_noise": 5}),
        ("envs.toys:Painting", {"frame_stack": 1}),
        pytest.param("dmc:cartpole_balance", {}, marks=pytest.mark.env("dmc")),
        pytest.param(
            "dmc:cartpole_balance",
            {"observation": "state"},
            marks=pytest.mark.env("dmc", gl=False),
        ),
        pytest.param("dmc:reach_site", {"quality": "fast"}, marks=pytest.mark.env("dmc")),
        pytest.param(
            "dmc:cartpole_balance",
            {"distractor": "shapes", "quality": "fast"},
            marks=pytest.mark.env("dmc"),
        ),
        pytest.param("metaworld:reach", {"quality": "fast"}, marks=pytest.mark.env("metaworld")),
        pytest.param("gym:CarRacing-v3", {}, marks=pytest.mark.env("box2d", gl=False)),
        pytest.param("gym:Pendulum-v1", {}, marks=pytest.mark.env("gym", gl=False)),
    ],
)
@pytest.mark.filterwarnings("ignore:builtin type .*:DeprecationWarning")
def test_gymnasiums_own_checker_is_content(task: str, settings: dict) -> None:
    env = make_env(task, seed=1, pixels=16, **settings)
    assert isinstance(env, gymnasium.Env)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        check_env(env)
    allowed = "not having a spec|value is -?infinity"
    assert [str(w.message) for w in warned if not re.search(allowed, str(w.message))] == []


# ---- identity


@pytest.mark.parametrize(
    "change",
    [{"pixels": 9}, {"frame_stack": 2}, {"action_repeat": 1}, {"observation": "state"}],
)
def test_the_identity_tells_environments_apart(change: dict) -> None:
    first, same, other = make("Good"), make("Good", seed=2), make("Good", **change)
    assert first.identity == same.identity != other.identity
    assert json.loads(json.dumps(first.identity)) == first.identity
    assert first.identity["versions"] == {"gymnasium": gymnasium.__version__}
    assert first.identity["task"] == "envs.toys:Good"


# ---- extras


BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from revbis.cli import main
from revbis.envs import make_env
"""


@pytest.mark.parametrize(
    ("blocked", "task", "message"),
    [
        ("dm_control", "dmc:cheetah_run", r"needs dm_control.*run: pip install .*dm.control>=1.0"),
        ("mujoco", "dmc:cheetah_run", r"needs mujoco.*pip install .*mujoco<4,>=3"),
        pytest.param(
            *("mujoco", "metaworld:hammer", r"needs mujoco.*pip install .*mujoco==3"),
            marks=pytest.mark.env("metaworld", gl=False),
        ),
        ("metaworld", "metaworld:hammer", r"needs metaworld.*run: pip install .*metaworld==3"),
        ("gymnasium", "gym:CarRacing-v3", r"needs gymnasium.*run: pip install .*gymnasium>=1"),
        ("gymnasium", "dmc:cheetah_run", r"needs gymnasium.*run: pip install .*gymnasium>=1"),
        ("Box2D,_Box2D", "gym:CarRacing-v3", r"gym:CarRacing-v3 needs.*pip install .*box2d"),
    ],
)
def test_a_missing_extra_says_what_to_type(blocked: str, task: str, message: str) -> None:
    package = blocked.partition(",")[0]
    if pythons := plugins.unavailable(task.partition(":")[0]).get(package):
        message = f"needs {package}.*{re.escape(plugins.remedy(package, pythons))}"
    done = run_python(f"{BLOCK}make_env({task!r}, seed=1)", blocked)
    last = done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(f"ModuleNotFoundError: .*{message}.*", last), done.stderr


@pytest.mark.env("metaworld", gl=False)
def test_the_list_of_tasks_without_dm_control() -> None:
    done = run_python(f"{BLOCK}main(['env', 'list'])", "dm_control")
    assert done.returncode == 0
    assert len(done.stdout.split()) == 113 and "dmc:cheetah_run" in done.stdout.split()
    assert done.stderr.startswith("revbis: a dmc: task needs dm_control")
    fix = "use Python" if sys.version_info >= (3, 14) else "pip install"
    assert fix in done.stderr and len(done.stderr.splitlines()) == 1


def test_other_suites_work_without_the_missing_one() -> None:
    code = f"{BLOCK}print(make_env('envs.toys:Good', seed=1, pixels=8).reset()[0].shape)"
    done = run_python(code, "dm_control,metaworld,mujoco")
    assert done.stdout == "(9, 8, 8)\n", done.stderr
