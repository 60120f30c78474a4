"""Agents and objectives of the user's own in training: a method by its factory's name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli import fails
from tests.runs import evaluations, flags, stop_after, tiny_config

from revbis.cli import main
from revbis.runs.run import open_run, train

FACTORY = "tests.agents.own_agents:make"
OWN = f"agent:{FACTORY}"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def config(tmp_path):
    return tiny_config(
        tmp_path,
        task="tests.runs:Walk",
        method=OWN,
        observation="state",
        frames=400,
        agent_options=("gain=0.1",),
    )


def words(config):
    """The command line with --agent in the place of --method."""
    return [{"--method": "--agent", OWN: FACTORY}.get(word, word) for word in flags(config)]


def test_an_agent_is_trained_resumed_and_read(config, capsys):
    main(["train", *words(config)])
    assert OWN in capsys.readouterr().out
    lines = evaluations(config)
    assert [line["frames"] for line in lines] == [0, 400]
    assert lines[-1]["status"] == {"updates": lines[-1]["updates"]} and lines[-1]["updates"] > 0
    read, agent, *_ = open_run(config.directory, trust=True)
    assert read == config and (agent.gain, agent.batch_size) == (0.1, 8)
    main(["train", *flags(config.with_settings(frames=800))])  # --method agent:... is the same
    assert [line["frames"] for line in evaluations(config)] == [0, 400, 800]


def test_other_options_are_another_run(config, capsys):
    train(config)
    changed = config.with_settings(agent_options=("gain=0.2",), frames=800)
    assert "--agent-options was ['gain=0.1'], now" in fails(capsys, "train", *words(changed))


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (["--agent", "drqv2"], "--agent must be package.module:factory, got 'drqv2'; the agents"),
        (["--agent", FACTORY, "--method", "simsr"], "replaces the method: drop --method simsr"),
        (["--agent", FACTORY, "--objective", "a:b"], "--objective is for DrQ-v2: drop it, or"),
        (["--agent", "tests.agents.own_agents:without_learning"], "BaseAgent has no act, load_"),
        (["--agent", "json:dumps"], "json:dumps: the factory is called with (observation_shape"),
        (["--agent", FACTORY, "--agent-options", "x"], "agent_options must be NAME=VALUE, got 'x'"),
        (["--objective", "simsr"], "--objective must be package.module:factory, got 'simsr'"),
        (["--objective", "a:b", "--method", "simsr"], "replaces the method: drop --method simsr"),
        (["--objective", "json:dumps"], "json:dumps"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(flag, message, tmp_path, capsys):
    start = ["train", "--task", "tests.runs:Walk", "--observation", "state", "--preset", "cpu"]
    start += ["--quality", "full", "--out", str(tmp_path / "runs")]
    error = fails(capsys, *start, *flag)
    assert message in error and error.count("\n") == 0
    assert not list(tmp_path.iterdir())


def test_it_is_listed(capsys):
    main(["train", "--list"])
    assert "agent:package.module:factory" in capsys.readouterr().out


def test_the_example_trains_resumes_exactly_and_is_short(tmp_path, monkeypatch):
    code = (EXAMPLES / "own_agent.py").read_text().partition("class RandomAgent")[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    monkeypatch.syspath_prepend(EXAMPLES)
    settings = {"task": "tests.runs:Walk", "method": "agent:own_agent:make"}
    settings |= {"observation": "state", "frames": 800, "agent_options": ("scale=0.5",)}
    whole = tiny_config(tmp_path / "whole", **settings)
    assert train(whole)
    config = whole.with_settings(out=tmp_path / "parts")
    assert not train(config, **stop_after(48))
    assert train(config)
    assert evaluations(config) == evaluations(whole)
    lines = (config.directory / "train.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["batch_reward"] > 0


def test_its_records_are_read_where_it_is_not(config):
    train(config)
    (config.directory / "config.json").write_text(
        json.dumps(config.as_dict() | {"method": "agent:not_here.at_all:make"})
    )
    code = "from pathlib import Path; from revbis.runs.config import Config; import sys\n"
    code += "print(Config.read(Path(sys.argv[1])).method); assert 'torch' not in sys.modules"
    path = str(config.directory / "config.json")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("agent:not_here.at_all:make", "")
    with pytest.raises(ValueError, match="there is no module 'not_here'"):
        open_run(config.directory, trust=True)


OBJECTIVE = "tests.objectives.own_objectives:make"


@pytest.fixture
def with_objective(tmp_path):
    return tiny_config(
        tmp_path,
        task="tests.runs:Walk",
        method=OBJECTIVE,
        observation="state",
        quality="full",
        frames=400,
    )


def objective_words(config):
    """The command line with --objective in the place of --method."""
    return [{"--method": "--objective"}.get(word, word) for word in flags(config)]


def test_an_objective_is_trained_resumed_and_read(with_objective, capsys):
    config = with_objective
    main(["train", *objective_words(config)])
    assert OBJECTIVE in capsys.readouterr().out
    assert config.directory.parent.name == OBJECTIVE.replace(":", "-")
    lines = evaluations(config)
    assert [line["frames"] for line in lines] == [0, 400]
    read, agent, *_ = open_run(config.directory, trust=True)
    assert read == config and agent.parts.objective.__class__.__module__ == OBJECTIVE.split(":")[0]
    main(["train", *objective_words(config.with_settings(frames=800))])
    assert [line["frames"] for line in evaluations(config)] == [0, 400, 800]
