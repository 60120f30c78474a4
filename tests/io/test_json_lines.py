"""One reader of JSON lines for everyone: incomplete and foreign lines are skipped and named."""

import json
import math

import pytest

from revbis.io.files import line_of, read_lines, read_records


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "lines"
    records = [{"frames": 1, "returns": [1.5, 2.0]}, {"frames": 2, "name": "ä\nb", "c": None}]
    path.write_text("".join(map(line_of, records)))
    assert read_records(path) == records
    assert read_lines(path).records == list(enumerate(records, 1))


def test_numbers_that_json_does_not_have_become_words():
    line = line_of({"a": math.nan, "b": [math.inf, 1.0], "c": -math.inf})
    assert json.loads(line) == {"a": "nan", "b": ["inf", 1.0], "c": "-inf"}
    assert line.endswith("}\n") and line.count("\n") == 1


def test_odd_lines_are_skipped_and_reported(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b'{"frames": 1}\n[2]\n\n\xff{"frames": 3}\n{"frames": 4}\n{"fra')
    lines = read_lines(path)
    assert lines.records == [(1, {"frames": 1}), (5, {"frames": 4})]
    assert lines.malformed == [2, 3, 4, 6]


@pytest.mark.parametrize("line", ["[" * 100_000, "NaN", "3", '"text"', "null", "{'a': 1}"])
def test_no_line_is_too_odd(tmp_path, line):
    path = tmp_path / "lines"
    path.write_text(line)
    assert read_lines(path) == ([], [1], "")


def test_no_file_has_no_lines_and_what_cannot_be_read_is_reported(tmp_path):
    assert read_lines(tmp_path / "none") == ([], [], "")
    assert read_lines(tmp_path) == ([], [], "Is a directory")
    (tmp_path / "empty").touch()
    assert read_lines(tmp_path / "empty") == ([], [], "")
