"""A balanced update beside a joint one: what telling the two gradients apart costs.

At the paper's sizes, batch 256, 84×84, the complete objective, in turn.
"""

from __future__ import annotations

from functools import partial

from _measure import finish, in_turn, median_ratio, one_thread, print_table

one_thread()

import torch  # noqa: E402

from revbis.agents import DrQV2, DrQV2Settings  # noqa: E402
from revbis.replay import Batch  # noqa: E402

BATCH, ACTIONS, SHAPE = 256, 6, (9, 84, 84)
MOST = 1.05


def batch() -> Batch:
    g = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randint(0, 256, (2, BATCH, *SHAPE), generator=g, dtype=torch.uint8)
    action, reward = torch.rand(BATCH, ACTIONS, generator=g), torch.rand(BATCH, generator=g)
    return Batch(obs, action, reward, torch.full((BATCH,), 0.97), next_obs)


def main() -> None:
    inputs, modes = batch(), ("joint", "balanced")
    runs = []
    for mode in modes:
        settings = DrQV2Settings(objective="simsr-rev-full", mode=mode)
        agent = DrQV2(SHAPE, ACTIONS, settings, seed=1)
        runs.append(partial(agent.learn, inputs, 0))
        runs[-1]()
    times, _ = in_turn(runs, rounds=9)
    ratio = median_ratio(times[1], times[0])
    rows = [(mode, sorted(spent)[4]) for mode, spent in zip(modes, times, strict=True)]
    print_table(("mode", "seconds"), rows)
    missed = [f"balanced takes {ratio:.3f}× joint, wanted {MOST:g}×"] if ratio > MOST else []
    finish("modes", {"balanced_to_joint": ratio}, missed)


if __name__ == "__main__":
    main()
