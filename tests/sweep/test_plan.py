"""A sweep before it starts: its forecast, from hand-made numbers, and what it leaves alone."""

import json
from dataclasses import replace

import pytest
from tests.sweep.grids import small_grid

from revbis.runs import preflight
from revbis.sweep import backend as places
from revbis.sweep import plan as plans
from revbis.sweep.backend import Backend, local_workers
from revbis.sweep.plan import (
    Speed,
    disk_bytes,
    forecast,
    make_plan,
    memory_bytes,
    run_plan,
    seconds_left,
)

SPEED = Speed(step=0.01, act=0.0, update=0.02)
SPEEDS = {"drqv2": SPEED}
TASK = "tests.runs:Walk"


@pytest.fixture(autouse=True)
def _plenty_of_memory_and_ray(monkeypatch):
    monkeypatch.setattr(places, "available_bytes", lambda: 10**12)
    monkeypatch.setattr(places, "is_installed", lambda module: True)


def _write(config, name, content):
    config.directory.mkdir(parents=True, exist_ok=True)
    (config.directory / name).write_text(json.dumps(content))


def test_a_forecast_is_the_sum_of_its_runs(tmp_path):
    plan = make_plan(small_grid(TASK, seeds=[1, 2]), str(tmp_path), Backend(workers=2))
    expected = forecast(plan, SPEEDS)
    one = seconds_left(plan.configs[0], 0, SPEED)
    assert expected.seconds == pytest.approx(4 * one / 2) and expected.workers == 2
    assert expected.disk == sum(map(disk_bytes, plan.configs))
    assert expected.folder == f"{tmp_path}/cpu/tests.runs-Walk"
    assert [run.name for run in expected.runs][:2] == ["drqv2/seed-1", "simsr-rev/seed-1"]
    assert {(run.state, run.seconds) for run in expected.runs} == {("waiting", one)}
    assert not list(tmp_path.iterdir())


def test_runs_that_were_given_up_count_only_if_they_are_retried(tmp_path):
    first, second = small_grid(TASK).configs(tmp_path)
    failures = {"failures": [{"checkpoint": 0, "text": "it", "final": True}]}
    _write(first, "failures.json", failures)
    _write(second, "progress.json", {"frames": 300})
    grid = small_grid(TASK)
    expected = forecast(make_plan(grid, str(tmp_path), Backend()), SPEEDS)
    assert [run.state for run in expected.runs] == ["failed", "resumed"]
    assert expected.given_up == 1 and expected.runs[0].seconds == 0.0
    expected = forecast(make_plan(grid, str(tmp_path), Backend(), retry_failed=True), SPEEDS)
    assert [run.state for run in expected.runs] == ["waiting", "resumed"]
    assert expected.given_up == 0 and expected.runs[0].seconds > 0
    assert json.loads((first.directory / "failures.json").read_text()) == failures


def test_ray_decides_how_many_run_at_once(tmp_path):
    plan = make_plan(small_grid(TASK), str(tmp_path), Backend(on="ray"))
    expected = forecast(plan, SPEEDS)
    assert expected.workers is None
    assert expected.seconds == pytest.approx(sum(run.seconds for run in expected.runs))


@pytest.mark.parametrize(
    ("free", "where", "workers"),
    [
        (5, Backend(threads=1), 4),  # memory for five, four cores
        (3, Backend(threads=1), 3),
        (5, Backend(threads=2), 2),
        (1, Backend(threads=64), 1),  # always one
        (5, Backend(workers=5), 5),  # as asked for, beyond the cores
    ],
)
def test_as_many_at_once_as_cores_and_memory_allow(free, where, workers, monkeypatch):
    monkeypatch.setattr(places, "available_bytes", lambda: free * 1000 + 999)
    monkeypatch.setattr(places.os, "sched_getaffinity", lambda process: set(range(4)))
    assert local_workers(where, 1000) == workers
    with pytest.raises(MemoryError, match=r"parallel runs take .* but only .* use fewer --workers"):
        local_workers(Backend(workers=free + 1), 1000)


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    plan = make_plan(small_grid(TASK), str(tmp_path), Backend())
    monkeypatch.setattr(places, "available_bytes", lambda: memory_bytes(plan.configs[0]) - 1)
    with pytest.raises(MemoryError, match="a run takes"):
        run_plan(plan, lambda: False)
    assert not list(tmp_path.iterdir())


def test_what_this_machine_lacks_is_refused_with_the_methods_that_it_can_train(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(preflight, "is_installed", lambda module: False)
    methods = ["drqv2", "dreamerv3", "simsr-rev"]
    grid = small_grid(TASK, methods=methods, seeds=[1, 2], settings={"explore_steps": 40})
    plan = make_plan(grid, str(tmp_path), Backend())
    assert plan.lack.startswith("2 of 6 runs cannot be trained here: dreamerv3 needs sheeprl, ")
    assert plan.lack.endswith("; or leave dreamerv3 out: --methods drqv2 simsr-rev")
    assert "pip install" in plan.lack and "\n" not in plan.lack
    assert len(forecast(plan, SPEEDS).runs) == 6
    with pytest.raises(ValueError, match="dreamerv3 needs sheeprl"):
        run_plan(plan, lambda: False)
    assert not list(tmp_path.iterdir())
    alone = replace(grid, methods=("dreamerv3",))
    assert make_plan(alone, str(tmp_path), Backend()).lack.startswith("dreamerv3 needs sheeprl")
    assert (
        make_plan(grid, str(tmp_path), Backend("ray", "auto")).lack is None
    )  # the nodes may have it


def test_a_mistake_is_refused_with_all_reasons_even_if_something_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "is_installed", lambda module: False)
    grid = small_grid(TASK, methods=["drqv2", "dreamerv3"], settings={"explore_steps": 40})
    wrong = replace(grid, tasks=(TASK, "walk"))
    with pytest.raises(ValueError, match="3 of 4 runs cannot be trained; none was") as refused:
        make_plan(wrong, str(tmp_path), Backend())
    assert "a task must be" in str(refused.value) and "sheeprl" in str(refused.value)


def test_a_finished_sweep_needs_no_runner(tmp_path, monkeypatch):
    for config in small_grid(TASK).configs(tmp_path):
        _write(config, "result.json", {"frames": config.frames, "mean_return": 1.0})
    monkeypatch.setattr(plans, "make_runner", None)  # would fail if it were called
    monkeypatch.setattr(places, "available_bytes", lambda: 0)
    sweep = run_plan(make_plan(small_grid(TASK), str(tmp_path), Backend()), lambda: False)
    assert sweep.complete
