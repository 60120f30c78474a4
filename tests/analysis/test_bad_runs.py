"""One bad run in a study: it is named with its reason, and everything else is shown."""

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.fake_study import fake_run
from tests.analysis.test_report import Page

from revbis.analysis import figures, tables
from revbis.analysis.page import write_report
from revbis.analysis.study import read_study

OBJECTS = ("config.json", "run.json", "result.json", "failures.json")
LINES = ("eval.jsonl", "train.jsonl", "alarms.jsonl")
DEEP = "[" * 100_000
CONTENTS = {
    "an array": b"[]",
    "null": b"null",
    "a number": b"5",
    "NaN": b"NaN",
    "a string": b'"x"',
    "half an object": b'{"frames": 10, "mean_re',
    "not text": bytes(range(256)),
    "a deep array": DEEP.encode(),
    "a deep object": b'{"a":' * 100_000,
    "many digits": b'{"frames": 1' + b"0" * 5000 + b"}",
}
NO_COUNT = [None, True, -1, 1.5, math.nan, math.inf, 1e23, 10**400, [], {}]
NO_NUMBER = [True, "x", [], {}, [[[]]]]
NO_TEXT = [5, True, [], {}, math.nan]
ODD: dict[str, dict[str, list[Any]]] = {
    "config.json": {
        "preset": [*NO_TEXT, None],
        "task": [*NO_TEXT, None],
        "method": [*NO_TEXT, None, "none"],
        "seed": [*NO_COUNT, "x"],
        "frames": [*NO_COUNT, 10**23, 0],
        "eval_every": [*NO_COUNT, 0],
        "action_repeat": [*NO_COUNT, 0],
        "strides": [None, 5, [], [2, 2, 1], [2, 2, 1, True], "2211", [2, 2, 1, [1]]],
        "discount": [None, True, "x", math.nan, 2, 10**400],
        "learning_rate": [None, "x", math.inf, -1, 10**400],
        "out": [None, 5, [], {}],
        "quality": [5, None, "worst", []],
        "distractor": [5, True, []],
        "distractor_strength": [*NO_NUMBER, 0, 1.5, math.nan, 10**400],
        "state_noise": [*NO_COUNT, "x", 10_001],
        "state_noise_kind": [5, None, "white", []],
        "threads": ["x", True, 0, []],
        "wandb": [5, True, []],
        "colour": ["red"],
    },
    "run.json": {
        "versions": [5, "x", [], {"torch": 2}, {"torch": {"a": []}}, True],
        "revision": NO_TEXT,
        "command": NO_TEXT,
        "machine": NO_TEXT,
    },
    "result.json": {"frames": NO_COUNT, "mean_return": ["x", [], True, None]},
    "failures.json": {"failures": [5, "x", {}, [5], [[]], [None], [{"text": "x"}], None, True]},
    "eval.jsonl": {
        "frames": NO_COUNT,
        "mean_return": [None, *NO_NUMBER, "nan", math.nan, math.inf, 1e200, 10**400],
        "train_mean_return": [None, *NO_NUMBER, "nan", math.nan, math.inf, 1e200, 10**400],
        "train_returns": [5, "x", {}, ["x"], [None]],
        "train_success_any": [5, "x", {"a": 1}, ["x"], [0.5], True],
        "success_any": [5, "x", {"a": 1}, ["x"], [[]], [0.5], [5], True],
        "seconds": NO_NUMBER,
        "updates": [*NO_NUMBER, -1, 1.5, 10**400],
        "agent_steps": NO_NUMBER,
        "returns": [5, "x", {}, ["x"], [[]], [True], [None]],
        "c": NO_NUMBER,
        "status": [5, "x", [], True, None, {"c": "x"}, {"c": []}, {"c": {}}],
    },
    "train.jsonl": {
        "frames": NO_COUNT,
        "critic_loss": NO_NUMBER,
        "c": NO_NUMBER,
        "seconds/update": NO_NUMBER,
    },
    "alarms.jsonl": {
        "name": [*NO_TEXT, None],
        "text": [*NO_TEXT, None],
        "frames": [one for one in NO_COUNT if one is not None],
    },
}


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """The third of three runs."""
    for seed in (1, 2):
        fake_run(tmp_path / "runs", seed=seed)
    alarm = {"frames": 10, "name": "stalled", "text": "no better evaluation"}
    folder = fake_run(tmp_path / "runs", seed=3, alarms=[alarm])
    (folder / "failures.json").write_text(json.dumps({"failures": []}))
    return folder


def shown(bad: Path) -> str:
    """The page's words, once it is sure that the good runs are on it."""
    study = read_study([bad.parents[3]])
    page = Page(write_report(study, bad.parents[4] / "page"))
    seeds = {run["seed"]: run for group in page.data["groups"] for run in group["runs"]}
    for seed in (1, 2):
        assert seeds[seed]["return"] == [100.0, 300.0, 500.0, 600.0, 650.0]
        assert seeds[seed]["state"] == "finished"
    tables.score_table(study, kind="final", budget=None, reported=True)
    return page.text


def spoiled(path: Path, name: str, value: Any) -> bytes:
    """A file with another value under a name, in its last line."""
    text = path.read_text()
    *before, last = text.splitlines() if path.suffix == ".jsonl" else [text]
    return "\n".join([*before, json.dumps(json.loads(last) | {name: value})]).encode()


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", [*OBJECTS, *LINES])
def test_a_file_with_anything_in_it(name: str, content: str, bad: Path) -> None:
    (bad / name).write_bytes(CONTENTS[content] + b"\n")
    words = shown(bad)
    assert "seed-3" in words and name in words


@pytest.mark.parametrize("name", [*OBJECTS, *LINES])
def test_a_file_that_is_empty_missing_or_a_folder(name: str, bad: Path) -> None:
    (bad / name).write_bytes(b"")
    words = shown(bad)
    if name in OBJECTS:
        assert ("seed-3" in words and f"{name} cannot be read" in words) or name == "config.json"
    (bad / name).unlink()
    reasons = {
        "config.json": "it has no config.json",
        "run.json": "run.json cannot be read",
        "result.json": "seed-3 is not finished: 40,000 of 40,000 frames",
        "eval.jsonl": "seed-3 has no evaluation yet",
    }
    assert reasons.get(name, "") in shown(bad)
    (bad / name).mkdir()
    words = shown(bad)
    assert "seed-3" in words and name in words


@pytest.mark.parametrize("name", ODD)
def test_a_value_that_is_none(name: str, bad: Path) -> None:
    whole = (bad / name).read_bytes()
    cases = [(key, value) for key, values in ODD[name].items() for value in values]
    for key, value in cases:
        (bad / name).write_bytes(spoiled(bad / name, key, value))
        words = shown(bad)
        is_return = key in ("mean_return", "train_mean_return")
        reason = "is not finite" if is_return and name not in words else name
        assert "seed-3" in words and reason in words, (key, value)
        (bad / name).write_bytes(whole)


def mutants(content: bytes, count: int, seed: str) -> Iterator[bytes]:
    """Contents with bytes changed, cut out, doubled or put elsewhere."""
    generator = random.Random(seed)
    for _ in range(count):
        spoilt = bytearray(content)
        for _ in range(generator.choice((1, 1, 3, 20))):
            at = generator.randrange(len(spoilt) + 1)
            end = min(at + generator.choice((1, 1, 5, 200)), len(spoilt))
            spoilt[at:end] = generator.choice(
                [b"", bytes([generator.randrange(256)]), spoilt[at:end] * 2, b"9" * 30, b"\n"]
            )
        yield bytes(spoilt)


@pytest.mark.parametrize("name", [*OBJECTS, *LINES])
def test_bytes_by_chance(name: str, bad: Path) -> None:
    """Not all of these can be distinguished from good files, but none may hide the good runs."""
    whole = (bad / name).read_bytes()
    for content in mutants(whole, 10, seed=name):
        (bad / name).write_bytes(content)
        shown(bad)


def test_names_that_no_file_can_hold(bad: Path) -> None:
    """Half a surrogate pair is JSON, and no text."""
    for name, key in (("config.json", "task"), ("run.json", "command"), ("alarms.jsonl", "text")):
        (bad / name).write_bytes(spoiled(bad / name, key, "\ud800 half"))
    assert "? half" in shown(bad)
    read_study([bad.parents[3]]).write_csv(bad.parents[4] / "scores.csv")


def test_figures_of_a_study_with_a_bad_run(bad: Path) -> None:
    (bad / "train.jsonl").write_text('{"c": "x"}\n{"c": 1, "agent_steps": 1e23}\n[]\n')
    (bad / "eval.jsonl").write_text('{"frames": 1e23, "mean_return": 5}\n')
    study = read_study([bad.parents[3]])
    for draw in (figures.learning_curves, figures.coefficients, figures.ablation):
        draw(study)


def test_nothing_in_a_run_is_touched(bad: Path) -> None:
    (bad / "eval.jsonl").write_text("[]")
    (bad / "checkpoints" / "frame-000000000010").mkdir(parents=True)
    before = {path: path.stat().st_mtime_ns for path in bad.rglob("*")}
    shown(bad)
    assert {path: path.stat().st_mtime_ns for path in bad.rglob("*")} == before
