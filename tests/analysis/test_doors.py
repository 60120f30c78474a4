"""What statistics, tables and pages are given from Python: each mistake is one error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.runs import study_of

from revbis.analysis import figures, stats, tables
from revbis.analysis.page import write_report
from revbis.analysis.scores import budgets
from revbis.analysis.study import read_study

SCORES = {"a": np.array([1.0, 2.0])}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.summary("good"), "scores must hold real numbers, got texts"),
        (lambda: stats.summary([1, 1j]), "scores must hold real numbers, got complex numbers"),
        (lambda: stats.summary([[1, 2], [3]]), "scores must be an array of numbers"),
        (lambda: stats.summary([]), "scores must have at least one seed"),
        (lambda: stats.default_bounds(3), "no bounds are known for 3"),
        (lambda: stats.normalise([1], {}), r"scores must be a mapping with each task, got \[1\]"),
        (lambda: stats.normalise(SCORES, 1), "bounds must be a mapping with each task, got 1"),
        (lambda: stats.normalise(SCORES, {"a": 1}), "bounds of a must be two numbers, got 1"),
        (lambda: stats.normalise({"a": []}, {"a": (0, 1)}), "scores of a must have at least one"),
        (lambda: stats.ewma([1.0], "half"), "alpha must be a number, got 'half'"),
        (lambda: stats.ewma([], 0.5), "values must have at least one number"),
        (lambda: stats.area([0, 1], [1.0]), r"a score for each, got shapes \(2,\), \(1,\)"),
        (lambda: stats.area([1, 0], [1.0, 1.0]), "frames must be one rising row"),
        (lambda: stats.failed_share([1.0], "best"), "reference must be a number, got 'best'"),
        (lambda: stats.mean({1: [1.0]}), "scores must have a task for each key, got 1"),
        (lambda: stats.iqm(SCORES.values()), "scores must be a mapping with each task"),
        (lambda: stats.optimality_gap(SCORES, []), r"goal must be a number, got \[\]"),
        (lambda: stats.profile(SCORES, [[1.0]]), r"thresholds must be one row, got shape \(1, 1\)"),
        (lambda: stats.interval("iqm", SCORES), "statistic must be a function such as iqm"),
        (lambda: stats.interval(stats.iqm, SCORES, seed=-1), "seed must be at least 0"),
        (lambda: stats.interval(stats.iqm, SCORES, resamples=10**23), "resamples must be at most"),
        (lambda: stats.paired({"a": [1]}, {}), "scores of a must be a mapping with each seed"),
        (lambda: stats.paired({"a": {1: "x"}}, {}), "scores of a must be a number, got 'x'"),
        (lambda: stats.paired({}, {"a": {"1": 2}}), "other of a must have a seed for each key"),
    ],
)
def test_statistics(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_numbers_of_any_kind_are_the_same() -> None:
    assert stats.mean({"a": [1, 2]}) == stats.mean(SCORES) == 1.5
    assert stats.area([0, 2], [1, 3]) == 2
    assert stats.ewma([1, 2], np.float32(1)).tolist() == [1, 2]


@pytest.mark.parametrize("wrong", [None, "runs", [], {}])
def test_studies(wrong: Any, tmp_path: Path) -> None:
    for call in (
        lambda: tables.score_table(wrong, kind="final", budget=None, reported=False),
        lambda: tables.aggregate_table(wrong),
        lambda: figures.learning_curves(wrong),
        lambda: figures.coefficients(wrong),
        lambda: figures.ablation(wrong),
        lambda: budgets(wrong),
        lambda: write_report(wrong, tmp_path / "page"),
    ):
        with pytest.raises(ValueError, match="a Study, as read_study gives, is wanted, got"):
            call()
    assert not (tmp_path / "page").exists()


def test_settings_of_tables_pictures_and_pages(tmp_path: Path) -> None:
    study = study_of(tmp_path / "runs", {("dmc:walker_walk", "drqv2"): [1.0]})
    with pytest.raises(ValueError, match="reported must be True or False, got 'yes'"):
        tables.score_table(study, kind="final", budget=None, reported="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="budget must be a whole number, got 'all'"):
        tables.score_table(study, kind="final", budget="all", reported=False)  # type: ignore[arg-type]
    for alpha in ("half", 0.0, 2, None.__class__):
        with pytest.raises(ValueError, match="alpha must be"):
            figures.learning_curves(study, alpha=alpha)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="folder must be a path, got 3"):
        write_report(study, 3)  # type: ignore[arg-type]


def test_folders(tmp_path: Path) -> None:
    """One folder is not taken for the list of its letters."""
    for wrong in (str(tmp_path), tmp_path, 3, None, np.array(1)):
        with pytest.raises(ValueError, match="paths must be a list of folders, got"):
            read_study(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="each of paths must be a path, got 3"):
        read_study([3])  # type: ignore[list-item]
    study_of(tmp_path, {("dmc:walker_walk", "drqv2"): [1.0]})
    assert len(read_study([str(tmp_path)]).runs) == 1  # type: ignore[list-item]
