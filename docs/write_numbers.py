"""Writes the tables of numbers on the pages of methods, from the records in results/.

python docs/write_numbers.py     writes them anew: what is between <!-- numbers --> and <!-- end -->

A test checks that the pages have what it writes.
"""

from __future__ import annotations

import csv
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
TABLES: dict[str, Any] = runpy.run_path(str(RESULTS / "tables.py"))
PAGES = (
    *("mico", "simsr", "revised", "complete", "pairs", "energy"),
    *("laws", "released", "dbc", "prediction"),
)
HEADINGS = {
    "ρ of φ": "agreement-with-the-exact-metric",
    "ρ of ψ": "agreement-with-the-exact-metric",
    "DF": "denoising-factor",
    "state R²": "state-r²",
    "return": "return",
}


def methods(page: str) -> list[str]:
    """The methods that a page is about: the names in the first column of its first table."""
    rows = re.findall(r"^\| (`.*?) \|", (HERE / "methods" / f"{page}.md").read_text(), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    return list(dict.fromkeys(names))


def agreement(method: str) -> list[str]:
    """Lowest and highest ρ over the six scenarios, of φ and of ψ."""
    found = TABLES["exact"]("exactness.csv").get(method, {}).values()
    shown = []
    for name in ("phi_spearman", "psi_spearman"):
        values = [each[name] for each in found if name in each]
        ends = (TABLES["short"](end, 2) for end in (min(values), max(values))) if values else ()
        shown.append(" to ".join(ends) or "–")
    return shown


def offline(method: str) -> list[str]:
    """Denoising factor and state R² of an encoder that the objective alone trains."""
    with (RESULTS / "offline" / "gaussian-0.1" / "offline.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == method]
    measured = (
        [float(row[name]) for row in rows] for name in ("phi_denoising_ood", "phi_state_r2")
    )
    return [TABLES["short"](float(np.mean(values)), 2) if values else "–" for values in measured]


def returns(method: str) -> str:
    """The return in the agent, in percent of drqv2's, minus that."""
    scores = TABLES["compare"].returns(RESULTS / "noisy-state")
    if method not in scores:
        return "–"
    return str(TABLES["interval"](TABLES["paired"](scores[method], scores["drqv2"]))) + " %"


def numbers(page: str) -> str:
    """A page's table."""
    heads = [f"[{name}](index.md#{place})" for name, place in HEADINGS.items()]
    rows = (
        [f"`{name}`", *agreement(name), *offline(name), returns(name)] for name in methods(page)
    )
    return "\n".join(TABLES["table"](["", *heads], rows))


def written(page: str) -> str:
    """The page with its table made anew."""
    text = (HERE / "methods" / f"{page}.md").read_text()
    return str(TABLES["filled"](text, {"numbers": lambda: [numbers(page)]}))


if __name__ == "__main__":
    for page in PAGES:
        (HERE / "methods" / f"{page}.md").write_text(written(page))
