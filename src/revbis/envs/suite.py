"""A family of tasks, and what its simulator must provide.

Everything that the package knows about a family is in one record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from revbis.io.plugins import install_line, is_installed, missing_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from revbis.envs.rendering import Pixels


class SimulationStep(NamedTuple):
    """The result of one simulator step.

    Attributes:
        reward: Its reward.
        discount: 0 if the episode terminated, else 1.
        last: Whether the episode ended, by termination or by its time limit.
        success: Whether the task's goal is met now; None if the task does not define success.
    """

    reward: float
    discount: float
    last: bool
    success: bool | None


class Simulation(Protocol):
    """One task in one simulator.

    Attributes:
        low: Lower bounds of the simulator's actions.
        high: Upper bounds.
        horizon: Simulator steps to the time limit, or None.
        feature_count: Length of the task's own vector observation.
        success_at_start: False, or None if the task does not define success.
        versions: Versions of the packages that determine the simulation.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    horizon: int | None
    feature_count: int
    success_at_start: bool | None
    versions: dict[str, str]

    def reset(self, seed: int | None) -> None:
        """Starts an episode; a seed determines it and those after it."""

    def step(self, action: NDArray[np.float64]) -> SimulationStep:
        """One simulator step with an action within the bounds."""

    def draw(self, out: Pixels) -> None:
        """Draws the current state into `out`, [3, size, size]."""

    def background_mask(self) -> NDArray[np.bool_]:
        """[size, size]: the pixels that show only sky or ground."""

    def state(self) -> NDArray[np.float64]:
        """The simulator's state vector."""

    def features(self) -> NDArray[np.float32]:
        """The task's own vector observation."""

    def close(self) -> None:
        """Releases the simulator's resources."""


Measure = Literal["return", "success"]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A family of tasks.

    Nothing here imports a simulator before `make` is called.

    Attributes:
        name: What a task begins with, up to the colon; empty for the user's own factories.
        form: How a task is written, such as `dmc:NAME`.
        description: What the tasks are, in a line.
        make: Imports the simulator and makes a task: make(name, size=..., quality=...), with the
            name without the suite's, a size of 0 if nothing is drawn, and quality full or fast.
        example: A task, as `make_env` takes it: `revbis doctor` steps it and `rendering.py`
            draws it.
        modules: The modules it needs, its own simulator last.
        extra: The extra of revbis that installs them; empty if none does.
        tasks: The names of its tasks, sorted; empty if they cannot be listed.
        check: Raises a ValueError for a task it does not have; for suites without a list.
        gymnasium_env: The plain `gymnasium.Env` of a task, for `revbis env check`; None where
            tasks are not Gymnasium's.
        drawn_by_mujoco: Whether revbis draws it with MuJoCo. If so, it has both qualities and
            moving backgrounds.
        score: What a task is scored by: its return or its success rate.
        bounds: By the name of a task, the scores that count as 0 and as 1; None if unknown.
        published: By the name of a task, a published final return to measure others by.
        presets: By preset, the settings that differ for this suite, each as value and source.
    """

    name: str
    form: str
    description: str
    make: Callable[..., Simulation]
    example: str
    modules: tuple[str, ...] = ("gymnasium",)
    extra: str = ""
    tasks: tuple[str, ...] = ()
    check: Callable[[str], None] | None = None
    gymnasium_env: Callable[[str], Any] | None = None
    drawn_by_mujoco: bool = False
    score: Measure = "return"
    bounds: Callable[[str], tuple[float, float] | None] = lambda _name: None
    published: Mapping[str, float] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, tuple[Any, str]]] = field(default_factory=dict)

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages of its modules, its own simulator last."""
        return tuple(module.partition(".")[0] for module in self.modules)

    @property
    def simulators(self) -> tuple[str, ...]:
        """The packages that determine its tasks: Gymnasium only where there is no other."""
        return tuple(name for name in self.packages if name != "gymnasium") or self.packages

    @property
    def subject(self) -> str:
        """One of its tasks, as the subject of a sentence."""
        return f"a {self.name}: task" if self.name else "an environment"

    @property
    def install_line(self) -> str:
        """The `pip install` line for what it needs."""
        if self.extra:
            return install_line(self.extra)
        return "pip install " + " ".join(f'"{package}"' for package in self.packages)

    def local_name(self, task: str) -> str:
        """A task without the name of the suite."""
        return task.removeprefix(f"{self.name}:") if self.name else task

    def missing(self) -> str | None:
        """What it needs that is not installed, with the line that installs it; None if nothing."""
        absent = next((package for package in self.packages if not is_installed(package)), None)
        return None if absent is None else missing_text(absent, self.extra, self.subject)
