"""Differences over the seeds of all tasks, as the pages of results/ have them.

python results/compare.py results/noisy-state      returns in percent of drqv2's, and yardsticks
python results/compare.py results/offline/*-0.1*/offline.csv simsr-rev simsr     of these files

Every pair of methods; or two that you name, the mean of several for one: zp+deepmdp mico+simsr.
Or several pairs, taken together as tasks are: mico-rev mico simsr-rev simsr.

Intervals are those of revbis.analysis.stats: about other seeds of these tasks. Files in several
folders are of several replay buffers; each is then one observation, the mean over its seeds.
"""

import csv
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from revbis.analysis.stats import holm, paired, published_return
from revbis.analysis.tables import PUBLISHED, share_text

Scores = dict[str, dict[str, dict[int, float]]]  # method, task, seed


def finals(folder: Path) -> Scores:
    """Final returns; a task is a folder of methods."""
    scores: Scores = defaultdict(lambda: defaultdict(dict))
    for task, row in rows(folder, "evaluations.csv"):  # of a run by frame: the last one stays
        scores[row["method"]][task][int(row["seed"])] = float(row["mean_return"])
    return scores


def returns(folder: Path) -> Scores:
    """Final returns in percent of drqv2's mean on the task."""
    return in_percent(finals(folder))


def in_percent(scores: Scores) -> Scores:
    """Scores in percent of drqv2's mean on the task."""
    units = {task: np.mean(list(seeds.values())) / 100 for task, seeds in scores["drqv2"].items()}
    return {
        method: {
            task: {seed: value / units[task] for seed, value in seeds.items()}
            for task, seeds in tasks.items()
        }
        for method, tasks in scores.items()
    }


def levels(folder: Path) -> Iterator[str]:
    """How far the agents of each task had learned: mean final returns."""
    scores = finals(folder)
    names = {task: row["task"] for task, row in rows(folder, "evaluations.csv")}
    for task, name in names.items():
        published = published_return(name)
        yield f"{task}: final return, {PUBLISHED}"
        for method, tasks in scores.items():
            if task in tasks:
                mean = float(np.mean(list(tasks[task].values())))
                share = share_text(None if published is None else mean / published)
                yield f"  {method}: {mean:.1f}, {share}, {len(tasks[task])} seeds"


def yardsticks(folder: Path) -> dict[str, Scores]:
    """Every measure of the agents' embeddings, φ's and beside it that of the critic's trunk."""
    scores: dict[str, Scores] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for task, row in rows(folder, "yardsticks.csv"):
        for name in list(row)[5:]:  # after run, task, method, seed and frames
            if row[name]:
                scores[name][row["method"]][task][int(row["seed"])] = float(row[name])
    measures = dict.fromkeys(name.partition("_")[2] for name in scores)
    order = (f"{part}_{measure}" for measure in measures for part in ("phi", "trunk"))
    return {name: scores[name] for name in order if name in scores}


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


def offline(*files: Path) -> dict[str, Scores]:
    """Every measure of trained embeddings in files of `revbis offline`; a file is a task."""
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


def by_buffer(scores: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """The mean over everything measured on each buffer, as if a buffer were a seed of one task."""
    buffers: dict[str, list[float]] = defaultdict(list)
    for task, seeds in scores.items():
        buffers[buffer_of(task)] += seeds.values()
    return {"buffers": {i: float(np.mean(each)) for i, each in enumerate(buffers.values())}}


def buffer_of(task: str) -> str:
    """The folder of a file of `revbis offline`; one folder has one replay buffer."""
    return str(Path(task.partition("/")[2]).parent)


def lines(scores: Scores, names: list[str], unit: str = "seed") -> Iterator[str]:
    """A line for each pair of methods, or for those that are named.

    Args:
        scores: Of all methods.
        names: Methods in pairs; none for every pair, with Holm's correction for their number.
        unit: What was drawn independently: seed or buffer.
    """
    every = [names] if names else [list(pair) for pair in itertools.combinations(scores, 2)]
    found = []
    for each in every:
        sides = side(scores, each[::2]), side(scores, each[1::2])
        found.append(paired(*(map(by_buffer, sides) if unit == "buffer" else sides)))
    corrected = holm([one.p_value for one in found])
    for each, one, p_holm in zip(every, found, corrected, strict=True):
        ends = f" [{one.low:+.3g}, {one.high:+.3g}]"
        if math.isnan(one.low):
            ends = f" (no interval: {one.fewest} {unit}s)"
        p = f"p = {one.p_value:.3f}" + ("" if names else f" (Holm: {p_holm:.3f})")
        count = f"{one.pairs} " + ("pairs" if unit == "seed" else "buffers")
        who = f"{', '.join(each[::2])} - {', '.join(each[1::2])}"
        yield f"{who}: {one.difference:+.3g}{ends}, {p}, {count}"
    if not names:
        yield f"Family of Holm's correction: these {len(found)} pairs."


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
    unit = "buffer" if len({table.parent for table in tables}) > 1 else "seed"
    if tables:
        measures = offline(*tables)
    else:
        folder = Path(names.pop(0))
        measures = {"return": returns(folder), **yardsticks(folder)}
        print(*levels(folder), "", sep="\n")
        print(*budgets(measures["return"]), sep="\n")
    named = set("+".join(names).split("+")) - {""}
    for measure, scores in measures.items():
        if named <= scores.keys():
            print(f"\n{measure}", *lines(scores, names, unit), sep="\n")
