"""Irrelevant numbers in a state vector, mixed into it by a fixed rotation.

An observation is Q · (state, numbers). Q is orthogonal and part of the task: the same for every
seed, method, kind of noise and split. The numbers are of one or several kinds:

- gaussian: offset + scale · ξ, drawn anew for every observation: nothing can predict them.
- walk: the same with an Ornstein-Uhlenbeck process ξ, which drifts.
- instance: vectors of other instances of the task, which move by policies of their own:
  predictable, but not controllable.
- shadow: oscillators that the agent's own actions drive: controllable.

ξ has mean 0 and deviation 1. Offset and scale belong to a variant: 60 are for training and 30
others, of disjoint ranges, for evaluation. The names carry a version, as those of `distractors` do:
its numbers never change.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from revbis.envs.distractors import VARIANTS, Split, normals, seeded_generator
from revbis.envs.instances import INSTANCES, recordings
from revbis.io import schema

Kind = Literal["gaussian", "walk", "instance", "shadow"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Floats = NDArray[np.float64]

CORRELATION_STEPS = 20.0  # agent steps in which a walk's correlation falls to 1/e

# Entropy of the generators; those of `distractors` have other numbers.
_VARIANTS_V1, _PROJECTION_V1, _EPISODES_V1, _SHADOW_V1 = 3, 4, 1001, 7


class Ranges(NamedTuple):
    """Where the variants of a split are.

    Attributes:
        scale: Of an episode's scale, one for all numbers.
        offset: Of the absolute offset of each number, whose sign is random.
    """

    scale: tuple[float, float]
    offset: tuple[float, float]


RANGES: dict[str, Ranges] = {
    "train": Ranges(scale=(0.8, 1.2), offset=(0.0, 0.5)),
    "eval": Ranges(scale=(1.4, 1.8), offset=(0.5, 1.0)),
}


class StateNoise:
    """The irrelevant numbers and the rotation of one environment.

    A seed and the agent's actions determine the variant of an episode and every number in it.

    Args:
        count: How many numbers are added of each kind.
        kind: A kind, or several joined by +, such as "instance+shadow".
        features: Length of the state vector.
        task: Name of the task, which determines the rotation together with the lengths.
        split: "train" or "eval"; they share no variant.
        action_repeat: Simulator steps per action, for other instances of the task.
        gate: How many of the features are a gate's, which other instances do not have.

    Attributes:
        count: How many numbers are added in all.
        identity: Kind, version, count and split.

    Raises:
        ValueError: For an unknown kind, or a count that is not one of whole instances.
    """

    def __init__(
        self,
        count: int,
        kind: str,
        features: int,
        *,
        task: str,
        split: Split = "train",
        action_repeat: int = 1,
        gate: int = 0,
    ) -> None:
        kinds = parse_kinds(kind)
        self.count, self.features = count * len(kinds), features
        self.identity = f"{kind}-v1({count})/{split}"
        self._parts: dict[Kind, _Fresh | _Instances | _Shadow] = {}
        for each in kinds:
            if each == "instance":
                own = features - gate
                _check_whole(count, own, task)
                self._parts[each] = _Instances(count // own, task, split, action_repeat)
            elif each == "shadow":
                self._parts[each] = _Shadow(count, task, split)
            else:
                self._parts[each] = _Fresh(count, split, drifts=each == "walk")
        self._projection = projection(task, features, self.count)
        self._started = False

    @property
    def variant(self) -> int:
        """The variant of this episode, for the first kind; -1 before the first reset."""
        return next(iter(self._parts.values())).variant

    def reset(self, seed: int | None) -> None:
        """Chooses an episode's variant; a seed restarts the sequence of episodes."""
        for index, part in enumerate(self._parts.values()):
            if seed is not None:
                part.rng = seeded_generator(_EPISODES_V1, seed, *([index] if index else []))
            elif not self._started:
                part.rng = np.random.default_rng()
            part.reset()
        self._started = True

    def drive(self, action: NDArray[np.floating]) -> None:
        """Moves what the agent's actions drive, by an action in [−1, 1] before its observation."""
        for part in self._parts.values():
            if isinstance(part, _Shadow):
                part.drive(np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0))

    def observe(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """The observation of a state, [features + count]; time advances by an agent step."""
        if features.shape != (self.features,):
            raise ValueError(f"features must have shape ({self.features},), got {features.shape}")
        if not self._started:
            raise ValueError("observe needs an episode, and none has started: call reset(seed)")
        # float64: a last bit that differs between machines practically never reaches a float32.
        together = np.concatenate([features, *self.numbers().values()], dtype=np.float64)
        return (self._projection @ together).astype(np.float32)

    def numbers(self) -> dict[Kind, Floats]:
        """The numbers of each kind alone, [count] each; time advances as by `observe`."""
        return {kind: part.numbers() for kind, part in self._parts.items()}

    def skip(self, steps: int) -> None:
        """Advances time as so many observations would."""
        assert self._started, "reset starts an episode"
        for _ in range(steps):
            for part in self._parts.values():
                part.advance()


def parse_kinds(kind: str) -> tuple[Kind, ...]:
    """The kinds of a name such as "instance+shadow".

    Raises:
        ValueError: If one is unknown, or named twice.
    """
    names = kind.split("+")
    for name in names:
        if name not in KINDS:
            raise ValueError(
                f"state_noise_kind must be some of {', '.join(KINDS)}, joined by +, got {kind!r}"
                f"{schema.nearest(name, KINDS)}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"state_noise_kind names a kind twice: {kind!r}")
    return tuple(name for each in names for name in KINDS if name == each)


def _check_whole(count: int, features: int, task: str) -> None:
    if count % features:
        near = count - count % features
        some = f"{near} or {near + features}" if near else f"{features}"
        raise ValueError(
            f"state_noise_kind instance adds whole instances: state_noise must be a multiple of "
            f"the {features} numbers of {task}, such as {some}, got {count}"
        )


class _Fresh:
    """Gaussian numbers that nothing controls, new for every observation or drifting."""

    def __init__(self, count: int, split: Split, *, drifts: bool) -> None:
        self.count, self.variant, self._drifts = count, -1, drifts
        self.rng = np.random.default_rng(0)  # until the first reset
        self._pool = VARIANTS[split]
        self._offset, self._scale = np.zeros(count), 1.0
        self._walk: Floats | None = None

    def reset(self) -> None:
        self.variant = self._pool[int(len(self._pool) * self.rng.random())]
        self._offset, self._scale = offset_and_scale(self.variant, self.count)
        self._walk = None

    def numbers(self) -> Floats:
        return np.asarray(self._offset + self._scale * self.advance())

    def advance(self) -> Floats:
        """ξ of the next observation."""
        fresh = normals(self.rng, (self.count,))
        if not self._drifts:
            return fresh
        if self._walk is None:
            self._walk = fresh
        else:  # the exact transition of the process, so its deviation stays 1
            kept = np.exp(-1.0 / CORRELATION_STEPS)
            self._walk = kept * self._walk + np.sqrt(1.0 - kept * kept) * fresh
        return self._walk


class _Instances:
    """Vectors of other instances; one that has ended begins again."""

    def __init__(self, instances: int, task: str, split: Split, action_repeat: int) -> None:
        self.variant, self._instances = -1, instances
        self.rng = np.random.default_rng(0)
        self._recorded: tuple[str, int, Split] = (task, action_repeat, split)
        self._shown: list[Floats] = []
        self._time: list[int] = []

    def reset(self) -> None:
        recorded = recordings(*self._recorded)
        chosen = [int(len(recorded) * self.rng.random()) for _ in range(self._instances)]
        self.variant = INSTANCES[self._recorded[2]][chosen[0]]
        self._shown = [recorded[each].views for each in chosen]
        self._time = [int(len(each) * self.rng.random()) for each in self._shown]

    def numbers(self) -> Floats:
        pairs = zip(self._shown, self._time, strict=True)
        found = np.concatenate([views[t % len(views)] for views, t in pairs], dtype=np.float64)
        self.advance()
        return found

    def advance(self) -> None:
        self._time = [t + 1 for t in self._time]


class _Shadow:
    """Damped oscillators, driven by the agent's actions through a fixed matrix, and by a wind.

    Each is a complex number z ← λz + b(w·a + wind), of which real and imaginary part are seen. λ, w
    and b are part of the task. b is such that actions drawn uniformly give numbers of deviation 1;
    steady pushes give up to about 5. The wind and the start belong to the episode.
    """

    def __init__(self, count: int, task: str, split: Split) -> None:
        self.count, self.variant, self._task = count, -1, task
        self.rng = np.random.default_rng(0)
        self._winds, self._pool = WINDS[split], VARIANTS[split]
        self._z = np.zeros(-(-count // 2), dtype=np.complex128)
        self._wind = np.zeros(len(self._z))

    def reset(self) -> None:
        self.variant = self._pool[int(len(self._pool) * self.rng.random())]
        weak, strong = self._winds
        size, side = seeded_generator(_SHADOW_V1, self.variant).random((2, len(self._z)))
        self._wind = np.where(side < 0.5, -1.0, 1.0) * (weak + (strong - weak) * size)
        start = normals(self.rng, (2, len(self._z)))
        self._z = start[0] + 1j * start[1]

    def drive(self, action: Floats) -> None:
        rotation, gain, weights = oscillators(self._task, len(self._z), len(action))
        self._z = rotation * self._z + gain * (weights @ action + self._wind)

    def numbers(self) -> Floats:
        return np.concatenate([self._z.real, self._z.imag])[: self.count]

    def advance(self) -> None:
        """Actions alone move it."""


# Size of the constant push on each oscillator of a shadow, whose sign is random.
WINDS: dict[str, tuple[float, float]] = {"train": (0.0, 0.2), "eval": (0.2, 0.4)}


@lru_cache(maxsize=4)
def oscillators(
    task: str, count: int, actions: int
) -> tuple[NDArray[np.complex128], Floats, Floats]:
    """λ, [count], b, [count], and w, [count, actions], of a task's shadow.

    Amplitudes fall to 1/e in 10 to 40 agent steps, and periods are 10 to 60.
    """
    rng = seeded_generator(_SHADOW_V1, _number(task), count, actions)
    decay, turn = rng.random((2, count))
    rotation = np.exp(-1.0 / (10.0 + 30.0 * decay) + 2j * np.pi / (10.0 + 50.0 * turn))
    weights = normals(rng, (count, actions))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    # Uniform actions have a variance of 1/3; half of |z|² is in either part.
    gain = np.sqrt(6.0 * (1.0 - np.abs(rotation) ** 2))
    return rotation, gain, weights


def offset_and_scale(variant: int, count: int) -> tuple[Floats, float]:
    """The offset, [count], and the scale of a variant: a pure function of its arguments."""
    split = "train" if variant in VARIANTS["train"] else "eval"
    (small, large), (near, far) = RANGES[split]
    rng = seeded_generator(_VARIANTS_V1, variant)
    scale = small + (large - small) * rng.random()
    size, side = rng.random((2, count))
    return np.where(side < 0.5, -1.0, 1.0) * (near + (far - near) * size), scale


@lru_cache(maxsize=1)  # the training and evaluation environments of a run share theirs
def projection(task: str, features: int, count: int) -> Floats:
    """The orthogonal matrix of a task, [features + count, features + count], read-only.

    It is drawn uniformly (by the Haar measure) from a generator that only the arguments seed.
    """
    rng = seeded_generator(_PROJECTION_V1, _number(task), features, count)
    basis, triangle = np.linalg.qr(normals(rng, (features + count, features + count)))
    # LAPACK chooses the signs of the columns; with R's diagonal positive Q is unique, and uniform.
    matrix: Floats = basis * np.where(np.diag(triangle) < 0, -1.0, 1.0)
    matrix.flags.writeable = False
    return matrix


def _number(task: str) -> int:
    return int.from_bytes(sha256(task.encode()).digest()[:8], "big")
