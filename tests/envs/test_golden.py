"""The simulators give the states, rewards and pictures on which results/ stands."""

from functools import cache
from typing import Any

import pytest

from envs import golden

ABOUT, GOLDEN = golden.read()
TASKS = [
    pytest.param(task, marks=pytest.mark.env(golden.suite_of(task).name)) for task in golden.TASKS
]
drawn_by = cache(golden.drawn_by)


def skip_other_versions(task: str) -> None:
    installed = golden.versions(task)
    wanted = {name: ABOUT["versions"][name] for name in installed}
    if installed != wanted:
        pytest.skip(f"the records are of {wanted}; installed is {installed}: see golden.py")


@pytest.mark.parametrize("task", TASKS)
def test_ten_steps_are_those_of_the_records(task: str) -> None:
    skip_other_versions(task)
    found = golden.compare(golden.play(task), GOLDEN[task])
    assert found.same_physics and found.same_picture, found
    if drawn_by() == ABOUT["drawn_by"]:
        assert found.pixels, found


@pytest.mark.env("dmc")
def test_pixels_are_compared_to_the_last_bit() -> None:
    if drawn_by() != ABOUT["drawn_by"]:
        wanted, here = ABOUT["drawn_by"], drawn_by()
        pytest.skip(f"hashes of pixels are not compared: they are by {wanted}, not by {here}")
    task = "dmc:cartpole_swingup"
    skip_other_versions(task)
    assert golden.play(task).pixels == GOLDEN[task].pixels


def test_every_task_has_golden_numbers() -> None:
    assert list(GOLDEN) == golden.TASKS and len(golden.TASKS) == 66
    for each in GOLDEN.values():
        assert len(each.rewards) == golden.STEPS and each.first != each.last
        assert len(each.picture) == 48 and len(each.pixels) == 16


@pytest.mark.parametrize(
    ("change", "physics", "picture"),
    [
        ({}, True, True),
        ({"last": [1.0 + 1e-6, 200.0 + 1e-3]}, True, True),
        ({"last": [1.0 + 1e-4, 200.0]}, False, True),
        ({"last": [1.0, 200.0, 3.0]}, False, True),
        ({"first": [0.1]}, False, True),
        ({"rewards": [0.5, 0.6]}, False, True),
        ({"picture": [11.0, 20.0]}, True, True),
        ({"picture": [10.0, 23.0]}, True, False),
        ({"pixels": "b"}, True, True),
    ],
)
def test_rounding_is_no_difference(change: dict[str, Any], physics: bool, picture: bool) -> None:
    recorded = {"first": [0.0], "last": [1.0, 200.0], "rewards": [0.5, 0.7]}
    recorded |= {"picture": [10.0, 20.0], "pixels": "a"}
    ours, theirs = golden.Trajectory(**recorded | change), golden.Trajectory(**recorded)
    found = golden.compare(ours, theirs)
    assert (found.same_physics, found.same_picture) == (physics, picture)
    assert found.pixels is ("pixels" not in change)
