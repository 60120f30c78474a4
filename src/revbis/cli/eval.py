"""Evaluates a run's agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import tyro

from revbis.cli.console import print_table, step_bar
from revbis.io.files import naming

_MOST_EPISODES = 100_000


def command(
    run: Annotated[Path, tyro.conf.Positional],
    episodes: int = 10,
    seed: int = 1000,
    video: Path | None = None,
    out: Path | None = None,
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Evaluates the newest checkpoint of a run with the mean action.

    Args:
        run: The run's folder.
        episodes: Number of episodes.
        seed: Seed from which the seeds of all episodes are derived.
        video: mp4 file for a video of the first episode, larger than the agent's observations.
        out: JSON file for the results of each episode.
        trust: Import the task, agent or objective that the run's folder names as
            package.module:factory.
    """
    from revbis.io import runtime, schema

    runtime.prepare()
    schema.integer(episodes, "--episodes", 1, _MOST_EPISODES)
    schema.integer(seed, "--seed", 0)
    from revbis.envs import make_env
    from revbis.runs.evaluate import play, record_episode
    from revbis.runs.run import open_run
    from revbis.runs.seeds import Stream, episode_seeds

    config, agent, *_ = open_run(run, trust=trust)
    env = make_env(**config.environment, seed=seed, distractor_split="eval")
    seeds, played = episode_seeds(seed, Stream.COMMAND, episodes), []
    with step_bar(episodes) as advance:
        for number in seeds:
            played.append(play(agent, env, number))
            advance(f"{config.task}: return {played[-1].total:.1f}")
    env.close()
    totals = [episode.total for episode in played]
    mean = sum(totals) / len(totals)
    spread = (sum((t - mean) ** 2 for t in totals) / max(len(totals) - 1, 1)) ** 0.5
    row = {
        "task": config.task,
        "method": config.method,
        "episodes": str(episodes),
        "mean return": f"{mean:.1f}",
        "deviation": f"{spread:.1f}",
        "lowest": f"{min(totals):.1f}",
        "highest": f"{max(totals):.1f}",
    }
    if played[0].success_any is not None:
        row["success at any step"] = f"{sum(bool(e.success_any) for e in played) / episodes:.0%}"
        row["success at the end"] = f"{sum(bool(e.success_last) for e in played) / episodes:.0%}"
    print_table(str(run), [row])
    if out is not None:
        with naming(out):
            out.write_text(json.dumps([vars(episode) for episode in played], indent=2))
        print(f"written to {out}")
    if video is not None:
        record_episode(config.environment, agent, seeds[0], video)
        print(f"written to {video}")
