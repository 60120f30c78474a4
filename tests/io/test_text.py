"""Numbers and times as words."""

import pytest

from revbis.io.text import format_bytes, format_duration, format_interval, format_number


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


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.00123, "1.23 ms"), (0.9993, "999 ms"), (0.9996, "1 s"), (32.2, "32.2 s"), (3220, "3220 s")],
)
def test_short_times_have_no_exponent(seconds: float, words: str) -> None:
    assert format_interval(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0.5, "0.500"), (100.0, "100"), (1e6, "1,000,000"), (float("nan"), "nan")]
)
def test_counts_have_no_decimals(value: float, words: str) -> None:
    assert format_number(value) == words
