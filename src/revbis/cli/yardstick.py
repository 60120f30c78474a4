"""Measures how good the representations of runs are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from revbis.cli.console import print_table, step_bar

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_EPISODES, _MOST_ROLLOUTS = 1000, 1000


def command(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    episodes: int = 10,
    seed: int = 0,
    rollouts: int = 0,
    out: Path = Path("yardsticks.csv"),
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Measures the representations of runs: robust to noise, and what is left of the state?

    The newest checkpoint plays episodes with the mean action. Measured are φ, which an objective
    trains, and the critic's trunk, which the agent acts by:

    DF, the denoising factor: 1 if noise does not move an embedding, 0 if it moves it as much as
    other states do, below 0 if more. With the noise of training and with that of evaluation.

    state R²: how much of the simulator's state a linear map finds, on held-out episodes; from 0
    to 1. An embedding that forgets everything is robust, too: read DF and R² together.

    effective rank: how many dimensions are in use; 1 is collapse.

    ρ with ΔV: rank correlation of distances with differences of returns.

    ρ with U: rank correlation of distances with the true revised metric of the agent's own policy,
    from the rewards that followed, between moments of different episodes; with a 95% interval over
    episodes. Noise makes those rewards random, and ρ smaller: --rollouts 8 averages it out.

    gate, instance, shadow, walk, gaussian R²: the same as state R² for what is seen beside the
    task's own state, where there is any.

    A few seconds to a minute for each run on the cpu preset's sizes. Prints a table; writes the
    CSV, and yardsticks.json into each run's folder, which revbis report shows.

    revbis yardstick runs/cpu/dmc-cartpole_swingup/simsr-rev/seed-1

    revbis yardstick runs --episodes 20

    revbis yardstick runs/cpu/dmc-cartpole_swingup/simsr-rev/seed-1 --rollouts 8

    Args:
        runs: Folders of runs, or folders or zip files that contain runs; finished or training.
        episodes: Number of episodes, at least 2.
        seed: Seed of the episodes and of the noise.
        rollouts: How often the agent plays on from each of 64 moments, with other noise, for the
            true metric; 0 takes it from the episodes themselves.
        out: CSV file to write, a row for each run.
        trust: Import the task, agent or objective that runs' folders name as
            package.module:factory.
    """
    from revbis.io import runtime, schema

    runtime.prepare()
    schema.integer(episodes, "--episodes", 2, _MOST_EPISODES)
    schema.integer(seed, "--seed", 0)
    schema.integer(rollouts, "--rollouts", 0, _MOST_ROLLOUTS)
    if not runs:
        raise ValueError("pass the folder of at least one run, such as runs/.../seed-1")
    from revbis.analysis.runs import run_folders
    from revbis.io.files import shown_path
    from revbis.representation.yardsticks import ROLLOUT_MOMENTS

    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    folders: dict[Path, None] = {}
    for path in runs:
        folders |= dict.fromkeys(sorted(run_folders(path, problems.append)) or [path])
    steps = episodes + (ROLLOUT_MOMENTS if rollouts else 0)
    with step_bar(len(folders) * steps) as advance:
        for folder in folders:
            try:
                rows.append(_measure(folder, episodes, seed, rollouts, trust, advance))
            except (ValueError, ModuleNotFoundError, OSError) as problem:
                problems.append(str(problem))
    if not rows:
        raise ValueError(problems[0])
    for text in dict.fromkeys(problems):
        print(f"revbis: warning: not measured: {text}", file=sys.stderr)
    if any(shown_path(folder) != folder for folder in folders):
        print(
            f"revbis: warning: zip files are only read: their runs are in {out}, but get no "
            "yardsticks.json; unzip them for revbis report to show it",
            file=sys.stderr,
        )
    _show(rows, out)


def _measure(
    folder: Path,
    episodes: int,
    seed: int,
    rollouts: int,
    trust: bool,
    advance: Callable[[str], None],
) -> dict[str, Any]:
    """Measures a run and writes its file; returns its row of the CSV."""
    import json

    from revbis.io.files import atomic_write, shown_path
    from revbis.representation.yardsticks import measure_agent
    from revbis.runs.folder import YARDSTICKS
    from revbis.runs.run import open_run
    from revbis.runs.seeds import Stream, episode_seeds

    config, agent, frames, *_ = open_run(folder, trust=trust)
    about = {"task": config.task, "method": config.method, "seed": config.seed, "frames": frames}
    title = f"{config.task}, {config.system}, seed {config.seed}"
    values = measure_agent(
        config.environment,
        config.discount,
        agent,
        episode_seeds(seed, Stream.YARDSTICKS, episodes),
        lambda: advance(title),
        rollouts=rollouts,
    )
    content = {"frames": frames, "episodes": episodes, "seed": seed, "yardsticks": values}
    if shown_path(folder) == folder:  # not in a zip file
        atomic_write(folder / YARDSTICKS, (json.dumps(content, indent=2) + "\n").encode())
    return about | values


def _show(rows: list[dict[str, Any]], out: Path) -> None:
    from revbis.representation import EMBEDDINGS, MEASURES, NO_NOISE, shown_measures
    from revbis.representation.exactness_report import NONE, write_csv

    table, measures = [], shown_measures(rows)
    for row in rows:
        about = {name: str(row[name]) for name in ("task", "method", "seed")}
        about["frames"] = f"{row['frames']:,}"
        for embedding, shown in EMBEDDINGS.items():
            values = {name: row.get(f"{embedding}_{name}") for name in measures}
            if any(value is not None for value in values.values()):
                texts = {
                    heading: NONE if values[name] is None else f"{values[name]:.2f}"
                    for name, heading in measures.items()
                }
                low, high = (row.get(f"{embedding}_true_{end}") for end in ("low", "high"))
                if low is not None:
                    texts[MEASURES["true"]] += f" [{low:.2f}, {high:.2f}]"
                table.append(about | {"embedding": shown} | texts)
    print_table("", table, ("frames", "effective rank"))
    for row in rows:
        if not any("denoising" in name for name in row):
            print(f"{row['task']}, {row['method']}, seed {row['seed']}: {NO_NOISE}")
    for row in rows:
        lags, tail = row["true_lags"], row["true_tail"]
        whose = f" of {row['task']}, {row['method']}, seed {row['seed']}" if len(rows) > 1 else ""
        after = f"; what follows adds at most {tail:.3g} to a distance" if tail else ""
        print(f"U{whose}: over the rewards of {lags:.0f} actions{after}")
    write_csv(rows, out)
    print(f"written to {out}")
