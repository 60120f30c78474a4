"""`revbis isolate`, as typed, and what trains the encoders."""

import csv
import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli import fails
from tests.runs import tiny_config

from revbis.agents.drqv2 import DrQV2
from revbis.cli import main
from revbis.envs import make_env
from revbis.representation import offline
from revbis.representation.measures import rank_correlation
from revbis.representation.offline import (
    Isolated,
    IsolatedSettings,
    Source,
    plan,
    read_cell,
    run_cells,
    source_of,
)
from revbis.representation.yardsticks import Pool
from revbis.runs.config import Config
from revbis.runs.run import open_run, train
from revbis.runs.seeds import episode_seeds
from revbis.runs.trainer import make_replay
from revbis.sweep.plan import memory_bytes

torch.set_num_threads(1)
TINY = IsolatedSettings(steps=3, episodes=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Config:
    settings = {"task": "tests.runs:Walk", "observation": "state", "state_noise": 4}
    config = tiny_config(tmp_path_factory.mktemp("runs"), **settings, frames=200)
    assert train(config)
    return config


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def quiet(text: str, done: float) -> None:
    pass


def words(run: Config, *more: str) -> list[str]:
    always = ["--steps", "3", "--episodes", "2", "--workers", "1"]
    return ["isolate", "--replay", str(run.directory), *always, *more]


def test_a_table_a_csv_and_cells_that_are_kept(
    run: Config, here: Path, capsys, monkeypatch
) -> None:
    names = ["simsr", "mico-rev-full"]
    main(words(run, "--methods", *names))
    printed = capsys.readouterr().out
    assert "tests.runs:Walk: φ, trained by the objective alone" in printed
    assert "state R²" in printed and "written to revbis-isolate/: isolate (.csv, .png" in printed
    assert Path("revbis-isolate/isolate.png").read_bytes().startswith(b"\x89PNG")
    with Path("revbis-isolate/isolate.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert list(rows) == names
    for row in rows.values():
        assert -1 <= float(row["phi_denoising_ood"]) <= 1
        assert row["phi_effective_rank"] != row["phi_effective_rank_untrained"]
    assert rows["simsr"]["c"] == "" and 0 < float(rows["mico-rev-full"]["c"]) < 1
    monkeypatch.setattr("revbis.representation.offline.run_cells", None)  # nothing is run
    main(words(run, "--methods", *names))
    assert "2 of 2 cells are there already" in capsys.readouterr().out


def test_a_result_depends_on_its_cell_alone(run: Config, here: Path) -> None:
    cells = plan(run.directory, ["simsr", "dbc"], 2, TINY)
    assert run_cells(cells, here / "all", 1, quiet) == {}
    results = [read_cell(cell, here / "all") for cell in cells]
    assert results[0] != results[2]  # another seed
    last = dict(list(offline.items())[-1:])
    assert run_cells(last, here / "one", 1, quiet) == {}
    assert read_cell(next(iter(last)), here / "one") == results[-1]


def test_only_the_objective_trains_and_the_run_is_not_changed(run: Config) -> None:
    before = {path: path.read_bytes() for path in run.directory.rglob("*") if path.is_file()}
    source = Source(run.directory)
    isolated = Isolated(source, "simsr", 0)
    start = {k: v.clone() for k, v in isolated._parts.encoder.state_dict().items()}
    actor = isolated._parts.policy.state_dict()["layers.0.weight"].clone()
    isolated.run(3, lambda _: None)
    moved = isolated._parts.encoder.state_dict()
    assert all(not torch.equal(moved[name], value) for name, value in start.items())
    assert torch.equal(isolated._parts.policy.state_dict()["layers.0.weight"], actor)
    assert before == {p: p.read_bytes() for p in run.directory.rglob("*") if p.is_file()}


def test_policy_actions_are_those_of_the_trained_actor(run: Config) -> None:
    source, (_, agent) = Source(run.directory), open_run(run.directory)
    seen = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    source._agent.deviation = lambda step: 0.0  # type: ignore[union-attr]
    actions = source.policy_actions(torch.from_numpy(seen), torch.Generator())
    wanted = np.stack([agent.act(each, 0, explore=False) for each in seen])
    assert np.allclose(actions.numpy(), wanted, atol=1e-5)


def test_the_replay_buffer_is_the_runs_and_drawn_by_the_seed(run: Config) -> None:
    source = Source(run.directory)
    first, same, other = (source.replay(seed, one_step=True).sample(8) for seed in (1, 1, 2))
    assert torch.equal(first.obs, same.obs) and not torch.equal(first.obs, other.obs)
    assert first.one_step is not None
    [state] = run.directory.glob("checkpoints/frame-000000000200/state.json")
    written = json.loads(state.read_text())["replay"]["written"]
    assert source.replay(1, one_step=False).written == written


def test_mistakes_get_one_line(run: Config, here: Path, capsys) -> None:
    def refused(text: str, *given: str) -> None:
        error = fails(capsys, *given)
        assert text in error and len(error.splitlines()) == 1

    refused("none does not exist", "isolate", "--replay", "none")
    refused("--methods must be one of", *words(run, "--methods", "drqv2"))
    refused("--objective must be package.module:factory", *words(run, "--objective", "simsr"))
    refused("--steps must be at least 1", *words(run, "--steps", "0"))
    refused("--episodes must be at least 2", *words(run, "--episodes", "1"))
    shutil.copytree(run.directory, here / "bare")
    shutil.rmtree(here / "bare" / "checkpoints" / "replay")
    refused("is missing or truncated", "isolate", "--replay", "bare", "--methods", "simsr")
    shutil.rmtree(here / "bare" / "checkpoints")
    refused("bare has no checkpoint yet", "isolate", "--replay", "bare", "--methods", "simsr")
    assert not (here / "revbis-isolate").exists()


def test_a_buffer_that_is_too_small_is_refused(run: Config, monkeypatch) -> None:
    source = Source(run.directory)
    large = source.config.with_settings(batch_size=500)
    monkeypatch.setattr(source, "config", large)
    with pytest.raises(ValueError, match=r"transitions, fewer than a batch of 500; train the run"):
        source.replay(0, one_step=False)


def test_policies_that_cannot_act_in_batches_are_refused(run: Config, monkeypatch) -> None:
    source = Source(run.directory)
    monkeypatch.setattr(source, "_agent", object())
    Isolated(source, "simsr", 0)
    with pytest.raises(ValueError, match="simsr-rev-full needs actions of the run's policy"):
        Isolated(source, "simsr-rev-full", 0)


def test_without_names_what_the_run_cannot_train_is_left_out(
    run: Config, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(Source, "acts_in_batches", False)
    planned = {cell.method for cell in plan(run.directory, [], 1, TINY)}
    assert {"simsr", "simsr-rev", "zp"} < planned and "simsr-rev-full" not in planned
    [said] = caplog.messages
    assert said.startswith("left out, as they need actions") and "simsr-rev-full" in said
    with pytest.raises(ValueError, match="name others with --methods"):
        plan(run.directory, ["simsr", "simsr-rev-full"], 1, TINY)


def test_a_large_ring_takes_the_memory_of_its_records(here: Path) -> None:
    settings = {"task": "tests.runs:Walk", "observation": "state", "frames": 200}
    config = tiny_config(here, **settings, replay_capacity=10_000, replay_storage="disk")
    assert train(config)
    source = Source(config.directory)
    small = source.replay(1, one_step=False)
    assert small.state()["settings"]["capacity"] == small.written < 10_000
    whole = make_replay(config, source._env)
    checkpoint = source._checkpoint
    generator = np.random.PCG64(1).state
    whole.restore(checkpoint.records(), checkpoint.state["replay"] | {"generator": generator})
    for _ in range(3):
        assert torch.equal(small.sample(16).obs, whole.sample(16).obs)


def test_a_run_that_has_gone_on_is_refused(run: Config) -> None:
    with pytest.raises(ValueError, match="has a newer checkpoint by now; repeat the command"):
        source_of(run.directory, "another")


def test_other_code_is_another_cell(run: Config, here: Path, monkeypatch) -> None:
    (cell,) = plan(run.directory, ["simsr"], 1, TINY)
    before = cell.path(here)
    monkeypatch.setattr("revbis.representation.offline._code", lambda: "changed")
    assert cell.path(here) != before


def test_all_code_that_decides_a_result_is_part_of_its_key(monkeypatch) -> None:
    files: list[Path] = []
    monkeypatch.setattr("revbis.representation.offline.code_checksum", files.extend)
    offline._code.__wrapped__()
    deciding = (Pool, Isolated, DrQV2, make_env, make_replay, rank_correlation, episode_seeds)
    assert {Path(inspect.getfile(part)) for part in deciding} <= set(files)


@pytest.mark.parametrize(("buffers", "expected"), [(1, 1), (2, 2), (1000, 3)])
def test_as_many_processes_as_fit_into_memory(
    buffers: int, expected: int, run: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = buffers * memory_bytes(run)  # the run's buffer is in memory, too
    monkeypatch.setattr("revbis.io.machine.available_bytes", lambda: free)
    monkeypatch.setattr("revbis.representation.workers.usable_cores", lambda: 3)
    asked = []
    monkeypatch.setattr("revbis.cli.offline._run", lambda *args: asked.append(args[2]))
    main(["isolate", "--replay", str(run.directory), "--methods", "simsr"])
    assert asked == [expected]
