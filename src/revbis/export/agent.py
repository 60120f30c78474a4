"""Loads an exported agent, which acts and embeds but does not learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np

from revbis.agents import make_agent, resolve
from revbis.config import Config
from revbis.export.files import SETTINGS, read_settings, read_weights, widths
from revbis.schema import Size
from revbis.system.factories import load_factory

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from revbis.agents import Agent
    from revbis.agents.acting import Acting
    from revbis.agents.settings import AgentSettings
    from revbis.schema import ExportFile

_ALWAYS_BUILT = 4096  # a layer this wide is built at once, whatever the weights


class ExportedAgent:
    """A trained agent that acts and embeds, on the CPU; made by `load`.

    The same observations lead to the same actions. An agent that plans, as TD-MPC does, goes on
    with the plan of the episode: call `begin_episode` after every reset.

    Attributes:
        config: The settings of the run.
        frames: How long it had been trained.
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Numbers in an action.
    """

    def __init__(self, config: Config, content: ExportFile, agent: Agent) -> None:
        self.config, self.frames, self._agent = config, content["frames"], agent
        self.observation_shape = tuple(content["observation_shape"])
        self.action_size = content["action_size"]

    @property
    def environment(self) -> dict[str, Any]:
        """The arguments of `revbis.envs.make_env`, except for the seed, for its task."""
        return self.config.environment

    def begin_episode(self) -> None:
        """Discards the plan of the previous episode, if the agent makes plans."""
        self._agent.begin_episode()

    def act(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """The action for one observation, [A] in [−1, 1], without exploration.

        Args:
            observation: Of `observation_shape`, as the environment gives it.

        Raises:
            ValueError: For another shape or type, NaN or infinity.
        """
        self._check(observation, self.observation_shape, "observation")
        return self._agent.act(observation, 0, explore=False)

    def embed(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """The embeddings of a batch of observations, [B, D].

        Args:
            observations: [B, *observation_shape].

        Raises:
            ValueError: For another shape or type, NaN or infinity.
        """
        import torch

        count = np.shape(observations)[:1] if isinstance(observations, np.ndarray) else ()
        rows = max(count[0], 1) if count else 1
        self._check(observations, (rows, *self.observation_shape), "observations")
        return self._agent.embed(torch.tensor(observations)).numpy()

    def distance(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float32]:
        """The learned distances between embeddings, [N, D] × [M, D] → [N, M]."""
        import torch

        return self._agent.distance(torch.tensor(x), torch.tensor(y)).numpy()

    def _check(self, value: object, shape: tuple[int, ...], name: str) -> None:
        kind = "uint8" if len(self.observation_shape) == 3 else "float32"
        required = f"{name} must be a NumPy array of {kind} of shape {shape}"
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{required}, got {value!r:.80}")
        if value.shape != shape or str(value.dtype) != kind:
            raise ValueError(f"{required}, got {value.dtype} of shape {value.shape}")
        if kind == "float32" and not np.isfinite(value).all():
            raise ValueError(f"{name} must be finite, but has NaN or infinity in it")


def load(folder: str | Path) -> ExportedAgent:
    """Loads an agent that `revbis export` wrote; nothing in the folder is executed.

    Raises:
        ValueError: If the folder is not an export, or a file of it is missing, damaged or changed.
    """
    folder = Path(folder)
    content = read_settings(folder)
    try:
        config = _config(content)
        _check_sizes(config.agent, widths(folder, content))
        agent = _build(config, content)
        parts = acting_of(config.method, agent)
        _restore(parts, content["numbers"])
    except ValueError as problem:
        if str(problem).startswith(str(folder)):
            raise
        raise ValueError(f"{folder / SETTINGS} is not from revbis export: {problem}") from None
    read_weights(folder, content, parts.tensors)
    agent.begin_episode()
    return ExportedAgent(config, content, agent)


def acting_of(method: str, agent: Agent) -> Acting:
    """What an agent acts and embeds with.

    Raises:
        ValueError: If such agents cannot be exported.
    """
    name = check_method(method)
    parts: Callable[[Agent], Acting] = load_factory(name)
    return parts(agent)


def check_method(method: str) -> str:
    """The function that tells what agents of a method act with.

    Raises:
        ValueError: If they cannot be exported.
    """
    resolved = resolve(method)
    if resolved.factory is not None:
        raise ValueError(
            f"{method} cannot be exported: it is code of your own ({resolved.factory}), and an "
            "export contains no code; revbis.training.run.open_run opens the run"
        )
    if resolved.agent.acting is None:
        raise ValueError(
            f"{method} cannot be exported: its networks are those of "
            f"{(resolved.agent.requires or ['another package'])[0]}, not of revbis; "
            "revbis.training.run.open_run opens the run"
        )
    return resolved.agent.acting


def _config(content: ExportFile) -> Config:
    """The run's settings; the method is checked first, so that no code of the user's is named."""
    method = content["config"].get("method")
    if not isinstance(method, str):
        raise ValueError(f"its method must be a name, got {method!r:.80}")
    check_method(method)
    config, shape = Config.from_dict(content["config"]), tuple(content["observation_shape"])
    wanted = config.observation_shape if config.observation == "pixels" else shape[:1]
    if shape != wanted:
        raise ValueError(f"its observation_shape must be {wanted}, got {shape}")
    return config


def _check_sizes(settings: AgentSettings, shapes: dict[str, list[int]]) -> None:
    """Refuses settings with layers far wider than the weights, before they are built."""
    widest = max((side for shape in shapes.values() for side in shape), default=0)
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name) if hint == Size or Size in get_args(hint) else None
        if value is not None and value > max(widest, _ALWAYS_BUILT):
            raise ValueError(f"its {name} is {value:,}, but no layer of the weights is as wide")


def _build(config: Config, content: ExportFile) -> Agent:
    settings, shape = config.agent.for_reading(), content["observation_shape"]
    settings.check(tuple(shape))
    return make_agent(config.method, settings, shape, content["action_size"], seed=config.seed)


def _restore(parts: Acting, numbers: dict[str, int | float]) -> None:
    if numbers.keys() != parts.numbers.keys():
        wanted, got = sorted(parts.numbers), sorted(numbers)
        raise ValueError(f"its numbers must be {wanted}, got {got!r:.80}")
    parts.restore(numbers)
