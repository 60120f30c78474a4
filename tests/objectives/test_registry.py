import subprocess
import sys

import pytest
import torch

from revbis import objectives
from revbis.objectives import (
    DESIGNS,
    OBJECTIVES,
    Objective,
    ObjectiveEntry,
    make_objective,
    register,
    unregister,
)
from revbis.objectives.registry import accepted_options, check_name

TOY = ObjectiveEntry(
    "toy",
    "tests.objectives.own_objectives:make",
    "Euclidean distance between states",
    options=("width",),
    defaults={"width": 3},
)


@pytest.fixture
def toy():
    register(TOY)
    yield
    unregister("toy")


def test_names_are_read_without_torch() -> None:
    code = (
        "import sys, revbis.objectives.registry, revbis.agents, revbis.objectives\n"
        "assert 'simsr-rev' in revbis.objectives.OBJECTIVES\n"
        "print('torch' in sys.modules)\n"
        "revbis.objectives.make_objective('simsr', 4, 2)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]


def test_every_public_name_is_there() -> None:
    for name in objectives.__all__:
        assert getattr(objectives, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        objectives.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_keeps_the_protocol(name: str) -> None:
    objective = make_objective(name, 4, 2, hidden=8)
    assert isinstance(objective, Objective)
    assert objective.compares in ("state", "state_action")
    assert objective.metric == ("pi_bisimulation" if name == "dbc" else "revised")
    learned = list(objective.coefficient_parameters())
    expected = {"c": 0.5} if learned else {}
    tied = name in DESIGNS and DESIGNS[name].tied
    expected |= {"reward_scale": 1.0} if tied else {}
    assert objective.status() == expected
    z, action = torch.randn(3, 4), torch.rand(3, 2)
    compared = objective.embed(z, action)
    assert torch.equal(compared, objective.scale(z)) == (objective.compares == "state")


def test_entries_say_what_they_are() -> None:
    descriptions = {name: entry.description for name, entry in OBJECTIVES.items()}
    assert list(descriptions) == [*DESIGNS, "dbc", "zp", "deepmdp", "laws", "laws-zp", "means"]
    assert len(set(descriptions.values())) == len(descriptions)
    assert all(text and "\n" not in text and len(text) <= 60 for text in descriptions.values())
    text = "SimSR distance between pairs, weights (1−c, c)"
    assert descriptions["simsr-rev"] == text
    assert "beta" in accepted_options("mico") and "beta" not in accepted_options("simsr-rev")
    assert accepted_options("somebodys.module:make") == ()


def test_an_objective_from_outside_the_package(toy) -> None:
    assert "toy" in OBJECTIVES and accepted_options("toy") == ("width",)
    assert make_objective("toy", 5, 2).head.out_features == 3
    objective = make_objective("toy", 5, 2, width=4)
    assert isinstance(objective, Objective) and objective.head.out_features == 4
    with pytest.raises(ValueError, match="an option of toy must be one of width, got 'beta'"):
        make_objective("toy", 5, 2, beta=0.1)
    with pytest.raises(ValueError, match="there is an objective 'toy' already"):
        register(TOY)
    with pytest.raises(ValueError, match=r"builder must be package.module:factory, got 'make'"):
        register(ObjectiveEntry("other", "make", ""))
    assert "other" not in OBJECTIVES
    unregister("toy")
    with pytest.raises(ValueError, match=r"objective must be one of mico, .*, got 'toy'"):
        make_objective("toy", 5, 2)
    register(TOY)


def test_names_are_checked_without_an_import() -> None:
    assert check_name("simsr") == "simsr"
    assert check_name("no_such_package.module:make") == "no_such_package.module:make"
    for name in ("simrs", "", ":", "a:", ":b", "a.:b", ".a:b", "a:b:c", "a b:c", None, 3):
        with pytest.raises(
            ValueError, match=r"^--objective must be one of (mico, .*:factory|26 names), got"
        ):
            check_name(name, "--objective")
