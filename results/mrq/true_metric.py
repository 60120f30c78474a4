"""Draws true-metric.png: how much of the true metric learned distances have on real tasks.

python results/mrq/true_metric.py
"""

import csv
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

FOLDER = Path(__file__).parent
TASKS = ("cartpole_swingup", "walker_walk", "cheetah_run", "reacher_hard")
LOOKS = {"phi": ("φ", "#4269d0", 0.14), "psi": ("ψ of the policy's action", "#ff725c", -0.14)}
OFFLINE = {"cartpole_swingup": "#6cc5b0", "walker_walk": "#9c6b4e"}


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open() as file:
        return list(csv.DictReader(file))


def agents(panel: Axes) -> None:
    """MR.Q's embeddings, a dot with its interval over episodes for each seed."""
    measured = table(FOLDER / "yardsticks.csv")
    rows = [row for row in measured if row["run"].startswith("vectors/")]
    for name, (label, colour, offset) in LOOKS.items():
        for place, task in enumerate(reversed(TASKS)):
            for n, run in enumerate(row for row in rows if row["task"] == f"dmc:{task}"):
                ends = [float(run[f"{name}_true{end}"]) for end in ("", "_low", "_high")]
                y = place + offset + 0.07 * (1 - n)
                panel.plot(ends[1:], (y, y), color=colour, lw=1, alpha=0.5)
                only = label if not (place or n) else None
                panel.plot(ends[0], y, "o", color=colour, ms=4, label=only)
    panel.set(title="trained agents: MR.Q, three seeds", yticks=range(len(TASKS)))
    panel.set_yticklabels(TASKS[::-1])


def objectives(panel: Axes) -> None:
    """φ trained by an objective alone on one buffer of each task: a dot for each seed."""
    found = {task: table(FOLDER.parent / "factors" / f"offline-{task}.csv") for task in OFFLINE}
    both = [row for rows in found.values() for row in rows]

    def middle(method: str) -> float:
        return float(np.mean([float(row["phi_true"]) for row in both if row["method"] == method]))

    methods = sorted({row["method"] for row in both}, key=middle)
    for task, colour in OFFLINE.items():
        values = [float(row["phi_true"]) for row in found[task]]
        places = [methods.index(row["method"]) for row in found[task]]
        panel.plot(values, places, "o", color=colour, ms=5, alpha=0.8, label=task)
    title = "φ by an objective alone, with predictable\nirrelevant numbers: two seeds a task"
    panel.set(title=title, yticks=range(len(methods)))
    panel.set_yticklabels(methods)


def main() -> None:
    """Draws the figure."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for panel, draw in zip(panels, (agents, objectives), strict=True):
        draw(panel)
        panel.axvline(0, color="0.6", lw=0.8)
        panel.set(xlabel="rank correlation with the true metric U", xlim=(-0.45, 1.02))
        panel.grid(axis="x", alpha=0.25)
        panel.legend(loc="upper left", fontsize=8)
    figure.savefig(FOLDER / "true-metric.png", dpi=130)


if __name__ == "__main__":
    main()
