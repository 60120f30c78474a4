"""Small runs for the tests of training."""

import itertools
import json
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from revbis.runs.config import Config
from revbis.runs.presets import command_line, preset_config
from revbis.runs.records import Status

TINY: dict[str, Any] = {
    "frames": 1200,
    "eval_every": 400,
    "eval_episodes": 1,
    "checkpoint_every": 200,
    "log_every": 80,
    "action_repeat": 8,
    "update_every": 2,
    "batch_size": 8,
    "hidden": 16,
    "channels": 4,
    "pixels": 24,
    "explore_steps": 10,
    "noise_steps": 50,
    "replay_capacity": 60,  # smaller than the run, so that the ring goes round
    "shift": 2,
    "threads": 1,
    "tensorboard": False,
}


def tiny_config(out: Path, **settings: Any) -> Config:
    """A run that takes a second or two."""
    task = settings.pop("task", "dmc:cartpole_balance")
    start = preset_config("cpu", task, settings.get("method", "drqv2"))
    tiny = {name: value for name, value in TINY.items() if name in start.as_dict()}
    return start.with_settings(**tiny | {"out": out} | settings)


def flags(config: Config) -> list[str]:
    """The command line of a config, after `revbis train`."""
    return shlex.split(command_line(config))[2:]


def evaluations(config: Config) -> list[dict[str, Any]]:
    """The lines of eval.jsonl but for the times."""
    lines = (config.directory / "eval.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def stop_after(steps: int) -> dict[str, Callable[..., Any]]:
    """What makes `train` stop after so many agent steps; those of evaluations do not count."""
    taken = []

    def report(status: Status) -> None:
        taken.extend([] if status.evaluating else [status])

    return {"stop": lambda: len(taken) >= steps, "report": report}


def networks(config: Config) -> dict[str, Any]:
    """The weights of a run's newest checkpoint by name."""
    from revbis.runs.run import open_run

    state = open_run(config.directory, trust=True).agent.state_dict()["networks"]
    return {f"{n}.{key}": value for n, network in state.items() for key, value in network.items()}


class Walk(gymnasium.Env):
    """A dot on a line that is pushed left and right; a picture and a vector."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    limit = 40

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-0.5, 0.5)), 0
        return self._seen(), {}

    def step(self, action):
        self.place = float(np.clip(self.place + 0.2 * float(action[0]), -1, 1))
        self.steps += 1
        return self._seen(), self.reward(), False, self.steps >= self.limit, {}

    def reward(self):
        return 1.0 - abs(self.place)

    def render(self):
        picture = np.zeros((24, 24, 3), np.uint8)
        picture[:, round(11.5 + 11.5 * self.place)] = 255
        return picture

    def _seen(self):
        return np.array([self.place, self.steps / self.limit], np.float32)


class BadReward(Walk):
    """A reward that is NaN after a while."""

    def reward(self):
        return float("nan") if self.steps == 30 else 0.0


class Huge(Walk):
    """Rewards that no float32 loss survives."""

    def reward(self):
        return 1e30


class Forgetful(Walk):
    """An episode cannot be played again: what is seen tells how many came before it."""

    resets = itertools.count(1)  # of all walks in this process

    def reset(self, *, seed=None, options=None):
        self.number = next(self.resets)
        return super().reset(seed=seed)

    def _seen(self):
        return super()._seen() + np.array([10.0 * self.number, 0.0], np.float32)


class Held(Walk):
    """A walk that hardly moves on while the file named in HELD_WALK is there.

    It takes its first 220 steps as they come, then a quarter of a second for each: whoever wants to
    stop, freeze or kill a run in its middle has minutes to do so.
    """

    taken = 0

    def step(self, action):
        self.taken += 1
        until = time.monotonic() + 0.25
        while self.taken > 220 and _is_held() and time.monotonic() < until:
            time.sleep(0.01)
        return super().step(action)


def _is_held() -> bool:
    name = os.environ.get("HELD_WALK")
    return name is not None and os.path.exists(name)
