"""Small environments, good ones and broken ones, and what tests share."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

ROOT = Path(__file__).parents[2]


def run_python(
    code: str, *arguments: str, timeout: float = 400, **variables: str | None
) -> subprocess.CompletedProcess[str]:
    """Runs a script in a new interpreter; variables change its environment, None removes one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Good(gymnasium.Env[Any, Any]):
    """A point that is pushed about: a vector to observe, a picture to render."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    render_mode = "rgb_array"
    horizon = 20

    def __init__(self) -> None:
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = Box(-3.0, 3.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-1, 1, 2), 0
        return self.observed(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.place = np.clip(self.place + 0.1 * np.asarray(action), -3, 3)
        self.time += 1
        over = self.time >= self.horizon
        return self.observed(), -float(np.abs(self.place).sum()), False, over, {}

    def observed(self) -> Any:
        return self.place.astype(np.float32)

    def render(self) -> Any:
        picture = np.zeros((24, 32, 3), dtype=np.uint8)
        row, column = ((self.place + 3) / 6 * (23, 31)).astype(int)
        picture[row, column] = (250, 100, 50)
        return picture


class DiscreteActions(Good):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Discrete(3, start=5)
        self.chosen: list[Any] = []

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.chosen.append(int(action))
        return super().step(np.eye(3, 2, dtype=np.float32)[int(action) - 5])


class OneChoice(Good):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Discrete(1)


class GridOfActions(Good):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(-1.0, 1.0, (2, 2), np.float32)


class InfiniteBounds(Good):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(-np.inf, np.inf, (2,), np.float32)


class OneActionOnly(Good):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(np.float32([-1, 0]), np.float32([1, 0]))


class WholeActions(Good):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(0, 5, (2,), np.int64)


class Unseeded(Good):
    """Each start of this process is another one, whatever the seed."""

    resets = itertools.count(1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = np.array([-1.0, 1 / next(self.resets)])
        return self.observed(), {}


class UnseededSteps(Good):
    """Each step of this process is another one, whatever the seed."""

    steps = itertools.count(1)

    def step(self, action: Any) -> Any:
        return super().step(action + np.array([0.0, 1 / next(self.steps)]))


class ReusedBuffer(Good):
    def observed(self) -> Any:
        if not hasattr(self, "kept"):
            self.kept = np.zeros(2, dtype=np.float32)
        self.kept[:] = self.place
        return self.kept


class WithReward(Good):
    """The reward at step 3 is something else."""

    reward: Any = None

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, self.reward if self.time == 3 else reward, *rest


class NanReward(WithReward):
    reward = float("nan")


class LargeReward(WithReward):
    reward = 1e6


class ArrayReward(WithReward):
    reward = np.zeros(1)


class WordReward(WithReward):
    reward = "much"


class NoReward(Good):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, 0.0, *rest


class TerminatesAtTheLimit(Good):
    def step(self, action: Any) -> Any:
        observation, reward, _, over, info = super().step(action)
        return observation, reward, over, False, info


class TerminatesAtTheGoal(Good):
    """Episodes of different lengths that terminate."""

    def step(self, action: Any) -> Any:
        observation, reward, _, over, info = super().step(action)
        return observation, reward, bool(self.place[0] > 0.4), over, info


class Endless(Good):
    horizon = 10**9


class FlagsOfNumbers(Good):
    def step(self, action: Any) -> Any:
        observation, reward, _, over, info = super().step(action)
        return observation, reward, 0, int(over), info


class OutsideItsSpace(Good):
    def observed(self) -> Any:
        return super().observed() + np.float32(10)


class OtherType(Good):
    def observed(self) -> Any:
        return self.place.copy()


class RendersNothing(Good):
    def render(self) -> Any:
        return None


class RendersOneColour(Good):
    def render(self) -> Any:
        return np.full((24, 32, 3), 7, dtype=np.uint8)


class RendersNumbers(Good):
    def render(self) -> Any:
        return super().render() / 255.0


class RendersFourChannels(Good):
    def render(self) -> Any:
        return np.concatenate([super().render(), super().render()[..., :1]], axis=-1)


class RenderRaises(Good):
    def render(self) -> Any:
        raise RuntimeError("no brush")


class NoPicture(Good):
    render_mode = None


class NoEffect(Good):
    def step(self, action: Any) -> Any:
        return super().step(np.zeros(2))


class SameStart(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = np.zeros(2)
        return self.observed(), {}


class StepRaises(Good):
    def step(self, action: Any) -> Any:
        if self.time == 5:
            raise RuntimeError("the motor is broken")
        return super().step(action)


class StepRaisesLate(Good):
    """Holds for the five episodes that are played first."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps > 5 * self.horizon:
            raise RuntimeError("the motor is worn out")
        return super().step(action)


class ResetRaises(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise RuntimeError("no place to begin")


class FourAnswers(Good):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class NoInfo(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class DictOfObservations(Good):
    """Fit for training from its rendered pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Dict(place=Box(-3.0, 3.0, (2,), np.float32))

    def observed(self) -> Any:
        return {"place": super().observed()}


class Clock(gymnasium.Env[Any, Any]):
    """Shows its time as the grey of its picture; rewards 1, 2, 4, 8, …; ends after `horizon`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    horizon, terminates = 7, False
    successes: tuple[int, ...] | None = None
    key = "success"

    def __init__(self) -> None:
        self.action_space = Box(np.float32([-2, 0]), np.float32([2, 10]))
        self.observation_space = Box(0, 255, (8, 8, 3), np.uint8)
        self.episode = -1
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.time < self.horizon, "stepped after its end"
        assert self.action_space.contains(action), action
        self.taken.append(action)
        self.time += 1
        over = self.time == self.horizon
        info = {} if self.successes is None else {self.key: self.time in self.successes}
        ends = (over, False) if self.terminates else (False, over)
        return self.picture(), 2.0 ** (self.time - 1), *ends, info

    def grey(self) -> int:
        return (20 * self.episode + self.time) % 256

    def picture(self) -> Any:
        return np.full((8, 8, 3), self.grey(), dtype=np.uint8)


class Ending(Clock):
    terminates = True


class Succeeding(Clock):
    successes = (2,)


class IsSucceeding(Clock):
    successes = (2,)
    key = "is_success"


class SaysSuccessOnce(Clock):
    """Says that it succeeded when it does, and nothing at other times."""

    def step(self, action: Any) -> Any:
        *answer, info = super().step(action)
        return *answer, {"success": True} if self.time == 2 else info


class Painting(Good):
    """A picture with a red top left corner and a green top right one, in a layout of one's own."""

    layout = "HWC"
    sides = (16, 16)

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(0, 255, self.observed().shape, np.uint8)
        self.render_mode = None

    def observed(self) -> Any:
        high, wide = self.sides
        picture = np.zeros((high, wide, 3), dtype=np.uint8)
        picture[: high // 2, : wide // 2, 0] = 200
        picture[: high // 2, wide // 2 :, 1] = 100
        grey = picture.sum(axis=-1).astype(np.uint8)
        layouts = {
            "HWC": picture,
            "CHW": picture.transpose(2, 0, 1),
            "HW": grey,
            "HW1": grey[..., None],
            "1HW": grey[None],
        }
        return layouts[self.layout].copy()


class PaintingChw(Painting):
    layout = "CHW"


class PaintingHw(Painting):
    layout = "HW"


class PaintingHw1(Painting):
    layout = "HW1"


class Painting1hw(Painting):
    layout = "1HW"


class PaintingWide(Painting):
    sides = (32, 64)


class PaintingChwWide(Painting):
    layout = "CHW"
    sides = (32, 64)


class PaintingHwSmall(Painting):
    layout = "HW"
    sides = (8, 8)


class Moving(Good):
    """Observes the picture itself."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(0, 255, (24, 32, 3), np.uint8)
        self.render_mode = None

    def observed(self) -> Any:
        picture = np.zeros((24, 32, 3), dtype=np.uint8)
        picture[:, :, :2] = (self.place + 3) * 40
        return picture


class Rendered(Painting):
    """A vector to observe; the painting is what it renders."""

    def __init__(self) -> None:
        Good.__init__(self)
        self.render_mode = "rgb_array"

    def observed(self) -> Any:
        return Good.observed(self)

    def render(self) -> Any:
        return Painting.observed(self)


def with_argument(size: int) -> Good:
    return Good()


def broken_inside() -> Good:
    return Good(1, 2, 3)


def nothing() -> None:
    return None


NOT_CALLABLE = 3


class Unchanged(gymnasium.Wrapper):
    """A wrapper as users write them, without RecordConstructorArgs."""


def wrapped_pendulum() -> Unchanged:
    return Unchanged(gymnasium.make("Pendulum-v1"))
