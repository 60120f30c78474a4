"""Differences over the seeds of all tasks, as the pages of results/ have them.

python results/compare.py results/noisy-state      returns in percent of drqv2's, and yardsticks
python results/compare.py results/isolated/*-0.1*/isolate.csv simsr-rev simsr     of these files

Every pair of methods; or two that you name, the mean of several for one: zp+deepmdp mico+simsr.
Or several pairs, taken together as tasks are: mico-rev mico simsr-rev simsr.
"""

import csv
import itertools
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
    for task, row in rows(folder, "evaluations.csv"):  # of a run by frame: the last one stays
        scores[row["method"]][task][int(row["seed"])] = float(row["mean_return"])
    for task, seeds in scores["drqv2"].items():
        unit = np.mean(list(seeds.values())) / 100
        for tasks in scores.values():
            tasks[task] = {seed: value / unit for seed, value in tasks[task].items()}
    return scores


def yardsticks(folder: Path) -> dict[str, Scores]:
    """Every measure of the agents' embeddings."""
    scores: dict[str, Scores] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for task, row in rows(folder, "yardsticks.csv"):
        for name in list(row)[5:]:  # after run, task, method, seed and frames
            if row[name]:
                scores[name][row["method"]][task][int(row["seed"])] = float(row[name])
    return scores


def rows(folder: Path, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a study's table that are of runs in or below the folder, each with its task."""
    above = (folder, *folder.parents)
    study = next((each for each in above if (each / "evaluations.csv").exists()), None)
    if study is None:
        raise ValueError(f"{folder} has no evaluations.csv; results/pack.py writes it")
    if not (study / name).exists():
        return
    for row in csv.DictReader((study / name).read_text().splitlines()):
        run = study / row["run"]
        if folder in run.parents:
            yield str(run.parents[1]), row


def isolated(*files: Path) -> dict[str, Scores]:
    """Every measure of trained embeddings in files of `revbis isolate`; a file is a task."""
    scores: dict[str, Scores] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for file in files:
        for row in csv.DictReader(file.read_text().splitlines()):
            for name, value in row.items():
                if name.startswith("phi_") and not name.endswith("_untrained"):
                    scores[name][row["method"]][str(file)][int(row["seed"])] = float(value)
    return scores


def side(scores: Scores, methods: list[str]) -> dict[str, dict[int, float]]:
    """Scores of methods, or of the mean of some, as if each had tasks of its own."""
    found = {}
    for place, method in enumerate(methods):
        some = [scores[name] for name in method.split("+")]
        for task, seeds in some[0].items():
            means = {seed: float(np.mean([one[task][seed] for one in some])) for seed in seeds}
            found[f"{place}/{task}"] = means
    return found


def lines(scores: Scores, names: list[str]) -> Iterator[str]:
    """A line for each pair of methods, or for those that are named."""
    for each in [names] if names else map(list, itertools.permutations(scores, 2)):
        ones, others = each[::2], each[1::2]
        found = paired(side(scores, ones), side(scores, others))
        low, high = (f"{end:+.3g}" for end in (found.low, found.high))
        text = f"{found.difference:+.3g} [{low}, {high}], p = {found.p_value:.3f}"
        yield f"{', '.join(ones)} - {', '.join(others)}: {text}, {found.pairs} pairs"


def budgets(scores: Scores) -> Iterator[str]:
    """For each task, how many seeds find a difference of 10 between two objectives, 4 times in 5.

    By the spread of the differences that there are, over the seeds, of any two of them.
    """
    objectives = [method for method in scores if method != "drqv2"]
    for task in scores["drqv2"]:
        spreads = [
            np.std(
                [one - scores[other][task][seed] for seed, one in scores[method][task].items()],
                ddof=1,
            )
            for method, other in itertools.combinations(objectives, 2)
        ]
        needed = (2.8 / 10) ** 2 * np.mean(np.square(spreads))
        ends = f"{min(spreads):.0f} to {max(spreads):.0f}"
        yield f"{task}: differences have a standard deviation of {ends}; {needed:.0f} seeds"


if __name__ == "__main__":
    tables = [Path(word) for word in sys.argv[1:] if word.endswith(".csv")]
    names = sys.argv[1:] if not tables else sys.argv[1 + len(tables) :]
    if tables:
        measures = isolated(*tables)
    else:
        folder = Path(names.pop(0))
        measures = {"return": returns(folder), **yardsticks(folder)}
        print(*budgets(measures["return"]), sep="\n")
    named = set("+".join(names).split("+")) - {""}
    for measure, scores in measures.items():
        if named <= scores.keys():
            print(f"\n{measure}", *lines(scores, names), sep="\n")
