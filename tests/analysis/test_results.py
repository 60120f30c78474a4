"""Pages of results/ say what their script finds in the records."""

import itertools
import runpy
from pathlib import Path

import pytest

from revbis.analysis.stats import Paired, paired

RESULTS = Path(__file__).parents[2] / "results"
COMPARE = runpy.run_path(str(RESULTS / "compare.py"))
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
