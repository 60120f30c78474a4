"""Tables fit the width they are given, and numbers and names stay whole in them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revbis.cli.console import print_table
from revbis.io.text import lay_out, line_width, table_width

ROWS = [
    {"metric": "lax_bisimulation", "certified error": "3.2e-13", "largest": "10", "seconds": "1.5"},
    {"metric": "revised", "certified error": "8.5e-07", "largest": "1.173", "seconds": "22.75"},
]


def test_a_heading_is_broken_between_words_before_anything_else() -> None:
    assert lay_out("title", ROWS, 45) == [
        "title",
        "metric            certified  largest  seconds",
        "                      error",
        "────────────────  ─────────  ───────  ───────",
        "lax_bisimulation    3.2e-13       10      1.5",
        "revised             8.5e-07    1.173    22.75",
    ]


def test_spare_columns_go_first_and_are_named() -> None:
    lines = lay_out("", ROWS, 40, spare=["seconds", "largest"])
    assert lines[-1] == "not shown at this width: seconds"
    assert not any("22.75" in line for line in lines)
    assert any("1.173" in line for line in lines)
    assert lay_out("", ROWS, 80, spare=["seconds"]) == lay_out("", ROWS, 80)


def test_what_cannot_fit_becomes_a_block_a_row() -> None:
    assert lay_out("", ROWS, 40)[:5] == [
        "metric: lax_bisimulation",
        "  certified error  3.2e-13",
        "  largest          10",
        "  seconds          1.5",
        "metric: revised",
    ]


def test_long_text_is_broken_between_words() -> None:
    text = "a random matrix is no further from pi bisimulation than certified"
    lines = lay_out("", [{"statement": text, "slack": "-1.11e-17"}], 50)
    assert max(map(len, lines)) <= 50
    assert " ".join(" ".join(line[:39].split()) for line in lines[2:]) == text
    assert lines[2].endswith("  -1.11e-17")


def test_no_rows_are_no_error() -> None:
    assert lay_out("runs", [], 80) == ["runs: nothing"]


@pytest.mark.parametrize(("columns", "wide"), [("80", 80), ("200", 200), ("1", 40), ("x", 120)])
def test_the_width_is_that_of_columns(columns: str, wide: int, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.__stdout__", None)
    assert line_width() == wide


def test_print_table_keeps_to_columns(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "45")
    print_table("title", ROWS)
    assert capsys.readouterr().out.splitlines() == lay_out("title", ROWS, 45)


@given(
    st.lists(st.floats(allow_nan=False, allow_subnormal=False), min_size=1, max_size=9),
    st.integers(min_value=40, max_value=140),
)
def test_numbers_stay_whole_whatever_the_width(numbers: list[float], width: int) -> None:
    cells = {f"column {i}": f"{x:.3e}" for i, x in enumerate(numbers)}
    rows = [{"method": "simsr-rev-no-sa (raw)"} | cells]
    lines = lay_out("", rows, width)
    words = re.findall(r"\S+", "\n".join(lines))
    assert all(cell in words for cell in cells.values())
    assert max(map(len, lines)) <= width
    assert table_width(rows) > width or lines[-1].startswith("simsr-rev-no-sa (raw)")
