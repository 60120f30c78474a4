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
    measurement = probe.probe(world.mdp, world.policy, method, 0, SHORT)
    assert measurement.level == "state"
    assert measurement.trained.spearman > 0.7
    assert measurement.trained.spearman > measurement.start.spearman + 0.3
    assert measurement.encoder_rank == pytest.approx(measurement.trained.spearman)


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


OWN = "tests.objectives.own_objectives"


def test_an_own_objective_learns_the_metric_it_names(world) -> None:
    measurement = probe.probe(world.mdp, world.policy, f"{OWN}:make", 0, SHORT)
    exact = measurement.exact
    assert (exact.metric, exact.level, exact.c) == ("revised", "state", None)
    assert measurement.c == pytest.approx(0.9) and measurement.normalised is None
    assert measurement.trained.spearman > measurement.start.spearman + 0.3
    assert measurement.encoder_rank != measurement.trained.spearman  # it has a head on φ


def test_an_own_metric_level_and_coefficient(world) -> None:
    short = probe.ProbeSettings(steps=2, batch=16)
    measurement = probe.probe(world.mdp, world.policy, f"{OWN}:Weighted", 0, short)
    assert (measurement.exact.metric, measurement.level) == ("mico", "state_action")
    assert measurement.exact.c == measurement.c == 0.9  # no next_weight: γ


def test_what_has_no_normalisation_is_probed_once(world) -> None:
    settings = probe.ProbeSettings()
    runs = probe.plan([f"{OWN}:make", "simsr"], world.mdp, settings, (True, False))
    names = [(name, each.normalisation) for name, each in runs]
    assert names == [(f"{OWN}:make", True), ("simsr", True), ("simsr", False)]


def test_the_command_takes_an_own_objective(tmp_path: Path, capsys) -> None:
    words = ["--objective", f"{OWN}:make", "--size", "5", "--steps", "2", "--out", str(tmp_path)]
    main(["probe", *words])
    printed = capsys.readouterr().out
    assert "own_objectives" in printed and "(raw)" not in printed
    with open(tmp_path / "probe.csv") as file:
        (row,) = csv.DictReader(file)
    assert (row["method"], row["normalised"], row["level"]) == (f"{OWN}:make", "", "state")
    main(["probe", "--methods", "simsr", *words])
    with open(tmp_path / "probe.csv") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["simsr", f"{OWN}:make", "simsr"]


def test_an_own_objective_that_does_not_work_is_refused_first(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    words = ["--methods", "simsr", "--objective", f"{OWN}:infinite_distance", "--out", str(out)]
    with pytest.raises(SystemExit) as stop:
        main(["probe", *words])
    error = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and not out.exists()
    assert error == (
        f"revbis: error: {OWN}:infinite_distance: distance(x, y) has 24 non-finite values of 24"
    )


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
    ("words", "message"),
    [
        (["--methods", "simrs"], "did you mean 'simsr'"),
        (["--objective", "simsr"], "must be package.module:factory, got 'simsr'; pass names to"),
        (["--objective", "nowhere:make"], "nowhere:make: there is no module 'nowhere'"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--gamma", "1"], "--gamma must be in [0, 1)"),
        (["--size", "3"], "size must be at least 5"),
        (["--size", "1e3"], "--size must be at most 40, got 1000"),
    ],
)
def test_mistakes_get_one_line(
    words: list[str], message: str, capsys, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["probe", *words])
    error = capsys.readouterr().err.strip()
    assert stop.value.code == 2
    assert message in error and len(error.splitlines()) == 1


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
