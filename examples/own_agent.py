"""An agent of your own: it acts at random, and shows the rewards of its batches.

It has to define `act`, `update`, `state_dict` and `load_state_dict`; `revbis.agents.BaseAgent` has
the rest.
Train it:   cd examples && revbis train --task dmc:cartpole_balance --agent own_agent:make
"""

import numpy as np
import torch

from revbis.agents import BaseAgent


class RandomAgent(BaseAgent):
    """Uniform actions, in evaluation too."""

    def __init__(self, action_size, batch_size, seed, scale):
        self.action_size, self.batch_size, self.scale = action_size, batch_size, scale
        self.generators = {mode: torch.Generator().manual_seed(seed) for mode in (True, False)}

    def begin_episode(self):
        self.generators[False].manual_seed(0)  # evaluation repeats itself

    def act(self, observation, step, *, explore):
        draw = torch.rand(self.action_size, generator=self.generators[explore])
        return (self.scale * (2 * draw - 1)).numpy().astype(np.float32)

    def update(self, replay, step, *, with_metrics=False):
        return {"batch_reward": replay.sample(self.batch_size).reward.mean()}

    def state_dict(self):  # everything that training changes
        return {"generator": self.generators[True].get_state()}

    def load_state_dict(self, state):
        self.generators[True].set_state(state["generator"])


def make(observation_shape, action_size, settings, *, seed, device, scale=1.0):
    return RandomAgent(action_size, settings.batch_size, seed, scale)
