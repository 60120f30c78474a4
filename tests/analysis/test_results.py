"""Pages of results/ say what their script finds in the records; the records are packed."""

import itertools
import runpy
import shutil
import zipfile
from pathlib import Path

import pytest
from tests.analysis.fake_study import fake_run

from revbis.analysis.scores import read_study
from revbis.analysis.stats import Paired, paired

RESULTS = Path(__file__).parents[2] / "results"
COMPARE, PACK = (runpy.run_path(str(RESULTS / f"{name}.py")) for name in ("compare", "pack"))
METRICS = "mico+simsr+simsr-rev+simsr-rev-full+energy-rev-full"


@pytest.mark.parametrize(
    ("folder", "names", "line", "said"),
    [
        ("noisy-state", ["simsr-rev", "simsr"], "+1.62 [-7.73, +11], p = 0.750", "+2% [−8, +11]"),
        ("noisy-state", ["zp+deepmdp", METRICS], "+7.54 [+1.91, +13.5], p = 0.025", "8% [2, 13]"),
        ("pixels", ["simsr-rev", "simsr"], "+8.13 [-6.66, +25.5], p = 0.387", "+8% [−7, +26]"),
    ],
)
def test_returns_over_all_tasks(folder: str, names: list[str], line: str, said: str) -> None:
    (found,) = COMPARE["lines"](COMPARE["returns"](RESULTS / folder), names)
    assert found.startswith(f"{names[0]} - {names[1]}: {line}")
    assert said in (RESULTS / "README.md").read_text()


FAMILIES = ("mico-rev", "simsr-rev", "mico-rev-full", "simsr-rev-full", "energy-rev-full")
BUFFERS = ("gaussian-0.1/ten-seeds", "gaussian-0.1-seed-2/isolate", "walker-0.1/isolate")


@pytest.mark.parametrize(
    ("files", "names", "line", "said"),
    [
        (
            (*BUFFERS, "cheetah-0.1/isolate"),
            ["simsr-rev", "simsr"],
            "+0.191 [+0.174, +0.208], p = 0.000, 25 pairs",
            ".19 [.17, .21]",
        ),
        (
            ("gaussian-0.1/isolate",),
            [name + end for name in FAMILIES for end in ("", "-no-c")],
            "+0.149 [+0.125, +0.174], p = 0.000, 25 pairs",
            "+.15 [+.12, +.17]",
        ),
        (
            ("gaussian-0.1/isolate",),
            ["mico-rev-released", "mico-rev"],
            "-0.309 [-0.346, -0.277], p = 0.062, 5 pairs",
            "−.31 [−.35, −.28]",
        ),
    ],
)
def test_isolated_objectives(
    files: tuple[str, ...], names: list[str], line: str, said: str
) -> None:
    isolated = RESULTS / "isolated"
    measures = COMPARE["isolated"](*(isolated / f"{file}.csv" for file in files))
    (found,) = COMPARE["lines"](measures["phi_denoising_ood"], names)
    assert found.endswith(line)
    assert said in (isolated / "README.md").read_text()


def test_embeddings_of_agents() -> None:
    measures = COMPARE["yardsticks"](RESULTS / "noisy-state")
    (found,) = COMPARE["lines"](measures["phi_state_r2"], ["simsr-rev", "simsr"])
    assert found.endswith("+0.263 [+0.238, +0.287], p = 0.000, 30 pairs")
    assert "R² +.26 [.24, .29]" in (RESULTS / "README.md").read_text()
    assert "drqv2" not in measures["phi_state_r2"] and "drqv2" in measures["trunk_state_r2"]


def test_five_seeds_mislead() -> None:
    """Of the pairs of methods on a task whose intervals leave out 0 after five seeds, how many."""
    scores = COMPARE["returns"](RESULTS / "noisy-state")
    after_five, after_ten = 0, 0
    for task in scores["drqv2"]:
        for pair in itertools.combinations(scores, 2):
            ten = [{task: scores[method][task]} for method in pair]
            five = [{task: {seed: one[task][seed] for seed in range(1, 6)}} for one in ten]
            if leaves_out_0(paired(*five)):
                after_five += 1
                after_ten += leaves_out_0(paired(*ten))
    assert (after_five, after_five - after_ten) == (11, 8)
    assert "of eleven differences" in (RESULTS / "README.md").read_text()


def leaves_out_0(found: Paired) -> bool:
    return found.low > 0 or found.high < 0


def test_seeds_that_would_settle_it() -> None:
    found = list(COMPARE["budgets"](COMPARE["returns"](RESULTS / "noisy-state")))
    assert [line.rpartition(" of ")[2] for line in found] == [
        "13 to 47; 91 seeds",
        "17 to 44; 74 seeds",
        "10 to 26; 22 seeds",
    ]
    page = (RESULTS / "README.md").read_text()
    assert "about 90 seeds on cartpole_swingup, 20 on walker_walk and 75 on cheetah_run" in page


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
