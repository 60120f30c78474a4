"""Draws returns.png: returns of MR.Q by what trains its encoders.

python results/representations/returns.py
"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

FOLDER = Path(__file__).parent
SETTING = "noisy"
COLOURS = {
    "model": "#4269d0",
    "model-laws": "#ff725c",
    "laws": "#efb118",
    "zp": "#9498a0",
    "laws-zp": "#a463f2",
    "deepmdp": "#9c6b4e",
    "simsr-rev": "#97bbf5",
    "simsr-rev-full": "#3ca951",
    "model-simsr": "#ff8ab7",
    "model-simsr-rev-full": "#6cc5b0",
}


def curves() -> dict[str, dict[str, dict[int, float]]]:
    """Returns by what trains the encoders, seed and frames."""
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    with (FOLDER / "evaluations.csv").open() as file:
        for row in csv.DictReader(file):
            setting, losses, *_ = Path(row["run"]).parts
            if setting == SETTING:
                found[losses][row["seed"]][int(row["frames"])] = float(row["mean_return"])
    return found


def text(losses: str) -> str:
    """The losses as they are typed."""
    return losses.replace("model-", "model ", 1)


def learning(panel: Axes, found: dict[str, dict[str, dict[int, float]]]) -> None:
    """Every seed, and the means."""
    for losses, seeds in found.items():
        frames = sorted(set.intersection(*(set(each) for each in seeds.values())))
        values = np.array([[each[frame] for frame in frames] for each in seeds.values()])
        thousands, colour = np.array(frames) / 1000, COLOURS[losses]
        label = f"{text(losses)} ({len(seeds)} seeds)"
        panel.plot(thousands, values.T, color=colour, lw=0.8, alpha=0.35)
        panel.plot(thousands, values.mean(axis=0), color=colour, lw=2.2, label=label)
    panel.set(xlabel="thousand frames", ylabel="return, held-out variants", ylim=(0, None))
    panel.grid(alpha=0.25)
    panel.legend(loc="upper left", fontsize=8)


def finals(panel: Axes, found: dict[str, dict[str, dict[int, float]]]) -> None:
    """The last evaluation of every run: a dot a seed, a line for the mean."""
    last = {name: [each[max(each)] for each in seeds.values()] for name, seeds in found.items()}
    order = sorted(last, key=lambda losses: float(np.mean(last[losses])))
    for place, losses in enumerate(order):
        values = sorted(last[losses])
        panel.plot(values, [place] * len(values), "o", color=COLOURS[losses], ms=6, alpha=0.7)
        panel.plot([np.mean(values)] * 2, (place - 0.3, place + 0.3), color="0.2", lw=2)
    panel.set(xlabel="return at the end: a dot a seed, a line the mean", yticks=range(len(order)))
    panel.set_yticklabels([text(losses) for losses in order])
    panel.set_xlim(left=0)
    panel.grid(axis="x", alpha=0.25)


def main() -> None:
    """Draws the figure."""
    found = {name: seeds for name, seeds in curves().items() if len(seeds) > 1}
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for panel, draw in zip(panels, (learning, finals), strict=True):
        draw(panel, found)
    title = (
        "MR.Q on cartpole_swingup beside ten predictable irrelevant numbers, by what trains φ and ψ"
    )
    figure.suptitle(title, fontsize=11)
    figure.savefig(FOLDER / "returns.png", dpi=130)


if __name__ == "__main__":
    main()
