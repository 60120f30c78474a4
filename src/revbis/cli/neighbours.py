"""Draws nearest states under a learned metric."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

_MOST_PICTURES, _MOST_EPISODES = 100, 1000


def command(
    run: Annotated[Path, tyro.conf.Positional],
    queries: int = 6,
    neighbours: int = 6,
    episodes: int = 4,
    seed: int = 0,
    out: Path | None = None,
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Draws states of a run's task beside their nearest states under its learned metric.

    Half of the episodes are played by the agent, half at random. The title of each state shows its
    distance from the query and the reward after it.

    Args:
        run: The run's folder.
        queries: Number of query states, a row each.
        neighbours: Nearest states per query.
        episodes: Episodes that provide the states.
        seed: Seed of the episodes and of the choice of queries.
        out: PNG file to write; by default neighbours.png in the run's folder.
        trust: Import the task, agent or objective that the run's folder names as
            package.module:factory.
    """
    from revbis.io import runtime, schema

    runtime.prepare()
    for flag, value in (("--queries", queries), ("--neighbours", neighbours)):
        schema.integer(value, flag, 1, _MOST_PICTURES)
    schema.integer(episodes, "--episodes", 1, _MOST_EPISODES)
    schema.integer(seed, "--seed", 0)
    from revbis.representation.neighbours import draw_neighbours, find_neighbours
    from revbis.runs.folder import NEIGHBOURS, check_writable
    from revbis.runs.run import open_run

    if out is None:
        check_writable(run)
    config, agent, *_ = open_run(run, trust=trust)
    nearest = find_neighbours(
        config, agent, episodes=episodes, queries=queries, count=neighbours, seed=seed
    )
    path = out or run / NEIGHBOURS
    draw_neighbours(
        nearest, path, f"{config.task}, {config.system}: nearest states under the learned metric"
    )
    print(f"written to {path}")
