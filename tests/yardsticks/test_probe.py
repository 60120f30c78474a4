import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from revbis import tabular
from revbis.cli import main
from revbis.objectives import NonFiniteError, make_objective
from revbis.yardsticks import probe

torch.set_num_threads(1)
SHORT = probe.ProbeSettings(steps=150, batch=64, normalisation=False)


@pytest.fixture(scope="module")
def world():
    return tabular.examples.four_rooms(5)


def test_every_state_has_its_own_picture(world) -> None:
    images = probe.render_states(world.mdp)
    assert images.shape == (world.mdp.n_states, 3, 10, 10)
    flat = images.flatten(1)
    assert len(flat.unique(dim=0)) == world.mdp.n_states
    assert 0 <= flat.min() < flat.max() <= 1


def test_collected_transitions_follow_mdp_and_policy(world) -> None:
    policy = np.tile([0.7, 0.3, 0.0, 0.0], (world.mdp.n_states, 1))
    data = probe.collect(world.mdp, policy, 20_000, np.random.default_rng(0))
    s, a, s2 = (x.numpy() for x in (data.s, data.a, data.s2))
    assert np.isclose((a == 0).mean(), 0.7, atol=0.02) and a.max() == 1
    assert np.allclose(data.r.numpy(), world.mdp.rewards[s, a])
    estimate = tabular.FiniteMDP.from_transitions(s, a, data.r.numpy(), s2)
    rows = estimate.transitions.toarray().reshape(-1, 2, world.mdp.n_states)
    exact = world.mdp.transitions.toarray().reshape(-1, 4, world.mdp.n_states)[:, :2]
    assert np.abs(rows - exact).max() < 0.1


@pytest.mark.parametrize("method", ["mico", "simsr", "simsr-rev-no-sa"])
def test_learning_brings_the_metric_near_its_exact_fixed_point(method: str, world) -> None:
    found = probe.probe(world.mdp, world.policy, method, 0, SHORT)
    assert found.level == "state"
    assert found.trained.spearman > 0.7
    assert found.trained.spearman > found.start.spearman + 0.3
    assert found.encoder_rank == pytest.approx(found.trained.spearman)


def test_one_seed_one_result(world) -> None:
    short = probe.ProbeSettings(steps=5, batch=16)
    a, b = (probe.probe(world.mdp, world.policy, "simsr-rev", 3, short) for _ in range(2))
    assert np.array_equal(a.learned, b.learned) and a.c == b.c
    assert a.level == "state_action"
    assert a.learned.shape == (len(world.mdp.state_actions),) * 2


def test_each_method_is_compared_with_its_own_fixed_point(world) -> None:
    kinds = {}
    for name in ("mico", "mico-rev", "mico-rev-no-c", "simsr-rev-no-sa", "dbc"):
        objective = make_objective(name, 4, 4)
        exact = probe.exact_fixed_point(world.mdp, world.policy, objective, 0.9, 0.4)
        kinds[name] = (exact.metric, exact.level, exact.discount, exact.reward_weight)
    assert kinds == {
        "mico": ("revised", "state", 0.9, 1.0),
        "mico-rev": ("revised", "state_action", 0.4, 0.6),
        "mico-rev-no-c": ("revised", "state_action", 0.9, 1.0),
        "simsr-rev-no-sa": ("revised", "state", 0.4, 0.6),
        "dbc": ("pi_bisimulation", "state", 0.9, 1.0),
    }


def test_the_command_writes_table_records_and_picture(tmp_path: Path, capsys) -> None:
    words = ["probe", "--methods", "simsr", "mico-rev", "--size", "5"]
    main([*words, "--steps", "3", "--seeds", "2", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "simsr (raw)" in printed and "mico-rev" in printed
    with open(tmp_path / "probe.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert {row["normalised"] for row in rows} == {"True", "False"}
    assert (tmp_path / "probe.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "simrs"], "did you mean 'simsr'"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--gamma", "1"], "--gamma must be in [0, 1)"),
        (["--size", "3"], "size must be at least 5"),
        (["--size", "1e3"], "--size must be at most 40, got 1000"),
    ],
)
def test_mistakes_get_one_line(words: list[str], said: str, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["probe", *words])
    error = capsys.readouterr().err.strip()
    assert stop.value.code == 2
    assert said in error and len(error.splitlines()) == 1


def test_a_loss_that_is_not_finite_is_one_line(capsys, tmp_path, monkeypatch) -> None:
    def diverge(*_: object) -> None:
        raise NonFiniteError("z", 3, 10, 7)

    monkeypatch.setattr("revbis.yardsticks.probe.probe", diverge)
    with pytest.raises(SystemExit) as stop:
        main(["probe", "--methods", "mico", "--size", "5", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "error: mico: z has 3 non-finite values of 10" in capsys.readouterr().err


def test_only_grids_are_rendered() -> None:
    with pytest.raises(ValueError, match="needs a grid"):
        probe.render_states(tabular.examples.toy().mdp)
