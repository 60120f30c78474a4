"""Cells: a method and a seed on one replay buffer; each result is a small file."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import revbis.agents
import revbis.envs
import revbis.isolation
import revbis.objectives
import revbis.replay
import revbis.training
import revbis.yardsticks
from revbis.isolation.source import Source, source_of
from revbis.isolation.training import Isolated, PolicyNeededError
from revbis.objectives.registry import OBJECTIVES
from revbis.yardsticks.results import (
    Record,
    checksum,
    code_checksum,
    own_code,
    read_result,
    write_result,
)
from revbis.yardsticks.workers import run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from revbis.yardsticks.workers import Show

_LOG = logging.getLogger("revbis")
_FOLDER = "cells"
_WITH_POLICY = 0.4  # how much longer a step takes with a pass of the actor


@dataclass(frozen=True)
class IsolatedSettings:
    """How long is trained, and what is measured on.

    Attributes:
        steps: Gradient steps.
        episodes: Episodes of the run's agent that embeddings are measured on.
        seed: Seed of those episodes.
    """

    steps: int = 3000
    episodes: int = 10
    seed: int = 0


@dataclass(frozen=True)
class IsolatedCell:
    """One cell.

    Attributes:
        run: The folder of the run with the replay buffer.
        checkpoint: The identity of its checkpoint.
        method: An objective's name, or package.module:factory.
        seed: Of initialisation and batches.
        settings: How long is trained, and what is measured on.
    """

    run: Path
    checkpoint: str
    method: str
    seed: int
    settings: IsolatedSettings

    @property
    def title(self) -> str:
        """The cell in a few words."""
        return f"{self.method}, seed {self.seed}"

    @property
    def steps(self) -> int:
        """Gradient steps."""
        return self.settings.steps

    @property
    def key(self) -> Record:
        """Everything that the result depends on; wherever the run's folder is."""
        return {
            "checkpoint": self.checkpoint,
            "method": self.method,
            "seed": self.seed,
            "settings": asdict(self.settings),
            "code": _code(),
            "own_code": own_code(self.method),
            "torch": torch.__version__,
        }

    def path(self, out: Path) -> Path:
        """Where its result is, or goes."""
        name = self.method.replace(":", ".")
        return out / _FOLDER / f"{name}.{self.seed}.{checksum(self.key)}.json"


def plan(
    run: Path, methods: Sequence[str], seeds: int, settings: IsolatedSettings
) -> dict[IsolatedCell, float]:
    """The cells, seed by seed, and how much work each is.

    Args:
        run: The run's folder.
        methods: The objectives; if there are none, all that the run can train.
        seeds: Number of seeds.
        settings: Of every cell.

    Raises:
        ValueError: If the run has no replay buffer to train on, or an objective cannot be made;
            before time is spent on others.
    """
    source = Source(run)
    source.replay(0, one_step=False)
    cost, left_out = {}, []
    for method in dict.fromkeys(methods or OBJECTIVES):
        try:
            objective = Isolated(source, method, 0).objective
        except PolicyNeededError:
            if methods:
                raise
            left_out.append(method)
            continue
        cost[method] = settings.steps * (1 + _WITH_POLICY * len(objective.policy_actions))
    if left_out:
        _LOG.warning("left out, as they need actions of a DrQ-v2 run: %s", ", ".join(left_out))
    return {
        IsolatedCell(run, source.identity, method, seed, settings): cost[method]
        for seed in range(seeds)
        for method in cost
    }


def run_cells(
    cells: Mapping[IsolatedCell, float], out: Path, workers: int, show: Show
) -> dict[IsolatedCell, str]:
    """Runs cells in turn, as `revbis.yardsticks.workers.run_all` does; returns what failed."""
    return run_all(cells, partial(_run, out), workers, show)


def read_cell(cell: IsolatedCell, out: Path) -> Record | None:
    """The result of a cell, None if there is none; one that cannot be read counts as none."""
    return read_result(cell.path(out), cell.key)


def _run(out: Path, cell: IsolatedCell, progress: Callable[[int], None]) -> None:
    """Trains and measures a cell, and writes its result."""
    source = source_of(cell.run, cell.checkpoint)
    isolated = Isolated(source, cell.method, cell.seed)
    pool = source.pool(cell.settings.episodes, cell.settings.seed, lambda: progress(0))
    before = pool.measure(isolated.embeddings, isolated.distance)
    isolated.run(cell.settings.steps, progress)
    row: Record = {
        "task": source.config.task,
        "method": cell.method,
        "seed": cell.seed,
        **pool.measure(isolated.embeddings, isolated.distance),
        **{f"{name}_untrained": value for name, value in before.items()},
        "c": isolated.objective.status().get("c"),
    }
    write_result(cell.path(out), cell.key, row)


@cache
def _code() -> str:
    """A checksum of the code that decides results."""
    parts = (revbis.objectives, revbis.yardsticks, revbis.isolation, revbis.replay, revbis.agents)
    folders = [Path(part.__path__[0]) for part in (*parts, revbis.envs)]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    training = Path(revbis.training.__path__[0])
    return code_checksum([*files, training / "build.py", training / "evaluate.py"])
