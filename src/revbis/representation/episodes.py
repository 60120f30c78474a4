"""Episodes without their disturbance, which can then be drawn again: backgrounds, pixels, vectors.

An environment draws a clean frame, then adds the disturbance. Here the two are apart: episodes are
played in an environment without a disturbance, and the agent sees what the disturbance makes of it,
the same to the last bit as in the environment that has it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from revbis.envs import make_background, make_env, make_state_noise
from revbis.envs.distractors import GAUSSIAN, INSTANCE, PixelNoise, Split
from revbis.envs.instances import filmed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from revbis.agents import Agent
    from revbis.envs.distractors import Distractor
    from revbis.envs.environment import TaskEnv
    from revbis.envs.instances import Recording
    from revbis.envs.state_noise import StateNoise

_CLEAN = {"distractor": None, "distractor_strength": None, "state_noise": 0}


class NotReproducibleError(ValueError):
    """A task gets elsewhere by the same seed and actions: no moment can be played from again."""


class Disturbance:
    """What an environment adds to clean observations; nothing, if it has no distractor or noise.

    Args:
        environment: The arguments of `make_env`.
        features: Length of the state vector; 0 for pixels.
        split: Which variants: of training or of evaluation.
    """

    def __init__(self, environment: Mapping[str, Any], features: int, split: Split) -> None:
        self._background: Distractor | None = None
        self._pixels: PixelNoise | None = None
        self._vector: StateNoise | None = None
        self._filmed: Callable[[int], Recording] | None = None
        spec, size = environment["distractor"], environment["pixels"]
        if spec == GAUSSIAN:
            self._pixels = PixelNoise(environment["distractor_strength"], size, split=split)
        elif spec is not None:
            self._background = make_background(environment, split)
            if spec == INSTANCE:
                task, repeat = environment["task"], environment["action_repeat"]
                look = (size, environment["quality"])
                self._filmed = lambda number: filmed(task, repeat, split, number, *look)
        if environment["state_noise"]:
            self._vector = make_state_noise(environment, features, split)

    @property
    def needs_mask(self) -> bool:
        """Whether it is a background, which needs to know where it is visible."""
        return self._background is not None

    def reset(self, seed: int) -> None:
        """Starts an episode with this seed."""
        for each in (self._background, self._pixels, self._vector):
            if each is not None:
                each.reset(seed)

    def drive(self, actions: NDArray[np.float32]) -> None:
        """Moves what the agent's actions drive, [n, A], before the frame after them."""
        if self._vector is not None:
            for action in actions:
                self._vector.drive(action)

    def apply(self, clean: NDArray[Any], background_mask: NDArray[np.bool_] | None) -> NDArray[Any]:
        """What is seen of a clean frame or vector, as a new array; time advances by one frame.

        Args:
            clean: [3, pixels, pixels], or [features].
            background_mask: [pixels, pixels], the pixels that show the background, if needed.
        """
        if self._vector is not None:
            return self._vector.observe(clean)
        seen = clean.copy()
        if self._background is not None and background_mask is not None:
            self._background.paint(seen, background_mask)
        if self._pixels is not None:
            self._pixels.add(seen)
        return seen

    def factors(self) -> dict[str, NDArray[np.float64]]:
        """The numbers behind the next frame by kind, where there are any; time advances by one."""
        if self._vector is not None:
            return {str(kind): each for kind, each in self._vector.numbers().items()}
        found = {}
        if self._background is not None and self._filmed is not None:
            states = self._filmed(self._background.variant).states
            found["instance"] = states[self._background.frame % len(states)]
        self.skip(1)
        return found

    def skip(self, frames: int) -> None:
        """Advances time by so many frames that nobody looks at."""
        for each in (self._background, self._pixels, self._vector):
            if each is not None:
                each.skip(frames)


@dataclass(frozen=True)
class CleanEpisode:
    """An episode as it was before the disturbance, a row for each action.

    Attributes:
        seed: Of the episode and of its disturbance.
        frames: [T, 3, pixels, pixels], or [T, features].
        masks: Where a background is visible, [T, pixels, pixels]; None if there is none.
        states: The simulator's state vectors, [T, S].
        actions: The agent's, [T, A].
        rewards: Of the actions, [T].
        terminated: Whether it ended by itself, not by a time limit.
    """

    seed: int
    frames: NDArray[Any]
    masks: NDArray[np.bool_] | None
    states: NDArray[np.float64]
    actions: NDArray[np.float32]
    rewards: NDArray[np.float64]
    terminated: bool

    def __len__(self) -> int:
        """The number of actions."""
        return len(self.rewards)


def collect_episodes(
    environment: Mapping[str, Any],
    agent: Agent,
    seeds: Iterable[int],
    played: Callable[[], None] = lambda: None,
    between: Callable[[], None] = lambda: None,
) -> list[CleanEpisode]:
    """Plays an episode for each seed with the mean action, on the evaluation variants.

    Args:
        environment: The arguments of `make_env`.
        agent: The agent.
        seeds: Seeds of the episodes.
        played: Called after each episode.
        between: Called after each step; it may raise.
    """
    env, disturbance, stack = _stage(environment)
    episodes = []
    try:
        for seed in seeds:
            episodes.append(_play(env, disturbance, agent, seed, stack, between))
            played()
    finally:
        env.close()
    return episodes


def observations(
    episode: CleanEpisode,
    moments: NDArray[np.int64],
    disturbance: Disturbance,
    seed: int,
    stack: int,
) -> NDArray[Any]:
    """What an agent would have seen at some moments with the disturbance drawn from this seed.

    With the episode's own seed it is what the agent has seen. A moment's noise does not depend on
    which others are asked for: noise that moves with time has moved on between them.

    Args:
        episode: The episode.
        moments: Rows of it, ascending, [M].
        disturbance: Draws the noise of every frame of the stacks.
        seed: Seed of that noise.
        stack: Frames in an observation; before the first one, that one is repeated.

    Returns:
        [M, 3 · stack, pixels, pixels], or [M, D].
    """
    stacks = np.maximum(moments[:, None] + np.arange(1 - stack, 1), 0)
    needed, places = np.unique(stacks, return_inverse=True)
    disturbance.reset(seed)
    drawn, masks, now, driven = [], episode.masks, 0, 0
    for row in needed.tolist():
        disturbance.skip(row - now)
        disturbance.drive(episode.actions[driven:row])
        drawn.append(disturbance.apply(episode.frames[row], None if masks is None else masks[row]))
        now, driven = row + 1, row
    views = np.stack(drawn)[places.reshape(stacks.shape)]
    return views.reshape(len(moments), -1, *views.shape[3:])


def irrelevant_factors(
    episode: CleanEpisode, disturbance: Disturbance
) -> dict[str, NDArray[np.float64]]:
    """The numbers behind what the disturbance showed in an episode, by kind, [T, n] each."""
    disturbance.reset(episode.seed)
    rows = []
    for row in range(len(episode)):
        disturbance.drive(episode.actions[max(row - 1, 0) : row])
        rows.append(disturbance.factors())
    return {name: np.stack([each[name] for each in rows]) for name in rows[0]}


def play_on(
    environment: Mapping[str, Any],
    agent: Agent,
    moments: Sequence[tuple[CleanEpisode, int]],
    steps: int,
    count: int,
    seed: int,
    played: Callable[[], None] = lambda: None,
) -> list[list[tuple[NDArray[np.float64], bool]]]:
    """Plays from moments of episodes again, with the mean action and the disturbance drawn anew.

    The simulator gets to a moment by the episode's seed and actions; then its random numbers are
    others, too, if it has any. An agent with a memory starts without it.

    Args:
        environment: The arguments of `make_env`.
        agent: The agent that played the episodes.
        moments: Episodes of the agent, and a row of each.
        steps: Actions from there on, if the episode does not end before.
        count: How often each is played.
        seed: Draws the disturbances.
        played: Called after each moment.

    Returns:
        For each moment, and each time, the rewards, and whether the episode ended by itself.

    Raises:
        NotReproducibleError: If the simulator gets elsewhere by the same actions.
    """
    env, disturbance, stack = _stage(environment)
    generator = np.random.default_rng(seed)
    try:
        found = []
        for episode, row in moments:
            fresh = (int(generator.integers(2**32)) for _ in range(count))
            start = (env, disturbance, agent, episode, row)
            found.append([_play_on(*start, steps=steps, seed=each, stack=stack) for each in fresh])
            played()
    finally:
        env.close()
    return found


def feature_count(episode: CleanEpisode) -> int:
    """Length of the state vector; 0 for pixels."""
    return episode.frames.shape[1] if episode.frames.ndim == 2 else 0


def _stage(environment: Mapping[str, Any]) -> tuple[TaskEnv, Disturbance, int]:
    """The environment without its disturbance, that of evaluation, and frames of an observation."""
    env = make_env(**{**environment, **_CLEAN}, seed=0, distractor_split="eval")
    features = 0 if env.render_mode else int(env.observation_space.shape[0])
    stack = environment["frame_stack"] if environment["observation"] == "pixels" else 1
    return env, Disturbance(environment, features, "eval"), stack


def _play_on(
    env: TaskEnv,
    disturbance: Disturbance,
    agent: Agent,
    episode: CleanEpisode,
    row: int,
    *,
    steps: int,
    seed: int,
    stack: int,
) -> tuple[NDArray[np.float64], bool]:
    """Rewards after a row of an episode, and whether it ended by itself."""
    clean, info = env.reset(seed=episode.seed)
    for action in episode.actions[:row]:
        clean, *_, info = env.step(action)
    if not np.array_equal(info.get("frame", clean), episode.frames[row]):
        raise NotReproducibleError(
            f"{env.identity['task']} does not come to the same state again by the same seed and "
            "actions"
        )
    if (reseed := getattr(env.simulation, "reseed", None)) is not None:
        reseed(seed)
    seen = observations(episode, np.array([row]), disturbance, seed, stack)[0]
    recent = deque(np.split(seen, stack), maxlen=stack)
    agent.begin_episode()
    rewards: list[float] = []
    over = terminated = False
    while not over and len(rewards) < steps:
        action = agent.act(np.concatenate(recent), 0, explore=False)
        clean, reward, terminated, truncated, info = env.step(action)
        disturbance.drive(action[None])
        mask = env.simulation.background_mask() if disturbance.needs_mask else None
        recent.append(disturbance.apply(np.array(info.get("frame", clean)), mask))
        rewards.append(reward)
        over = terminated or truncated
    return np.asarray(rewards), terminated


def _play(
    env: Any,
    disturbance: Disturbance,
    agent: Agent,
    seed: int,
    stack: int,
    between: Callable[[], None],
) -> CleanEpisode:
    clean, info = env.reset(seed=seed)
    disturbance.reset(seed)
    agent.begin_episode()
    frames, masks, states, actions, rewards = [], [], [], [], []
    recent: deque[NDArray[Any]] = deque(maxlen=stack)
    over = terminated = False
    while not over:
        frames.append(np.array(info.get("frame", clean)))
        masks += [env.simulation.background_mask()] if disturbance.needs_mask else []
        states.append(np.array(info["state"], dtype=np.float64))
        seen = disturbance.apply(frames[-1], masks[-1] if masks else None)
        recent.extend([seen] * (1 if recent else stack))
        actions.append(agent.act(np.concatenate(recent), 0, explore=False))
        clean, reward, terminated, truncated, info = env.step(actions[-1])
        disturbance.drive(actions[-1][None])
        rewards.append(reward)
        over = terminated or truncated
        between()
    return CleanEpisode(
        seed=seed,
        frames=np.stack(frames),
        masks=np.stack(masks) if masks else None,
        states=np.stack(states),
        actions=np.stack(actions),
        rewards=np.asarray(rewards, dtype=np.float64),
        terminated=terminated,
    )
