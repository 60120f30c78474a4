"""The yardsticks of runs: over seeds, in a table, CSV and on the page."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.runs import write_run
from tests.analysis.test_page import Page

from revbis.analysis.page import write_page
from revbis.analysis.study import Study, read_study
from revbis.analysis.tables import yardstick_table


def measures(embedding: str, value: float, noise: bool = True) -> dict[str, float]:
    names = ("denoising_id", "denoising_ood") if noise else ()
    names += ("state_r2", "effective_rank", "value")
    return {f"{embedding}_{name}": value for name in names}


def write_file(folder: Path, frames: int, yardsticks: Any) -> None:
    content = {"frames": frames, "episodes": 10, "seed": 0, "yardsticks": yardsticks}
    (folder / "yardsticks.json").write_text(json.dumps(content))


def add_to_evaluation(folder: Path, number: int, yardsticks: dict[str, float]) -> None:
    lines = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
    lines[number]["yardsticks"] = yardsticks
    (folder / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two measured seeds of mico, a third without; one of drqv2 without noise."""
    for seed, value in ((1, 0.2), (2, 0.4)):
        folder = write_run(tmp_path / "runs", [0.0, 1.0], method="mico", seed=seed)
        write_file(folder, 10, measures("phi", value) | measures("trunk", -value))
    write_run(tmp_path / "runs", [0.0, 1.0], method="mico", seed=3)
    folder = write_run(tmp_path / "runs", [0.0, 1.0], method="drqv2")
    add_to_evaluation(folder, 1, measures("trunk", 0.5, noise=False))
    return read_study([tmp_path / "runs"])


def test_only_seeds_at_the_furthest_frame_count(tmp_path: Path) -> None:
    for seed, (frames, value) in enumerate([(10, 0.9), (10, 0.7), (0, 0.1)], 1):
        write_file(write_run(tmp_path, [0.0, 1.0], seed=seed), frames, measures("trunk", value))
    table = yardstick_table(read_study([tmp_path]))
    [(_, cells)] = table.rows
    assert cells[-1].text == "2 of 3" and cells[2].text.startswith("0.80")
    assert (table.records[0]["frames"], table.records[0]["seeds"]) == (10, "1 2")


def test_the_true_metric_has_a_column_once_it_was_measured(tmp_path: Path) -> None:
    for seed, more in ((1, {}), (2, {"trunk_true": 0.25})):
        folder = write_run(tmp_path, [0.0, 1.0], seed=seed)
        write_file(folder, 10, measures("trunk", 0.5) | more)
        table = yardstick_table(read_study([tmp_path]))
        [(_, cells)] = table.rows
        labels = [column.label for column in table.columns]
        assert labels[-2:] == (["ρ with U", "N"] if more else ["ρ with ΔV", "N"])
    assert [cell.text for cell in cells][-2:] == ["0.25", "2"]


def test_a_task_without_a_state_has_no_r2(tmp_path: Path) -> None:
    values = {key: of for key, of in measures("trunk", 0.5).items() if "state" not in key}
    write_file(write_run(tmp_path, [0.0, 1.0]), 10, values)
    [(_, cells)] = yardstick_table(read_study([tmp_path])).rows
    assert [cell.text for cell in cells] == ["0.50", "0.50", "–", "0.50", "0.50", "1"]


def test_means_over_seeds(study: Study) -> None:
    table = yardstick_table(study)
    rows = {name: [cell.text for cell in cells] for name, cells in table.rows}
    assert rows == {
        "cheetah_run, drqv2, critic's trunk": ["–", "–", "0.50", "0.50", "0.50", "1"],
        "cheetah_run, mico, φ": [*["0.30 ± 0.14"] * 5, "2 of 3"],
        "cheetah_run, mico, critic's trunk": [*["-0.30 ± 0.14"] * 5, "2 of 3"],
    }
    assert table.notes == (
        "–: no distractor and no state noise: there is no denoising factor (DF).",
    )
    first, second, _ = csv.DictReader(io.StringIO(table.csv()))
    assert first["embedding"] == "trunk" and first["denoising_id"] == ""
    assert float(second["state_r2"]) == pytest.approx(0.3)
    assert float(second["state_r2_deviation"]) == pytest.approx(0.2 / math.sqrt(2))
    assert (second["n"], second["seeds"]) == ("2", "1 2")


@pytest.mark.parametrize(("frames", "value"), [(10, 0.7), (20, 0.7), (0, 0.5)])
def test_the_newest_measurement_counts(tmp_path: Path, frames: int, value: float) -> None:
    folder = write_run(tmp_path, [0.0, 1.0])
    add_to_evaluation(folder, 0, measures("trunk", 0.1))
    add_to_evaluation(folder, 1, measures("trunk", 0.5))
    write_file(folder, frames, measures("trunk", 0.7))
    (run,) = read_study([tmp_path]).runs
    assert run.yardsticks == measures("trunk", value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [0.0, 1.0])
    write_file(folder, 10, {"phi_value": "much"})
    study = read_study([tmp_path])
    assert study.runs[0].yardsticks == {}
    assert any("yardsticks.json cannot be read" in str(problem) for problem in study.problems)


def test_a_study_without_yardsticks(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", [0.0, 1.0])
    study = read_study([tmp_path / "runs"])
    with pytest.raises(ValueError, match="no yardsticks: measure them with revbis yardstick RUN"):
        yardstick_table(study)
    assert 'id="yardsticks"' not in Page(write_page(study, tmp_path / "page")).source


def test_the_page_shows_them(study: Study, tmp_path: Path) -> None:
    page = Page(write_page(study, tmp_path / "page"))
    part = page.source[page.source.index('id="yardsticks"') :].split("</section>")[0]
    assert "<h2>Yardsticks of the representation</h2>" in part
    assert "no denoising factor (DF)." in part
    assert part.count("<td>0.30 ± 0.14</td>") == 5
    assert part.count('<tr data-task="0" data-label="1">') == 2
