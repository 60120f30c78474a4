"""Differences over the seeds of all tasks, as the pages of results/ have them.

python results/compare.py results/noisy-state      returns in percent of drqv2's, and yardsticks
python results/compare.py results/isolated/gaussian-0.1/ten-seeds.csv     what isolate measures

Every pair of methods; or two that you name, the mean of several for one: zp+deepmdp mico+simsr.
"""

import csv
import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from revbis.analysis.stats import paired

Scores = dict[str, dict[str, dict[int, float]]]  # method, task, seed


def returns(folder: Path) -> Scores:
    """Final returns in percent of drqv2's mean on the task; a task is a folder of methods."""
    scores: Scores = defaultdict(lambda: defaultdict(dict))
    for task, method, seed, text in files(folder, "eval.jsonl"):
        scores[method][task][seed] = json.loads(text.splitlines()[-1])["mean_return"]
    for task, seeds in scores["drqv2"].items():
        unit = np.mean(list(seeds.values())) / 100
        for tasks in scores.values():
            tasks[task] = {seed: value / unit for seed, value in tasks[task].items()}
    return scores


def yardsticks(folder: Path) -> dict[str, Scores]:
    """Every measure of the agents' embeddings."""
    scores: dict[str, Scores] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for task, method, seed, text in files(folder, "yardsticks.json"):
        for name, value in json.loads(text)["yardsticks"].items():
            scores[name][method][task][seed] = value
    return scores


def files(folder: Path, name: str) -> Iterator[tuple[str, str, int, str]]:
    """Task, method, seed and text of every file of this name."""
    for file in sorted(folder.rglob(name)):
        *task, method, seed, _ = file.parts
        yield "/".join(task), method, int(seed.removeprefix("seed-")), file.read_text()


def isolated(file: Path) -> dict[str, Scores]:
    """Every measure of trained embeddings in a file of `revbis isolate`."""
    scores: dict[str, Scores] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            for name, value in row.items():
                if name.startswith("phi_") and not name.endswith("_untrained"):
                    scores[name][row["method"]][row["task"]][int(row["seed"])] = float(value)
    return scores


def mean_of(scores: Scores, names: str) -> dict[str, dict[int, float]]:
    """One method, or the mean of several, seed by seed."""
    some = [scores[name] for name in names.split("+")]
    return {
        task: {seed: np.mean([one[task][seed] for one in some]) for seed in seeds}
        for task, seeds in some[0].items()
    }


def lines(scores: Scores, names: list[str]) -> Iterator[str]:
    """A line for each pair of methods, or for the two that are named."""
    for one, other in [tuple(names)] if names else itertools.permutations(scores, 2):
        found = paired(mean_of(scores, one), mean_of(scores, other))
        low, high = (f"{end:+.3g}" for end in (found.low, found.high))
        text = f"{found.difference:+.3g} [{low}, {high}], p = {found.p_value:.3f}"
        yield f"{one} - {other}: {text}, {found.pairs} pairs"


if __name__ == "__main__":
    path, *names = sys.argv[1:]
    if path.endswith(".csv"):
        measures = isolated(Path(path))
    else:
        measures = {"return": returns(Path(path)), **yardsticks(Path(path))}
    named = set("+".join(names).split("+")) - {""}
    measures = {measure: scores for measure, scores in measures.items() if named <= scores.keys()}
    for measure, scores in measures.items():
        print(f"\n{measure}", *lines(scores, names), sep="\n")
