"""A step of MR.Q with its share of encoder updates, beside a plain agent that does the same.

The plain one (`_plain_mrq.py`) is written as public code is: one network per value, PyTorch's own
AdamW, losses step by step. The tests compare its results with the agent's. Both have the same
weights and see the same batches, in turn, with one thread and with two.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from itertools import product

from _measure import finish, in_turn, median_ratio, one_thread, print_table

one_thread()

from revbis.io import runtime  # noqa: E402

runtime.prepare(1)

import torch  # noqa: E402

from _plain_mrq import PlainMRQ  # noqa: E402
from revbis.agents import MRQ  # noqa: E402
from revbis.io.machine import check_bfloat16  # noqa: E402
from revbis.replay import Batch, Windows  # noqa: E402
from revbis.runs.presets import preset_config  # noqa: E402

ACTIONS, FEATURES = 6, 24
PRECISIONS = ("float32", "bfloat16")  # of ours; the plain one has float32
LEAST = {"paper": 1.05, "cpu": 1.1}  # times as fast as the plain one, in float32 with one thread


def windows(size: int, steps: int) -> Windows:
    """Random ones, of episodes that go on."""
    g = torch.Generator().manual_seed(0)
    obs = torch.randn(size, steps + 1, FEATURES, generator=g)
    action = 2 * torch.rand(size, steps, ACTIONS, generator=g) - 1
    reward, one = torch.rand(size, steps, generator=g), torch.ones(size, steps)
    return Windows(obs, action, reward, one, one)


def batch(size: int) -> Batch:
    """Random transitions."""
    g = torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, size, FEATURES, generator=g)
    action, reward = 2 * torch.rand(size, ACTIONS, generator=g) - 1, torch.rand(size, generator=g)
    return Batch(obs, action, reward, torch.full((size,), 0.97), next_obs)


def measure(
    preset: str, precision: str, threads: int, rounds: int, steps: int
) -> tuple[float, float, float]:
    """Milliseconds of a step of both, plain and ours, and how many times as fast ours is."""
    torch.set_num_threads(threads)
    settings = preset_config(preset, "dmc:walker_walk", "mrq", "state").agent
    settings = replace(settings, precision=precision)  # type: ignore[call-arg]
    agent = MRQ((FEATURES,), ACTIONS, settings, seed=1)
    plain = PlainMRQ(agent)
    seen, transitions = windows(settings.batch_size, settings.horizon), batch(settings.batch_size)
    noise = torch.Generator().manual_seed(2)

    def ours() -> None:
        for _ in range(steps):
            agent.learn_encoders(seen, 0.99, False)
            agent.learn(transitions)

    def plainly() -> None:
        for _ in range(steps):
            plain.learn_encoders(seen, False)
            plain.learn(transitions, torch.randn(len(seen.obs), ACTIONS, generator=noise))

    for run in (ours, plainly):
        run()
    # CPU time with one thread, which other programs hardly disturb; else the time of day.
    clock = time.process_time if threads == 1 else time.perf_counter
    (slow, fast), _ = in_turn([plainly, ours], rounds, clock)
    middle = (1000 * statistics.median(spent) / steps for spent in (slow, fast))
    return (*middle, median_ratio(slow, fast))


def precisions() -> tuple[str, ...]:
    """Those that this processor has instructions for."""
    try:
        check_bfloat16("cpu")
    except ValueError:
        return PRECISIONS[:1]
    return PRECISIONS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presets", nargs="+", default=["cpu", "paper"], choices=["cpu", "paper"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5, help="in a round")
    given = parser.parse_args()
    rows, figures, missed = [], {}, []
    for preset, precision, threads in product(given.presets, precisions(), given.threads):
        slow, fast, ratio = measure(preset, precision, threads, given.rounds, given.steps)
        rows.append((f"{preset}, {precision}", threads, slow, fast, ratio))
        figures[f"{preset}_{precision}_threads_{threads}"] = ratio
        if (precision, threads) == ("float32", 1) and ratio < LEAST[preset]:
            missed.append(f"{preset}: {ratio:.2f} times as fast, wanted {LEAST[preset]:g}")
    print_table(("preset", "threads", "plain ms", "ours ms", "ratio"), rows)
    finish("mrq", figures, missed)


if __name__ == "__main__":
    main()
