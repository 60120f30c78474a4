"""Statistics on the page, and metrics of any agent: what is recorded is shown, and no more."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.browser import CHROMIUM, DRIVER, MISSING, Browser, click, series
from tests.analysis.fake_study import fake_run, write_lines
from tests.analysis.runs import study_of, write_run
from tests.analysis.test_report import page_of

from revbis.analysis import tables
from revbis.analysis.page import write_report
from revbis.analysis.study import read_study

CHEETAH, HAMMER = "dmc:cheetah_run", "metaworld:hammer"
in_browser = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)


def rewrite(path: Path, change: Any) -> None:
    """Changes every record of a file."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path, [change(record) for record in records])


def test_statistics_are_those_of_the_tables(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        {
            (CHEETAH, "drqv2"): [200.0, 400.0],
            (HAMMER, "drqv2"): [0.4, 0.8],
            (CHEETAH, "mico"): [1000.0, 1000.0],
            (HAMMER, "mico"): [1.0, 1.0],
            ("dmc:walker_run", "mico"): [500.0],
        },
    )
    page = page_of(tmp_path, out=tmp_path / "page")
    for table in (tables.aggregate_table(study), tables.pair_table(study)):
        assert table.caption in page.text
        for name, cells in table.rows:
            row = "".join(f"<td>{text}</td>" for text in (name, *(cell.text for cell in cells)))
            assert row in page.source
    assert "walker_run is left out: not all methods have a score." in page.text
    drqv2, mico = page.data["profiles"]
    shares = dict(zip(drqv2["x"], drqv2["y"], strict=True))
    # Of 0.2, 0.4, 0.4 and 0.8.
    assert [shares[tau] for tau in (0.1, 0.3, 0.5, 0.9)] == [1.0, 0.75, 0.25, 0.0]
    assert mico["y"] == [1.0] * 100 + [0.0]
    for low, share, high in zip(drqv2["low"], drqv2["y"], drqv2["high"], strict=True):
        assert low <= share <= high


def test_statistics_that_cannot_be_made(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.0, 1.0])
    alone = page_of(tmp_path / "a", out=tmp_path / "page")
    assert 'id="statistics"' not in alone.source and alone.data["profiles"] == []
    study_of(tmp_path / "b", {("gym:A-v1", "drqv2"): [1.0, 2.0]})
    page = page_of(tmp_path / "b", out=tmp_path / "page")
    assert "Scores cannot be pooled over tasks: " in page.text
    assert "no bounds are known for gym:A-v1" in page.text and page.data["profiles"] == []


def test_what_only_evaluations_report(tmp_path: Path) -> None:
    """As `status`, or in older records as c; what training lines have is not repeated."""
    new, old, both = (fake_run(tmp_path, seed=seed) for seed in (1, 2, 3))
    for folder in (new, old):
        rewrite(folder / "train.jsonl", lambda line: line | {"c": None})
    rewrite(new / "eval.jsonl", lambda line: line | {"c": None, "status": {"c": 0.5, "plan": 3}})
    rewrite(both / "eval.jsonl", lambda line: line | {"status": {"c": 0.5}})
    first, second, third = page_of(tmp_path, out=tmp_path / "page").data["groups"][0]["runs"]
    assert first["status"] == {"c": [0.5] * 5, "plan": [3.0] * 5}
    assert second["status"]["c"][0] == 0.5 and list(second["status"]) == ["c"]
    assert third["status"] == {} and "c" in third["training"]["values"]


def test_every_number_of_a_training_line_is_there(tmp_path: Path) -> None:
    folder = fake_run(tmp_path)
    rewrite(folder / "train.jsonl", lambda line: line | {"kl": 2.0, "world/kl": None, "bad": []})
    page = page_of(tmp_path, out=tmp_path / "page")
    values = page.data["groups"][0]["runs"][0]["training"]["values"]
    assert values["kl"] == [2.0] * 20 and "world/kl" not in values and "bad" not in values
    counters = {"frames", "agent_steps", "updates", "episodes", "seconds"}
    assert not counters & values.keys() and not any(name.startswith("seconds/") for name in values)
    assert "values that are not numbers are skipped: bad" in page.text
    assert "effective rank near 1" in page.text
    fake_run(tmp_path / "b", method="drqv2")
    assert "effective rank" not in page_of(tmp_path / "b", out=tmp_path / "page").text


def test_runs_whose_agents_have_different_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("drqv2", "simsr"):
        fake_run(tmp_path, method=method)
    study = read_study([tmp_path])
    real = type(study.runs[0].config).as_dict

    def as_dict(config: Any) -> dict[str, Any]:
        return real(config) | ({"planning_horizon": 5} if config.method == "simsr" else {})

    monkeypatch.setattr(type(study.runs[0].config), "as_dict", as_dict)
    source = write_report(study, tmp_path / "page").read_text()
    differences = source[source.index("Differences") : source.index("Common to all runs")]
    assert "planning horizon" in differences
    assert differences.count("<td>5</td>") == 1 and differences.count("<td>–</td>") == 1


def test_the_command_needs_no_torch(tmp_path: Path) -> None:
    for seed in (1, 2):
        fake_run(tmp_path / "runs", seed=seed)
    code = (
        "import sys; from revbis.cli import main; main(sys.argv[1:])\n"
        "print([name for name in ('torch', 'matplotlib', 'numba', 'scipy') if name in sys.modules])"
    )
    words = [sys.executable, "-c", code, "report", str(tmp_path / "runs"), "-o", str(tmp_path)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"open {tmp_path / 'index.html'}", "[]"]


@in_browser
def test_charts_of_what_agents_report(chromium: Browser, tmp_path: Path) -> None:
    new = fake_run(tmp_path, method="drqv2")
    more = {"kl": 2.0, "constructor": 4.0, "__proto__": 8.0}
    rewrite(new / "train.jsonl", lambda line: line | more)
    rewrite(new / "eval.jsonl", lambda line: line | {"status": {"c": 0.25, "toString": 3}})
    fake_run(tmp_path, method="simsr")
    chromium.open(write_report(read_study([tmp_path]), tmp_path / "page"))
    assert series(chromium, "c-0")["drqv2 · seed 1"] == [0.25] * 5
    folded = "return [...document.querySelectorAll('#training summary')].map((s) => s.textContent)"
    assert chromium.run(folded) == ["dmc:cartpole_balance", "4 more metrics"]
    assert not chromium.run("return 'training-kl-0' in revbis.charts")
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for name, value in [("kl", 2.0), ("constructor", 4.0), ("__proto__", 8.0), ("toString", 3.0)]:
        drawn = series(chromium, f"training-{name}-0")
        assert set(drawn["drqv2 · seed 1"]) == {value} and "simsr · seed 1" not in drawn
    assert set(series(chromium, "training-objective/effective_rank-0")) == {"", "simsr · seed 1"}
    assert chromium.errors() == []


@in_browser
def test_statistics_follow_the_methods_that_are_shown(chromium: Browser, tmp_path: Path) -> None:
    for m, method in enumerate(("drqv2", "mico", "simsr")):
        for seed in (1, 2):
            fake_run(tmp_path, method=method, seed=seed, returns=[0.0, 100.0 * (m + 1) + seed])
    chromium.open(write_report(read_study([tmp_path]), tmp_path / "page"))
    rows = (
        "return [...document.querySelectorAll('#statistics tbody tr:not([hidden])')]"
        ".map((row) => row.cells[0].textContent)"
    )
    pairs = ["simsr vs mico", "simsr vs drqv2", "mico vs drqv2"]
    assert chromium.run(rows) == ["drqv2", "mico", "simsr", *pairs]
    profiles = series(chromium, "profiles")
    assert set(profiles) == {"", "drqv2", "mico", "simsr"}
    assert profiles["drqv2"][:10] == [1.0] * 10 and profiles["drqv2"][11:] == [0.0] * 90
    click(chromium, "labels-1")  # mico
    assert chromium.run(rows) == ["drqv2", "simsr", "simsr vs drqv2"]
    assert set(series(chromium, "profiles")) == {"", "drqv2", "simsr"}
    assert chromium.errors() == []
