"""Differences from a baseline over equal seeds: hand-made studies whose answers are known."""

import csv
import io
import itertools
import math
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image
from tests.analysis.runs import study_of, write_run
from tests.analysis.test_page import page_of

from revbis.analysis import figures
from revbis.analysis.differences import Differences, difference_table, differences, verdict
from revbis.analysis.scores import pool_scores
from revbis.analysis.study import Study, read_study
from revbis.analysis.tables import pair_table
from revbis.cli import main

CHEETAH, WALKER, HAMMER = "dmc:cheetah_run", "dmc:walker_run", "metaworld:hammer"
HOPPER = "dmc:hopper_hop"


def two_tasks(out: Path) -> Study:
    """simsr is 100, 200, 300 and 200 above drqv2 on cheetah, and 20 points in all of hammer."""
    return study_of(
        out,
        {
            (CHEETAH, "drqv2"): [100.0, 300.0, 500.0, 300.0],
            (CHEETAH, "simsr"): [200.0, 500.0, 800.0, 500.0],
            (HAMMER, "drqv2"): [0.2, 0.4, 0.6, 0.4],
            (HAMMER, "simsr"): [0.4, 0.6, 0.8, 0.6],
        },
    )


def by_name(compared: Differences) -> dict[str, list[str]]:
    """The cells of a row; one with a remark has it after a comma."""
    return {
        name: [", ".join(filter(None, (cell.text, cell.remark))) for cell in row]
        for name, row in difference_table(compared).rows
    }


def records(compared: Differences) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(difference_table(compared).csv())))


def test_differences_by_hand(tmp_path: Path) -> None:
    """100, 200, 300, 200 have a standard error of √(20000/3/4) = 40.8, and t(3) is 3.182: ±129.9.

    Over both tasks that is half of 129.9/300, as hammer, with 50% of 0.4, does not vary: ±21.65. Of
    2^8 patterns of signs the test of all tasks counts those with |sum| at least as large: only all
    plus and all minus; of 2^4 likewise. Holm multiplies 2/256 by 3, and 1/8 by 2.
    """
    compared = differences(two_tasks(tmp_path), "drqv2")
    assert by_name(compared) == {
        "simsr, all tasks (% of the baseline)": [
            *("+58.3 [+36.7, +80.0]", "0.0078", "0.023", "8", "0")
        ],
        "simsr, cheetah_run (return)": ["+200 [+70, +330]", "0.12", "0.25", "4", "0"],
        "simsr, hammer (success, %)": ["+20.0 [+20.0, +20.0]", "0.12", "0.25", "4", "0"],
    }
    first, second, third = records(compared)
    assert (first["task"], first["unit"], second["task"]) == ("all", "% of the baseline", CHEETAH)
    assert {one["other"] for one in (first, second, third)} == {"drqv2"}
    assert float(first["p_value"]) == 2 / 256 and float(first["p_holm"]) == 6 / 256
    assert float(second["difference"]) == 200.0
    assert float(second["low"]) == pytest.approx(70.08, abs=0.01)
    assert float(third["difference"]) == pytest.approx(0.2) and third["unit"] == "success"
    assert compared.rows[1].gaps == (100.0, 200.0, 300.0, 200.0)
    table = difference_table(compared)
    assert "minus those of drqv2" in table.caption and "Student's t" in table.caption
    family = "Family of Holm's correction: all comparisons with drqv2 in this table, 3 in number."
    assert table.notes[0] == family and family in table.text(200)
    assert max(map(len, table.text(60).splitlines())) <= 60


def test_the_verdict_names_what_is_told_apart(tmp_path: Path) -> None:
    """By Holm's p of the test above: 6/256 over all tasks; 1/4 on each."""
    study = two_tasks(tmp_path)
    assert verdict(differences(study, "drqv2")) == (
        "Better than drqv2: simsr over all tasks, +58.3 [+36.7, +80.0] % of the baseline, "
        "corrected p = 0.023.",
        "Not told apart from it: 2 of 3 comparisons.",
    )
    first, *_ = verdict(differences(study, "simsr"))
    assert first.startswith("Worse than simsr: drqv2 over all tasks, -")


def test_the_verdict_says_when_seeds_are_too_few(tmp_path: Path) -> None:
    """Of 3 pairs p is at least 2/8; of 6 pairs it is 2/64, if all have one sign; here it is 1."""
    three = study_of(tmp_path / "a", {(CHEETAH, "drqv2"): [1.0] * 3, (CHEETAH, "mico"): [9.0] * 3})
    assert verdict(differences(three, "drqv2")) == (
        "No method is told apart from drqv2: p, after Holm's correction, is below 0.05 in none of "
        "1 comparison; with so few seeds it could not be.",
        "The clearest difference: mico on cheetah_run, +8.00, no interval: 3 seeds, "
        "corrected p = 0.25.",
    )
    up, down = [0.2] * 3 + [0.6] * 3, [0.6] * 3 + [0.2] * 3
    six = study_of(tmp_path / "b", {(HAMMER, "drqv2"): up, (HAMMER, "mico"): down})
    first, second = verdict(differences(six, "drqv2"))
    assert first.endswith("in none of 1 comparison.")
    assert "points of success" in second and second.endswith("corrected p = 1.")


def test_nothing_is_a_percentage_of_a_baseline_without_a_score(tmp_path: Path) -> None:
    study_of(tmp_path, {(CHEETAH, "drqv2"): [10.0], (HAMMER, "drqv2"): [0.0]})
    study = study_of(tmp_path, {(CHEETAH, "simsr"): [20.0], (HAMMER, "simsr"): [0.5]})
    compared = differences(study, "drqv2")
    assert [row.task for row in compared.rows] == [CHEETAH, HAMMER]
    assert "Nothing is pooled over tasks: drqv2 scores 0 on hammer" in compared.notes


def test_seeds_of_one_method_alone_are_left_out_and_counted(tmp_path: Path) -> None:
    """Pairs are seeds 1 and 2: +10 and +30. Seed 9 is simsr's alone, 3 and 4 drqv2's.

    Seed 3 of simsr has not reached the budget.
    """
    study_of(tmp_path, {(CHEETAH, "drqv2"): [100.0, 100.0, 900.0, 900.0]})
    study_of(tmp_path, {(CHEETAH, "simsr"): [110.0, 130.0]})
    write_run(tmp_path, [0.0, 7000.0], method="simsr", seed=9)
    write_run(tmp_path, [5.0], method="simsr", seed=3, frames=10)
    compared = differences(read_study([tmp_path]), "drqv2")
    (row,) = compared.rows
    assert row.of.difference == 20.0 and math.isnan(row.of.low) and math.isnan(row.of.high)
    assert (row.of.pairs, row.of.unpaired, row.gaps) == (2, 3, (10.0, 30.0))
    assert by_name(compared) == {
        "simsr, cheetah_run (return)": ["+20.0, no interval: 2 seeds", "0.5", "0.5", "2", "3"]
    }
    assert (records(compared)[0]["low"], records(compared)[0]["high"]) == ("", "")
    assert compared.unpaired == 3
    assert "cheetah_run, simsr: n = 3 of 4 at the budget" in compared.notes
    caption = str(figures.forest(read_study([tmp_path]), compared).get_label())
    assert "only one of the two has their seed: 3 runs." in caption
    assert "(n = 2; dots); no interval: 2 seeds." in caption


def test_what_cannot_be_paired_is_named(tmp_path: Path) -> None:
    study_of(tmp_path, {(CHEETAH, "drqv2"): [1.0, 2.0], (CHEETAH, "simsr"): [2.0, 3.0]})
    study_of(tmp_path, {(WALKER, "simsr"): [1.0]})
    write_run(tmp_path, [0.0, 5.0], method="mico", seed=7)
    write_run(tmp_path, [5.0], method="dbc", seed=1, frames=10)
    for method, quality in (("drqv2", "full"), ("simsr", "fast")):
        write_run(tmp_path, [0.0, 1.0], task="dmc:hopper_hop", method=method, quality=quality)
    compared = differences(read_study([tmp_path]), "drqv2")
    assert [(row.label, row.task) for row in compared.rows] == [("simsr", CHEETAH)]
    notes = "\n".join(compared.notes)
    assert "cheetah_run, mico: no seed in common with drqv2" in notes
    assert "cheetah_run, dbc: no seed has reached the budget" in notes
    assert "walker_run is left out: drqv2 has no score there" in notes
    assert "hopper_hop is left out: not comparable, quality is fast and full" in notes
    assert "Nothing is pooled over tasks: " in notes


def test_evaluations_at_different_frames_are_not_paired(tmp_path: Path) -> None:
    """At a budget of 25 frames, one has its evaluation at 25 and the other at 20."""
    write_run(tmp_path, {0: 0.0, 25: 1.0}, frames=25)
    write_run(tmp_path, {0: 0.0, 20: 1.0, 30: 5.0}, method="mico", frames=30)
    compared = differences(read_study([tmp_path]), "drqv2")
    assert compared.rows == ()
    assert any("evaluations are at different frames" in note for note in compared.notes)
    for call in (
        difference_table,
        lambda compared: figures.forest(read_study([tmp_path]), compared),
    ):
        with pytest.raises(ValueError, match="no method has a score to compare with drqv2, seed b"):
            call(compared)


def test_evaluations_at_different_frames_are_not_pooled(tmp_path: Path) -> None:
    """Both learn alike; at 30 frames one has been evaluated, the other only at 20."""
    for task, every in ((CHEETAH, 20), (WALKER, 10), (HOPPER, 10)):
        for seed in (1, 2):
            drqv2 = {frames: float(frames) for frames in (0, 10, 20, 30)}
            write_run(tmp_path, drqv2, task=task, seed=seed)
            simsr = {frames: float(frames) for frames in range(0, 41, every)}
            write_run(tmp_path, simsr, task=task, method="simsr", seed=seed)
    study = read_study([tmp_path])
    pool = pool_scores(study, "final")
    assert sorted(pool.tasks) == [HOPPER, WALKER]
    assert "cheetah_run is left out: evaluations are at different frames" in pool.notes
    first = differences(study, "drqv2").rows[0]
    assert first.task is None and first.of.difference == 0
    assert pair_table(study).records[0]["difference"] == 0


def test_methods_without_a_common_seed_of_a_task_are_not_pooled(tmp_path: Path) -> None:
    for task, seed in ((CHEETAH, 1), (WALKER, 2)):
        write_run(tmp_path, [0.0, 1.0], task=task, seed=1)
        write_run(tmp_path, [0.0, 200.0], task=task, method="simsr", seed=seed)
    study = read_study([tmp_path])
    compared = differences(study, "drqv2")
    assert [row.task for row in compared.rows] == [CHEETAH]
    assert "All tasks: simsr is left out: no seed in common on some task" in compared.notes
    [(_, cells)] = pair_table(study).rows
    assert [cell.text for cell in cells[1:]] == ["–"] * 4


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_pairs_have_no_interval(n: int, tmp_path: Path) -> None:
    """A point for each pair and a mark at their mean, without a bar; the cell says why."""
    study = study_of(tmp_path, {(CHEETAH, "drqv2"): [1.0] * n, (CHEETAH, "mico"): [4.0] * n})
    compared = differences(study, "drqv2")
    ((cell, *_),) = (cells for _, cells in difference_table(compared).rows)
    assert (cell.text, cell.remark) == ("+3.00", f"no interval: {n} seed" + "s" * (n > 1))
    (panel,) = figures.forest(study, compared).axes
    assert not panel.patches
    assert [list(line.get_xdata()) for line in panel.lines] == [[3.0, 3.0], [3.0] * n, [0, 0]]
    page = page_of(tmp_path, out=tmp_path / "page", baseline="drqv2")
    assert f"<td>+3.00<small> {cell.remark}</small></td>" in page.source


def test_a_baseline_is_a_label_with_its_settings(tmp_path: Path) -> None:
    for hidden, score in ((64, 1.0), (128, 2.0)):
        write_run(tmp_path / str(hidden), [0.0, score], hidden=hidden)
    study = read_study([tmp_path])
    (row,) = differences(study, "drqv2 (hidden=64)").rows
    assert (row.label, row.of.difference) == ("drqv2 (hidden=128)", 1.0)


def panels(figure: Figure) -> dict[str, object]:
    return {axes.get_title(): axes for axes in figure.axes}


def test_long_names_leave_room_for_the_numbers(tmp_path: Path) -> None:
    settings = {"hidden": 64, "batch_size": 8, "n_step": 1, "learning_rate": 1e-3}
    write_run(tmp_path / "plain", [0.0, 1.0])
    for name, value in settings.items():
        write_run(tmp_path / name, [0.0, 2.0], **{name: value})
    study = read_study([tmp_path])
    figure = figures.forest(study, differences(study, study.labels[0]))
    figure.draw_without_rendering()
    (panel,) = figure.axes
    names = panel.get_yticklabels()
    boxes = [name.get_window_extent() for name in names]
    assert len(names) == 4 and panel.get_position().width > 0.4
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(boxes))


def test_the_forest_plot_shows_the_numbers(tmp_path: Path) -> None:
    study = two_tasks(tmp_path)
    figure = figures.forest(study, differences(study, "drqv2"))
    assert list(panels(figure)) == ["all tasks", "cheetah_run", "hammer"]
    axes = panels(figure)["cheetah_run"]
    (bar,) = axes.patches
    assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx(
        (70.075, 329.925), abs=0.01
    )
    drawn = [list(line.get_xdata()) for line in axes.lines]
    pairs = [100.0, 200.0, 300.0, 200.0]
    assert drawn == [[200.0, 200.0], pairs, [0, 0]]  # mean, pairs, the zero line
    named = panels(figure)["all tasks"].get_yticklabels()  # shared by the others
    assert [text.get_text() for text in named] == ["simsr"]
    assert axes.get_xlabel() == "difference of return"
    caption = str(figure.get_label())
    for words in ("minus those of drqv2", "n = 4;", "95% interval (Student's t)"):
        assert words in caption
    assert "Left out" not in caption


def test_the_page_has_a_part_for_the_baseline(tmp_path: Path) -> None:
    study = two_tasks(tmp_path / "runs")
    page = page_of(tmp_path / "runs", out=tmp_path / "page", baseline="drqv2")
    table = difference_table(differences(study, "drqv2"))
    assert "Differences from drqv2" in page.text and table.caption in page.text
    part = page.source[page.source.index('id="differences"') :].partition("</section>")[0]
    for name, cells in table.rows:
        row = "".join(f"<td>{text}</td>" for text in (name, *(cell.text for cell in cells)))
        assert row in part
    assert 'data-label="1 0" data-task="0"' in part and 'data-label="1 0"><td>simsr, all' in part
    assert 'src="data:image/png;base64,' in part
    assert (tmp_path / "page" / "differences.csv").read_text() == table.csv()
    with Image.open(tmp_path / "page" / "differences.png") as picture:
        assert picture.width > 500
    plain = page_of(tmp_path / "runs", out=tmp_path / "plain")
    assert 'id="differences"' not in plain.source
    assert [path.name for path in (tmp_path / "plain").iterdir()] == ["index.html"]


def test_a_page_with_nothing_to_compare_says_so(tmp_path: Path) -> None:
    study_of(tmp_path / "runs", {(CHEETAH, "drqv2"): [1.0, 2.0]})
    page = page_of(tmp_path / "runs", out=tmp_path / "page", baseline="drqv2")
    assert "There is nothing to show: no method has a score to compare with drqv2" in page.text
    assert not (tmp_path / "page" / "differences.csv").exists()


def test_why_nothing_is_compared_is_said_once_for_each_task(tmp_path: Path) -> None:
    write_run(tmp_path, [1.0, 2.0], method="drqv2")
    write_run(tmp_path, [1.0, 2.0], method="simsr", action_repeat=4)
    write_run(tmp_path, [1.0, 2.0], method="simsr", task=WALKER)
    with pytest.raises(ValueError, match="no method has a score") as caught:
        difference_table(differences(read_study([tmp_path]), "drqv2"))
    assert str(caught.value).split("; ") == [
        "no method has a score to compare with drqv2, seed by seed",
        "cheetah_run is left out: not comparable, action_repeat is 2 and 4",
        "walker_run is left out: drqv2 has no score there to compare with",
    ]


def test_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_tasks(tmp_path / "runs")
    words = ["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page"), "--baseline"]
    with pytest.raises(SystemExit) as stop:
        main([*words, "drqv3"])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1
    assert "--baseline must be one of drqv2, simsr, got 'drqv3'; did you mean 'drqv2'?" in error
    assert not (tmp_path / "page").exists()
    main([*words, "drqv2"])
    printed = capsys.readouterr().out
    assert "final scores minus those of drqv2" in printed and "open " in printed
    assert re.search(r"^simsr, cheetah_run \(return\) +\+200 \[\+70, \+330\] ", printed, re.M)
    names = {path.name for path in (tmp_path / "page").iterdir()}
    assert names == {
        "index.html",
        *(f"differences.{kind}" for kind in ("csv", "png", "svg", "pdf")),
    }


def test_with_two_seeds_no_interval_is_printed(tmp_path: Path, capsys) -> None:
    scores = {(CHEETAH, "drqv2"): [1.0, 2.0], (CHEETAH, "simsr"): [3.0, 5.0]}
    study_of(tmp_path / "runs", scores)
    main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page"), "--baseline", "drqv2"])
    printed = capsys.readouterr().out
    assert "+2.5 (no interval: 2 seeds)" in printed.replace("+2.50", "+2.5")
    alone = ["report", str(tmp_path / "runs/cpu/dmc-cheetah_run/drqv2")]
    main([*alone, "-o", str(tmp_path / "alone"), "--baseline", "drqv2"])
    assert "nothing is compared: no method has a score" in capsys.readouterr().out


def test_a_baseline_that_has_no_score_yet_is_why_nothing_is_pooled(tmp_path: Path) -> None:
    for task in (CHEETAH, WALKER):
        write_run(tmp_path, {0: 0.0}, task=task, method="drqv2", frames=10)
        for method in ("simsr", "dbc"):
            write_run(tmp_path, [0.0, 100.0], task=task, method=method)
    compared = differences(read_study([tmp_path]), "drqv2")
    assert not compared.rows
    assert "Nothing is pooled over tasks: drqv2 has no score yet" in compared.notes
