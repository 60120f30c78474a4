"""Tables: what is best, what may not be compared, and that three formats say the same."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.runs import study_of, write_run

from revbis.analysis import stats, tables
from revbis.analysis.scores import budgets, pool_scores
from revbis.analysis.study import Study, read_study

CHEETAH, WALKER, HAMMER = "dmc:cheetah_run", "dmc:walker_run", "metaworld:hammer"
OF = "of the published final return"


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
        "task": ["drqv2 (measured)", "mico (measured)", "simsr (measured)", f"{OF} (measured)"],
        "---": ["---:"] * 4,
        "cheetah_run": ["200 ± 100", "**400 ± 0**", "<ins>330 ± 26</ins>", "27–55%"],
        "hammer (success, %)": ["**60.0 ± 17.3**", "<ins>10.0 ± 0.0</ins>", "**60.0 ± 0.0**", "–"],
    }
    assert "mean ± one standard deviation (n − 1) over n = 3 seeds" in table.full_caption()
    assert table.notes == ("Scores are at 10 frames.", tables.PUBLISHED_NOTE)
    assert float(records(table)[0]["of_published"]) == pytest.approx(200 / 729)
    assert records(table)[-1]["of_published"] == ""


@pytest.mark.parametrize(
    ("task", "published"),
    [
        *(("dmc:cartpole_swingup", 865), ("dmc:walker_walk", 767), ("dmc:cheetah_run", 729)),
        *(("dmc:walker_run", None), ("metaworld:hammer", None), ("gym:Pendulum-v1", None)),
    ],
)
def test_the_published_final_return(task: str, published: int | None, tmp_path: Path) -> None:
    """DrQ-v2's, where it is known; 173 is a fifth of 865, 22.6% of 767 and 23.7% of 729."""
    assert stats.published_return(task) == published
    table = final(study_of(tmp_path, {(task, "drqv2"): [173.0]}))
    shown = [column.label for column in table.columns]
    if published is None:
        assert shown == ["drqv2"] and OF not in "".join(table.notes)
    else:
        ((_, (_, cell)),) = table.rows
        assert shown == ["drqv2", OF]
        assert cell.text == {865: "20%", 767: "23%", 729: "24%"}[published]


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
    assert row[3] == "27–55%" and row[4:] == [
        *("791 ± 26", "**848 ± 22**", "483 ± 19", "767 ± 76"),
        *("<ins>821 ± 48</ins>", "691 ± 42", "728 ± 32", "565 ± 61"),
    ]
    assert cells(table)["hammer (success, %)"][3:] == ["–"] * 9
    head = cells(table)["task"]
    assert head[0] == "drqv2 (measured)" and head[4] == "MICo† (reported)"
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
    assert cells(table)["cheetah_run"] == ["**123**", "<ins>99</ins>", "14–17%"]
    assert "one seed (n = 1), so no spread is known" in table.full_caption()
    assert records(table)[0]["standard_deviation"] == ""


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
        OF: "5–69%",
    }
    of_mico = next(one for one in records(table) if one["method"] == "mico")
    assert (of_mico["seeds"], of_mico["seeds_short_of_budget"]) == ("1 2", "3")
    early = on_cheetah(final(study, 10))
    assert early["mico"] == "**50.0 ± 0.0**" and early["simsr"] == "<ins>40.0 ± 0.0</ins>"
    note, _ = final(study, 10).notes
    assert note == "Scores are at 10 frames; the runs' own budget is 20."


def test_while_all_are_running_the_last_common_frame_counts(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 1.0, 2.0, 3.0], frames=90)
    write_run(tmp_path, [0.0, 5.0, 6.0], method="mico", frames=90)
    study = read_study([tmp_path])
    assert budgets(study) == {CHEETAH: 20}
    table = final(study)
    assert cells(table)["cheetah_run"] == ["<ins>2.00</ins>", "**6.00**", "0–1%"]
    assert table.notes[0] == "Scores are at 20 frames; the runs' own budget is 90."


def test_unequal_budgets_are_compared_at_the_smaller(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 100.0, 900.0])
    write_run(tmp_path, [0.0, 200.0], method="mico")
    write_run(tmp_path, [0.0, 1.0, 2.0], task=WALKER)
    table = final(read_study([tmp_path]))
    assert cells(table)["cheetah_run"] == ["<ins>100</ins>", "**200**", "14–27%"]
    assert table.notes[:2] == (
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
    assert cells(table)["cheetah_run"] == ["100", "200", "14–27%"]
    assert any(why in note and note.endswith("; not ranked") for note in table.notes)


def test_scores_at_different_frames_are_not_ranked(tmp_path: Path) -> None:
    write_run(tmp_path, {0: 0.0, 10: 100.0, 20: 150.0}, frames=20)
    write_run(tmp_path, {0: 0.0, 15: 200.0, 30: 250.0}, method="mico", frames=30, eval_every=15)
    table = final(read_study([tmp_path]))
    assert cells(table)["cheetah_run"] == ["150", "200 (at 15 frames)", "21–27%"]
    assert any("evaluations are at different frames; not ranked" in n for n in table.notes)


def test_best_within_the_budget(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 300.0, 200.0, 900.0], eval_episodes=3)
    write_run(tmp_path, [0.0, 100.0, 250.0, 950.0], method="mico")
    study = read_study([tmp_path])
    table = tables.score_table(study, kind="best", budget=20, reported=False)
    assert cells(table)["cheetah_run"] == ["**300**", "<ins>250</ins>", "34–41%"]
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
        OF: "0%",
    }
    alone = final(study_of(tmp_path / "alone", {(CHEETAH, "drqv2"): [1.0]}))
    assert cells(alone)["cheetah_run"] == ["1.00", "0%"]


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
    assert columns == 1 + 5 + 8
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 4
    for row in rows:
        spans = [int(one) for one in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        assert len(re.findall(r"(?<!\\)&", row)) + 1 + sum(spans) - len(spans) == columns
    assert r"\cmidrule(lr){2-6} \cmidrule(lr){7-14}" in body
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
            (CHEETAH, "drqv2"): [500.0] * 4,
            ("dmc:reach_duplo", "drqv2"): [125.0] * 4,
            (HAMMER, "drqv2"): [0.2] * 4,
            (CHEETAH, "mico"): [100.0] * 4,
            ("dmc:reach_duplo", "mico"): [25.0],
            (WALKER, "mico"): [900.0],
            (HAMMER, "mico"): [0.1] * 4,
        },
    )
    write_run(tmp_path, [5.0], method="simsr", frames=20)
    table = tables.aggregate_table(read_study([tmp_path]))
    # ½, ½ and 0.2 (of twelve runs three are dropped at each end); 0.1 three times.
    assert cells(table)["drqv2"] == [
        "0.450 [0.450, 0.450]",
        "0.500 [0.500, 0.500]",
        "0.400 [0.400, 0.400]",
        "0.600 [0.600, 0.600]",
        "0.225 [0.225, 0.225]",  # straight from 0 to the final score: half of it
    ]
    assert cells(table)["mico"] == [
        *["0.100 (no interval: 1 seed)"] * 3,
        "0.900 (no interval: 1 seed)",
        "0.050 (no interval: 1 seed)",
    ]
    assert "simsr" not in cells(table)
    assert study.tasks == [CHEETAH, "dmc:reach_duplo", WALKER, HAMMER]
    notes = "\n".join(table.notes)
    assert "walker_run is left out: not all methods have a score" in notes
    assert "simsr is left out: it has no score yet" in notes
    assert "Scores from 0 to 250 are normalised to 0 to 1 on reach_duplo." in notes
    first, second = records(table)[::5]
    assert (first["runs"], second["runs"]) == ("12", "9")
    assert (float(first["low"]), second["low"], second["high"]) == (pytest.approx(0.45), "", "")


def test_intervals_of_aggregates_are_those_of_the_statistics(tmp_path: Path) -> None:
    finals = np.random.default_rng(0).normal(500, 100, (2, 5))
    scores = dict(zip((CHEETAH, WALKER), finals, strict=True))
    study = study_of(tmp_path, {(task, "drqv2"): each.tolist() for task, each in scores.items()})
    (row,) = (row for name, row in tables.aggregate_table(study, seed=3).rows if name == "drqv2")
    normal = {task: each / 1000 for task, each in scores.items()}
    wanted = [
        stats.interval(stats.iqm, normal, seed=3),
        stats.interval(stats.median, normal, seed=3),
        stats.mean_interval(normal),
        stats.gap_interval(normal),
    ]
    for cell, (value, low, high) in zip(row, wanted, strict=False):
        assert cell.text == f"{value:.3f} [{low:.3f}, {high:.3f}]" and not cell.remark


def test_pairs(tmp_path: Path) -> None:
    """Seeds 1 to 4 of simsr are 0.1, 0.2, 0.3 and 0.2 above those of drqv2; mico has another.

    The differences have a standard deviation of √(0.02/3), and t(3) is 3.182: 0.2 ± 0.130.
    Of 2^4 patterns of signs all plus and all minus are as large: p is 1/8, and so is Holm's, as the
    pair is alone in its family.
    """
    study_of(
        tmp_path,
        {
            (CHEETAH, "drqv2"): [100.0, 300.0, 500.0, 0.0],
            (CHEETAH, "simsr"): [200.0, 500.0, 800.0, 200.0],
        },
    )
    write_run(tmp_path, [0.0, 900.0], method="mico", seed=9)
    table = tables.pair_table(read_study([tmp_path]))
    assert [name for name, _ in table.rows] == ["mico vs simsr", "mico vs drqv2", "simsr vs drqv2"]
    improvement, difference, p_value, holm, pairs = cells(table)["simsr vs drqv2"]
    # Wins of 200, 500, 800 and 200 over 100, 300, 500 and 0: 2, 3.5, 4 and 2 of 4.
    assert improvement.startswith("0.72 [") and difference == "+0.200 [+0.070, +0.330]"
    assert (p_value, holm, pairs) == ("0.12", "0.12", "4")
    assert cells(table)["mico vs drqv2"] == ["1.00 (no interval: 1 seed)", "–", "–", "–", "–"]
    assert table.notes[-1] == "Family of Holm's correction: all pairs in this table, 1 in number."
    last = records(table)[2]
    assert (last["method"], last["other"], last["unpaired"]) == ("simsr", "drqv2", "0")
    assert float(last["improvement"]) == pytest.approx(11.5 / 16)
    assert records(table)[0]["improvement_low"] == ""


def test_pairs_are_corrected_for_their_number(tmp_path: Path) -> None:
    """All five seeds of a method are above those of the next: p is 1/16 for each of three pairs."""
    finals = {"drqv2": 100.0, "mico": 200.0, "simsr": 300.0}
    seeds = {m: [score + seed for seed in range(5)] for m, score in finals.items()}
    table = tables.pair_table(study_of(tmp_path, {(CHEETAH, m): v for m, v in seeds.items()}))
    assert [float(one["p_value"]) for one in records(table)] == [1 / 16] * 3
    assert [float(one["p_holm"]) for one in records(table)] == [3 / 16] * 3
    assert "all pairs in this table, 3 in number" in table.notes[-1]


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
    lines = [" ".join(line.split()) for line in text.splitlines()]
    at = lines.index("task cheetah_run")
    assert lines[at + 1 : at + 3] == [
        "drqv2 200 ± 100",
        "mico 400 ± 0 (best)",
    ]
