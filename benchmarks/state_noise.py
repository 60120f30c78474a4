"""A step with predictable irrelevant numbers beside a plain one: what each kind costs.

State vectors of a cheap and of a dear task, with the repeated actions of the presets. Recording the
other instances, once per process, is not part of a step, and is printed for itself.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from _measure import finish, in_turn, median_ratio, one_thread, print_table

one_thread()

from revbis.envs import make_env  # noqa: E402
from revbis.envs.instances import recordings  # noqa: E402

if TYPE_CHECKING:
    from revbis.envs.environment import TaskEnv

TASKS = {"dmc:cartpole_swingup": 5, "dmc:cheetah_run": 17}  # and how many numbers they have
STEPS, ROUNDS, REPEAT = 50, 21, 2
MOST = 1.2


def play(env: TaskEnv) -> None:
    action = env.action_space.sample()
    for _ in range(STEPS):
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def main() -> None:
    ratios, missed, rows = {}, [], []
    for task, numbers in TASKS.items():
        kinds = {
            "plain": {},
            "instance": {"state_noise": 3 * numbers, "state_noise_kind": "instance"},
            "shadow": {"state_noise": 3 * numbers, "state_noise_kind": "shadow"},
            "gate": {"reward_gate": True},
        }
        start = time.perf_counter()
        recordings(task, REPEAT, "train")
        rows.append((f"{task}, recording instances (s)", time.perf_counter() - start))
        runs = []
        for changes in kinds.values():
            env = make_env(task, seed=1, observation="state", action_repeat=REPEAT, **changes)
            env.reset()
            runs.append(partial(play, env))
            runs[-1]()
        times, _ = in_turn(runs, ROUNDS)
        for name, spent in zip(kinds, times, strict=True):
            rows.append((f"{task}, {name}", 1000 * median(spent) / STEPS))
            if name != "plain":
                ratio = ratios[f"{task.partition(':')[2]}_{name}"] = median_ratio(spent, times[0])
                if ratio > MOST:
                    missed.append(f"{task}: {name} takes {ratio:.3f}× a plain step, not {MOST:g}×")
    print_table(("task and kind", "ms a step"), rows)
    finish("state_noise", ratios, missed)


if __name__ == "__main__":
    main()
