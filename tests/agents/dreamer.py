"""A small Dreamer-v3 for the tests, and a task that it learns within minutes."""

from typing import Any, ClassVar

import gymnasium
import numpy as np

SIDE = 32
# Sizes with which an update takes a tenth of a second.
SMALL: dict[str, Any] = {
    "batch_size": 8,
    "sequence_length": 10,
    "hidden": 64,
    "layers": 1,
    "channels": 4,
    "recurrent_dim": 64,
    "groups": 8,
    "classes": 8,
    "horizon": 8,
}


class Dot(gymnasium.Env):
    """A dot that starts at an edge and is pushed left and right; the middle pays 1, an edge ½."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.integers(2)), 0
        return self._seen(), {}

    def step(self, action):
        self.x = float(np.clip(self.x + 0.1 * float(action[0]), 0, 1))
        self.steps += 1
        return self._seen(), 1 - abs(self.x - 0.5), False, self.steps >= 20, {}

    def render(self):
        picture = np.zeros((SIDE, SIDE, 3), np.uint8)
        left = round((SIDE - 4) * self.x)
        picture[14:18, left : left + 4] = 255
        return picture

    def _seen(self):
        return np.array([self.x], np.float32)


def dot_settings(frames: int = 1300) -> dict[str, Any]:
    """The settings with which Dreamer-v3 learns the dot."""
    return SMALL | {
        "frames": frames,
        "explore_steps": 300,
        "eval_every": frames,
        "eval_episodes": 20,
        "action_repeat": 1,
        "update_every": 1,
        "discount": 0.95,
        "learning_rate": 1e-3,
        "actor_learning_rate": 3e-4,
        "critic_learning_rate": 3e-4,
        "log_every": 100,
        "checkpoint_every": 1000,
        "tensorboard": False,
    }
