"""Ten steps of every DMC task and of three of Meta-World, compared with those of the records.

golden.json holds what the simulators of results/ gave: states, rewards and pixels.

    python tests/envs/golden.py            # what the installed simulators give instead, by task
    python tests/envs/golden.py --write    # replaces the file, if the records' simulators change

Processors differ in their last bits, which ten steps with contacts can grow a little, and OpenGL
implementations differ in the pixels at edges. States and rewards are therefore compared with a
tolerance, and pictures by the means of their parts. The hash of all pixels is compared only with
the renderer and on the processor that wrote it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from revbis.envs import make_env, missing, suite_of, task_names
from revbis.io.machine import processor

FILE = Path(__file__).with_name("golden.json")
TASKS = [
    *task_names("dmc"),
    *("metaworld:drawer-close", "metaworld:hammer", "metaworld:pick-place"),
]
STEPS, PIXELS, PARTS = 10, 84, 4
# Relative to 1, or to the size of states and rewards. Bricks that settle amplify rounding to 5e-7
# between versions of MuJoCo that agree otherwise; those that do not differ by 6e-4 and more.
TOLERANCE = 1e-5
GREY = 2.0  # of 255, between the means of the same part of two pictures


@dataclass
class Trajectory:
    """What ten steps give.

    Attributes:
        first: The state after the reset.
        last: The state after the steps.
        rewards: Of each step.
        picture: Means of the last frame's parts, [3 × 4 × 4].
        pixels: Hash of all eleven frames.
    """

    first: list[float]
    last: list[float]
    rewards: list[float]
    picture: list[float]
    pixels: str


@dataclass
class Difference:
    """How far two trajectories are apart; infinite where they have different sizes.

    Attributes:
        first: Of the states after the reset.
        last: Of the states after the steps.
        rewards: Of the rewards.
        picture: Of the means of the pictures' parts, of 255.
        pixels: Whether all pixels are the same.
    """

    first: float
    last: float
    rewards: float
    picture: float
    pixels: bool

    @property
    def same_physics(self) -> bool:
        """Whether only rounding differs."""
        return max(self.first, self.last, self.rewards) <= TOLERANCE

    @property
    def same_picture(self) -> bool:
        """Whether the pictures show the same."""
        return self.picture <= GREY


def play(task: str) -> Trajectory:
    """Ten steps with fixed actions; every part of the action moves at its own pace."""
    env = make_env(task, seed=1, pixels=PIXELS, frame_stack=1, action_repeat=1, quality="fast")
    parts = np.arange(env.action_space.shape[0])
    _, info = env.reset()
    frames, states, rewards = [info["frame"]], [info["state"]], []
    for step in range(STEPS):
        action = np.sin(1.0 + step * (0.3 + 0.1 * parts) + parts).astype(np.float32)
        _, reward, _, _, info = env.step(action)
        frames.append(info["frame"])
        states.append(info["state"])
        rewards.append(reward)
    env.close()
    side = PIXELS // PARTS
    means = frames[-1].reshape(3, PARTS, side, PARTS, side).mean((2, 4))
    return Trajectory(
        first=np.round(states[0], 9).tolist(),
        last=np.round(states[-1], 9).tolist(),
        rewards=np.round(rewards, 9).tolist(),
        picture=np.round(means, 1).ravel().tolist(),
        pixels=hashlib.sha256(np.stack(frames).tobytes()).hexdigest()[:16],
    )


def compare(ours: Trajectory, golden: Trajectory) -> Difference:
    """How far two trajectories are apart."""
    return Difference(
        first=_apart(ours.first, golden.first),
        last=_apart(ours.last, golden.last),
        rewards=_apart(ours.rewards, golden.rewards),
        picture=float(np.abs(np.subtract(ours.picture, golden.picture)).max()),
        pixels=ours.pixels == golden.pixels,
    )


def _apart(ours: list[float], golden: list[float]) -> float:
    if len(ours) != len(golden):
        return float("inf")
    size = np.maximum(1.0, np.abs(golden))
    return float((np.abs(np.subtract(ours, golden)) / size).max())


def versions(task: str) -> dict[str, str]:
    """The installed packages that determine a task."""
    return {name: version(name) for name in (suite_of(task).packages[-1], "mujoco")}


def drawn_by() -> dict[str, str]:
    """What determines pixels to the last bit: renderer, its version, and processor."""
    env = make_env(TASKS[0], seed=1, quality="fast")
    env.reset()
    gl = import_module("OpenGL.GL")  # only now: MuJoCo has chosen its platform
    names = (gl.glGetString(name).decode() for name in (gl.GL_RENDERER, gl.GL_VERSION))
    found = {"renderer": ", ".join(names), "processor": processor()}
    env.close()
    return found


def read() -> tuple[dict[str, Any], dict[str, Trajectory]]:
    """Versions and renderer of the file, and its trajectories by task."""
    content = json.loads(FILE.read_text())
    trajectories = {task: Trajectory(**each) for task, each in content.pop("tasks").items()}
    return content, trajectories


def write() -> None:
    """Replaces the file with what the installed simulators give."""
    own = {name: number for task in TASKS for name, number in versions(task).items()}
    tasks = {task: asdict(play(task)) for task in TASKS}
    lines = ",\n".join(f'"{task}": {json.dumps(each)}' for task, each in tasks.items())
    head = json.dumps({"versions": own, "drawn_by": drawn_by()})[:-1]
    FILE.write_text(f'{head}, "tasks": {{\n{lines}\n}}}}\n')


def report() -> None:
    """Prints how the installed simulators differ from the records', task by task."""
    about, golden = read()
    print("records:", about["versions"])
    print("pixels of the records:", about["drawn_by"])
    print("pixels here:", drawn_by())
    print(f"{'task':44} {'start':>8} {'end':>8} {'rewards':>8} {'picture':>8}  pixels")
    same: dict[str, list[bool]] = {}  # by simulator
    for task in TASKS:
        if missing(suite_of(task).name):
            print(f"{task:44} is not installed")
            continue
        try:
            found = compare(play(task), golden[task])
        except Exception as problem:  # untested versions can fail in any way
            print(f"{task:44} cannot run: {problem}")
            continue
        numbers = f"{found.first:8.1g} {found.last:8.1g} {found.rewards:8.1g} {found.picture:8.1f}"
        physics = "" if found.same_physics else "  other physics"
        print(f"{task:44} {numbers}  {'same' if found.pixels else 'other'}{physics}", flush=True)
        same.setdefault(str(versions(task)), []).append(found.same_physics)
    for simulator, each in same.items():
        print(f"{simulator}: {each.count(False)} of {len(each)} tasks have other physics")


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit(__doc__)
    write() if sys.argv[1:] else report()
