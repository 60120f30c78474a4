"""`revbis tabular values`, `aggregate` and `horizons`; `solve` and `bounds` are in test_cli.py."""

import csv
from pathlib import Path

import numpy as np
import pytest

from revbis import tabular
from revbis.cli import main
from revbis.tabular import FiniteMDP, bounds


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_values_sets_bounds_beside_true_gaps(tmp_path: Path, capsys) -> None:
    main(["tabular", "values", "--example", "rooms", "--size", "5", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    rows = read(tmp_path / "rooms-5-revised-gamma-0.9-values.csv")
    mdp, policy = tabular.examples.four_rooms(5)
    result = tabular.revised(mdp, policy, 0.9)
    V = tabular.policy_value(mdp, policy, 0.9)
    bound = tabular.value_gap_bound(result).matrix()
    assert len(rows) == mdp.n_states * (mdp.n_states - 1) // 2
    for row in rows:
        s, t = int(row["first"]), int(row["second"])
        assert float(row["gap"]) == pytest.approx(abs(V[s] - V[t]), abs=1e-12)
        assert float(row["bound"]) == pytest.approx(bound[s, t])
        assert float(row["distance"]) == result.matrix()[s, t]
    largest = max(rows, key=lambda row: float(row["gap"]))
    assert f"{largest['first']}, {largest['second']}" in printed
    assert f"{float(largest['gap']):.4g}" in printed
    assert "|ΔV| ≤ √(range(R)·ρ/(1−γ))" in printed
    assert "rooms-5-revised-gamma-0.9-values (.csv)" in printed


def test_values_of_every_metric_and_of_pairs(tmp_path: Path, capsys) -> None:
    main(["tabular", "values", "--example", "toy", "--metric", "all", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert printed.count("|ΔV*|  ") >= 2 and "NO" not in printed
    assert {path.name for path in tmp_path.iterdir()} == {
        f"toy-{metric}-gamma-0.9-values.csv" for metric in tabular.METRICS
    }
    words = ["--example", "toy", "--level", "state_action", "--out", str(tmp_path)]
    main(["tabular", "values", *words])
    assert "|ΔQ|" in capsys.readouterr().out
    rows = read(tmp_path / "toy-revised-state_action-gamma-0.9-values.csv")
    assert (rows[0]["first"], rows[0]["second"]) == ("0:0", "0:1")


def test_values_further_ahead_than_the_metric(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    words = ["tabular", "values", "--example", "delay", "--out", str(tmp_path)]
    main([*words, "--gamma", "0.99", "--c", "0.5"])
    printed = capsys.readouterr().out
    assert "plus (γ−λ)/(1−λ)·span(V) = 98" in printed
    assert "c = 0.5, values at γ = 0.99" in printed
    main([*words, "--gamma", "0.5", "--target-gamma", "0.99"])
    main([*words, "--gamma", "0.5"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "delay-20-revised-c-0.5-target-0.99-values.csv",
        "delay-20-revised-gamma-0.5-target-0.99-values.csv",
        "delay-20-revised-gamma-0.5-values.csv",
    ]


def test_a_sample_of_pairs_is_called_one(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(bounds, "_MOST_PAIRS", 100)
    main(["tabular", "values", "--example", "grid", "--size", "6", "--out", str(tmp_path)])
    rows = read(tmp_path / "grid-6-revised-gamma-0.9-values.csv")
    assert 50 < len(rows) <= 100
    assert f"largest gaps in a sample of {len(rows)} pairs" in capsys.readouterr().out


def test_a_violated_bound_ends_with_exit_code_1(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(bounds.ValueGaps, "holds", False)
    with pytest.raises(SystemExit) as stop:
        main(["tabular", "values", "--example", "toy", "--out", str(tmp_path)])
    assert stop.value.code == 1
    assert "NO" in capsys.readouterr().out


def test_aggregate_writes_classes_and_the_smaller_mdp(tmp_path: Path, capsys) -> None:
    words = ["tabular", "aggregate", "--example", "rooms", "--eps", "0.1", "--out", str(tmp_path)]
    main(words)
    printed = capsys.readouterr().out
    mdp, policy = tabular.examples.four_rooms(11)
    merged = tabular.aggregate(tabular.revised(mdp, policy, 0.9), 0.1)
    path = tmp_path / "rooms-11-revised-gamma-0.9-eps-0.1"
    rows = read(Path(f"{path}.csv"))
    assert [int(row["class"]) for row in rows] == merged.labels.tolist()
    assert [int(row["representative"]) for row in rows] == (
        merged.representatives[merged.labels].tolist()
    )
    loss = max(abs(float(row["value"]) - float(row["class_value"])) for row in rows)
    assert 0 < loss <= merged.value_loss_bound
    for number in (str(merged.n_classes), f"{merged.value_loss_bound:.4g}", f"{loss:.4g}"):
        assert f" {number}" in printed
    assert Path(f"{path}.png").stat().st_size > 10_000
    small = FiniteMDP.load(f"{path}.npz")
    with np.load(f"{path}.npz") as file:
        small_values = tabular.policy_value(small, file["policy"], 0.9)
    assert float(rows[0]["class_value"]) == pytest.approx(small_values[merged.labels[0]])
    main(["tabular", "solve", "--mdp", f"{path}.npz", "--out", str(tmp_path)])
    assert f"{merged.n_classes} states" in capsys.readouterr().out


def test_aggregate_by_all_metrics_leaves_out_the_lax_one(tmp_path: Path, capsys) -> None:
    words = ["--example", "garnet", "--size", "6", "--metric", "all", "--eps", "1000"]
    main(["tabular", "aggregate", *words, "--c", "0.5", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "lax" not in printed and "ε = 1000" in printed
    assert {path.name for path in tmp_path.iterdir()} == {
        f"garnet-6-{metric}-c-0.5-target-0.9-eps-1000.{end}"
        for metric in ("revised", "mico", "pi_bisimulation", "bisimulation")
        for end in ("csv", "npz")  # a garnet is no grid: no picture
    }


def test_horizons_reads_every_discount_from_one_solve(tmp_path: Path, capsys) -> None:
    words = ["--size", "5", "--gammas", "0.5", "0.9", "--out", str(tmp_path)]
    main(["tabular", "horizons", "--example", "rooms", *words])
    printed = capsys.readouterr().out
    assert "solved once" in printed and "mean |ΔV|" in printed
    name = "rooms-5-revised-horizons-gamma-0.5-0.9"
    assert f"{name} (.npz, .png)" in printed
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    mdp, policy = tabular.examples.four_rooms(5)
    with np.load(tmp_path / f"{name}.npz", allow_pickle=False) as file:
        assert file["discounts"].tolist() == [0.5, 0.9] and not file["weighted"]
        for gamma, matrix, bound in zip(*(file[x] for x in _HORIZONS), strict=True):
            exact = tabular.revised(mdp, policy, gamma)
            assert np.abs(matrix - exact.matrix()).max() <= bound + exact.error_bound <= 2e-6
    main(["tabular", "horizons", "--example", "toy", "--weighted", *words[2:]])
    assert "mean (1−c)|ΔV|" in capsys.readouterr().out
    with np.load(tmp_path / "toy-revised-horizons-c-0.5-0.9.npz", allow_pickle=False) as file:
        exact = tabular.revised(*tabular.examples.toy(), 0.9, c=0.5)
        assert np.abs(file["matrices"][0] - exact.matrix()).max() <= 2e-6


_HORIZONS = ("discounts", "matrices", "error_bounds")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gammas", "0.5", "1"], "--gammas[1] must be"),
        (["--gammas", "0.5", "--origin", "104"], "--origin must be a state, 0 to 103, got 104"),
    ],
)
def test_horizons_refuses_what_it_cannot_show(flags, message, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tabular", "horizons", "--example", "rooms", *flags, "--out", str(tmp_path / "x")])
    assert stop.value.code not in (0, None)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("command", ["solve", "values", "aggregate", "bounds", "horizons"])
def test_help_teaches(command: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        main(["tabular", command, "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "--example" in printed
    if command != "bounds":
        assert f"revbis tabular {command} --" in printed
    if command not in ("bounds", "horizons"):
        assert "lax_bisimulation,all" in printed


@pytest.mark.parametrize(
    "words", ["values --metric all", "aggregate --metric all --eps 0.1", "horizons"]
)
def test_the_documentation_shows_what_is_printed(words: str, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    command, *flags = words.split()
    main(["tabular", command, "--example", "rooms", *flags, "--out", str(tmp_path)])
    table = capsys.readouterr().out.split("\n\n")[0]
    page = Path(__file__).parents[2] / "docs" / "exact-metrics.md"
    assert (
        f"$ {' '.join(['revbis tabular', command, '--example rooms', *flags])}\n{table}\n```"
        in page.read_text()
    )
