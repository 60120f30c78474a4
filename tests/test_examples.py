"""The examples run, train what they say, and stay as short as promised."""

import csv
import importlib.util
import runpy
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch

from revbis.objectives import OBJECTIVES, make_objective

torch.set_num_threads(1)
EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_plain_loop_learns_both_losses() -> None:
    log = load("plain_loop").train(steps=300)
    assert log[-1]["td_error"] < log[0]["td_error"]
    assert log[-1]["representation_loss"] < log[0]["representation_loss"]
    assert log[-1]["c"] != 0.5
    code = (EXAMPLES / "plain_loop.py").read_text().splitlines()
    assert len(code) < 60


@pytest.mark.parametrize("method", ["simsr", "mico-rev-pairs"])
def test_the_plain_loop_takes_other_methods(method: str) -> None:
    assert "representation_loss" in load("plain_loop").train(steps=100, method=method)[0]


def test_the_own_objective_learns_its_metric() -> None:
    result = load("own_objective").compare(steps=200, size=5)
    assert (result.metric, result.psi) == ("revised", None)
    assert result.phi.target.spearman > result.phi.untrained + 0.3
    assert len((EXAMPLES / "own_objective.py").read_text().splitlines()) < 60


@pytest.mark.parametrize(("factory", "name"), [("simsr", "simsr"), ("simsr_rev", "simsr-rev")])
def test_tenfold_rewards_change_nothing_else(factory: str, name: str) -> None:
    made = []
    for make in (getattr(load("tenfold_rewards"), factory), partial(make_objective, name)):
        torch.manual_seed(0)
        made.append(make(latent_dim=8, action_dim=2))
    z, next_z = torch.randn(2, 6, 8)
    action, reward, discount = torch.randn(6, 2), torch.rand(6), torch.full((6,), 0.9)
    tenfold = made[0](z, action, reward, discount, next_z).representation_loss
    known, plain = (
        made[1](z, action, unit * reward, discount, next_z).representation_loss for unit in (10, 1)
    )
    assert torch.equal(tenfold, known) and tenfold > plain


def test_controls_change_one_option() -> None:
    controls = load("controls")
    half, discount, scaled = (
        make(8, 2) for make in (controls.half, controls.discount, controls.scaled)
    )
    plain = make_objective("simsr-rev", 8, 2)
    assert (half.c, discount.c) == (0.5, None)
    assert half.coefficient is None and discount.coefficient is None
    assert scaled.reward_scale is not None and plain.reward_scale is None
    assert {one.design for one in (half, discount, scaled)} == {plain.design}


@pytest.mark.parametrize(
    "name", ["plain_loop", "stable_baselines3_sac", "own_objective", "every_horizon"]
)
def test_examples_use_one_thread_as_training_does(name: str, monkeypatch) -> None:
    asked = []

    def stop(threads: int | None = None) -> None:
        asked.append(threads)
        raise SystemExit

    monkeypatch.setattr("revbis.io.runtime.prepare", stop)
    monkeypatch.setattr("sys.argv", [name])
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert asked == [1]


EACH_KIND = ["simsr", "mico-rev", "simsr-rev-full", "simsr-rev-pairs", "dbc", "deepmdp"]


@pytest.mark.parametrize("objective", EACH_KIND)
def test_sb3_agent_trains_its_encoder_with_the_objective(objective: str, tmp_path: Path) -> None:
    module = load("stable_baselines3_sac")
    agent = module.BisimulationSAC(
        "MlpPolicy", "Pendulum-v1", objective=objective, learning_starts=50, seed=0, device="cpu"
    )
    heads = [p.detach().clone() for p in agent.objective.parameters()]
    encoder = [p.detach().clone() for p in agent.critic.features_extractor.parameters()]
    agent.learn(80)
    assert int(agent.objective.steps) == 80 - 50
    trained = list(agent.objective.parameters())
    assert all(not torch.equal(a, b) for a, b in zip(heads, trained, strict=True))
    now = agent.critic.features_extractor.parameters()
    assert all(not torch.equal(a, b) for a, b in zip(encoder, now, strict=True))
    agent.save(tmp_path / "agent")
    again = module.BisimulationSAC.load(tmp_path / "agent", device="cpu")
    assert int(again.objective.steps) == 30
    for a, b in zip(trained, again.objective.parameters(), strict=True):
        assert torch.equal(a, b)


def test_every_horizon_reads_one_training_and_trains_others_anew(tmp_path, monkeypatch) -> None:
    module = load("every_horizon")
    monkeypatch.setattr(module, "HORIZONS", (0.5, 0.9))
    monkeypatch.setattr(module, "TRAINED", ("energy-rev-full",))
    out = tmp_path / "horizons.csv"
    flags = ["--scenarios", "garnet", "--seeds", "1", "--steps", "100", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["every_horizon", *flags])
    module.main()
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = [(row["scenario"], row["method"], row["seed"], row["c"]) for row in rows]
    methods = ("laws", "energy-rev-full")
    assert found == [("garnet", name, "0", c) for name in methods for c in ("0.5", "0.9")]
    assert all(float(row["phi_spearman"]) > 0 for row in rows)
    assert all(0 < float(row["phi_error"]) < 0.2 for row in rows)
    assert not any("c =" in name for name in OBJECTIVES)
