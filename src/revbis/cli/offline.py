"""Compares objectives on one stored replay buffer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from revbis.cli.console import print_table
from revbis.cli.exactness import check_flags, run_cells, say_others

if TYPE_CHECKING:
    from collections.abc import Sequence

    from revbis.representation.offline import OfflineCell
    from revbis.runs.config import Config

_MOST_EPISODES = 1000
_NAME = "offline"


def command(
    replay: Path | None = None,
    methods: tuple[str, ...] = (),
    objective: tuple[str, ...] = (),
    steps: int = 3000,
    seeds: int = 1,
    episodes: int = 10,
    workers: int | None = None,
    out: Path = Path("revbis-offline"),
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Trains encoders by objectives alone on the replay buffer of a run, and measures them.

    Returns mix the quality of a metric with its effect on exploration. Here every method learns
    from the same stored transitions: a fresh encoder of the run's size, trained by the objective
    alone, without maximising reward. Objectives that need actions of the policy take those of the
    run's actor. Embeddings are measured by the yardsticks (see revbis yardstick --help), on
    episodes of the run's agent. A few minutes a method on the cpu preset's sizes. Finished parts
    are kept: after an interruption, repeat the command. Prints a table; writes offline.csv and a
    figure of it, offline.png (.svg, .pdf).

    revbis offline --replay runs/cpu/dmc-cartpole_swingup/drqv2/seed-1 --methods simsr simsr-rev

    revbis offline --replay RUN --objective my_package.my_module:make --seeds 3

    Args:
        replay: The folder of the run whose replay buffer is used; without it nothing is trained,
            and the finished parts in --out are shown.
        methods: Objectives by name, such as simsr simsr-rev; all of them if neither --methods nor
            --objective is given.
        objective: Your own objectives as package.module:factory, with or without --methods.
        steps: Gradient steps of each training.
        seeds: Number of seeds, starting at 0.
        episodes: Episodes that embeddings are measured on, at least 2.
        workers: Number of processes, each with a copy of the buffer; by default one for each core,
            or as many as fit into memory.
        out: Folder for the results.
        trust: Import the task, agent or objective that the run's folder names as
            package.module:factory; an objective that --objective names needs no such flag.
    """
    from revbis.io import runtime, schema

    check_flags(methods, objective, steps, seeds, workers)
    schema.integer(episodes, "--episodes", 2, _MOST_EPISODES)
    runtime.prepare(1)  # the workers share the cores
    from revbis.representation.offline import OfflineSettings, plan, plan_stored
    from revbis.runs.config import Config
    from revbis.runs.folder import CONFIG, unpacked

    names, settings = (*methods, *objective), OfflineSettings(steps=steps, episodes=episodes)
    if replay is None:
        _run(plan_stored(out, names, seeds, settings), out, 1)
    else:
        replay = unpacked(replay)
        config = Config.read(replay / CONFIG)
        trust = trust or set(config.code) <= set(objective)
        cells = plan(replay, names, seeds, settings, trust=trust)
        _run(cells, out, workers or _fitting(config))


def _fitting(config: Config) -> int:
    """How many processes the cores and the memory allow; each has the whole buffer in memory."""
    from dataclasses import replace

    from revbis.io.machine import available_bytes, usable_cores
    from revbis.runs.memory import memory_bytes

    needed = memory_bytes(replace(config, replay_storage="ram"))
    return max(1, min(usable_cores(), available_bytes() // needed))


def _run(cells: dict[OfflineCell, float], out: Path, workers: int) -> None:
    from revbis.analysis.figures import draw_offline, save
    from revbis.representation.cells import kept_results, read_cell
    from revbis.representation.exactness_report import write_csv
    from revbis.representation.offline import run_cell

    run_cells(cells, out, read_cell, run_cell, workers)
    rows = [row for cell in cells if (row := read_cell(cell, out)) is not None]
    rows += [kept.result for kept in kept_results(list(cells), out)]
    _print(rows)
    write_csv(rows, out / f"{_NAME}.csv")
    save(draw_offline(rows), out, _NAME)
    print(f"written to {out}/: {_NAME} (.csv, .png, .svg, .pdf)")
    say_others(list(cells), out)


def _print(rows: Sequence[dict[str, Any]]) -> None:
    from revbis.io.statistics import mean_interval
    from revbis.representation import NO_NOISE, shown_measures
    from revbis.representation.exactness_report import interval_text, intervals_text

    table = []
    measures = shown_measures(rows)
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        line = {"method": method, "seeds": str(len(mine))}
        for name, heading in measures.items():
            values = [row[f"phi_{name}"] for row in mine if f"phi_{name}" in row]
            line[heading] = interval_text(mean_interval(values) if values else None, True)
        table.append(line)
    print_table(f"{rows[0]['task']}: φ, trained by the objective alone", table, ("effective rank",))
    if not any("phi_denoising_id" in row for row in rows):
        print(NO_NOISE)
    print(intervals_text(rows))
