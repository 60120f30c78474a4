"""What statistics, tables and pages are given from Python: each mistake is one error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.runs import study_of

from revbis.analysis import figures, stats, tables
from revbis.analysis.differences import differences
from revbis.analysis.page import write_page
from revbis.analysis.scores import budgets, group_scores
from revbis.analysis.study import Study, read_study

SCORES = {"a": np.array([1.0, 2.0])}
normalise = stats.normalise_scores


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.summarise("good"), "scores must hold real numbers, got texts"),
        (lambda: stats.summarise([]), "scores must have at least one seed"),
        (lambda: stats.summarise([1, np.nan]), "must be finite: leave out runs without a score"),
        (lambda: stats.default_bounds("gym:P-v1"), "no bounds are known for gym:P-v1: pass the sc"),
        (lambda: normalise([1], {}), r"scores must be a mapping with each task, got \[1\]"),
        (lambda: normalise(SCORES, 1), "bounds must be a mapping with each task, got 1"),
        (lambda: normalise(SCORES, {}), "bounds must have a"),
        (lambda: normalise(SCORES, {"a": 1}), "bounds of a must be two numbers, got 1"),
        (lambda: normalise(SCORES, {"a": (1, 1)}), "bounds of a must rise, got 1 and 1"),
        (lambda: stats.ewma([1.0], 0.0), r"alpha must be in \(0, 1\]"),
        (lambda: stats.ewma([], 0.5), "values must have at least one number"),
        (lambda: stats.area([0, 1], [1.0]), r"a score for each, got shapes \(2,\), \(1,\)"),
        (lambda: stats.area([1, 0], [1.0, 1.0]), "frames must be one rising row"),
        (lambda: stats.mean({1: [1.0]}), "scores must have a task for each key, got 1"),
        (lambda: stats.mean({}), "scores must have at least one task"),
        (lambda: stats.improvement(SCORES, {"b": [1.0]}), "tasks must be the same"),
        (lambda: stats.profile(SCORES, [[1.0]]), r"thresholds must be one row, got shape \(1, 1\)"),
        (lambda: stats.interval("iqm", SCORES), "statistic must be a function such as iqm"),
        (lambda: stats.interval(stats.iqm, SCORES, resamples=10**23), "resamples must be at most"),
        (lambda: stats.paired({"a": [1]}, {}), "scores of a must be a mapping with each seed"),
        (lambda: stats.paired({}, {"a": {"1": 2}}), "other of a must have a seed for each key"),
        (lambda: stats.paired({"a": {1: 1}}, {"a": {2: 1}}), "no seed of a task in common"),
        # One folder is not taken for the list of its letters.
        (lambda: read_study("runs"), "paths must be a list of folders, got"),
        (lambda: read_study([3]), "each of paths must be a path, got 3"),
    ],
)
def test_values(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_numbers_of_any_kind_are_the_same() -> None:
    assert stats.mean({"a": [1, 2]}) == stats.mean(SCORES) == 1.5
    assert stats.area([0, 2], [1, 3]) == 2
    assert stats.ewma([1, 2], np.float32(1)).tolist() == [1, 2]


def test_only_a_study_is_tabulated_drawn_or_written(tmp_path: Path) -> None:
    runs: Any = "runs"
    for call in (
        lambda: differences(runs, "drqv2"),
        lambda: figures.learning_curves(runs),
        lambda: budgets(runs),
        lambda: write_page(runs, tmp_path / "page"),
    ):
        with pytest.raises(ValueError, match="a Study, as read_study gives, is wanted, got"):
            call()
    assert not (tmp_path / "page").exists()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    study_of(folder, {("dmc:walker_walk", "drqv2"): [1.0]})
    return read_study([str(folder)])  # type: ignore[list-item]


def tabulate(study: Study, **changes: Any) -> Any:
    return tables.score_table(
        study, **{"kind": "final", "budget": None, "reported": False, **changes}
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda study: tabulate(study, budget=1.5), "budget must be a whole number"),
        (lambda study: tabulate(study, kind="area"), "kind must be one of final, best"),
        (
            lambda study: group_scores(study.groups[0], "last", 20),
            "kind must be one of final, best,",
        ),
        (lambda study: figures.learning_curves(study, alpha=0.0), "alpha must be"),
        (lambda study: differences(study, "drqv3"), "baseline must be one of drqv2, got"),
        (lambda study: write_page(study, 3), "folder must be a path, got 3"),
    ],
)
def test_settings_of_tables_figures_and_pages(study: Study, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(study)
