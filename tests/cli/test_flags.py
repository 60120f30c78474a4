from dataclasses import dataclass

import pytest
import tyro

from revbis.cli.flags import finite_number, flag_rules, integer_flag


@dataclass(frozen=True)
class Flags:
    frames: int = 10
    seeds: tuple[int, ...] = (1,)
    size: int | None = None
    rate: float = 1
    c: float | None = None
    quick: bool = False


def read(words: str) -> Flags:
    with flag_rules():
        return tyro.cli(Flags, args=words.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", Flags()),
        ("--frames 1e5", Flags(frames=100_000)),
        ("--frames 2.5E3", Flags(frames=2500)),
        ("--frames 100_000", Flags(frames=100_000)),
        ("--frames=-3", Flags(frames=-3)),
        ("--seeds 1 2 3e0", Flags(seeds=(1, 2, 3))),
        ("--size 1e1", Flags(size=10)),
        ("--size None --c None", Flags()),
        ("--rate 1e-4 --c 1", Flags(rate=1e-4, c=1.0)),
        ("--quick", Flags(quick=True)),
    ],
)
def test_counts_may_be_written_with_an_exponent(words: str, expected: Flags) -> None:
    assert read(words) == expected


def test_help_shows_the_defaults(capsys) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    printed = capsys.readouterr().out
    assert "--frames INT" in printed and "None|INT" in printed and "default: 10" in printed


def test_the_rules_end_with_their_context(capsys) -> None:
    read("")
    with pytest.raises(SystemExit):
        tyro.cli(Flags, args=["--frames", "1e5"])


@pytest.mark.parametrize("text", ["1.5", "x", "", "nan", "inf", "1e-3", "1e-999999999", "1+1"])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number, got"):
        integer_flag(text)


@pytest.mark.parametrize("text", ["1e13", "-1e13", "1000000000001", "1e999999999"])
def test_counts_end_at_a_million_millions(text: str) -> None:
    assert integer_flag("1e12") == 10**12
    with pytest.raises(ValueError, match="must be at most 1,000,000,000,000"):
        integer_flag(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999"])
def test_what_is_no_finite_number(text: str) -> None:
    with pytest.raises(ValueError, match="must be a finite number, got"):
        finite_number(text)
