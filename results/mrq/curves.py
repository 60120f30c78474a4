"""Draws curves.png: returns of `mrq` by agent step, beside the public code's at some of them.

python results/mrq/curves.py

The public figures are means of ten seeds, from the records in the repository of MR.Q's authors.
"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent
PIXELS = "cartpole_swingup, from pixels"
PUBLIC = {  # returns at thousands of agent steps, of two frames each
    "cartpole_swingup": {25: 795, 50: 853},
    "walker_walk": {25: 532, 50: 891},
    "cheetah_run": {25: 212, 50: 648},
    "reacher_hard": {25: 483, 50: 806},
    PIXELS: {25: 110, 50: 477, 100: 815},
}


def curves() -> dict[str, dict[str, dict[float, float]]]:
    """Returns by task, seed and thousands of agent steps."""
    found: dict[str, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    with (FOLDER / "evaluations.csv").open() as file:
        for row in csv.DictReader(file):
            group, steps = Path(row["run"]).parts[0], int(row["agent_steps"]) / 1000
            titles = {"vectors": row["task"].partition(":")[2], "pixels-long": PIXELS}
            if group in titles:
                found[titles[group]][row["seed"]][steps] = float(row["mean_return"])
    return {title: found[title] for title in PUBLIC}


def main() -> None:
    """Draws the figure."""
    figure, panels = plt.subplots(1, 5, figsize=(13, 2.9), sharey=True, layout="constrained")
    for panel, (task, seeds) in zip(panels, curves().items(), strict=True):
        for values in seeds.values():
            panel.plot(values.keys(), values.values(), color="#4269d0", alpha=0.35, lw=1)
        steps = sorted(set.intersection(*(set(values) for values in seeds.values())))
        mean = [np.mean([values[step] for values in seeds.values()]) for step in steps]
        label = "mrq, cpu preset: three seeds (from pixels two) and their mean"
        panel.plot(steps, mean, color="#4269d0", lw=2.2, label=label)
        public = "public code: mean of ten seeds, wider networks"
        points = PUBLIC[task]
        panel.plot(points.keys(), points.values(), "o", color="#ff725c", ms=6, label=public)
        panel.set_title(task, fontsize=10)
        panel.set(xlabel="thousand agent steps", xlim=(0, 1.04 * max(points)), ylim=(0, 1000))
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("return")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(FOLDER / "curves.png", dpi=130)


if __name__ == "__main__":
    main()
