"""What is wrong with an environment, in words."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env

from revbis.envs.gymnasium import action_problem, image_problem, is_discrete, is_image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_STEPS = 2000
_EPISODES = 5
_LARGE_REWARD = 100.0
_DISCRETE = "actions are discrete, which only one agent has: train with --method mrq"


@dataclass(frozen=True)
class Violation:
    """Something to fix, or to be aware of.

    Attributes:
        kind: "wrong" prevents or corrupts training; "advice" may be intended.
        text: What it is and what to do.
    """

    kind: Literal["wrong", "advice"]
    text: str


@dataclass
class _Episode:
    observations: list[Any]
    rewards: list[Any]
    ends: list[tuple[Any, Any]]
    shares_memory: bool


def check_environment(env: Env[Any, Any]) -> list[Violation]:
    """Plays an environment for some episodes and returns what would disturb training.

    Args:
        env: A Gymnasium environment, as its author made it.

    Raises:
        ValueError: If it is not a `gymnasium.Env`.
    """
    if not isinstance(env, Env):
        raise ValueError(f"env must be a gymnasium.Env, got {type(env).__name__}")
    problem = action_problem(env.action_space)
    if problem is not None:
        return [Violation("wrong", problem)]  # without actions nothing else can be checked
    violations: list[Violation] = []
    if is_discrete(env.action_space):
        violations.append(Violation("advice", _DISCRETE))
    try:
        start: Any = env.reset(seed=0)
        if not (isinstance(start, tuple) and len(start) == 2 and isinstance(start[1], dict)):
            text = f"reset() must return (observation, info), got {type(start).__name__}"
            return [Violation("wrong", text)]
        violations += _images(env)
        episodes = [_play(env, seed, seed) for seed in range(_EPISODES)]
        violations += _seeds(env, episodes)
    except Exception as error:  # noqa: BLE001 (a user's environment may raise anything)
        return [
            *violations,
            Violation("wrong", f"playing it raised {type(error).__name__}: {error}"),
        ]
    violations += _values(env, episodes)
    violations += _endings(episodes)
    violations += _gymnasium(env)
    return violations


def has_images(env: Env[Any, Any]) -> bool:
    """Whether one can train from pixels: of the observations, or rendered."""
    return is_image(env.observation_space) or env.render_mode == "rgb_array"


def _images(env: Env[Any, Any]) -> Iterator[Violation]:
    space = env.observation_space
    if is_image(space):
        return
    if not has_images(env):
        yield Violation(
            "advice" if isinstance(space, Box) and len(space.shape) == 1 else "wrong",
            f"observations ({space}) are not uint8 images and render_mode is "
            f"{env.render_mode!r}, so training from pixels is not possible; make it with "
            'render_mode="rgb_array", or train with --observation state',
        )
        return
    env.reset(seed=0)
    first: Any = env.render()
    problem = image_problem(first)
    if problem is not None:
        yield Violation("wrong", problem)
    elif first.min() == first.max():
        yield Violation("wrong", f"render() returns one plain colour ({first.max()})")


def _play(env: Env[Any, Any], seed: int, action_seed: int, steps: int = _STEPS) -> _Episode:
    env.action_space.seed(action_seed)
    observation, _ = env.reset(seed=seed)
    episode = _Episode([deepcopy(observation)], [], [], False)
    previous = observation
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        pairs = zip(_leaves(previous), _leaves(observation), strict=False)
        episode.shares_memory |= any(np.shares_memory(a, b) for a, b in pairs)
        previous = observation
        episode.observations.append(deepcopy(observation))
        episode.rewards.append(reward)
        episode.ends.append((terminated, truncated))
        if terminated or truncated:
            break
    return episode


def _seeds(env: Env[Any, Any], episodes: list[_Episode]) -> Iterator[Violation]:
    again = _play(env, 0, 0, steps=50)
    length = min(len(again.observations), len(episodes[0].observations))
    if not _same(again.observations[:length], episodes[0].observations[:length]):
        yield Violation(
            "wrong",
            "the same seed and actions gave a different episode; sample every random number "
            "from self.np_random, after super().reset(seed=seed)",
        )
    if all(_same(e.observations[:1], episodes[0].observations[:1]) for e in episodes[1:]):
        yield Violation("advice", "every seed starts with the same observation; is that intended?")
    other = _play(env, 0, 1, steps=50)
    length = min(len(again.observations), len(other.observations))
    if length > 1 and _same(again.observations[:length], other.observations[:length]):
        yield Violation(
            "wrong", "different actions gave the same observations: actions have no effect"
        )


def _values(env: Env[Any, Any], episodes: list[_Episode]) -> Iterator[Violation]:
    space = env.observation_space
    seen = [observation for episode in episodes for observation in episode.observations]
    outside = next((o for o in seen if not space.contains(o)), None)
    if outside is not None:
        parts = [f"{o.dtype} {o.shape}, from {o.min()} to {o.max()}" for o in _leaves(outside)]
        yield Violation(
            "wrong", f"an observation ({'; '.join(parts)}) is not in the observation space {space}"
        )
    if any(episode.shares_memory for episode in episodes):
        yield Violation(
            "wrong",
            "an observation's array is reused for the next one, so stored observations change "
            "later; return a copy",
        )
    rewards = [reward for episode in episodes for reward in episode.rewards]
    malformed = next((r for r in rewards if np.ndim(r) != 0 or isinstance(r, str)), None)
    if malformed is not None:
        yield Violation("wrong", f"a reward must be a single number, got {malformed!r}")
        return
    values: NDArray[np.float64] = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(values).all():
        yield Violation("wrong", "a reward was NaN or infinite")
    elif np.abs(values).max() > _LARGE_REWARD:
        yield Violation(
            "advice",
            f"rewards reach {np.abs(values).max():g}; learning works best below about 10 per "
            "step: scale them",
        )
    elif not values.any():
        yield Violation(
            "advice", "a random policy never receives a reward; learning may never start"
        )


def _endings(episodes: list[_Episode]) -> Iterator[Violation]:
    for episode in episodes:
        flags = [flag for pair in episode.ends for flag in pair]
        wrong = [flag for flag in flags if not isinstance(flag, (bool, np.bool_))]
        if wrong:
            yield Violation(
                "wrong", f"terminated and truncated must be True or False, got {wrong[0]!r}"
            )
            return
    last = [episode.ends[-1] for episode in episodes]
    lengths = [len(episode.ends) for episode in episodes]
    if any(not (terminated or truncated) for terminated, truncated in last):
        yield Violation(
            "advice",
            f"an episode did not end within {_STEPS} steps; without a time limit its return is "
            "never known: wrap it in gymnasium.wrappers.TimeLimit",
        )
    elif len(set(lengths)) == 1 and all(terminated for terminated, _ in last) and lengths[0] > 1:
        yield Violation(
            "advice",
            f"every episode terminates after exactly {lengths[0]} steps; if that is a time limit, "
            "return truncated instead, or values are learned as if nothing followed",
        )


def _gymnasium(env: Env[Any, Any]) -> Iterator[Violation]:
    """What Gymnasium's own checker complains about."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Its check of close() makes another one by its registry; a run calls the factory.
            check_env(env, skip_render_check=True, skip_close_check=True)
    except Exception as error:  # noqa: BLE001 (it raises whatever it meets)
        text = " ".join(str(error).split()) or type(error).__name__
        yield Violation("wrong", f"Gymnasium's check_env: {text}")


def _same(first: list[Any], second: list[Any]) -> bool:
    return all(
        len(_leaves(a)) == len(_leaves(b)) and all(map(np.array_equal, _leaves(a), _leaves(b)))
        for a, b in zip(first, second, strict=True)
    )


def _leaves(observation: object) -> list[NDArray[Any]]:
    """The arrays of an observation, which may be a dictionary or a tuple of observations."""
    if isinstance(observation, dict):
        return [leaf for name in sorted(observation) for leaf in _leaves(observation[name])]
    if isinstance(observation, tuple):
        return [leaf for part in observation for leaf in _leaves(part)]
    return [np.asarray(observation)]
