"""How soon φ and ψ learn rewards from pixels, by settings of images and loss: images.csv.

python results/mrq/images.py

The encoders of `mrq` (its cpu preset, learning rate 1e-3) learn from 4,000 random steps of
cartpole_swingup at 32×32; nobody acts or values. The reward's loss is of three steps, without its
weight, and the mean of the last 125 updates.
"""

import csv
import sys
from itertools import product
from pathlib import Path
from typing import Any

from revbis.io import runtime

runtime.prepare(1)

import numpy as np  # noqa: E402

from revbis.agents.mrq import MRQ  # noqa: E402
from revbis.envs import make_env  # noqa: E402
from revbis.replay import TransitionReplay  # noqa: E402
from revbis.runs.config import Config  # noqa: E402
from revbis.runs.presets import preset_config  # noqa: E402
from revbis.runs.trainer import make_replay  # noqa: E402

STEPS, UPDATES, LAST = 4000, 500, 125
GRID = {
    "centre_images": (False, True),
    "reward_weight": (0.1, 1.0),
    "shift": (0, 2),
}
FIXED = {"encoder_learning_rate": 1e-3, "pixels": 32}


def experience(config: Config) -> TransitionReplay:
    """A replay buffer with random steps."""
    env, rng = make_env(**config.environment, seed=1), np.random.default_rng(0)
    replay = make_replay(config, env)
    assert isinstance(replay, TransitionReplay)
    last, episode = True, 0
    for _ in range(STEPS):
        if last:
            replay.begin(env.reset(seed=episode)[1]["frame"])
            episode += 1
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        _, reward, terminated, truncated, info = env.step(action)
        last = terminated or truncated
        replay.add(action, reward, info["discount"], info["frame"], last=last)
    return replay


def measure(settings: dict[str, Any]) -> tuple[float, float]:
    """The losses of rewards and of the next embeddings, when the encoders had their updates."""
    usual = preset_config("cpu", "dmc:cartpole_swingup", "mrq", "pixels")
    config = usual.with_settings(**FIXED, **settings)
    replay, s = experience(config), config.agent
    size, period, horizon = s.batch_size, s.target_every, s.horizon  # type: ignore[attr-defined]
    agent = MRQ((9, 32, 32), 1, s, seed=1)  # type: ignore[arg-type]
    if settings["centre_images"]:
        agent.centre(replay)
    found = []
    for update in range(UPDATES):
        if update % period == 0:
            agent.begin_period(replay.mean_reward_size())
        windows, late = replay.sample_windows(size, horizon), update >= UPDATES - LAST
        metrics = agent.learn_encoders(windows, replay.discount, False, with_metrics=late)
        if late:
            found.append([metrics[f"{name}_loss"].item() for name in ("reward", "consistency")])
    reward, consistency = np.mean(found, axis=0)
    return float(reward), float(consistency)


def main() -> None:
    """Measures the grid, a row at a time, and writes the table."""
    rows = []
    for values in product(*GRID.values()):
        settings = dict(zip(GRID, values, strict=True))
        losses = zip(("reward_loss", "consistency_loss"), measure(settings), strict=True)
        rows.append(settings | {name: f"{loss:.3f}" for name, loss in losses})
        print(*rows[-1].values(), file=sys.stderr, flush=True)
    with (Path(__file__).parent / "images.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
