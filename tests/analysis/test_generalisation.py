"""The generalisation gap: in curves, tables, CSV and on the page; older records do without."""

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.runs import write_run
from tests.analysis.test_page import Page

from revbis.analysis import tables
from revbis.analysis.page import write_page
from revbis.analysis.scores import curve
from revbis.analysis.study import Study, read_study
from revbis.analysis.tables import gap_table

CHEETAH, HAMMER = "dmc:cheetah_run", "metaworld:hammer"


def noisy_run(out: Path, on_eval: Any, on_train: Any, **settings: Any) -> None:
    """A run whose second evaluation, at its budget of 10 frames, has these scores."""
    given = {"distractor": "shapes", **settings}
    write_run(out, {0: 0.0, 10: on_eval}, train={0: 0.0, 10: on_train}, **given)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two methods on cheetah, one on hammer; seed 3 of mico is of an earlier version."""
    for seed, (held_out, seen) in enumerate([(100.0, 150.0), (300.0, 310.0)], 1):
        noisy_run(tmp_path / "runs", held_out, seen, method="drqv2", seed=seed)
        noisy_run(tmp_path / "runs", held_out, held_out, method="mico", seed=seed)
        noisy_run(tmp_path / "runs", 0.2, 0.4 + 0.2 * seed, task=HAMMER, seed=seed)
    write_run(tmp_path / "runs", [0.0, 900.0], method="mico", seed=3, distractor="shapes")
    return read_study([tmp_path / "runs"])


def rows(study: Study) -> dict[str, list[str]]:
    return {name: [cell.text for cell in cells] for name, cells in gap_table(study).rows}


def test_the_gap_is_of_the_same_seed_and_evaluation(study: Study) -> None:
    # Of drqv2 50 and 10: mean 30, deviation 40/√2. On hammer 0.4 and 0.6 of success.
    assert rows(study) == {
        "cheetah_run, drqv2": ["230 ± 113", "200 ± 141", "27%", "+30 ± 28", "2"],
        "cheetah_run, mico": ["200 ± 141", "200 ± 141", "27%", "+0 ± 0", "2 of 3"],
        "hammer, drqv2 (success, %)": ["70.0 ± 14.1", "20.0 ± 0.0", "–", "+50.0 ± 14.1", "2"],
    }
    table = gap_table(study)
    assert [column.label for column in table.columns] == [
        *("training variants", "evaluation variants", "of the published final return", "gap", "N")
    ]
    assert table.notes == ("Scores are at 10 frames.", tables.PUBLISHED_NOTE)
    assert "hammer, drqv2" in table.text() and "+50.0" in table.markdown()


def test_csv_has_the_whole_numbers(study: Study, tmp_path: Path) -> None:
    first, _, last = csv.DictReader(io.StringIO(gap_table(study).csv()))
    assert (first["task"], first["method"], first["measure"]) == (CHEETAH, "drqv2", "return")
    assert [float(first[name]) for name in ("train", "eval", "gap")] == [230.0, 200.0, 30.0]
    assert float(first["gap_deviation"]) == pytest.approx(40 / math.sqrt(2))
    assert (first["n"], first["seeds"], first["frames"]) == ("2", "1 2", "10")
    assert last["measure"] == "success" and float(last["gap"]) == pytest.approx(0.5)
    study.write_csv(tmp_path / "scores.csv")
    with (tmp_path / "scores.csv").open(newline="") as file:
        written = {
            (r["task"], r["method"], r["seed"], r["frames"]): r for r in csv.DictReader(file)
        }
    assert written[CHEETAH, "drqv2", "1", "10"]["train_mean_return"] == "150.0"
    assert float(written[HAMMER, "drqv2", "1", "10"]["train_success"]) == pytest.approx(0.6)
    assert written[CHEETAH, "mico", "3", "10"]["train_mean_return"] == ""


def test_scores_are_those_on_evaluation_variants(study: Study) -> None:
    table = tables.score_table(study, kind="final", budget=None, reported=False)
    assert table.records[0]["method"] == "drqv2" and table.records[0]["mean"] == 200.0
    (run, *_) = study.runs
    for variants, wanted in (("eval", [0, 100]), ("train", [0, 150]), ("gap", [0, 50])):
        frames, values = curve(run, variants=variants)
        assert (frames.tolist(), values.tolist()) == ([0, 10], wanted)


def test_evaluations_before_there_were_two_are_left_out(tmp_path: Path) -> None:
    scores, settings = {0: 5.0, 10: 6.0, 20: 7.0}, {"distractor": "shapes", "frames": 30}
    write_run(tmp_path, scores, train={10: 8.0}, **settings)
    study = read_study([tmp_path])
    (run,) = study.runs
    assert curve(run).frames.tolist() == [0, 10, 20]
    assert curve(run, variants="gap").frames.tolist() == [10]
    (cells,) = (cells for _, cells in gap_table(study, budget=20).rows)
    assert [cell.text for cell in cells] == ["8.00", "6.00", "1%", "+2.00", "1"]
    assert cells[3].remark == "at 10 frames"


def test_a_study_without_training_variants(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", [0.0, 1.0])
    study = read_study([tmp_path / "runs"])
    with pytest.raises(ValueError, match="no generalisation gap: no run was evaluated on"):
        gap_table(study)
    page = Page(write_page(study, tmp_path / "page"))
    assert "Generalisation gap" not in page.text and 'id="gap"' not in page.source


def test_the_gap_of_gaussian_noise_is_chance(tmp_path: Path) -> None:
    noisy_run(tmp_path, 3.0, 5.0, distractor="gaussian", distractor_strength=0.5)
    table = gap_table(read_study([tmp_path]))
    assert any("gaussian have the same distribution" in note for note in table.notes)


def test_the_page_shows_it(study: Study, tmp_path: Path) -> None:
    page = Page(write_page(study, tmp_path / "page"))
    part = page.source[page.source.index('id="gap"') :].split("</section>")[0]
    assert "<h2>Generalisation gap</h2>" in part and "Gap: training minus evaluation." in part
    for text in ("cheetah_run, mico", "+30 ± 28", "2 of 3", "+50.0 ± 14.1"):
        assert f"<td>{text}</td>" in part
    # The switches of tasks and methods, in the order of the study, apply to its rows.
    assert part.count('<tr data-task="0" data-label="1">') == 1
    assert part.count("<tr data-task=") == 3
