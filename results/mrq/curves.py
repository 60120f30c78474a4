"""Draws curves.png: returns of `mrq` by agent step, beside the public code's at two of them.

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
PUBLIC = {  # returns at 25,000 and 50,000 agent steps, of two frames each
    "cartpole_swingup": (795, 853),
    "walker_walk": (532, 891),
    "cheetah_run": (212, 648),
    "reacher_hard": (483, 806),
}


def curves() -> dict[str, dict[str, dict[float, float]]]:
    """Returns from state vectors by task, seed and thousands of agent steps."""
    found: dict[str, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    with (FOLDER / "settings.csv").open() as file:
        rows = csv.DictReader(file)
        vectors = {row["run"] for row in rows if "--observation state" in row["command"]}
    with (FOLDER / "evaluations.csv").open() as file:
        for row in csv.DictReader(file):
            if row["run"] in vectors:
                task, steps = row["task"].partition(":")[2], int(row["agent_steps"]) / 1000
                found[task][row["seed"]][steps] = float(row["mean_return"])
    return found


def main() -> None:
    """Draws the figure."""
    figure, panels = plt.subplots(1, 4, figsize=(11, 2.9), sharey=True, layout="constrained")
    for panel, (task, seeds) in zip(panels, curves().items(), strict=True):
        for values in seeds.values():
            panel.plot(values.keys(), values.values(), color="#4269d0", alpha=0.35, lw=1)
        steps = sorted(set.intersection(*(set(values) for values in seeds.values())))
        mean = [np.mean([values[step] for values in seeds.values()]) for step in steps]
        label = f"mrq, cpu preset: {len(seeds)} seeds and their mean"
        panel.plot(steps, mean, color="#4269d0", lw=2.2, label=label)
        public = "public code: mean of ten seeds, wider networks"
        panel.plot((25, 50), PUBLIC[task], "o", color="#ff725c", ms=6, label=public)
        panel.set(title=task, xlabel="thousand agent steps", xlim=(0, 52), ylim=(0, 1000))
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("return")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(FOLDER / "curves.png", dpi=130)


if __name__ == "__main__":
    main()
