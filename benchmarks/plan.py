"""A plan of TD-MPC, beside a plain planner with the same weights and random numbers.

The plain one (`_plain_tdmpc.py`) is written as public code is: all networks at every step of every
sample in each iteration. The tests compare its results with the planner's. Both plan in turn, with
one thread, by CPU time. Where the two values of a latent state are alike, as a trained agent's
are, the planner leaves most of the second ones out; with unrelated values it needs all of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import product
from typing import TYPE_CHECKING

from _measure import finish, in_turn, median_ratio, one_thread, print_table

one_thread()

from revbis.io import runtime  # noqa: E402

runtime.prepare(1)

import torch  # noqa: E402

from _plain_tdmpc import PlainPlanner, draw_noise  # noqa: E402
from revbis.agents import TDMPC  # noqa: E402
from revbis.agents.tdmpc_planner import PackedModel, follow, plan  # noqa: E402
from revbis.runs.presets import preset_config  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

ACTIONS, FEATURES, DISCOUNT = 6, 24, 0.99
LEAST = {"paper": 1.25, "cpu": 1.25}  # times as fast as the plain one, with values that are alike


def random_agent(preset: str, alike: bool) -> TDMPC:
    """With rewards and values that are not 0; `alike` makes the second value nearly the first."""
    settings = preset_config(preset, "dmc:walker_walk", "tdmpc", "state").agent
    agent = TDMPC((FEATURES,), ACTIONS, settings, seed=1)  # type: ignore[arg-type]
    g = torch.Generator().manual_seed(0)
    model = agent.model
    with torch.no_grad():
        for network in (model.reward, model.values.q1, model.values.q2):
            weight = network.last.weight
            weight.copy_(torch.randn(weight.shape, generator=g))
        if alike:
            pairs = zip(model.values.q2.parameters(), model.values.q1.parameters(), strict=True)
            for parameter, other in pairs:
                size = other.square().mean().sqrt()
                parameter.copy_(other + 0.1 * size * torch.randn(other.shape, generator=g))
    return agent


def operations(agent: TDMPC) -> int:
    """Multiplications and additions in the plain planner's matrix products."""
    s, model = agent.settings, agent.model
    step, last, actor = (
        sum(each.numel() for network in networks for each in network.parameters() if each.ndim > 1)
        for networks in (
            (model.dynamics, model.reward),
            (model.actor, model.values),
            (model.actor,),
        )
    )
    samples = s.iterations * (s.samples + s.policy_samples) * (s.horizon * step + last)
    return 2 * (samples + s.policy_samples * s.horizon * (step + actor))


@torch.no_grad()
def disagreement(agent: TDMPC, z: Tensor) -> float:
    """Standard deviation of the difference of the two values relative to that of returns."""
    s, g = agent.settings, torch.Generator().manual_seed(1)
    actions = 2 * torch.rand(s.horizon, s.samples, ACTIONS, generator=g) - 1
    model = PackedModel(agent.model, s.samples, s.horizon)
    paths = follow(model, z, actions, DISCOUNT)
    q1, q2 = (model.value(paths.z, paths.following, which) for which in (0, 1))
    factor = DISCOUNT**s.horizon
    returns = paths.rewards + factor * torch.minimum(q1, q2)
    return float(factor * (q1 - q2).std() / returns.std())


def measure(agent: TDMPC, z: Tensor, rounds: int, plans: int) -> tuple[float, float, float]:
    """Milliseconds of a plan of both, plain and ours, and how many times as fast ours is."""
    s = agent.settings
    start = torch.zeros(s.horizon, ACTIONS)
    search = agent.search(max(s.horizon_steps, s.noise_steps))._replace(discount=DISCOUNT)
    planner, generator = PlainPlanner(agent), torch.Generator().manual_seed(2)

    def ours() -> None:
        for _ in range(plans):  # each after an update, so nothing is kept from the last one
            model = PackedModel(agent.model, s.samples, s.horizon)
            plan(model, z, start, search, generator)

    def plainly() -> None:
        for _ in range(plans):
            noise = draw_noise(search, s.horizon, ACTIONS, generator)
            planner.plan(z, start, search, noise, generator)

    for run in (ours, plainly):
        run()
    (slow, fast), _ = in_turn([plainly, ours], rounds, time.process_time)
    middle = (1000 * statistics.median(spent) / plans for spent in (slow, fast))
    return (*middle, median_ratio(slow, fast))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presets", nargs="+", default=["cpu", "paper"], choices=["cpu", "paper"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--plans", type=int, default=1, help="in a round")
    given = parser.parse_args()
    rows, figures, missed = [], {}, []
    for preset, alike in product(given.presets, (True, False)):
        agent, values = random_agent(preset, alike), "alike" if alike else "unrelated"
        z = agent.embed(torch.randn(1, FEATURES, generator=torch.Generator().manual_seed(3)))
        slow, fast, ratio = measure(agent, z, given.rounds, given.plans)
        work, apart = operations(agent) / 1e9, disagreement(agent, z)
        rows.append((f"{preset}, values {values}", apart, work, slow, fast, ratio))
        figures[f"{preset}_{values}"] = ratio
        if alike and ratio < LEAST[preset]:
            missed.append(f"{preset}: {ratio:.2f} times as fast, wanted {LEAST[preset]:g}")
    header = ("preset", "values differ", "plain GFLOP", "plain ms", "ours ms", "ratio")
    print_table(header, rows)
    finish("plan", figures, missed)


if __name__ == "__main__":
    main()
