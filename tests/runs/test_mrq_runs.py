"""Runs of MR.Q: exact resume, records, presets, folders of representations, commands."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.agents.tdmpc import assert_same_state
from tests.runs import evaluations, flags, stop_after, tiny_config
from tests.runs.test_tdmpc_runs import losses, newest

from revbis.analysis.study import read_study
from revbis.cli import main
from revbis.cli.train import parse
from revbis.export import load
from revbis.runs.presets import command_line, preset_config
from revbis.runs.run import open_run, train
from revbis.sweep.grid import grid_from

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
# An episode of the walk is 40 frames: 20 agent steps.
SMALL = {"method": "mrq", "task": "tests.runs:Walk", "quality": "full", "action_repeat": 2}
SMALL |= {"frames": 160, "explore_steps": 13, "eval_every": 60, "log_every": 20}
SMALL |= {"latent_dim": 8, "action_dim": 4, "target_every": 10}
SMALL |= {"replay_capacity": 50}  # the ring goes round
STATE, PIXELS = {"observation": "state"}, {"pixels": 40}
BOTH = {"representation": ("model", "simsr-rev-full")}
gym = pytest.mark.env("gym", gl=False)


@gym
@pytest.mark.parametrize("more", [STATE, PIXELS, STATE | BOTH])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path, more):
    """Stopped within episodes, and within a period of the targets."""
    whole = tiny_config(tmp_path / "whole", **SMALL | more)
    assert train(whole)
    config = tiny_config(tmp_path / "stopped", **SMALL | more)
    for steps in (17, 12):  # agent steps 17 and 29
        assert not train(config, **stop_after(steps))
    assert train(config)
    assert evaluations(config) == evaluations(whole)
    resumed, wanted = (newest(each) for each in (config, whole))
    assert_same_state(resumed.agent, wanted.agent)
    assert resumed.state["replay"] == wanted.state["replay"]


@gym
def test_records_have_its_names_and_no_others(tmp_path):
    config = tiny_config(tmp_path, **SMALL | STATE | BOTH)
    assert train(config)
    explained = (ROOT / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"`/?([\w/]+)`", explained))
    names |= {f"objective/{name}" for name in names}
    names |= {f"objective/distance_{q}" for q in ("q05", "q50", "q95")}
    logged = {name for line in losses(config) for name in line}
    assert logged <= names
    page = (ROOT / "docs" / "mrq.md").read_text()
    own = {name for name in logged if not name.startswith("objective/")}
    assert {name for name in own if f"`{name}`" not in page} <= {
        "frames", "agent_steps", "updates", "episodes", "episode_return", "replay_size",
    }  # fmt: skip
    assert {"model_loss", "objective/representation_loss", "objective/gradient_share"} <= logged


@gym
def test_a_run_is_evaluated_exported_and_looked_at(tmp_path, capsys):
    config = tiny_config(tmp_path / "runs", **SMALL | PIXELS | BOTH)
    assert train(config)
    found, agent, *_ = open_run(config.directory, trust=True)
    assert found == config and agent.status().keys() == {"c", "reward_scale"}
    main(["eval", "--trust", str(config.directory), "--episodes", "2"])
    assert "mrq" in capsys.readouterr().out
    picture = tmp_path / "neighbours.png"
    main(["neighbours", "--trust", str(config.directory), "--out", str(picture)])
    assert picture.stat().st_size > 2000
    main(["export", "--trust", str(config.directory), "--out", str(tmp_path / "out")])
    loaded = load(tmp_path / "out")
    seen = torch.zeros(9, 40, 40, dtype=torch.uint8).numpy()
    acted = agent.act(seen, 0, explore=False)
    assert loaded.act(seen).tolist() == acted.tolist()


@gym
def test_representations_have_folders_and_labels_of_their_own(tmp_path):
    some = [{}, {"representation": ("zp",)}, BOTH, BOTH | {"name": "wide", "hidden": 20}]
    configs = [tiny_config(tmp_path, **SMALL | STATE | {"frames": 60} | more) for more in some]
    folders = [config.directory.parts[-2] for config in configs]
    wanted = ["mrq", "mrq-zp", "mrq-model,simsr-rev-full", "mrq-model,simsr-rev-full+wide"]
    assert folders == wanted
    labels = ["mrq", "mrq[zp]", "mrq[model,simsr-rev-full]", "mrq[model,simsr-rev-full] (wide)"]
    assert [config.label for config in configs] == labels
    for config in configs:
        assert train(config)
        assert parse(flags(config), "revbis train").args[0] == config
    assert read_study([tmp_path]).labels == sorted(labels)


def test_own_objectives_are_code_that_a_folder_names(tmp_path):
    own = ("model", "tests.objectives.own_objectives:make")
    config = tiny_config(tmp_path, **SMALL | STATE | {"representation": own})
    assert config.code == ("tests.runs:Walk", own[1])
    assert ":" not in config.directory.name
    missing = SMALL | STATE | {"representation": ("model", "no.such.module:make")}
    with pytest.raises(ValueError, match="no module"):
        train(tiny_config(tmp_path, **missing))


@gym
def test_own_objectives_are_trained_and_not_exported(tmp_path, capsys):
    own = ("model", "tests.objectives.own_objectives:make")
    config = tiny_config(tmp_path, **SMALL | STATE | {"frames": 60, "representation": own})
    assert train(config)
    with pytest.raises(ValueError, match="names code of its author's"):
        open_run(config.directory)
    with pytest.raises(SystemExit):
        main(["export", "--trust", str(config.directory), "--out", str(tmp_path / "out")])
    assert "own_objectives:make is code of your own" in capsys.readouterr().err


def test_presets_and_commands():
    paper = preset_config("paper", "dmc:walker_walk", "mrq", "state")
    assert (paper.agent.latent_dim, paper.agent.hidden, paper.agent.batch_size) == (512, 512, 256)
    assert (paper.action_repeat, paper.update_every, paper.agent.explore_steps) == (2, 1, 10_000)
    small = preset_config("cpu", "dmc:walker_walk", "mrq", "state")
    assert small.agent.hidden < 512 and small.agent.representation == ("model",)
    words = ["--task", "dmc:walker_walk", "--method", "mrq", "--representation", "model", "zp"]
    config = parse(words, "revbis train").args[0]
    assert config.agent.representation == ("model", "zp")
    command = command_line(config)
    assert command.endswith("--representation model zp")
    assert parse(command.split()[2:], "revbis train").args[0] == config
    grid = {"tasks": ["dmc:walker_walk"], "methods": ["mrq", "simsr"], "seeds": [1]}
    overrides = {"alone": {"representation": ["zp"]}, "both": {"representation": ["model", "zp"]}}
    labels = [c.label for c in grid_from(grid | {"overrides": overrides}).configs(Path("runs"))]
    assert sorted(labels) == ["mrq[model,zp]", "mrq[zp]", "simsr"]


@gym
def test_a_run_with_discrete_actions_resumes_and_is_exported(tmp_path):
    discrete = SMALL | STATE | {"task": "gym:CartPole-v1", "action_repeat": 1, "frames": 60}
    whole = tiny_config(tmp_path / "whole", **discrete)
    assert train(whole)
    config = tiny_config(tmp_path / "stopped", **discrete)
    assert not train(config, **stop_after(31))
    assert train(config)
    assert evaluations(config) == evaluations(whole)
    assert_same_state(newest(config).agent, newest(whole).agent)
    main(["export", str(config.directory), "--out", str(tmp_path / "out")])
    loaded = load(tmp_path / "out")
    action = loaded.act(np.ones(4, np.float32))
    assert sorted(action.tolist()) == [0.0, 1.0]
    assert "one of 2, as a one-hot vector" in (tmp_path / "out" / "README.md").read_text()


@gym
def test_other_agents_refuse_tasks_with_discrete_actions(tmp_path):
    discrete = {"task": "gym:CartPole-v1", "observation": "state", "action_repeat": 1}
    with pytest.raises(ValueError, match=r"drqv2 needs continuous .* use --method mrq"):
        train(tiny_config(tmp_path, **discrete))


def test_gymnasium_tasks_are_not_repeated():
    for preset in ("paper", "cpu"):
        assert preset_config(preset, "gym:CartPole-v1", "mrq", "state").action_repeat == 1
