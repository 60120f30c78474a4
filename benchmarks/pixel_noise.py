"""A rendered step with Gaussian pixel noise beside one without: what the noise costs.

At 84×84 in render quality fast, the cheapest step there is, with one simulator step an action.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from _measure import finish, in_turn, median_ratio, one_thread, print_table

one_thread()

from revbis.envs import make_env  # noqa: E402

if TYPE_CHECKING:
    from revbis.envs.environment import TaskEnv

TASK, STEPS, ROUNDS = "dmc:cheetah_run", 20, 41
MOST = 1.10


def play(env: TaskEnv) -> None:
    action = env.action_space.sample()
    for _ in range(STEPS):
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def main() -> None:
    settings = {"seed": 1, "pixels": 84, "quality": "fast", "action_repeat": 1}
    kinds = {"plain": {}, "gaussian": {"distractor": "gaussian", "distractor_strength": 0.5}}
    runs = []
    for changes in kinds.values():
        env = make_env(TASK, **settings, **changes)
        env.reset()
        runs.append(partial(play, env))
        runs[-1]()
    times, _ = in_turn(runs, ROUNDS)
    ratio = median_ratio(times[1], times[0])
    rows = [(name, 1000 * median(spent) / STEPS) for name, spent in zip(kinds, times, strict=True)]
    print_table((TASK, "ms a step"), rows)
    missed = [f"a noisy step takes {ratio:.3f}× a plain one, wanted {MOST:g}×"]
    finish("pixel_noise", {"gaussian_to_plain": ratio}, missed if ratio > MOST else [])


if __name__ == "__main__":
    main()
