"""`revbis exactness`: tables, files and mistakes."""

import csv
import re
from pathlib import Path

import pytest
from tests.cli import fails

from revbis.cli import main
from revbis.objectives import NonFiniteError
from revbis.representation import exactness
from revbis.representation.exactness_report import (
    Results,
    draw_kept,
    draw_overview,
    intervals_text,
)

OWN = "tests.objectives.own_objectives"
SMALL = ["--size", "5", "--steps", "2", "--workers", "1"]


@pytest.mark.parametrize("measures", [("phi",), ("phi", "psi")])
def test_the_legend_has_what_the_picture_has(measures: tuple[str, ...]) -> None:
    found = {f"{name}_spearman": 0.5 for name in measures}
    results = Results([{"scenario": "rooms", "method": "simsr", "seed": 0, **found}], ["rooms"])
    (legend,) = draw_overview(results, "one seed").legends
    assert len(legend.get_texts()) == len(measures)


def rows_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "exactness.csv") as file:
        return list(csv.DictReader(file))


def test_the_command_writes_table_records_pictures_and_page(tmp_path: Path, capsys) -> None:
    scenarios = ["rooms-off-policy", "rooms-noisy", "garnet"]
    words = ["--methods", "simsr", "mico-rev", "--scenarios", *scenarios, "--seeds", "2"]
    main(["exactness", *words, *SMALL, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "four rooms, noise in every pixel, uniform policy" in printed
    assert "ρ of φ with U / of ψ with G" in printed
    rows = rows_of(tmp_path)
    assert len(rows) == 3 * 2 * 2
    by_scenario = {row["scenario"]: row for row in rows if row["method"] == "mico-rev"}
    assert [bool(by_scenario[name]["denoising"]) for name in scenarios] == [False, True, False]
    behaviour = [bool(by_scenario[name]["phi_behaviour_spearman"]) for name in scenarios]
    assert behaviour == [True, False, False]
    assert {row["claims"] for row in rows} == {"behaviour"}
    for name in ("exactness.png", "distances.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert all(f"<h2>{name}</h2>" in page for name in scenarios)


def test_finished_cells_are_reused(tmp_path: Path, capsys, monkeypatch) -> None:
    words = ["exactness", "--scenarios", "rooms", "--seeds", "1", *SMALL, "--out", str(tmp_path)]
    main([*words, "--methods", "simsr"])
    main([*words, "--methods", "simsr", "energy"])
    assert "1 of 2 cells are there already" in capsys.readouterr().out
    assert [row["method"] for row in rows_of(tmp_path)] == ["energy", "simsr"]
    monkeypatch.setattr("revbis.representation.workers.run_all", None)  # nothing is run
    both = (tmp_path / "exactness.csv").read_bytes()
    main([*words, "--methods", "simsr"])
    assert (tmp_path / "exactness.csv").read_bytes() == both  # those of energy are kept


def test_another_learning_rate_is_another_result(tmp_path: Path, capsys) -> None:
    words = ["exactness", "--methods", "simsr", "--scenarios", "rooms", "--seeds", "1", *SMALL]
    main([*words, "--out", str(tmp_path)])
    (one,) = rows_of(tmp_path)
    main([*words, "--learning-rate", "0.003", "--out", str(tmp_path)])
    assert rows_of(tmp_path) == [one]
    main([*words, "--learning-rate", "0.01", "--out", str(tmp_path)])
    assert rows_of(tmp_path)[0]["phi_spearman"] != one["phi_spearman"]
    assert "--learning-rate must be" in fails(capsys, *words, "--learning-rate", "0")


def test_quick_is_one_seed_of_two_scenarios(tmp_path: Path) -> None:
    main(["exactness", "--quick", "--methods", "simsr", *SMALL, "--out", str(tmp_path)])
    cells = [(row["scenario"], row["seed"]) for row in rows_of(tmp_path)]
    assert cells == [("rooms", "0"), ("rooms-off-policy", "0")]


def test_the_command_takes_an_own_objective(tmp_path: Path, capsys) -> None:
    words = ["--objective", f"{OWN}:make", "--scenarios", "rooms", "--seeds", "1", *SMALL]
    main(["exactness", *words, "--out", str(tmp_path)])
    assert "own_objectives:make" in capsys.readouterr().out
    (row,) = rows_of(tmp_path)
    assert (row["method"], row["metric"], row["claims"]) == (f"{OWN}:make", "revised", "behaviour")
    main(["exactness", "--methods", "simsr", *words, "--out", str(tmp_path)])
    assert [row["method"] for row in rows_of(tmp_path)] == ["simsr", f"{OWN}:make"]


def test_results_of_other_methods_are_kept(tmp_path: Path, capsys) -> None:
    words = ["exactness", "--scenarios", "rooms", "--seeds", "1", *SMALL, "--out", str(tmp_path)]
    main([*words, "--methods", "simsr"])
    main([*words, "--objective", f"{OWN}:make"])
    assert [row["method"] for row in rows_of(tmp_path)] == ["simsr", f"{OWN}:make"]
    page = (tmp_path / "index.html").read_text()
    assert "simsr" in page and f"{OWN}:make" in page
    main([*words, "--methods", "mico", "--gamma", "0.5"])  # nothing else is like this
    assert [row["method"] for row in rows_of(tmp_path)] == ["mico"]
    main([*words, "--methods", "mico"])  # nor is the file that defines make imported for it
    assert [row["method"] for row in rows_of(tmp_path)] == ["mico", "simsr", f"{OWN}:make"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("infinite_distance", "distance(x, y) has 24 non-finite values of 24"),
        ("raises", "the factory raised KeyError at own_objectives.py"),
        ("returns_none", "the factory must return an objective, got None"),
        ("no_such", "has no function 'no_such'"),
    ],
)
def test_an_own_objective_that_does_not_work_is_refused_first(
    factory: str, message: str, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "out"
    words = ["--methods", "simsr", "--objective", f"{OWN}:{factory}", "--out", str(out)]
    error = fails(capsys, "exactness", *words)
    assert error.startswith(f"revbis: error: {OWN}:{factory}") and message in error
    assert not out.exists()
    assert len(error.splitlines()) == 1


def test_divergence_everywhere_is_one_line(capsys, tmp_path, monkeypatch) -> None:
    def diverge(*_: object) -> None:
        raise NonFiniteError("z", 3, 10, 7)

    monkeypatch.setattr("revbis.representation.exactness.measure", diverge)
    words = ["--methods", "mico", "--scenarios", "rooms", *SMALL, "--out", str(tmp_path)]
    error = fails(capsys, "exactness", *words)
    assert "error: mico on rooms, seed 0: z has 3 non-finite values" in error


def test_divergence_of_one_method_is_a_warning(capsys, tmp_path, monkeypatch) -> None:
    measure = exactness.measure

    def diverge(problem, method, *rest):
        if method == "mico":
            raise NonFiniteError("z", 3, 10, 7)
        return measure(problem, method, *rest)

    monkeypatch.setattr(exactness, "measure", diverge)
    words = ["--scenarios", "rooms", "--seeds", "1", *SMALL, "--out", str(tmp_path)]
    main(["exactness", "--methods", "mico", "simsr", *words])
    assert "warning: no result: mico on rooms, seed 0: z has 3" in capsys.readouterr().err
    assert [row["method"] for row in rows_of(tmp_path)] == ["simsr"]
    assert "Without a result: mico on rooms, seed 0" in (tmp_path / "index.html").read_text()


def test_methods_are_ordered_by_their_mean_over_scenarios() -> None:
    scores = {"a": (0.9, 0.1), "b": (0.7, 0.7), "c": (0.6, None)}
    rows = [
        {"scenario": scenario, "method": method, "seed": 0, "phi_spearman": score, "c": 0.9}
        for method, pair in scores.items()
        for scenario, score in zip(("rooms", "slip"), pair, strict=True)
        if score is not None
    ]
    results = Results(rows, ["rooms", "slip"])
    assert results.methods == ["b", "c", "a"]
    assert results.overview()[1] == {"method": "c", "rooms": "0.60", "slip": "–"}
    assert [row["method"] for row in results.table("slip")] == ["b", "a"]
    assert results.table("rooms")[0] == {"method": "b", "φ: ρ with U": "0.70", "c": "0.90"}


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((5, 5), "Mean over 5 seeds with 95% intervals (Student's t)"),
        ((1, 5), "Mean over 1 to 5 seeds with 95% intervals (Student's t, from 4 seeds on)"),
        ((1, 2), "Mean over seeds; no interval: 2 seeds"),
    ],
)
def test_a_caption_counts_the_seeds_of_each_method(counts, text):
    rows = [
        {"scenario": "rooms", "method": method, "seed": seed}
        for method, count in zip(("mine:f", "simsr"), counts, strict=True)
        for seed in range(count)
    ]
    assert intervals_text(rows) == text


def test_factors_have_a_picture_and_columns(tmp_path: Path, capsys) -> None:
    words = ["--methods", "mico", "zp", "--scenarios", "factors", "factors-mixed", "--seeds", "1"]
    main(["exactness", *words, "--steps", "2", "--workers", "1", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "factors.png" in printed and "four factors, two of them irrelevant" in printed
    rows = rows_of(tmp_path)
    assert len(rows) == 4
    for row in rows:
        for name in ("controllable_relevant", "exogenous_irrelevant"):
            for measure in ("r2", "share", "r2_untrained", "share_untrained"):
                assert 0 <= float(row[f"{name}_{measure}"]) <= 1
    assert (tmp_path / "factors.png").stat().st_size > 10_000
    assert "What φ keeps of each factor" in (tmp_path / "index.html").read_text()


def test_the_picture_of_factors_says_which_method_is_selective() -> None:
    """R² .8 and .6 of the relevant, .2 and .4 of the others: .7 − .3; zp keeps all alike."""
    names = ("controllable_relevant", "exogenous_relevant")
    names += ("controllable_irrelevant", "exogenous_irrelevant")
    rows = [
        {"scenario": "factors", "method": method, "seed": 0, "phi_spearman": 0.5}
        | {f"{name}_r2": value for name, value in zip(names, values, strict=True)}
        | {f"{name}_r2_untrained": 0.7 for name in names}
        for method, values in (("zp", (0.5,) * 4), ("mico", (0.8, 0.6, 0.2, 0.4)))
    ]
    figure = draw_kept(Results(rows, ["factors"]), "caption")
    assert figure is not None
    title = " ".join(figure.get_suptitle().split())
    assert title == (
        "φ of mico (R² 0.70 of what is relevant, 0.30 of what is not) is the most selective of 2 "
        "methods, zp (R² 0.50 of what is relevant, 0.50 of what is not) the least."
    )
    [panel] = figure.axes
    shown = [text.get_text() for text in panel.texts]
    assert shown == ["0.80", "0.60", "0.20", "0.40", *["0.50"] * 4, *["0.70"] * 4]
    assert draw_kept(Results([rows[0] | {"scenario": "rooms"}], ["rooms"]), "caption") is None
