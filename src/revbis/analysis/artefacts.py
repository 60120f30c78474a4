"""The paper's tables and figures, made from runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from revbis.system.files import write_whole
from revbis.training.folder import CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from revbis.analysis.scores import Study

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
    problems: list[str]


def grid_name(artefact: ArtefactName, scale: Scale) -> str:
    """The grid with the runs that an artefact needs."""
    name = _RECIPES[artefact].grid
    return name if scale == "paper" else f"{name}-cpu"


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
    from revbis.analysis.scores import read_study

    existing = [run for run in runs if (run / CONFIG).exists()]
    if not existing:
        raise ValueError(
            f"none of the {len(runs)} runs exists, such as {runs[0]}; leave out --no-sweep to "
            "train them"
        )
    problems = []
    if len(existing) < len(runs):
        problems.append(f"{len(runs) - len(existing)} of {len(runs)} runs are missing")
    study = read_study(existing)
    paths, text = _RECIPES[artefact].make(study, folder, f"{artefact}-{scale}")
    return Artefact(paths, text, problems + list(study.problems))


def _table(study: Study, folder: Path, name: str) -> tuple[list[Path], str]:
    from revbis.analysis.tables import score_table

    table = score_table(study, kind="final", budget=None, reported=True)
    contents = {"md": table.markdown(), "tex": table.latex(), "csv": table.csv()}
    paths = [folder / f"{name}.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_whole(path, content.encode())
    return paths, table.text()


def _figure(kind: str) -> Callable[[Study, Path, str], tuple[list[Path], str]]:
    def make(study: Study, folder: Path, name: str) -> tuple[list[Path], str]:
        from revbis.analysis import plots

        return plots.save(getattr(plots, kind)(study), folder, name), ""

    return make


class _Recipe(NamedTuple):
    """The grid an artefact needs, and how it is made from a study."""

    grid: str
    make: Callable[[Study, Path, str], tuple[list[Path], str]]


_RECIPES: dict[ArtefactName, _Recipe] = {
    "table1": _Recipe("table1", _table),
    "figure-dmc": _Recipe("table1", _figure("learning_curves")),
    "figure-metaworld": _Recipe("metaworld", _figure("learning_curves")),
    "figure-ablation": _Recipe("ablation", _figure("ablation")),
    "figure-c": _Recipe("c-curves", _figure("coefficients")),
}
