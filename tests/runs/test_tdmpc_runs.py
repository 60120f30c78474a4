"""Runs of TD-MPC: exact resume, evaluation that changes nothing, records, presets, commands."""

import re
from pathlib import Path

import pytest
import torch
from tests.agents.tdmpc import assert_same_state
from tests.runs import Walk, evaluations, stop_after, tiny_config

from revbis.cli import main
from revbis.cli.train import parse
from revbis.io.files import read_records
from revbis.runs.checkpoint import Checkpoint, Checkpoints
from revbis.runs.config import Config
from revbis.runs.presets import command_line, preset_config
from revbis.runs.run import open_run, train
from revbis.sweep.grid import grid_from

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
# An episode of the walk is 40 frames: 20 agent steps, so that the first update is within one.
SMALL = {"method": "tdmpc", "task": "tests.runs:Walk", "quality": "full", "action_repeat": 2}
SMALL |= {"frames": 160, "explore_steps": 13, "eval_every": 60, "log_every": 20}
SMALL |= {"samples": 12, "policy_samples": 2, "elites": 4, "iterations": 2, "horizon_steps": 60}
SMALL |= {"replay_capacity": 50}  # the ring goes round
STATE, PIXELS = {"observation": "state"}, {"pixels": 40}
gym = pytest.mark.env("gym", gl=False)


def losses(config: Config) -> list[dict]:
    """The lines of train.jsonl but for what another machine or moment changes."""
    other = ("seconds", "resident_bytes")
    lines = read_records(config.directory / "train.jsonl")
    return [{k: v for k, v in line.items() if not k.startswith(other)} for line in lines]


def newest(config: Config) -> Checkpoint:
    """A run's last checkpoint."""
    checkpoint = Checkpoints(config.directory / "checkpoints", 2).resume()
    assert checkpoint is not None
    return checkpoint


@gym
@pytest.mark.parametrize("observation", [STATE, PIXELS])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path, observation):
    """Stopped within episodes: the plan, the priorities and the generators go on."""
    whole = tiny_config(tmp_path / "whole", **SMALL | observation)
    assert train(whole)
    config = tiny_config(tmp_path / "stopped", **SMALL | observation)
    for steps in (17, 12):  # agent steps 17 and 29 are within episodes
        assert not train(config, **stop_after(steps))
    assert train(config)
    assert evaluations(config) == evaluations(whole)
    resumed, wanted = (newest(each) for each in (config, whole))
    assert_same_state(resumed.agent, wanted.agent)
    assert resumed.agent["plan"].abs().max() > 0
    assert resumed.state["replay"] == wanted.state["replay"]
    assert resumed.state["replay"]["priorities"]["length"] == config.agent.horizon


@gym
def test_episodes_shorter_than_the_horizon_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Walk, "limit", 4)  # frames: two agent steps
    config = tiny_config(tmp_path, **SMALL | STATE | {"replay_capacity": 200})
    with pytest.raises(ValueError, match="no episode so far had 3 steps: use a smaller --horizon"):
        train(config)


@gym
def test_evaluations_change_nothing_of_what_is_learned(tmp_path):
    often = tiny_config(tmp_path / "often", **SMALL | STATE | {"eval_every": 14})
    once = tiny_config(tmp_path / "once", **SMALL | STATE | {"eval_every": 1000})
    assert train(often) and train(once)
    assert losses(often) == losses(once)
    assert len(evaluations(often)) > len(evaluations(once)) + 5


@gym
def test_records_have_its_names_and_no_others(tmp_path):
    config = tiny_config(tmp_path, **SMALL | STATE)
    assert train(config)
    explained = (ROOT / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"`/?([\w/]+)`", explained))
    logged = {name for line in losses(config) for name in line}
    assert logged <= names
    assert {"consistency_loss", "reward_loss", "critic_q1", "plan_horizon"} <= logged
    assert not any(name == "c" or name.startswith("objective") for name in logged)
    assert all(line["status"] == {} for line in evaluations(config))
    page = (ROOT / "docs" / "tdmpc.md").read_text()
    assert {name for name in logged if f"`{name}`" not in page} <= {
        "frames", "agent_steps", "updates", "episodes", "episode_return", "replay_size",
    }  # fmt: skip


@gym
def test_a_run_is_evaluated_and_looked_at(tmp_path, capsys):
    config = tiny_config(tmp_path, **SMALL | PIXELS)
    assert train(config)
    found, agent, *_ = open_run(config.directory, trust=True)
    assert found == config and agent.status() == {}
    printed = []
    for _ in range(2):
        main(["eval", "--trust", str(config.directory), "--episodes", "2"])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]  # planning draws, but always the same
    picture = tmp_path / "neighbours.png"
    main(["neighbours", "--trust", str(config.directory), "--out", str(picture)])
    assert picture.stat().st_size > 2000


def test_presets_differ_by_task_and_observation():
    def made(name, task, observation="pixels"):
        return preset_config(name, task, "tdmpc", observation)

    repeats = {"cartpole_balance": 8, "walker_run": 2, "finger_spin": 2, "cheetah_run": 4}
    for task, repeat in repeats.items():
        assert made("paper", f"dmc:{task}").action_repeat == repeat
    pixels, state = made("paper", "dmc:cheetah_run"), made("paper", "dmc:cheetah_run", "state")
    assert (pixels.agent.batch_size, pixels.agent.learning_rate) == (256, 3e-4)
    assert (state.agent.batch_size, state.agent.learning_rate) == (512, 1e-3)
    assert (pixels.agent.iterations, state.agent.iterations) == (6, 6)
    small = made("cpu", "dmc:cheetah_run", "state")
    assert small.frames == 24_000 and small.agent.samples < state.agent.samples
    assert made("cpu", "gym:CarRacing-v3").quality == "full"


def test_the_command_line_and_grids_take_the_preset_of_the_observation():
    words = ["--task", "dmc:cartpole_swingup", "--method", "tdmpc", "--observation", "state"]
    config = parse(words, "revbis train").args[0]
    assert config == preset_config("cpu", "dmc:cartpole_swingup", "tdmpc", "state")
    command = command_line(config)
    assert command.endswith("--observation state") and "--batch-size" not in command
    assert parse(command.split()[2:], "revbis train").args[0] == config
    grid = {"tasks": ["dmc:cartpole_swingup"], "methods": ["tdmpc", "simsr"], "seeds": [1]}
    settings = {"observation": "state", "samples": 64, "objective_weight": 0.5}
    planning, plain = grid_from(grid | {"settings": settings}).configs(Path("runs"))
    assert planning.agent.horizon == 5 and planning.agent.samples == 64
    assert plain.agent.objective_weight == 0.5
