"""Numbers and times as words."""

import pytest

from revbis.io.text import format_bytes, format_duration


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (1234567, "1.23 MB"),
        (8e9, "8 GB"),
        (2.5e12, "2.5 TB"),
        (4e15, "4e+03 TB"),
    ],
)
def test_bytes(size, words):
    assert format_bytes(size) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (5, "5 s"),
        (59.7, "1 min 00 s"),
        (65, "1 min 05 s"),
        (3700, "1 h 01 min"),
        (26 * 86400 + 7300, "26 days 2 h"),
    ],
)
def test_times(seconds, words):
    assert format_duration(seconds) == words
