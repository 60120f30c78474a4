"""Cells of the benchmark: a scenario, a method and a seed; each result is a small file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import revbis.objectives
from revbis.io.files import atomic_file, atomic_write, digest_of_bytes
from revbis.io.plugins import is_factory_name, search_working_folder
from revbis.representation.exactness import Compared, Measurement, ProbeSettings, make, measure
from revbis.representation.problems import SCENARIOS, build
from revbis.representation.workers import run_all, usable_cores
from revbis.tabular.readers import read_npz

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from revbis.representation.workers import Show, Steps

Record = dict[str, Any]


def checksum(key: Record) -> str:
    """A short checksum of a key."""
    return digest_of_bytes(json.dumps(key, sort_keys=True).encode())[:12]


def write_result(path: Path, key: Record, result: Record) -> None:
    """Writes a result.

    Raises:
        OSError: If it cannot be written.
    """
    content = {"key": key, "result": result}
    atomic_write(path, (json.dumps(content, indent=1) + "\n").encode())


def read_result(path: Path, key: Record) -> Record | None:
    """The result with this key; None if there is none, or it cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    same = isinstance(content, dict) and content.get("key") == json.loads(json.dumps(key))
    return content.get("result") if same else None


def code_checksum(paths: Iterable[Path]) -> str:
    """A checksum of the code in some files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def own_code(method: str) -> str | None:
    """A checksum of the file that a user's factory is in; what it imports is not part of it.

    None for objectives that come with the package.
    """
    if not is_factory_name(method):
        return None
    search_working_folder()
    file = getattr(import_module(method.partition(":")[0]), "__file__", None)
    return None if file is None else digest_of_bytes(Path(file).read_bytes())


_PARTS = ("exactness", "measures", "problems")
_MOST_DOTS = 1500
_FOLDER = "cells"


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        scenario: A name of `SCENARIOS`.
        method: An objective's name, or package.module:factory.
        seed: The seed.
        size: Side of the grids.
        settings: What is trained, and for how long.
    """

    scenario: str
    method: str
    seed: int
    size: int
    settings: ProbeSettings

    @property
    def title(self) -> str:
        """The cell in a few words."""
        return f"{self.method} on {self.scenario}, seed {self.seed}"

    @property
    def steps(self) -> int:
        """Gradient steps."""
        return self.settings.steps

    @property
    def key(self) -> Record:
        """Everything that the result depends on."""
        return {
            "scenario": [self.scenario, asdict(SCENARIOS[self.scenario])],
            "method": self.method,
            "seed": self.seed,
            "size": self.size,
            "settings": asdict(self.settings),
            "code": _code(),
            "own_code": own_code(self.method),
            "torch": torch.__version__,
        }

    def path(self, out: Path) -> Path:
        """Where its result is, or goes."""
        name = self.method.replace(":", ".")
        return out / _FOLDER / f"{self.scenario}.{name}.{self.seed}.{checksum(self.key)}.json"


def run_cell(cell: Cell, out: Path, progress: Callable[[int], None]) -> None:
    """Measures a cell and writes its result.

    Raises:
        ValueError: If the objective cannot be made, or raises.
        NonFiniteError: If training diverges.
        OSError: If the result cannot be written.
    """
    problem = build(cell.scenario, cell.size, cell.settings.gamma)
    result = measure(problem, cell.method, cell.seed, cell.settings, progress)
    path = cell.path(out)
    if cell.seed == 0:  # for the picture
        with atomic_file(path.with_suffix(".npz")) as file:
            np.savez_compressed(file, allow_pickle=False, **_dots(result))
    write_result(path, cell.key, _record(cell, result))


def read_cell(cell: Cell, out: Path) -> Record | None:
    """The result of a cell, None if there is none; one that cannot be read counts as none."""
    if cell.seed == 0:
        try:
            read_dots(cell, out)
        except (OSError, ValueError, KeyError):
            return None
    return read_result(cell.path(out), cell.key)


def read_dots(cell: Cell, out: Path) -> dict[str, np.ndarray]:
    """Learned and exact distances of some pairs, kept with seed 0: `phi` and `psi`, (2, n)."""
    return read_npz(cell.path(out).with_suffix(".npz"))


def _record(cell: Cell, result: Measurement) -> Record:
    """The result as one flat row."""
    row: Record = {
        "scenario": cell.scenario,
        "method": cell.method,
        "seed": cell.seed,
        "metric": result.metric,
        "claims": result.claims,
        "c": result.c,
    }
    for name, compared in (("phi", result.phi), ("psi", result.psi)):
        row |= _columns(name, compared)
    return row | {
        "denoising": result.denoising,
        "denoising_untrained": result.untrained_denoising,
    }


def _columns(name: str, compared: Compared | None) -> Record:
    if compared is None:
        return {}
    row = {f"{name}_{key}": value for key, value in asdict(compared.target).items()}
    if compared.behaviour is not None:
        others = asdict(compared.behaviour).items()
        row |= {f"{name}_behaviour_{key}": value for key, value in others}
    return row | {f"{name}_spearman_untrained": compared.untrained}


def _dots(result: Measurement) -> dict[str, np.ndarray]:
    dots = {}
    for name, compared in (("phi", result.phi), ("psi", result.psi)):
        if compared is None:
            continue
        i, j = np.triu_indices(len(compared.exact), 1)
        count = min(_MOST_DOTS, len(i))
        chosen = np.random.default_rng(0).choice(len(i), count, replace=False)
        pairs = (i[chosen], j[chosen])
        dots[name] = np.stack([compared.learned[pairs], compared.exact[pairs]]).astype(np.float32)
    return dots


@cache
def _code() -> str:
    """A checksum of the code that decides results: objectives, and the probe's own."""
    objectives = sorted(Path(revbis.objectives.__path__[0]).glob("*.py"))
    own = [Path(__file__).with_name(f"{name}.py") for name in _PARTS]
    return code_checksum((*objectives, *own))


__all__ = ["plan", "run_cells", "usable_cores"]

_NOISY = 1.5  # how much longer a step takes with noisy pixels, and with ψ or a tie
_WITH_PSI = 0.3
_WITH_POLICY = 0.2


def plan(
    scenarios: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    size: int,
    settings: ProbeSettings,
) -> dict[Cell, float]:
    """The cells, seed by seed, the longest of each first, and how much work each is.

    Raises:
        ValueError: For an objective or a grid that cannot be made, before time is spent on others.
    """
    problems = {name: build(name, size, settings.gamma) for name in scenarios}
    cost = {}
    for method in dict.fromkeys(methods):
        for actions in {problem.mdp.n_actions for problem in problems.values()}:
            objective = make(method, actions, settings)
        psi = _WITH_PSI * (objective.compares == "state_action")
        cost[method] = 1 + psi + _WITH_POLICY * len(objective.policy_actions)
    cells = {
        Cell(scenario, method, seed, size, settings): settings.steps
        * cost[method]
        * (_NOISY if SCENARIOS[scenario].pixels == "noisy" else 1.0)
        for scenario in problems
        for method in cost
        for seed in range(seeds)
    }
    return dict(sorted(cells.items(), key=lambda item: (item[0].seed, -item[1])))


def run_cells(cells: Mapping[Cell, float], out: Path, workers: int, show: Show) -> dict[Cell, str]:
    """Runs cells in turn, as `revbis.representation.workers.run_all` does.

    Args:
        cells: The cells that have no result yet, and how much work each is.
        out: Folder for the results.
        workers: Number of processes.
        show: Called now and then with a text and with how much of the work is done.

    Returns:
        The cells that failed, and why.

    Raises:
        ValueError: If a worker ended without a word.
    """
    return run_all(cells, partial(_run, out), workers, show)


def _run(out: Path, cell: Cell, progress: Steps) -> None:
    run_cell(cell, out, progress)
