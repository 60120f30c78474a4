"""Problems as records: one sentence for each kind."""

from pathlib import Path

from revbis.analysis.problems import Kind, StudyProblem
from revbis.analysis.runs import Failures


def sentence(kind: Kind, **details: object) -> str:
    return str(StudyProblem(kind, Path("runs/a"), details))


def test_lines_are_named_with_a_verb() -> None:
    for lines, words in (
        ([4], "line 4 is"),
        ([4, 5], "lines 4, 5 are"),
        ([4, 5, 6, 9, 10], "lines 4, 5, 6 and 2 more are"),
    ):
        text = sentence(Kind.NOT_JSON, file="eval.jsonl", lines=lines)
        assert text == f"runs/a/eval.jsonl: {words} skipped: incomplete or not a JSON object"


def test_lists_numbers_and_failures_are_put_into_words() -> None:
    text = sentence(Kind.UNFINISHED, frames=1_000, budget=20_000)
    assert text == "runs/a is not finished: 1,000 of 20,000 frames"
    text = sentence(Kind.MIXED_VERSIONS, name="torch", values=["1", "2"])
    assert text == "versions are mixed: torch 1 and 2"
    text = sentence(Kind.NO_SEEDS, task="dmc:a", label="x {y}", seeds=[1, 3])
    assert text == "dmc:a, x {y}: no seed 1, 3"
    text = sentence(Kind.FAILED, failures=Failures(2, "out of memory", True))
    assert text == "runs/a is given up after 2 failures; last reason: out of memory"


def test_half_a_surrogate_pair_can_be_printed() -> None:
    assert sentence(Kind.BAD_CONFIG, reason="a\ud800") == "runs/a is left out: a?"
