"""The paper's numbers as data, and its tables and figures made from runs."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from revbis.analysis.problems import Kind, StudyProblem
from revbis.io.files import atomic_write
from revbis.runs.config import SAFE, Config
from revbis.runs.folder import CONFIG, unpacked
from revbis.runs.presets import preset_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from revbis.analysis.study import Study

SOURCE = (
    "Table 1 of “Revisiting Bisimulation Metric for Robust Representations in Reinforcement "
    "Learning”, ICML 2025"
)
FRAMES = 1_000_000
SYSTEMS = {
    "mico-rev": "MICo†",
    "simsr-rev": "SimSR†",
    "mico": "MICo",
    "simsr": "SimSR",
    "taco": "TACO",
    "drqv2": "DrQ-v2",
    "dreamerv3": "Dreamer-v3",
    "tdmpc": "TD-MPC",
}
# Three returns of at least 0 with mean 79 (simsr on hopper_hop) have a standard error of at most 79
# and a population deviation of at most 112; their sample standard deviation can be 137.
SPREAD = (
    "the paper does not define its ±, but 79 ± 136 over 3 seeds can only be a sample standard "
    "deviation; systems with 6 seeds are copied from the TACO paper"
)


class Reported(NamedTuple):
    """A number of the paper's Table 1.

    Attributes:
        task: The task, as in `revbis train --task`.
        system: The system: a method of this project, or taco, dreamerv3 or tdmpc.
        mean: Mean return at 1M frames.
        spread: The number after ±.
        seeds: How many seeds it is over.
    """

    task: str
    system: str
    mean: float
    spread: float
    seeds: int


@cache
def table1() -> tuple[Reported, ...]:
    """Table 1: nine tasks, eight systems."""
    with Path(__file__).with_name("paper_table1.csv").open(newline="") as file:
        return tuple(
            Reported(
                f"dmc:{row['task']}",
                row["system"],
                float(row["mean"]),
                float(row["spread"]),
                int(row["seeds"]),
            )
            for row in csv.DictReader(file)
        )


def reported(task: str) -> dict[str, Reported]:
    """The numbers of Table 1 on a task, by system; empty for other tasks."""
    return {number.system: number for number in table1() if number.task == task}


def scale_gaps(config: Config, frames: int) -> list[str]:
    """Settings in which a measured score is not at the paper's scale, the paper's in brackets.

    Args:
        config: The run's settings.
        frames: The frames its score is at.

    Returns:
        Such as `pixels 48 (84)`; empty at the paper's scale.
    """
    gaps = [] if frames == FRAMES else [f"frames {frames:,} ({FRAMES:,})"]
    settings = preset_settings("paper", config.task, config.method)
    paper = {key: setting.value for key, setting in settings.items()}
    paper |= {"observation": "pixels", "distractor": None, "state_noise": 0}
    values = config.as_dict()
    for name, value in paper.items():
        own = values.get(name, value)  # not every agent has every setting
        own = tuple(own) if isinstance(own, list) else own
        if name not in SAFE and own != value:
            gaps.append(f"{name} {own} ({value})")
    return gaps


def scale_notes(study: Study, at: Mapping[str, int]) -> tuple[str, list[str]]:
    """What a reader must know wherever measured and reported numbers are shown together.

    Args:
        study: The measured runs.
        at: The budget of each task.

    Returns:
        Whether they are at the same scale, in a sentence that is empty if nothing is reported, and
        notes: the source, and every setting in which the measured ones differ.
    """
    if not any(reported(task) for task in at):
        return "", [f"None of these tasks is in {SOURCE}."]
    notes = [f"Reported: {SOURCE}, {FRAMES:,} frames; {SPREAD}."]
    by_gaps: dict[str, dict[str, None]] = defaultdict(dict)
    for group in (group for group in study.groups if reported(group.task)):
        for run in group.runs:
            gaps = ", ".join(scale_gaps(run.config, at[group.task]))
            by_gaps[gaps][f"{group.label} on {group.task}"] = None
    for gaps, names in by_gaps.items():
        who = "" if len(by_gaps) == 1 else f" ({', '.join(names)})"
        scale = "the paper's settings and budget"
        if gaps:
            scale = f"not at the paper's scale, which is in brackets: {gaps}"
        notes.append(f"Measured{who}: {scale}.")
    if list(by_gaps) == [""]:
        return "Measured and reported scores are at the same scale.", notes
    return "Measured scores are NOT at the paper's scale: see the notes.", notes


ArtefactName = Literal["table1", "figure-dmc", "figure-metaworld", "figure-ablation", "figure-c"]
Scale = Literal["paper", "cpu"]


class Artefact(NamedTuple):
    """A table or figure on disk.

    Attributes:
        paths: Its files.
        text: The table as text; empty for a figure.
        problems: What a reader must know about the runs it is made from.
    """

    paths: list[Path]
    text: str
    problems: list[StudyProblem]


def grid_name(artefact: ArtefactName, scale: Scale) -> str:
    """The grid with the runs that an artefact needs."""
    recipe = _RECIPES[artefact]
    return recipe.grid if scale == "paper" else recipe.small or f"{recipe.grid}-cpu"


def make_artefact(
    artefact: ArtefactName, scale: Scale, runs: Sequence[Path], folder: Path
) -> Artefact:
    """Makes a table or figure from those runs that exist.

    Args:
        artefact: Which.
        scale: Part of the files' names.
        runs: The folders of all runs it needs.
        folder: Where its files go.

    Raises:
        ValueError: If none of the runs exists.
    """
    from revbis.analysis.study import read_study

    existing = [run for run in map(unpacked, runs) if (run / CONFIG).exists()]
    if not existing:
        raise ValueError(
            f"none of the {len(runs)} runs exists, such as {runs[0]}; leave out --no-sweep to "
            "train them"
        )
    problems = []
    if len(existing) < len(runs):
        counts = {"missing": len(runs) - len(existing), "runs": len(runs)}
        problems.append(StudyProblem(Kind.MISSING_RUNS, details=counts))
    study = read_study(existing)
    paths, text = _RECIPES[artefact].make(study, folder, f"{artefact}-{scale}")
    return Artefact(paths, text, problems + list(study.problems))


def _table(study: Study, folder: Path, name: str) -> tuple[list[Path], str]:
    from revbis.analysis.tables import score_table

    table = score_table(study, kind="final", budget=None, reported=True)
    contents = {"md": table.markdown(), "tex": table.latex(), "csv": table.csv()}
    paths = [folder / f"{name}.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        atomic_write(path, content.encode())
    return paths, table.text()


def _figure(kind: str, **options: Any) -> Callable[[Study, Path, str], tuple[list[Path], str]]:
    def make(study: Study, folder: Path, name: str) -> tuple[list[Path], str]:
        from revbis.analysis import figures

        return figures.save(getattr(figures, kind)(study, **options), folder, name), ""

    return make


class _Recipe(NamedTuple):
    """The grid an artefact needs, how it is made from a study, and the grid at scale cpu."""

    grid: str
    make: Callable[[Study, Path, str], tuple[list[Path], str]]
    small: str = ""  # the grid's name with -cpu


_RECIPES: dict[ArtefactName, _Recipe] = {
    "table1": _Recipe("table1", _table),
    "figure-dmc": _Recipe("table1", _figure("learning_curves", reported=True), "cheetah-cpu"),
    "figure-metaworld": _Recipe("metaworld", _figure("learning_curves")),
    "figure-ablation": _Recipe("ablation", _figure("ablation")),
    "figure-c": _Recipe("c-curves", _figure("coefficients")),
}
