"""Pages of results/ say what their script finds in the records; the records are packed."""

import csv
import json
import re
import runpy
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from tests.analysis.fake_study import fake_run
from tests.analysis.runs import ABOUT, write_run

from revbis.analysis.study import read_study

RESULTS = Path(__file__).parents[2] / "results"
COMPARE, PACK, PAGES = (
    runpy.run_path(str(RESULTS / f"{name}.py")) for name in ("compare", "pack", "tables")
)
METRICS = "mico+simsr+simsr-rev+simsr-rev-full+energy-rev-full"


@pytest.mark.parametrize(
    ("folder", "names", "line", "said"),
    [
        ("noisy-state", ["simsr-rev", "simsr"], "+1.62 [-8.76, +12], p = 0.750", "+2% [−9, +12]"),
        ("noisy-state", ["zp+deepmdp", METRICS], "+7.54 [+1.1, +14], p = 0.025", "8% [1, 14]"),
        ("pixels", ["simsr-rev", "simsr"], "+8.13 [-12.1, +28.3], p = 0.387", "+8% [−12, +28]"),
    ],
)
def test_returns_over_all_tasks(folder: str, names: list[str], line: str, said: str) -> None:
    (found,) = COMPARE["lines"](COMPARE["returns"](RESULTS / folder), names)
    assert found.startswith(f"{names[0]} - {names[1]}: {line}")
    assert said in (RESULTS / "README.md").read_text()


FAMILIES = ("mico-rev", "simsr-rev", "mico-rev-full", "simsr-rev-full", "energy-rev-full")


@pytest.mark.parametrize(
    ("files", "names", "line", "said"),
    [
        (
            ("gaussian-0.1/offline",),
            [name + end for name in FAMILIES for end in ("", "-no-c")],
            "+0.149 [+0.119, +0.179], p = 0.000, 25 pairs",
            "+.15 [+.12, +.18]",
        ),
        (
            ("gaussian-0.1/offline",),
            ["mico-rev-released", "mico-rev"],
            "-0.309 [-0.362, -0.256], p = 0.062, 5 pairs",
            "−.31 [−.36, −.26]",
        ),
    ],
)
def test_objectives_alone(files: tuple[str, ...], names: list[str], line: str, said: str) -> None:
    offline = RESULTS / "offline"
    measures = COMPARE["offline"](*(offline / f"{file}.csv" for file in files))
    (found,) = COMPARE["lines"](measures["phi_denoising_ood"], names)
    assert found.endswith(line)
    assert said in (offline / "README.md").read_text()


@pytest.mark.parametrize(
    ("files", "measure", "line", "said"),
    [
        ("OLD", "phi_denoising_ood", "+0.191 [+0.103, +0.278], p = 0.125, 4", "+.19 [+.10, +.28]"),
        ("NEW", "phi_denoising_ood", "+0.203 [+0.147, +0.259], p = 0.008, 8", ".20 [.15, .26]"),
        ("NEW", "phi_state_r2", "+0.134 [+0.0637, +0.204], p = 0.008, 8", "+.13 [.06, .20]"),
    ],
)
def test_buffers_are_the_unit(files: str, measure: str, line: str, said: str) -> None:
    """Seeds on one buffer are one observation: t has as many degrees of freedom as buffers − 1."""
    offline = RESULTS / "offline"
    paths = [offline / file for file in PAGES[files]]
    scores = COMPARE["offline"](*paths)[measure]
    (found,) = COMPARE["lines"](scores, ["simsr-rev", "simsr"], "buffer")
    assert found == f"simsr-rev - simsr: {line} buffers"
    assert said in (offline / "README.md").read_text()
    means = [
        np.mean([of[str(file)][seed] - other[str(file)][seed] for seed in of[str(file)]])
        for of, other in [(scores["simsr-rev"], scores["simsr"])]
        for file in paths
    ]
    ends = scipy.stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    low, high = (float(end) for end in re.findall(r"[+-][\d.]+", line)[1:3])
    assert (low, high) == pytest.approx(tuple(ends), abs=1e-3)
    (few,) = COMPARE["lines"](
        COMPARE["offline"](*paths[:3])[measure], ["simsr-rev", "simsr"], "buffer"
    )
    assert "(no interval: 3 buffers)" in few


def test_every_pair_is_corrected_for_their_number() -> None:
    *every, family = COMPARE["lines"](COMPARE["returns"](RESULTS / "noisy-state"), [])
    assert len(every) == 28 and family == "Family of Holm's correction: these 28 pairs."
    raw = [float(line.partition("p = ")[2].split()[0]) for line in every]
    assert sum(p < 0.05 for p in raw) == 3
    assert min(float(line.partition("Holm: ")[2].partition(")")[0]) for line in every) > 0.5


def test_how_far_agents_had_learned() -> None:
    found = list(COMPARE["levels"](RESULTS / "noisy-state"))
    shares = [line.split()[2].rstrip(",") for line in found if line.startswith("  drqv2:")]
    assert shares == ["29%", "9%", "14%"]


def test_embeddings_of_agents() -> None:
    measures = COMPARE["yardsticks"](RESULTS / "noisy-state")
    (found,) = COMPARE["lines"](measures["phi_state_r2"], ["simsr-rev", "simsr"])
    assert found.endswith("+0.263 [+0.234, +0.292], p = 0.000, 30 pairs")
    pages = [(folder / "README.md").read_text() for folder in (RESULTS, RESULTS.parent)]
    assert all("R² +.26 [.23, .29]" in page for page in pages)
    assert list(measures)[:2] == ["phi_denoising_id", "trunk_denoising_id"]  # side by side
    (found,) = COMPARE["lines"](measures["trunk_state_r2"], ["simsr-rev", "simsr"])
    assert found.endswith("+0.0146 [-0.0122, +0.0413], p = 0.236, 30 pairs")
    assert all("+.01 [−.01, +.04]" in page for page in pages)
    assert "drqv2" not in measures["phi_state_r2"] and "drqv2" in measures["trunk_state_r2"]


def test_seeds_that_would_settle_it() -> None:
    found = list(COMPARE["budgets"](COMPARE["returns"](RESULTS / "noisy-state")))
    assert [line.rpartition(" of ")[2] for line in found] == [
        "13 to 47; 91 seeds",
        "17 to 44; 74 seeds",
        "10 to 26; 22 seeds",
    ]
    page = (RESULTS / "README.md").read_text()
    assert "about 90 seeds on cartpole_swingup, 20 on walker_walk and 75 on cheetah_run" in page


@pytest.mark.parametrize("folder", PAGES["TABLES"])
def test_tables_of_pages_are_those_of_the_records(folder: str) -> None:
    text = (RESULTS / folder / "README.md").read_text()
    assert text == PAGES["filled"](text, PAGES["TABLES"][folder]), "run python results/tables.py"


def test_a_page_has_a_place_for_every_table() -> None:
    with pytest.raises(ValueError, match=r"places for \['one'\], and the tables are \['two'\]"):
        PAGES["filled"]("<!-- one -->\nold\n<!-- end -->\n", {"two": lambda: ["new"]})
    page = PAGES["filled"]("a\n<!-- one -->\nold\n<!-- end -->\nb", {"one": lambda: ["new"]})
    assert page == "a\n<!-- one -->\n\nnew\n\n<!-- end -->\nb"


def test_contrasts_are_welchs() -> None:
    rng = np.random.default_rng(0)
    one, other = (dict(enumerate(rng.normal(0, s, n).tolist())) for s, n in ((1, 12), (3, 10)))
    found = PAGES["contrast"]([one], [other])
    values = [list(each.values()) for each in (one, other)]
    wanted = scipy.stats.ttest_ind(*values, equal_var=False)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(wanted.confidence_interval(0.95)))
    twice = PAGES["contrast"]([one, other], [other, one])
    assert twice.difference == pytest.approx(0) and twice.low == -twice.high < found.low


def test_predictions_have_verdicts_from_ten_seeds_on(monkeypatch: pytest.MonkeyPatch) -> None:
    means = {"model": 500, "laws": 600, "model-laws": 700, "zp": 500, "simsr-rev-full": 460}
    names = PAGES["represented_predictions"].__globals__

    def verdicts(seeds: int) -> dict[str, str]:
        spread = np.linspace(-70, 70, seeds)
        scores = {name: dict(enumerate(mean + spread)) for name, mean in means.items()}
        monkeypatch.setitem(names, "represented", lambda _: scores)
        rows = [row.split("|")[2:6] for row in list(PAGES["represented_predictions"]())[2:]]
        return {what.strip(): verdict.strip() for what, _, _, verdict in rows}

    assert set(verdicts(9).values()) == {"not yet"}
    ten = verdicts(10)
    assert ten["`laws` − `zp`, noisy"] == "held"  # +100, wanted more than 50
    assert ten["`model laws` − `model`, clean"] == "refuted"  # +200, wanted within 50
    assert ten["`model` − `simsr-rev-full`, noisy"] == "refuted"  # +40, wanted more than 200
    assert ten["the same of `zp` − of `model`"] == "open"  # 0 ± 60, wanted more than 50
    assert ten["`simsr-rev-full` − `simsr-rev`, noisy"] == "not yet"  # one of them has no run


@pytest.mark.parametrize(
    ("value", "digits", "sign", "text"),
    [
        (0.254, 2, False, ".25"),
        (-0.254, 2, True, "−.25"),
        (-0.4, 0, True, "0"),
        (7.6, 0, True, "+8"),
    ],
)
def test_numbers_of_pages(value: float, digits: int, sign: bool, text: str) -> None:
    assert PAGES["short"](value, digits, sign) == text


def test_one_command_redraws_exactness_with_every_method() -> None:
    """`revbis exactness --out results/exactness` finds a cell for each row of the table."""
    folder = RESULTS / "exactness"
    rows = list(csv.DictReader((folder / "exactness.csv").read_text().splitlines()))
    assert {"zp", "deepmdp", "mico", "simsr-rev-full"} <= {row["method"] for row in rows}
    assert len(rows) == 6 * 5 * len({row["method"] for row in rows})
    if (folder / "cells.zip").exists():  # the sdist has none
        with zipfile.ZipFile(folder / "cells.zip") as file:
            cells = {name.rpartition(".")[0].rpartition(".")[0] for name in file.namelist()}
        assert cells == {f"{row['scenario']}.{row['method']}.{row['seed']}" for row in rows}


def test_speed_of_the_readme_is_what_was_measured() -> None:
    lines = map(json.loads, (RESULTS / "speed" / "speed.jsonl").read_text().splitlines())
    found = {line.get("task", line["benchmark"]): line for line in lines}
    objective = found["objective"]
    least = min(value for name, value in objective.items() if name.endswith("_speedup"))
    most = max(value for name, value in objective.items() if name.endswith("_memory_share"))
    said = [
        f"{found['doubling']['ratio']:.0f}× faster",
        f"{found['low_rank']['seconds']:.1f} s, {found['low_rank']['gigabytes']:.1f} GB",
        f"{found['wasserstein']['garnet']:.0f}× faster",
        f"{found['wasserstein']['slip_grid']:,.0f}× faster",
        f"at least {least:.0f}× faster, at most 1/{1 / most:.0f} of the memory",
        f"{found['dmc:cheetah_run']['fast_ratio']:.0f}× faster",
        f"takes {found['update']['ratio']:.2f}× as long",
    ]
    readme = (RESULTS.parent / "README.md").read_text()
    assert all(f"| {text} |" in readme for text in said), said
    assert all(line["processor"] and line["revision"] for line in found.values())


ARCHIVES = sorted(RESULTS.glob("*/runs.zip"))  # the sdist has none
TABLES = ("settings.csv", "evaluations.csv", "yardsticks.csv")


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_tables_are_of_the_runs_beside_them(archive: Path, tmp_path: Path) -> None:
    PACK["pack"](archive, tmp_path)
    for name in TABLES:
        one, two = archive.with_name(name), tmp_path / name
        assert one.exists() == two.exists()
        assert not one.exists() or one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(archive) as one, zipfile.ZipFile(tmp_path / "runs.zip") as two:
        assert one.namelist() == two.namelist() and one.testzip() is None
        assert [entry.CRC for entry in one.infolist()] == [entry.CRC for entry in two.infolist()]


def test_packed_settings_name_the_processor(tmp_path: Path) -> None:
    for seed, machine in enumerate(({"processor": "AMD EPYC"}, {}), 1):
        write_run(tmp_path / "runs", [0.0, 1.0], seed=seed, about=ABOUT | machine)
    PACK["pack"](tmp_path / "runs", tmp_path / "study")
    with (tmp_path / "study" / "settings.csv").open() as file:
        assert [row["processor"] for row in csv.DictReader(file)] == ["AMD EPYC", ""]


def test_packing(tmp_path: Path) -> None:
    """The same runs give the same bytes; new runs join those that are packed."""
    runs, study, whole = (tmp_path / name for name in ("runs", "study", "whole"))
    first, second = (fake_run(runs, seed=seed) for seed in (2, 10))
    (second / "checkpoints").mkdir()
    (second / "checkpoints" / "agent.pt").write_text("large")
    (second / "yardsticks.json").write_text(
        '{"frames": 40000, "episodes": 2, "seed": 0, "yardsticks": {"phi_value": 0.25}}'
    )
    wanted = read_study([runs]).rows()
    files = PACK["pack"](runs, whole)
    assert {path.name for path in files} == {*TABLES, "runs.zip"}
    with zipfile.ZipFile(whole / "runs.zip") as file:
        assert not any("checkpoints" in name for name in file.namelist())
        assert all(entry.date_time[0] == 1980 for entry in file.infolist())
    settings = (whole / "settings.csv").read_text().splitlines()
    assert settings[0] == "run,task,method,seed,revision,machine,command,versions"
    assert settings[1].startswith("cpu/dmc-cartpole_balance/simsr-rev/seed-10,dmc:cartpole_balance")
    assert len((whole / "evaluations.csv").read_text().splitlines()) == 1 + len(wanted) == 11
    measured = (whole / "yardsticks.csv").read_text().splitlines()
    assert measured[0] == "run,task,method,seed,frames,phi_value"
    assert len(measured) == 2 and measured[1].endswith(",simsr-rev,10,40000,0.25")
    away = tmp_path / "away"
    shutil.move(second, away)
    PACK["pack"](runs, study)
    shutil.rmtree(first)
    shutil.move(away, second)
    PACK["pack"](runs, study)
    assert all((whole / path.name).read_bytes() == path.read_bytes() for path in study.iterdir())
    assert {path.name for path in study.iterdir()} == {path.name for path in whole.iterdir()}
    assert read_study([study]).rows() == wanted
    with pytest.raises(ValueError, match="is a run: pass the folder that it is in"):
        PACK["pack"](second, tmp_path / "none")
    PACK["pack"](study / "cpu", tmp_path / "part")  # of what is packed
    assert "\ndmc-cartpole_balance/simsr" in (tmp_path / "part" / "settings.csv").read_text()
    with pytest.raises(ValueError, match="there is no run in"):
        PACK["pack"](tmp_path / "nowhere", tmp_path / "none")
    (study / "runs.zip").write_text("damaged")
    with pytest.raises(ValueError, match="cannot be unpacked"):  # and is not replaced
        PACK["pack"](runs, study)
    assert (study / "runs.zip").read_text() == "damaged"
