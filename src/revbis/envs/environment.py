"""The environment every task becomes: a `gymnasium.Env` of stacked frames or of a vector."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from revbis.envs.rendering import Pixels, close_at_exit
from revbis.io import schema

if TYPE_CHECKING:
    from revbis.envs.distractors import Distractor, PixelNoise
    from revbis.envs.state_noise import StateNoise
    from revbis.envs.suite import Simulation


class TaskEnv(gymnasium.Env[NDArray[Any], NDArray[np.float32]]):  # type: ignore[misc]
    """A task with scaled actions, action repeat and stacked frames.

    Observations are `uint8 [3 · frame_stack, pixels, pixels]` (or the task's vector, `float32`),
    actions `float32` in [−1, 1]. Where actions are `discrete`, the largest number is the choice.

    `info` holds `frame` (the newest single frame: all that a replay buffer needs to store),
    `frames` (simulator steps so far in the episode), `state` (the simulator's state vector),
    `discount` (0 after a termination), `success` and `success_any` (the goal was met at some
    simulator step of the episode), `success_last` (it is met now); success is None if the task does
    not define it.

    `make_env` builds it from the simulation of a task; `pixels` is 0 for vector observations, and
    `identity` is what distinguishes it from others in records.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's)

    def __init__(
        self,
        simulation: Simulation,
        *,
        identity: dict[str, Any],
        seed: int,
        pixels: int,
        frame_stack: int,
        action_repeat: int,
        distractor: Distractor | None = None,
        pixel_noise: PixelNoise | None = None,
        state_noise: StateNoise | None = None,
    ) -> None:
        self.simulation, self.identity = simulation, identity
        self.discrete: bool = getattr(simulation, "discrete", False)
        self.action_repeat = action_repeat
        self.render_mode = "rgb_array" if pixels else None
        self.render_seconds = 0.0
        self._seed: int | None = seed
        self._recent: Pixels = np.zeros((frame_stack, 3, pixels, pixels), dtype=np.uint8)
        self._newest = 0  # of the recent frames, a ring
        self._distractor, self._pixel_noise = distractor, pixel_noise
        self._noise = state_noise
        # Middle and half range: actions in [−1, 1] pass through bounds of ±1 without rounding.
        self._middle = (simulation.high + simulation.low) / 2
        self._reach = (simulation.high - simulation.low) / 2
        self._frames, self._over, self._closed = 0, True, False
        self._success_any, self._success = False, simulation.success_at_start
        close_at_exit(self)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, simulation.low.shape, np.float32, seed)
        length = simulation.feature_count + (0 if state_noise is None else state_noise.count)
        self.observation_space = (
            gymnasium.spaces.Box(0, 255, (3 * frame_stack, pixels, pixels), np.uint8, seed)
            if pixels
            else gymnasium.spaces.Box(-np.inf, np.inf, (length,), np.float32, seed)
        )

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Starts an episode.

        Args:
            seed: Determines this episode and those after it.
            options: Ignored.
        """
        if self._closed:
            raise ValueError("this environment is closed; make a new one")
        seed = self._seed if seed is None else schema.convert(seed, schema.Seed, "seed")
        self._seed = None
        super().reset(seed=seed)
        self.simulation.reset(seed)
        for disturbance in (self._distractor, self._pixel_noise, self._noise):
            if disturbance is not None:
                disturbance.reset(seed)
        self._frames, self._success_any, self._over = 0, False, False
        if self.render_mode:
            self.draw(self._recent[0])
            self._recent[1:] = self._recent[0]
        self._success = self.simulation.success_at_start
        return self._seen(1.0)

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Repeats the action for `action_repeat` simulator steps, or fewer if the episode ends."""
        if self._over:
            raise gymnasium.error.ResetNeeded(
                "the episode is over (or none has started): reset first"
            )
        scaled = self.scaled(action)
        total, discount = 0.0, 1.0
        for _ in range(self.action_repeat):
            result = self.simulation.step(scaled)
            self._frames += 1
            total += result.reward
            discount *= result.discount
            if result.success is not None:
                self._success = result.success
                self._success_any |= result.success
            if result.last:
                self._over = True
                break
        if self._noise is not None:
            self._noise.drive(action)
        if self.render_mode:
            self._newest = (self._newest + 1) % len(self._recent)
            self.draw(self._recent[self._newest])
        terminated = self._over and discount == 0.0
        observation, info = self._seen(discount)
        return observation, total, terminated, self._over and not terminated, info

    def render(self) -> Pixels:
        """The newest frame, [pixels, pixels, 3]."""
        if not self.render_mode:
            raise ValueError('an environment with observation="state" does not render')
        image: Pixels = self._recent[self._newest].transpose(1, 2, 0).copy()
        return image

    def close(self) -> None:
        """Releases the simulator and OpenGL. Safe to call twice."""
        if not self._closed:
            self.simulation.close()
        self._closed = self._over = True

    def draw(self, out: Pixels) -> None:
        """Draws the current state, with background or noise, into `out`, [3, pixels, pixels]."""
        start = time.perf_counter()
        self.simulation.draw(out)
        if self._distractor is not None:
            self._distractor.paint(out, self.simulation.background_mask())
        if self._pixel_noise is not None:
            self._pixel_noise.add(out)
        self.render_seconds += time.perf_counter() - start

    def scaled(self, action: NDArray[np.float32]) -> NDArray[np.float64]:
        """Scales an action from [−1, 1] to the simulator's bounds; beyond them it is clipped."""
        values = schema.finite_matrix(action, self._middle.shape, "an action")
        return self._middle + np.clip(values, -1.0, 1.0) * self._reach

    def _seen(self, discount: float) -> tuple[NDArray[Any], dict[str, Any]]:
        """The observation and the info that `reset` and `step` return."""
        so_far = None if self._success is None else self._success_any
        info = {
            "frames": self._frames,
            "state": self.simulation.state(),
            "discount": discount,
            "success": so_far,
            "success_any": so_far,
            "success_last": self._success,
        }
        if not self.render_mode:
            features = self.simulation.features()
            return (features if self._noise is None else self._noise.observe(features)), info
        oldest_first = np.roll(self._recent, -1 - self._newest, axis=0)
        stack = oldest_first.reshape(-1, *self._recent.shape[2:])
        info["frame"] = stack[-3:].copy()  # a view would keep the whole stack alive
        return stack, info
