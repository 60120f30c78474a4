"""Tables: what is best, what may not be compared, and that three formats say the same."""

import csv
import io
import re
from pathlib import Path

import pytest
from tests.analysis.runs import study_of, write_run

from revbis.analysis import tables
from revbis.analysis.scores import budgets, pool_scores
from revbis.analysis.study import Study, read_study

CHEETAH, WALKER, HAMMER = "dmc:cheetah_run", "dmc:walker_run", "metaworld:hammer"


def final(study: Study, budget: int | None = None, reported: bool = False) -> tables.Table:
    return tables.score_table(study, kind="final", budget=budget, reported=reported)


def cells(table: tables.Table) -> dict[str, list[str]]:
    """The cells of the Markdown table, by row."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def on_cheetah(table: tables.Table) -> dict[str, str]:
    """The cells of a row, by method."""
    labels = [column.label for column in table.columns]
    return dict(zip(labels, cells(table)["cheetah_run"], strict=True))


def records(table: tables.Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.csv())))


def three_methods(out: Path) -> Study:
    return study_of(
        out,
        {
            (CHEETAH, "drqv2"): [100.0, 200.0, 300.0],
            (CHEETAH, "mico"): [400.0, 400.0, 400.0],
            (CHEETAH, "simsr"): [300.0, 340.0, 350.0],
            (HAMMER, "drqv2"): [0.5, 0.5, 0.8],
            (HAMMER, "mico"): [0.1, 0.1, 0.1],
            (HAMMER, "simsr"): [0.6, 0.6, 0.6],
        },
    )


def test_best_is_bold_and_second_underlined(tmp_path: Path) -> None:
    table = final(three_methods(tmp_path))
    assert cells(table) == {
        "task": ["drqv2 (measured)", "mico (measured)", "simsr (measured)"],
        "---": ["---:"] * 3,
        "cheetah_run": ["200 ± 100", "**400 ± 0**", "<ins>330 ± 26</ins>"],
        "hammer (success, %)": ["**60.0 ± 17.3**", "<ins>10.0 ± 0.0</ins>", "**60.0 ± 0.0**"],
    }
    assert "mean ± one standard deviation (n − 1) over n = 3 seeds" in table.full_caption()
    assert table.notes == ("Scores are at 10 frames.",)


def test_csv_has_the_whole_numbers(tmp_path: Path) -> None:
    first, *_, last = records(final(three_methods(tmp_path)))
    assert {k: first[k] for k in ("task", "measure", "score", "method", "source", "n")} == {
        "task": CHEETAH,
        "measure": "return",
        "score": "final",
        "method": "drqv2",
        "source": "measured",
        "n": "3",
    }
    assert float(first["mean"]) == 200.0 and float(first["standard_deviation"]) == 100.0
    assert float(first["standard_error"]) == pytest.approx(100 / 3**0.5)
    assert float(first["failed_share"]) == pytest.approx(1 / 3)  # 100 is below half of 300
    assert float(first["mean_height"]) == 100.0  # straight from 0 to 200
    assert (first["seeds"], first["frames"], first["budget"]) == ("1 2 3", "10", "10")
    assert last["measure"] == "success" and float(last["mean"]) == pytest.approx(0.6)


def test_reported_numbers_stand_apart(tmp_path: Path) -> None:
    table = final(three_methods(tmp_path), reported=True)
    row = cells(table)["cheetah_run"]
    assert row[:3] == ["200 ± 100", "**400 ± 0**", "<ins>330 ± 26</ins>"]
    assert row[3:] == [
        *("791 ± 26", "**848 ± 22**", "483 ± 19", "767 ± 76"),
        *("<ins>821 ± 48</ins>", "691 ± 42", "728 ± 32", "565 ± 61"),
    ]
    assert cells(table)["hammer (success, %)"][3:] == ["–"] * 8
    head = cells(table)["task"]
    assert head[0] == "drqv2 (measured)" and head[3] == "MICo† (reported)"
    assert "NOT at the paper's scale" in table.full_caption()
    assert any("frames 10 (1,000,000)" in note and "pixels 48 (84)" in note for note in table.notes)
    reported = [one for one in records(table) if one["source"] == "reported"]
    assert len(reported) == 8 and {one["task"] for one in reported} == {CHEETAH}
    assert reported[0]["standard_deviation"] == "" and reported[0]["reported_spread"] == "26.0"
    assert reported[0]["frames"] == "1000000"


def test_tasks_the_paper_does_not_report(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 5.0], task="dmc:cartpole_balance")
    table = final(read_study([tmp_path]), reported=True)
    assert "(reported)" not in table.markdown()
    assert any(note.startswith("None of these tasks is in Table 1") for note in table.notes)


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    table = final(study_of(tmp_path, {(CHEETAH, "drqv2"): [123.4], (CHEETAH, "mico"): [99.0]}))
    assert cells(table)["cheetah_run"] == ["**123**", "<ins>99</ins>"]
    assert "one seed (n = 1), so no spread is known" in table.full_caption()
    assert records(table)[0]["standard_deviation"] == "nan"


def test_seeds_that_are_not_there_yet(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path, [0.0, 50.0, 300.0], method="drqv2", seed=seed)
        write_run(
            tmp_path, [0.0, 50.0, 500.0][: 2 + (seed < 3)], method="mico", seed=seed, frames=20
        )
        write_run(tmp_path, [0.0, 40.0], method="simsr", seed=seed, frames=20)
        write_run(tmp_path, [], method="dbc", seed=seed, frames=20)
    write_run(tmp_path, [0.0, 50.0, 400.0], method="mico-rev", seed=1)
    study = read_study([tmp_path])
    table = final(study)
    row = on_cheetah(table)
    assert row == {
        "dbc": "–",
        "drqv2": "<ins>300 ± 0</ins>",
        "mico": "500 ± 0 (n = 2 of 3)",  # the highest, but not ranked
        "mico-rev": "**400** (n = 1)",
        "simsr": "40 ± 0 (at 10 frames)",
    }
    of_mico = next(one for one in records(table) if one["method"] == "mico")
    assert (of_mico["seeds"], of_mico["seeds_short_of_budget"]) == ("1 2", "3")
    early = on_cheetah(final(study, 10))
    assert early["mico"] == "**50.0 ± 0.0**" and early["simsr"] == "<ins>40.0 ± 0.0</ins>"
    (note,) = final(study, 10).notes
    assert note == "Scores are at 10 frames; the runs' own budget is 20."


def test_while_all_are_running_the_last_common_frame_counts(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 1.0, 2.0, 3.0], frames=90)
    write_run(tmp_path, [0.0, 5.0, 6.0], method="mico", frames=90)
    study = read_study([tmp_path])
    assert budgets(study) == {CHEETAH: 20}
    table = final(study)
    assert cells(table)["cheetah_run"] == ["<ins>2.00</ins>", "**6.00**"]
    assert table.notes == ("Scores are at 20 frames; the runs' own budget is 90.",)


def test_unequal_budgets_are_compared_at_the_smaller(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 100.0, 900.0])
    write_run(tmp_path, [0.0, 200.0], method="mico")
    write_run(tmp_path, [0.0, 1.0, 2.0], task=WALKER)
    table = final(read_study([tmp_path]))
    assert cells(table)["cheetah_run"] == ["<ins>100</ins>", "**200**"]
    assert table.notes == (
        "Scores on cheetah_run are at 10 frames; the runs' own budget is 10 and 20.",
        "Scores on walker_run are at 20 frames.",
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"quality": "full"}, "quality is fast and full"), ({"action_repeat": 5}, "action_repeat is")],
)
def test_mixed_environments_are_not_ranked(
    tmp_path: Path, settings: dict[str, object], why: str
) -> None:
    write_run(tmp_path, [0.0, 100.0])
    write_run(tmp_path, [0.0, 200.0], method="mico", **settings)
    table = final(read_study([tmp_path]))
    assert cells(table)["cheetah_run"] == ["100", "200"]
    assert any(why in note and note.endswith("; not ranked") for note in table.notes)


def test_scores_at_different_frames_are_not_ranked(tmp_path: Path) -> None:
    write_run(tmp_path, {0: 0.0, 10: 100.0, 20: 150.0}, frames=20)
    write_run(tmp_path, {0: 0.0, 15: 200.0, 30: 250.0}, method="mico", frames=30, eval_every=15)
    table = final(read_study([tmp_path]))
    assert cells(table)["cheetah_run"] == ["150", "200 (at 15 frames)"]
    assert any("evaluations are at different frames; not ranked" in n for n in table.notes)


def test_best_within_the_budget(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 300.0, 200.0, 900.0], eval_episodes=3)
    write_run(tmp_path, [0.0, 100.0, 250.0, 950.0], method="mico")
    study = read_study([tmp_path])
    table = tables.score_table(study, kind="best", budget=20, reported=False)
    assert cells(table)["cheetah_run"] == ["**300**", "<ins>250</ins>"]
    assert table.caption.startswith("Best evaluation within the budget")
    assert any("eval_episodes is 3 and 5, which biases a best score" in n for n in table.notes)
    assert not any("biases" in note for note in final(study).notes)


def test_equal_scores_share_their_rank(tmp_path: Path) -> None:
    methods = {"drqv2": 0.1 + 0.2, "mico": 0.3, "simsr": 0.2, "dbc": 0.1}
    table = final(study_of(tmp_path, {(CHEETAH, m): [score] for m, score in methods.items()}))
    row = on_cheetah(table)
    assert row == {
        "drqv2": "**0.30**",
        "mico": "**0.30**",
        "simsr": "<ins>0.20</ins>",
        "dbc": "0.10",
    }
    alone = final(study_of(tmp_path / "alone", {(CHEETAH, "drqv2"): [1.0]}))
    assert cells(alone)["cheetah_run"] == ["1.00"]


def test_nothing_to_tabulate(tmp_path: Path) -> None:
    write_run(tmp_path, [], frames=20)
    study = read_study([tmp_path])
    with pytest.raises(ValueError, match="nothing to tabulate: no run was evaluated"):
        final(study)
    with pytest.raises(ValueError, match="no task on which all methods have a score"):
        tables.aggregate_table(study)


def test_tasks_without_bounds(tmp_path: Path) -> None:
    study = study_of(
        tmp_path, {("gym:Pendulum-v1", "drqv2"): [-150.0], ("gym:Pendulum-v1", "mico"): [-900.0]}
    )
    table = final(study, reported=True)
    assert cells(table)["gym:Pendulum-v1"] == ["**-150**", "<ins>-900</ins>"]
    assert records(table)[0]["failed_share"] == ""
    with pytest.raises(ValueError, match=r"gym:Pendulum-v1 is left out: no bounds are known"):
        tables.aggregate_table(study)


def test_latex_is_whole(tmp_path: Path) -> None:
    write_run(tmp_path / "odd", [0.0, 7.0], method="drqv2", hidden=64)
    three_methods(tmp_path)
    text = final(read_study([tmp_path]), reported=True).latex()
    body = text[text.index(r"\begin{tabular}") : text.index(r"\end{tabular}")]
    columns = len(re.search(r"\{(lr+)\}", body).group(1))  # type: ignore[union-attr]
    assert columns == 1 + 4 + 8
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 4
    for row in rows:
        spans = [int(one) for one in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        assert len(re.findall(r"(?<!\\)&", row)) + 1 + sum(spans) - len(spans) == columns
    assert r"\cmidrule(lr){2-5} \cmidrule(lr){6-13}" in body
    assert r"cheetah\_run & " in body and r"\underline{330 $\pm$ 26}" in body
    assert r"hammer (success, \%)" in body and r"MICo$\dagger$" in body
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert stack == []
    plain = re.sub(r"\\[{}_%&#$]", "", text.split("\n", 1)[1])  # but for the comment
    assert plain.count("{") == plain.count("}") and plain.count("$") % 2 == 0
    assert text.isascii()
    assert "_" not in plain and "#" not in plain
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1


def test_latex_escapes_every_special_sign() -> None:
    cell = tables.TableCell("a_b & 5% #1 $x {y} ~ ^ \\ ± − † –")
    text = tables.Table("c", "r", (tables.Column("m", "measured"),), (("n", (cell,)),), (), ())
    row = next(line for line in text.latex().splitlines() if line.startswith("n & "))
    assert row == (
        r"n & a\_b \& 5\% \#1 \$x \{y\} \textasciitilde{} \textasciicircum{} "
        r"\textbackslash{} $\pm$ $-$ $\dagger$ -- \\"
    )


def test_aggregates(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        {
            (CHEETAH, "drqv2"): [500.0, 500.0],
            ("dmc:reach_duplo", "drqv2"): [125.0, 125.0],
            (HAMMER, "drqv2"): [0.2, 0.2],
            (CHEETAH, "mico"): [100.0, 100.0],
            ("dmc:reach_duplo", "mico"): [25.0],
            (WALKER, "mico"): [900.0],
            (HAMMER, "mico"): [0.1, 0.1],
        },
    )
    write_run(tmp_path, [5.0], method="simsr", frames=20)
    table = tables.aggregate_table(read_study([tmp_path]))
    # ½, ½ and 0.2 (of six runs one is dropped at each end); 0.1 three times.
    assert cells(table)["drqv2"] == [
        "0.425 [0.425, 0.425]",
        "0.500 [0.500, 0.500]",
        "0.400 [0.400, 0.400]",
        "0.600 [0.600, 0.600]",
        "0.212 [0.212, 0.212]",  # straight from 0 to the final score: half of it
    ]
    assert cells(table)["mico"][0] == "0.100 [0.100, 0.100]" and "simsr" not in cells(table)
    assert study.tasks == [CHEETAH, "dmc:reach_duplo", WALKER, HAMMER]
    notes = "\n".join(table.notes)
    assert "walker_run is left out: not all methods have a score" in notes
    assert "simsr is left out: it has no score yet" in notes
    assert "Scores from 0 to 250 are normalised to 0 to 1 on reach_duplo." in notes
    assert [one["runs"] for one in records(table)[::5]] == ["6", "5"]


def test_pairs(tmp_path: Path) -> None:
    """Seeds 1, 2 and 3 of simsr are 0.1, 0.2 and 0.3 above those of drqv2; mico has another."""
    study_of(
        tmp_path,
        {(CHEETAH, "drqv2"): [100.0, 300.0, 500.0], (CHEETAH, "simsr"): [200.0, 500.0, 800.0]},
    )
    write_run(tmp_path, [0.0, 900.0], method="mico", seed=9)
    table = tables.pair_table(read_study([tmp_path]))
    assert [name for name, _ in table.rows] == ["mico vs simsr", "mico vs drqv2", "simsr vs drqv2"]
    improvement, difference, p_value, pairs = cells(table)["simsr vs drqv2"]
    # Wins of 200, 500 and 800 over 100, 300 and 500: 1, 2.5 and 3 of 3.
    assert improvement.startswith("0.72 [") and difference == "+0.200 [+0.100, +0.300]"
    assert (p_value, pairs) == ("0.25", "3")
    assert cells(table)["mico vs drqv2"] == ["1.00 [1.00, 1.00]", "–", "–", "–"]
    last = records(table)[2]
    assert (last["method"], last["other"], last["unpaired"]) == ("simsr", "drqv2", "0")
    assert float(last["improvement"]) == pytest.approx(6.5 / 9)
    assert "A task with one seed adds no width to an interval." in table.notes


def test_mixed_tasks_are_left_out_of_aggregates(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 100.0])
    write_run(tmp_path, [0.0, 100.0], method="mico", quality="full")
    for method in ("drqv2", "mico"):
        write_run(tmp_path, [0.0, 100.0], task=WALKER, method=method)
    pool = pool_scores(read_study([tmp_path]), "final")
    assert pool.tasks == [WALKER] and list(pool.scores) == ["drqv2", "mico"]
    assert any("dmc:cheetah_run is left out: not comparable, quality" in n for n in pool.notes)


@pytest.mark.parametrize("width", [80, 40])
def test_plain_text_fits_a_terminal(width: int, tmp_path: Path) -> None:
    write_run(tmp_path / "odd", [0.0, 7.0], method="simsr-rev", hidden=64, objective_weight=10.0)
    write_run(tmp_path / "two", [0.0, 7.0], method="simsr-rev", hidden=64, objective_weight=1.0)
    study = three_methods(tmp_path)
    for table in (final(study, reported=True), tables.aggregate_table(study)):
        text = table.text(width)
        assert max(map(len, text.splitlines())) <= width
        words = set(text.split())
        caption = table.caption.split(" Bold: ")[0]
        for part in (caption, *table.notes, *(column.label for column in table.columns)):
            assert set(part.split()) <= words
        for name, row in table.rows:
            assert {
                *name.split(),
                *(word for cell in row for word in cell.text.split()),
            } - words == set()
    text = final(three_methods(tmp_path / "again")).text()
    lines = "task cheetah_run|  drqv2 (measured)  200 ± 100|  mico (measured)   400 ± 0 (best)"
    assert lines.replace("|", "\n") in text
