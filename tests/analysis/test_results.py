"""Pages of results/ say what their script finds in the records."""

import runpy
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"
COMPARE = runpy.run_path(str(RESULTS / "compare.py"))
METRICS = "mico+simsr+simsr-rev+simsr-rev-full+energy-rev-full"


@pytest.mark.parametrize(
    ("folder", "names", "line", "said"),
    [
        ("noisy-state", ["simsr-rev", "simsr"], "+1.62 [-7.73, +11], p = 0.750", "+2% [−8, +11]"),
        ("noisy-state", ["zp+deepmdp", METRICS], "+7.54 [+1.91, +13.5], p = 0.025", "8% [2, 13]"),
        ("pixels", ["simsr-rev", "simsr"], "+20.5 [+0.124, +43.1], p = 0.141", "+21% [0, +43]"),
    ],
)
def test_returns_over_all_tasks(folder: str, names: list[str], line: str, said: str) -> None:
    (found,) = COMPARE["lines"](COMPARE["returns"](RESULTS / folder), names)
    assert found.startswith(f"{names[0]} - {names[1]}: {line}")
    assert said in (RESULTS / "README.md").read_text()


def test_measures_of_isolated_objectives() -> None:
    measures = COMPARE["isolated"](RESULTS / "isolated" / "gaussian-0.1" / "ten-seeds.csv")
    (found,) = COMPARE["lines"](measures["phi_denoising_ood"], ["simsr-rev", "simsr"])
    assert found.endswith("+0.11 [+0.0638, +0.164], p = 0.002, 10 pairs")
    assert "+.11 [+.06, +.16]" in (RESULTS / "isolated" / "README.md").read_text()
    assert len(list(COMPARE["lines"](measures["phi_value"], []))) == 4 * 3
