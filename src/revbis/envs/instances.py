"""Other instances of a task, recorded once, that irrelevant numbers and backgrounds are taken from.

An instance moves by a smooth random policy of its own: predictable, but nothing that the agent
controls. Its actions are an Ornstein-Uhlenbeck process; correlation and size belong to a
variant. 12 are for training and 6 others, of disjoint ranges, for evaluation; each is one episode.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from revbis.envs.distractors import Split, normals, seeded_generator

if TYPE_CHECKING:
    from revbis.envs.environment import TaskEnv
    from revbis.envs.rendering import Quality

Floats = NDArray[np.float64]
INSTANCES: dict[str, range] = {"train": range(12), "eval": range(12, 18)}
MOST_STEPS = 1000  # of a recording, in actions
MOST_PICTURES = 250

_POLICY_V1 = 5  # entropy; other files have other numbers
_SEED = 770_000  # of the first instance's episode


class Policies(NamedTuple):
    """Where the policies of a split are.

    Attributes:
        correlation: Actions in which the correlation of a policy's actions falls to 1/e.
        size: Standard deviation of its actions before they are clipped to [−1, 1].
    """

    correlation: tuple[float, float]
    size: tuple[float, float]


POLICIES: dict[str, Policies] = {
    "train": Policies(correlation=(5.0, 15.0), size=(0.4, 0.8)),
    "eval": Policies(correlation=(20.0, 40.0), size=(0.9, 1.3)),
}


class Recording(NamedTuple):
    """An episode of an instance, a row for each observation.

    Attributes:
        views: [T, features], or [T, 3, size, size].
        states: The simulator's state vectors, [T, S].
    """

    views: NDArray[Any]
    states: Floats


@lru_cache(maxsize=8)
def recordings(task: str, action_repeat: int, split: Split) -> tuple[Recording, ...]:
    """Episodes of a split's instances as vectors: a pure function of arguments and simulator.

    Args:
        task: As for `make_env`.
        action_repeat: Simulator steps per action.
        split: "train" or "eval"; they share no policy.
    """
    from revbis.envs import make_env  # which imports this file

    env = make_env(task, seed=0, action_repeat=action_repeat, observation="state")
    try:
        return tuple(_record(env, variant, split, MOST_STEPS) for variant in INSTANCES[split])
    finally:
        env.close()


@lru_cache(maxsize=32)  # all of them, of one environment and its evaluation
def filmed(
    task: str, action_repeat: int, split: Split, number: int, size: int, quality: Quality
) -> Recording:
    """The start of an episode of one of a split's instances as pictures, drawn when it is needed.

    Args:
        task: As for `make_env`.
        action_repeat: Simulator steps per action.
        split: "train" or "eval"; they share no policy.
        number: Which one of the split's.
        size: Side of the pictures.
        quality: Of the pictures.
    """
    from revbis.envs import make_env

    look: dict[str, Any] = {"pixels": size, "frame_stack": 1, "quality": quality}
    env = make_env(task, seed=0, action_repeat=action_repeat, **look)
    try:
        return _record(env, INSTANCES[split][number], split, MOST_PICTURES)
    finally:
        env.close()


def smooth_actions(variant: int, split: Split, count: int, size: int) -> Floats:
    """Actions of a variant's policy in [−1, 1], [count, size]: a pure function of its arguments."""
    (short, long), (small, large) = POLICIES[split]
    rng = seeded_generator(_POLICY_V1, variant)
    steps, deviation = short + (long - short) * rng.random(), small + (large - small) * rng.random()
    kept = np.exp(-1.0 / steps)
    fresh = normals(rng, (count, size))
    actions = np.empty((count, size))
    actions[0] = fresh[0]
    for t in range(1, count):
        actions[t] = kept * actions[t - 1] + np.sqrt(1.0 - kept * kept) * fresh[t]
    clipped: Floats = np.clip(deviation * actions, -1.0, 1.0)
    return clipped


def _record(env: TaskEnv, variant: int, split: Split, most: int) -> Recording:
    actions = smooth_actions(variant, split, most, env.action_space.shape[0])
    view, info = env.reset(seed=_SEED + variant)
    views, states = [view], [info["state"]]
    for action in actions.astype(np.float32):
        view, _, terminated, truncated, info = env.step(action)
        if terminated or truncated or len(views) == most:
            break
        views.append(view)
        states.append(info["state"])
    recorded = Recording(np.stack(views), np.asarray(states, dtype=np.float64))
    for each in recorded:
        each.flags.writeable = False
    return recorded
