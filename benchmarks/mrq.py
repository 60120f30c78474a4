"""A step of MR.Q with its share of encoder updates, beside a plain agent that does the same.

The plain one (`_plain_mrq.py`) is written as public code is: one network per value, PyTorch's own
AdamW, losses step by step, priorities summed over the whole capacity. The tests compare its updates
with the agent's. Both start with the same weights, draw from the same steps, and have the same
process settings (`revbis.io.runtime.prepare`); in turn, with one thread and with two.
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

from _plain_mrq import PlainMRQ, PlainReplay  # noqa: E402
from revbis.agents import MRQ  # noqa: E402
from revbis.io.machine import check_bfloat16  # noqa: E402
from revbis.replay import TransitionReplay  # noqa: E402
from revbis.runs.presets import preset_config  # noqa: E402

ACTIONS, FEATURES = 6, 24
STORED, CAPACITY = 20_000, 1_000_000  # steps; the public code's capacity
PRECISIONS = ("float32", "bfloat16")  # of ours; the plain one has float32
LEAST = {  # times as fast as the plain one, with one thread; float32 is bound by matrix products
    ("cpu", "float32"): 1.1,
    ("cpu", "bfloat16"): 1.3,
    ("paper", "float32"): 1.0,
    ("paper", "bfloat16"): 1.5,
}


def steps_taken() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random observations, actions and rewards of one long episode."""
    g = torch.Generator().manual_seed(0)
    obs = torch.randn(STORED + 1, FEATURES, generator=g)
    action = 2 * torch.rand(STORED, ACTIONS, generator=g) - 1
    return obs, action, torch.rand(STORED, generator=g)


def replays(n_step: int, discount: float) -> tuple[TransitionReplay, PlainReplay]:
    """Both replay buffers, with the same steps in them."""
    obs, action, reward = steps_taken()
    sizes = {"n_step": n_step, "discount": discount, "stack": 1, "shift": 0, "seed": 1}
    ours = TransitionReplay(CAPACITY, (FEATURES,), ACTIONS, expected=STORED, **sizes)  # type: ignore[arg-type]
    ours.begin(obs[0].numpy())
    for taken, earned, seen in zip(action, reward, obs[1:], strict=True):
        ours.add(taken.numpy(), float(earned), 1.0, seen.numpy(), last=False)
    return ours, PlainReplay(CAPACITY, obs, action, reward, n_step, discount)


def measure(
    preset: str, precision: str, threads: int, rounds: int, steps: int
) -> tuple[float, float, float]:
    """Milliseconds of a step of both, plain and ours, and how many times as fast ours is."""
    torch.set_num_threads(threads)
    settings = preset_config(preset, "dmc:walker_walk", "mrq", "state").agent
    settings = replace(settings, precision=precision)  # type: ignore[call-arg]
    agent = MRQ((FEATURES,), ACTIONS, settings, seed=1)
    plain = PlainMRQ(agent)
    replay, plain_replay = replays(3, 0.99)
    size, horizon = settings.batch_size, settings.horizon
    noise = torch.Generator().manual_seed(2)

    def ours() -> None:
        for _ in range(steps):
            agent.learn_encoders(replay.sample_windows(size, horizon), 0.99, False)
            drawn = replay.sample_transitions(size)
            _, priority = agent.learn(drawn.batch)
            replay.set_priorities(drawn.entry, priority.numpy())

    def plainly() -> None:
        for _ in range(steps):
            plain.learn_encoders(plain_replay.windows(size, horizon), False)
            batch, entry = plain_replay.transitions(size)
            drawn = torch.randn(size, ACTIONS, generator=noise)
            plain_replay.set_priorities(entry, plain.learn(batch, drawn)[2])

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
        least = LEAST[preset, precision]
        if threads == 1 and ratio < least:
            missed.append(f"{preset}, {precision}: {ratio:.2f} times as fast, wanted {least:g}")
    print_table(("preset", "threads", "plain ms", "ours ms", "ratio"), rows)
    finish("mrq", figures, missed)


if __name__ == "__main__":
    main()
