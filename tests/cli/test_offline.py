"""`revbis offline`, as typed, and what trains the encoders."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli import fails
from tests.runs import tiny_config

from revbis.cli import main
from revbis.representation.cells import read_cell
from revbis.representation.offline import (
    BENCHMARK,
    OfflineSettings,
    OfflineTraining,
    ReplaySource,
    plan,
    plan_stored,
    run_cell,
    source_of,
)
from revbis.runs.config import Config
from revbis.runs.memory import memory_bytes
from revbis.runs.run import open_run, train
from revbis.runs.trainer import make_replay

torch.set_num_threads(1)
TINY = OfflineSettings(steps=3, episodes=2)
PINNED = {1: [-0.0393525, 4.62989]}


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


def run_cells(cells, out: Path) -> None:
    for cell in cells:
        run_cell(out, cell, lambda _: None)


def words(run: Config, *more: str) -> list[str]:
    always = ["--steps", "3", "--episodes", "2", "--workers", "1"]
    return ["offline", "--trust", "--replay", str(run.directory), *always, *more]


def test_a_table_a_csv_and_cells_that_are_kept(
    run: Config, here: Path, capsys, monkeypatch
) -> None:
    names = ["simsr", "mico-rev-full"]
    main(words(run, "--methods", *names))
    printed = capsys.readouterr().out
    assert "tests.runs:Walk: φ, trained by the objective alone" in printed
    assert "state R²" in printed and "written to revbis-offline/: offline (.csv, .png" in printed
    assert Path("revbis-offline/offline.png").read_bytes().startswith(b"\x89PNG")
    with Path("revbis-offline/offline.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert list(rows) == names
    for row in rows.values():
        assert -1 <= float(row["phi_denoising_ood"]) <= 1
        assert row["phi_effective_rank"] != row["phi_effective_rank_untrained"]
    assert rows["simsr"]["c"] == "" and 0 < float(rows["mico-rev-full"]["c"]) < 1
    monkeypatch.setattr("revbis.representation.workers.run_all", None)  # nothing is run
    main(words(run, "--methods", *names))
    assert "2 of 2 cells are there already" in capsys.readouterr().out


def test_a_result_depends_on_its_cell_alone(run: Config, here: Path) -> None:
    cells = plan(run.directory, ["simsr", "dbc"], 2, TINY, trust=True)
    run_cells(cells, here / "all")
    results = [read_cell(cell, here / "all") for cell in cells]
    assert results[0] != results[2]  # another seed
    *_, last = cells
    run_cells([last], here / "one")
    assert read_cell(last, here / "one") == results[-1]


def test_numbers_change_with_a_version_of_the_benchmark(run: Config, here: Path) -> None:
    """Whoever changes one raises the version of the benchmark, and adds the new numbers."""
    (cell,) = plan(run.directory, ["simsr-rev-full"], 1, TINY, trust=True)
    run_cell(here, cell, lambda _: None)
    row = read_cell(cell, here)
    found = [row[name] for name in ("phi_denoising_ood", "phi_effective_rank")]
    assert found == pytest.approx(PINNED[BENCHMARK], rel=1e-2)


def test_only_the_objective_trains_and_the_run_is_not_changed(run: Config) -> None:
    before = {path: path.read_bytes() for path in run.directory.rglob("*") if path.is_file()}
    source = ReplaySource(run.directory, trust=True)
    training = OfflineTraining(source, "simsr", 0)
    start = {k: v.clone() for k, v in training._parts.encoder.state_dict().items()}
    actor = training._parts.policy.state_dict()["layers.0.weight"].clone()
    training.run(3, lambda _: None)
    moved = training._parts.encoder.state_dict()
    assert all(not torch.equal(moved[name], value) for name, value in start.items())
    assert torch.equal(training._parts.policy.state_dict()["layers.0.weight"], actor)
    assert before == {p: p.read_bytes() for p in run.directory.rglob("*") if p.is_file()}


def test_policy_actions_are_those_of_the_trained_actor(run: Config) -> None:
    source = ReplaySource(run.directory, trust=True)
    agent = open_run(run.directory, trust=True).agent
    seen = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    source._agent.deviation = lambda step: 0.0  # type: ignore[union-attr]
    actions = source.policy_actions(torch.from_numpy(seen), torch.Generator())
    wanted = np.stack([agent.act(each, 0, explore=False) for each in seen])
    assert np.allclose(actions.numpy(), wanted, atol=1e-5)


def test_agent_and_replay_buffer_are_of_the_same_checkpoint(here: Path) -> None:
    config = tiny_config(here, task="tests.runs:Walk", frames=160, checkpoint_every=150)
    assert train(config)
    older, newest = sorted((config.directory / "checkpoints").glob("frame-*"))
    (newest / "state.json").write_text("")
    source = ReplaySource(config.directory, trust=True)
    saved = torch.load(older / "agent.pt", weights_only=True)["networks"]["encoder"]
    for name, value in source._agent.state_dict()["networks"]["encoder"].items():
        assert torch.equal(value, saved[name])


def test_the_replay_buffer_is_the_runs_and_drawn_by_the_seed(run: Config) -> None:
    source = ReplaySource(run.directory, trust=True)
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

    refused("--episodes must be at least 2", *words(run, "--episodes", "1"))
    shutil.copytree(run.directory, here / "bare")
    shutil.rmtree(here / "bare" / "checkpoints" / "replay")
    refused(
        "is missing or truncated", "offline", "--trust", "--replay", "bare", "--methods", "simsr"
    )
    shutil.rmtree(here / "bare" / "checkpoints")
    refused(
        "bare is finished, but its checkpoints are",
        "offline",
        "--trust",
        "--replay",
        "bare",
        "--methods",
        "simsr",
    )
    assert not (here / "revbis-offline").exists()


def test_a_buffer_that_is_too_small_is_refused(run: Config, monkeypatch) -> None:
    source = ReplaySource(run.directory, trust=True)
    large = source.config.with_settings(batch_size=500)
    monkeypatch.setattr(source, "config", large)
    with pytest.raises(ValueError, match=r"transitions, fewer than a batch of 500; train the run"):
        source.replay(0, one_step=False)


def test_policies_that_cannot_act_in_batches_are_refused(run: Config, monkeypatch) -> None:
    source = ReplaySource(run.directory, trust=True)
    monkeypatch.setattr(source, "_agent", object())
    OfflineTraining(source, "simsr", 0)
    with pytest.raises(ValueError, match="simsr-rev-full needs actions of the run's policy"):
        OfflineTraining(source, "simsr-rev-full", 0)


def test_without_names_what_the_run_cannot_train_is_left_out(
    run: Config, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(ReplaySource, "acts_in_batches", False)
    planned = {cell.method for cell in plan(run.directory, [], 1, TINY, trust=True)}
    assert {"simsr", "simsr-rev", "zp"} < planned and "simsr-rev-full" not in planned
    [said] = caplog.messages
    assert said.startswith("left out, as they need actions") and "simsr-rev-full" in said
    with pytest.raises(ValueError, match="name others with --methods"):
        plan(run.directory, ["simsr", "simsr-rev-full"], 1, TINY, trust=True)


def test_a_large_ring_takes_the_memory_of_its_records(here: Path) -> None:
    settings = {"task": "tests.runs:Walk", "observation": "state", "frames": 200}
    config = tiny_config(here, **settings, replay_capacity=10_000, replay_storage="disk")
    assert train(config)
    source = ReplaySource(config.directory, trust=True)
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
        source_of(run.directory, "another", True)


def test_without_a_run_finished_cells_are_shown(run: Config, here: Path, capsys) -> None:
    main(words(run, "--methods", "simsr", "dbc"))
    first = Path("revbis-offline/offline.csv").read_bytes()
    shutil.make_archive("revbis-offline/cells", "zip", "revbis-offline/cells")
    shutil.rmtree("revbis-offline/cells")
    alone = ["offline", "--steps", "3", "--episodes", "2"]
    main([*alone, "--methods", "simsr", "dbc"])
    assert Path("revbis-offline/offline.csv").read_bytes() == first
    capsys.readouterr()
    main(alone)
    assert "2 of 2 cells are there already" in capsys.readouterr().out
    assert "has no such results" in fails(capsys, *alone, "--methods", "zp")
    assert "has no such results" in fails(capsys, "offline", "--out", "nowhere")


@pytest.mark.parametrize(
    ("folder", "steps", "methods", "seeds", "count"),
    [
        ("gaussian-0.1", 1000, (), 5, 105),
        ("gaussian-0.1", 1000, ("simsr", "simsr-rev", "simsr-rev-no-c", "simsr-rev-no-sa"), 10, 40),
        ("gaussian-0.1", 1000, ("controls:half", "controls:discount"), 5, 10),
        ("gaussian-0.1", 4000, (), 5, 10),
        ("gaussian-0.1-seed-2", 1000, (), 5, 10),
        ("gaussian", 1000, (), 2, 16),
        ("shapes", 1000, (), 5, 105),
        ("walker-0.1", 1000, (), 5, 20),
        ("cheetah-0.1", 1000, (), 5, 20),
    ],
)
def test_committed_cells_are_found(
    folder: str, steps: int, methods: tuple[str, ...], seeds: int, count: int, monkeypatch
) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(root / "examples")
    monkeypatch.setattr("torch.__version__", "2.13.0+cpu")  # of the machine that trained them
    settings = OfflineSettings(steps=steps)
    assert len(plan_stored(root / "results/offline" / folder, methods, seeds, settings)) == count


@pytest.mark.parametrize(("buffers", "expected"), [(1, 1), (2, 2), (1000, 3)])
def test_as_many_processes_as_fit_into_memory(
    buffers: int, expected: int, run: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = buffers * memory_bytes(run)  # the run's buffer is in memory, too
    monkeypatch.setattr("revbis.io.machine.available_bytes", lambda: free)
    monkeypatch.setattr("revbis.io.machine.usable_cores", lambda: 3)
    asked = []
    monkeypatch.setattr("revbis.cli.offline._run", lambda *args: asked.append(args[2]))
    main(["offline", "--trust", "--replay", str(run.directory), "--methods", "simsr"])
    assert asked == [expected]
