"""An exported agent: its files read without trust, and the agent itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from revbis.agents import make_agent, resolve
from revbis.io import schema
from revbis.io.files import atomic_write, digest
from revbis.io.plugins import load_factory
from revbis.io.schema import ExportFile, Size
from revbis.runs.config import Config
from revbis.runs.run import OpenedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from revbis.agents import Agent
    from revbis.agents.base import InferenceState
    from revbis.agents.settings import AgentSettings

WEIGHTS, SETTINGS, CARD = "weights.safetensors", "agent.json", "README.md"
FORMAT = "revbis export 1"
_LARGEST_SETTINGS = 1 << 20  # bytes
_ALWAYS_BUILT = 4096  # a layer this wide is built at once, whatever the weights


def read_settings(folder: Path) -> ExportFile:
    """Reads agent.json.

    Raises:
        ValueError: If the folder is not an export of this version.
    """
    path = folder / SETTINGS
    if not path.is_file():
        raise ValueError(
            f"{folder} is not an export: it has no {SETTINGS}; revbis export RUN makes one"
        )
    if path.stat().st_size > _LARGEST_SETTINGS:
        raise ValueError(f"{path} is larger than any {SETTINGS}; export the run again")
    try:
        values: dict[str, object] = schema.parse_json(path.read_bytes(), dict[str, object], "it")
        if values.get("format") != FORMAT:
            raise ValueError(f"its format must be {FORMAT!r}, got {values.get('format')!r:.80}")
        return schema.convert(values, ExportFile, "it")
    except ValueError as problem:
        raise ValueError(f"{path} is not from revbis export: {problem}") from None


def write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes the weights.

    Raises:
        ValueError: If one of them is not finite.
    """
    for name, tensor in tensors.items():
        _check_finite(name, tensor, "the run's agent")
    # Copies, because some are views of one memory, which the format does not have.
    atomic_write(folder / WEIGHTS, save({name: each.clone() for name, each in tensors.items()}))


def read_weights(folder: Path, content: ExportFile, into: Mapping[str, Tensor]) -> None:
    """Copies the weights into tensors that have the same names, shapes and types.

    Nothing larger than they are is read.

    Raises:
        ValueError: If the file is missing, truncated or changed, or does not fit.
    """
    path, shapes = folder / WEIGHTS, read_shapes(folder, content)
    expected = {name: list(tensor.shape) for name, tensor in into.items()}
    if shapes != expected:
        raise ValueError(_difference(path, shapes, expected))
    if digest(path) != content["weights"]["digest"]:
        raise ValueError(f"{path} has changed since it was exported; export the run again")
    try:
        with safe_open(path, framework="pt") as file, torch.no_grad():
            for name, tensor in into.items():
                value = file.get_tensor(name)
                if value.dtype != tensor.dtype:
                    raise ValueError(
                        f"{path}: {name} must be {_type_name(tensor)}, got {_type_name(value)}"
                    )
                _check_finite(name, value, str(path))
                tensor.copy_(value)
    except (SafetensorError, OSError) as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None


def read_shapes(folder: Path, content: ExportFile) -> dict[str, list[int]]:
    """The shapes of the weights by name, from the head of their file alone.

    Raises:
        ValueError: If the file is missing or truncated, or no file of tensors.
    """
    path = folder / WEIGHTS
    if not path.is_file():
        raise ValueError(f"{folder} is incomplete: it has no {WEIGHTS}; export the run again")
    size, wanted = path.stat().st_size, content["weights"]["bytes"]
    if size != wanted:
        raise ValueError(
            f"{path} must have {wanted:,} bytes, got {size:,}: it is truncated or of another "
            "export; export the run again"
        )
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_slice(name).get_shape() for name in sorted(file.keys())}
    except (SafetensorError, OSError) as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None


def _difference(path: Path, got: Mapping[str, list[int]], expected: Mapping[str, list[int]]) -> str:
    """Why the weights do not fit the settings: the first difference."""
    if missing := sorted(expected.keys() - got.keys()):
        return f"{path} does not fit {SETTINGS}: it has no {missing[0]}"
    if foreign := sorted(got.keys() - expected.keys()):
        return f"{path} does not fit {SETTINGS}: {foreign[0]!r:.80} is not of this agent"
    name = next(name for name in sorted(got) if got[name] != expected[name])
    return (
        f"{path} does not fit {SETTINGS}: {name} must be {expected[name]}, "
        f"got {schema.shown(got[name])}"
    )


def _check_finite(name: str, tensor: Tensor, owner: str) -> None:
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise ValueError(f"{owner}: {name} must be finite, but has NaN or infinity in it")


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


class TrainedAgent:
    """A trained agent that acts and embeds, on the CPU; made by `load`, or a run's own.

    The same observations lead to the same actions. An agent that plans, as TD-MPC does, goes on
    with the plan of the episode: call `begin_episode` after every reset.

    Attributes:
        config: The settings of the run.
        frames: How long it had been trained.
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Numbers in an action.
    """

    def __init__(self, run: OpenedRun) -> None:
        self.config, self._agent, self.frames, self.observation_shape, self.action_size = run
        self.begin_episode()

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
        count = np.shape(observations)[:1] if isinstance(observations, np.ndarray) else ()
        rows = max(count[0], 1) if count else 1
        self._check(observations, (rows, *self.observation_shape), "observations")
        return self._agent.embed(torch.tensor(observations)).numpy()

    def distance(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float32]:
        """The learned distances between embeddings, [N, D] × [M, D] → [N, M]."""
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


def load(folder: str | Path) -> TrainedAgent:
    """Loads an agent that `revbis export` wrote; nothing in the folder is executed.

    Raises:
        ValueError: If the folder is not an export, or a file of it is missing, damaged or changed.
    """
    folder = Path(folder)
    content = read_settings(folder)
    try:
        config = _config(content)
        _check_sizes(config.agent, read_shapes(folder, content))
        settings, shape = config.agent.for_inference(), content["observation_shape"]
        settings.check(tuple(shape))
        size = content["action_size"]
        choice = content.get("discrete", False)
        agent = make_agent(config.method, settings, shape, size, seed=config.seed, discrete=choice)
        parts, numbers = inference_state(config.method, agent), content["numbers"]
        if numbers.keys() != parts.numbers.keys():
            wanted, got = sorted(parts.numbers), sorted(numbers)
            raise ValueError(f"its numbers must be {wanted}, got {got!r:.80}")
        parts.restore(numbers)
    except ValueError as problem:
        if str(problem).startswith(str(folder)):
            raise
        raise ValueError(f"{folder / SETTINGS} is not from revbis export: {problem}") from None
    read_weights(folder, content, parts.tensors)
    return TrainedAgent(OpenedRun(config, agent, content["frames"], tuple(shape), size))


def inference_state(method: str, agent: Agent) -> InferenceState:
    """What an agent acts and embeds with.

    Raises:
        ValueError: If such agents cannot be exported.
    """
    state_of: Callable[[Agent], InferenceState] = load_factory(check_method(method))
    return state_of(agent)


def check_method(method: str) -> str:
    """The function that tells what agents of a method act with.

    Raises:
        ValueError: If they cannot be exported.
    """
    resolved = resolve(method)
    if resolved.factory is not None:
        raise ValueError(
            f"{method} cannot be exported: it is code of your own ({resolved.factory}), and an "
            "export contains no code; revbis.open_run(RUN, trust=True) opens the run"
        )
    if resolved.agent.acting is None:
        raise ValueError(
            f"{method} cannot be exported: its networks are those of "
            f"{(resolved.agent.requires or ['another package'])[0]}, not of revbis; "
            "revbis.open_run(RUN) opens the run"
        )
    return resolved.agent.acting


def check_code(config: Config) -> None:
    """Refuses settings of an agent that name code of the user's.

    Raises:
        ValueError: With the code, and what to do.
    """
    if config.agent.code:
        raise ValueError(
            f"{config.label} cannot be exported: {config.agent.code[0]} is code of your own, and "
            "an export contains no code; revbis.open_run(RUN, trust=True) opens the run"
        )


def _config(content: ExportFile) -> Config:
    """The run's settings; the method is checked first, so that no code of the user's is named."""
    method = content["config"].get("method")
    if not isinstance(method, str):
        raise ValueError(f"its method must be a name, got {method!r:.80}")
    check_method(method)
    config, shape = Config.from_saved(content["config"]), tuple(content["observation_shape"])
    check_code(config)
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
