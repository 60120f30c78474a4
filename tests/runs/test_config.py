"""Configs and presets: values, files, folders, differences."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import torch
from msgspec import Meta

from revbis.agents import DrQV2Settings, TacoSettings, make_agent
from revbis.agents.presets import COPIES, DRQV2, MRQ, NOTES, SHEEPRL, TACO, TDMPC
from revbis.cli.train import parse
from revbis.envs import EnvironmentSettings, make_env, task_names
from revbis.objectives import make_objective
from revbis.replay import Replay
from revbis.replay.storage import Layout
from revbis.runs.config import Config, changes
from revbis.runs.presets import (
    CODE,
    OURS,
    PAPER,
    PRESETS,
    command_line,
    preset_config,
    preset_settings,
)

TASKS = ("dmc:cheetah_run", "metaworld:hammer", "gym:CarRacing-v3", "my.module:make")


def as_json(value: object) -> object:
    """As JSON holds it."""
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("method", "observation", "more"),
    [
        ("drqv2", "pixels", ()),
        ("taco", "pixels", (TACO, DRQV2)),
        ("tdmpc", "pixels", (TDMPC, COPIES, NOTES)),
        ("tdmpc", "state", (TDMPC, COPIES, NOTES)),
        ("mrq", "pixels", (MRQ,)),
        ("mrq", "state", (MRQ,)),
    ],
)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_valid_config_with_sources(name, task, method, observation, more) -> None:
    config = preset_config(name, task, method, observation)
    settings, values = preset_settings(name, task, method, observation), config.as_dict()
    assert config.observation == observation
    for key, setting in settings.items():
        assert values[key] == as_json(setting.value)
        assert setting.source in (PAPER, CODE, OURS, *more)
    if method in ("tdmpc", "mrq"):  # every value of its agent has a source
        assert config.agent.__dataclass_fields__.keys() <= settings.keys()
    assert Config.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_the_paper_preset_has_the_papers_values() -> None:
    config = preset_config("paper", "dmc:cheetah_run")
    agent = config.agent
    assert agent.batch_size == 1024
    assert (config.pixels, config.frame_stack, config.action_repeat) == (84, 3, 2)
    assert (config.n_step, config.discount, config.update_every) == (3, 0.99, 2)
    assert (agent.noise_start, agent.noise_end, agent.noise_steps) == (1.0, 0.1, 2_000_000)
    assert (config.frames, config.eval_every, config.eval_episodes) == (1_000_000, 10_000, 10)
    assert (config.replay_capacity, agent.explore_steps) == (1_000_000, 2000)
    assert (agent.mode, config.quality, agent.strides) == ("alternating", "full", (2, 1, 1, 1))
    assert preset_config("paper", "metaworld:hammer").agent.noise_steps == 3_000_000


def test_the_paper_preset_of_taco_has_its_codes_values() -> None:
    paper, cpu = (preset_settings(name, "dmc:cheetah_run", "taco") for name in PRESETS)
    agent = preset_config("paper", "dmc:cheetah_run", "taco").agent
    assert agent == TacoSettings(noise_steps=500_000)  # the defaults are its code's too
    flags = {key for key in paper if hasattr(agent, key)}
    assert {paper[key].source for key in flags - {"noise_steps"}} == {TACO}
    assert paper["noise_steps"].source == DRQV2  # which tasks are medium is from its files
    assert (cpu["action_steps"], cpu["batch_size"].source) == ((3, TACO), OURS)
    drqv2 = preset_settings("cpu", "dmc:cheetah_run")
    assert all(cpu[key] == drqv2[key] for key in drqv2.keys() & cpu.keys())


@pytest.mark.parametrize("method", ["drqv2", "simsr-rev", "taco", "tdmpc", "mrq", "dreamerv3"])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_loads_for_every_task(name: str, method: str) -> None:
    sources = {PAPER, CODE, OURS, DRQV2, TACO, TDMPC, COPIES, NOTES, MRQ, SHEEPRL}
    for task in (*task_names("dmc"), *task_names("metaworld")):
        assert preset_config(name, task, method).task == task
        assert {each.source for each in preset_settings(name, task, method).values()} <= sources


# Written by hand from the public files: easy, medium and hard, and what single tasks add to them.
EASY, MEDIUM, HARD = 100_000, 500_000, 2_000_000
NOISE_OF_TACO = {
    "ball_in_cup_catch": EASY,
    "cartpole_balance": EASY,
    "cartpole_balance_sparse": EASY,
    "cartpole_swingup": EASY,
    "finger_spin": EASY,
    "hopper_stand": EASY,
    "pendulum_swingup": EASY,
    "walker_stand": EASY,
    "walker_walk": EASY,
    "acrobot_swingup": MEDIUM,
    "acrobot_swingup_sparse": MEDIUM,
    "cartpole_swingup_sparse": MEDIUM,
    "cheetah_run": MEDIUM,
    "finger_turn_easy": MEDIUM,
    "finger_turn_hard": MEDIUM,
    "hopper_hop": MEDIUM,
    "quadruped_run": MEDIUM,
    "quadruped_walk": MEDIUM,
    "reach_duplo": MEDIUM,
    "reacher_easy": MEDIUM,
    "reacher_hard": MEDIUM,
    "walker_run": MEDIUM,
    "humanoid_run": HARD,
    "humanoid_stand": HARD,
    "humanoid_walk": HARD,
    "manipulator_bring_ball": HARD,
}


def test_the_noise_of_taco_depends_on_the_task() -> None:
    for task, steps in NOISE_OF_TACO.items():
        setting = preset_settings("paper", f"dmc:{task}", "taco")["noise_steps"]
        read = task in ("acrobot_swingup_sparse", "manipulator_bring_ball")
        assert setting == (steps, TACO if read else DRQV2)
    assert preset_settings("paper", "dmc:dog_run", "taco")["noise_steps"] == (MEDIUM, OURS)
    assert preset_config("paper", "metaworld:hammer", "taco").agent.noise_steps == 3_000_000
    cpu = {preset_config("cpu", f"dmc:{task}", "taco").agent.noise_steps for task in NOISE_OF_TACO}
    assert cpu == {5000}


@pytest.mark.parametrize("task", ["walker_run", "walker_stand", "walker_walk"])
def test_taco_has_one_step_returns_on_walker(task: str) -> None:
    settings = preset_settings("paper", f"dmc:{task}", "taco")
    assert settings["n_step"] == (1, DRQV2)
    assert settings["batch_size"] == (1024, TACO)  # its agent's, not the 512 of the task
    assert settings["action_steps"] == (3, TACO)
    assert preset_config("cpu", f"dmc:{task}", "taco").n_step == 3
    assert preset_config("paper", "dmc:cheetah_run", "taco").n_step == 3


def test_taco_has_a_small_buffer_on_quadruped_run() -> None:
    settings = preset_settings("paper", "dmc:quadruped_run", "taco")
    assert settings["replay_capacity"] == (100_000, DRQV2)
    assert preset_config("paper", "dmc:quadruped_walk", "taco").replay_capacity == 1_000_000


@pytest.mark.parametrize("task", ["humanoid_run", "humanoid_stand", "humanoid_walk"])
def test_humanoid_has_a_rate_and_a_width_of_its_own(task: str) -> None:
    for method, latent in (("drqv2", 50), ("simsr-rev", 50), ("mico-rev-full", 50), ("taco", 100)):
        settings = preset_settings("paper", f"dmc:{task}", method)
        assert settings["learning_rate"] == (8e-5, DRQV2)
        assert settings["feature_dim"] == (100, DRQV2)
        assert settings["objective_learning_rate"].value == 1e-4
        assert settings["latent_dim"].value == latent
        assert preset_config("cpu", f"dmc:{task}", method).agent.feature_dim == 50
    assert preset_config("paper", "dmc:humanoid_CMU_run").agent.feature_dim == 50


def test_an_objective_shares_every_size_of_its_baseline() -> None:
    for task in (*task_names("dmc"), *task_names("metaworld")):
        plain = preset_settings("paper", task, "drqv2")
        assert preset_settings("paper", task, "simsr-rev") == plain
        table = (plain["batch_size"], plain["n_step"], plain["replay_capacity"])
        assert table == ((1024, PAPER), (3, PAPER), (1_000_000, PAPER))


def test_the_cpu_preset_is_smaller_in_every_dimension() -> None:
    paper, cpu = (preset_config(name, "dmc:cheetah_run") for name in ("paper", "cpu"))
    for name in ("frames", "pixels", "batch_size", "hidden", "replay_capacity", "noise_steps"):
        assert cpu.as_dict()[name] < paper.as_dict()[name]
    assert (cpu.agent.mode, cpu.quality) == ("balanced", "fast")
    assert (paper.agent.action_penalty, cpu.agent.action_penalty) == (0.0, 0.01)
    assert preset_config("cpu", "gym:CarRacing-v3").quality == "full"  # it draws itself


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--preset must be one of paper, cpu.*did you mean 'cpu'"):
        preset_config("cpus", "dmc:cheetah_run")


def test_the_folder_is_a_function_of_the_config() -> None:
    config = preset_config("cpu", "dmc:cheetah_run").with_settings(method="simsr-rev", seed=3)
    assert config.directory == Path("runs/cpu/dmc-cheetah_run/simsr-rev/seed-3")
    assert config.with_settings(task="a/b:c").directory.parts[-3] == "a-b-c"


def test_parts_of_the_config() -> None:
    config = preset_config("cpu", "dmc:cheetah_run").with_settings(method="mico", hidden=7)
    assert isinstance(config.agent, DrQV2Settings)
    assert (config.method, config.agent.objective, config.agent.hidden) == ("mico", "mico", 7)
    assert config.environment["pixels"] == config.pixels
    assert "seed" not in config.environment


def kinds() -> dict[str, Any]:
    """The type of every setting of a run with an objective."""
    return get_type_hints(Config, include_extras=True) | get_type_hints(
        DrQV2Settings, include_extras=True
    )


def largest(name: str) -> Any:
    """The upper limit of a setting."""
    kind = kinds()[name]
    parts = get_args(kind) if get_origin(kind) is Annotated else get_args(get_args(kind)[0])
    return next(part.le for part in parts if isinstance(part, Meta))


def environment(name: str, value: Any) -> None:
    changes = {"pixels": 8, "frame_stack": 1, name: value}
    if name == "distractor_strength":
        changes["distractor"] = "gaussian"
    if name == "state_noise":
        EnvironmentSettings(**walk(observation="state", **changes).environment)  # 800 MB to make
    else:
        make_env(**walk(**changes).environment, seed=1).close()


def replay(name: str, value: Any) -> None:
    config = walk(**{"replay_capacity": 10_000, name: value})
    Layout(config.replay_capacity, (2,), 1)
    capacity = min(config.replay_capacity, 10_000)
    Replay(capacity, (2,), 1, stack=config.frame_stack, n_step=config.n_step, shift=config.shift)


def agent(name: str, value: Any) -> None:
    small = dict.fromkeys(("hidden", "feature_dim", "latent_dim", "objective_hidden"), 4)
    config = walk(method="mico-rev", **small | {name: value})
    make_agent(config.method, config.agent, (1,), 1, seed=config.seed, device="cpu")


def objective(name: str, value: Any) -> None:
    config = walk(method="mico-rev", **{name: value})
    with torch.device("meta"):  # nothing is allocated
        options = config.agent.objective_options
        make_objective(config.method, config.agent.latent_dim, 1, **options)


def walk(**changes: Any) -> Config:
    return preset_config("cpu", "tests.runs:Walk").with_settings(**changes)


@pytest.mark.env("gym", gl=False)
@pytest.mark.parametrize(
    ("consumer", "names"),
    [
        (environment, "pixels frame_stack action_repeat distractor_strength state_noise seed"),
        (replay, "replay_capacity frame_stack n_step shift"),
        (agent, "latent_dim feature_dim objective_hidden seed"),
        (objective, "latent_dim objective_hidden beta"),
    ],
)
def test_the_largest_value_is_accepted_by_what_takes_it(consumer: Any, names: str) -> None:
    for name in names.split():
        most = largest(name)
        consumer(name, most)
        above = most + 1 if isinstance(most, int) else 1.1 * most
        with pytest.raises(ValueError, match=f"^{name} must be at most {most:,.15g}, got"):
            walk(method="mico-rev", **{name: above})


def test_settings_of_the_environment_have_the_types_of_its_arguments() -> None:
    hints = get_type_hints(EnvironmentSettings, include_extras=True)
    del hints["task"]  # whose flag is marked as required
    assert hints == {name: kinds()[name] for name in hints}


def test_differences_and_which_are_safe() -> None:
    before = preset_config("cpu", "dmc:cheetah_run")
    now = before.with_settings(frames=10, hidden=99, device="cuda")
    found = {change.name: change for change in changes(before, now)}
    assert set(found) == {"frames", "hidden", "device"}
    assert found["frames"].safe and found["device"].safe and not found["hidden"].safe
    assert str(found["hidden"]) == "--hidden was 256, now 99"
    assert changes(before, before) == []


def test_unreadable_configs(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ValueError, match=r"is not a run: it has no config\.json"):
        Config.read(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not a revbis config"):
        Config.read(path)
    path.write_text(json.dumps(preset_config("cpu", "dmc:a").as_dict() | {"speed": 1}))
    with pytest.raises(ValueError, match="unknown speed"):
        Config.read(path)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"frames": 12, "strides": (1, 2, 2, 1), "out": Path("a folder"), "tensorboard": False},
        {"normalisation": False, "beta": 0.2, "method": "mico-rev", "seed": 4, "threads": 1},
    ],
)
def test_the_command_of_a_run_gives_the_same_run(settings):
    config = preset_config("cpu", "dmc:cartpole_balance").with_settings(**settings)
    words = shlex.split(command_line(config))
    assert words[:2] == ["revbis", "train"]
    assert parse(words[2:], "revbis train").args == (config, False, None)


@pytest.mark.parametrize("first", ["--preset paper", "--method=tdmpc", "--task gym:CarRacing-v3"])
def test_of_a_repeated_flag_the_last_one_counts(first):
    last = ["--preset=cpu", "--method", "drqv2", "--task", "dmc:cheetah_run"]
    config = parse([*first.split(), *last], "revbis train").args[0]
    assert config == preset_config("cpu", "dmc:cheetah_run")


def test_another_seed_changes_nothing_else() -> None:
    config = preset_config("cpu", "dmc:cheetah_run", "simsr-rev")
    other = config.with_seed(7)
    assert other == config.with_settings(seed=7) and other.directory.name == "seed-7"
    assert config.seed == 1
    assert config.kind == other.kind != config.with_settings(hidden=17).kind
    with pytest.raises(ValueError, match="seed must be"):
        config.with_seed(-1)
