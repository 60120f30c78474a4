"""An objective of the user's own in training: a method by its factory's name."""

import pytest
from tests.cli import fails
from tests.runs import evaluations, flags, tiny_config

from revbis.cli import main
from revbis.runs.run import open_run

OWN = "tests.objectives.own_objectives:make"


@pytest.fixture
def config(tmp_path):
    return tiny_config(
        tmp_path,
        task="tests.runs:Walk",
        method=OWN,
        observation="state",
        quality="full",
        frames=400,
    )


def words(config):
    """The command line with --objective in the place of --method."""
    return [{"--method": "--objective"}.get(word, word) for word in flags(config)]


def test_it_is_trained_resumed_and_read(config, capsys):
    main(["train", *words(config)])
    assert OWN in capsys.readouterr().out
    assert config.directory.parent.name == OWN.replace(":", "-")
    lines = evaluations(config)
    assert [line["frames"] for line in lines] == [0, 400]
    read, agent = open_run(config.directory)
    assert read == config and agent.parts.objective.__class__.__module__ == OWN.split(":")[0]
    main(["train", *words(config.with_settings(frames=800))])
    assert [line["frames"] for line in evaluations(config)] == [0, 400, 800]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (["--objective", "simsr"], "--objective must be package.module:factory, got 'simsr'"),
        (["--objective", OWN, "--method", "simsr"], "replaces the method: drop --method simsr"),
        (["--objective", "tests.nowhere:make"], "there is no module 'tests.nowhere'"),
        (["--objective", "tests.objectives.own_objectives:nobody"], "has no function 'nobody'"),
        (["--objective", "json:dumps"], "json:dumps"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(flag, message, config, tmp_path, capsys):
    rest = [word for word in words(config) if word not in ("--objective", OWN)]
    error = fails(capsys, "train", *rest, *flag)
    assert message in error and error.count("\n") == 0
    assert not list(tmp_path.iterdir())
