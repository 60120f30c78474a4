"""A user's own agent: made by its factory and tried, except for its updates."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from revbis.agents.base import Agent
from revbis.io import schema
from revbis.io.files import read_tensors
from revbis.io.plugins import (
    call_factory,
    check_call,
    check_returned_tensor,
    check_status,
    kind,
    try_call,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from revbis.agents.settings import AgentSettings, Shape

_ROWS = 2
_FUNCTIONS = sorted(name for name in vars(Agent) if not name.startswith("_"))


def load_plugin(
    name: str,
    observation_shape: Shape,
    action_size: int,
    settings: AgentSettings,
    *,
    seed: int,
    device: str,
) -> Agent:
    """What `package.module:factory` returns, once it has been tried.

    The factory is called with (observation_shape, action_size, settings, seed=..., device=...) and
    the options of the settings. The trial draws nothing from PyTorch's global generator and leaves
    the agent's state as it was.

    Raises:
        ValueError: If the factory is missing or raises, or what it returns does not work as an
            agent; one line that says why.
        ModuleNotFoundError: If the factory's module needs one that is not installed.
    """
    sizes = {"observation_shape": observation_shape, "action_size": action_size}
    given = {"seed": seed, "device": device}
    options = getattr(settings, "options", {})
    if taken := sorted(given.keys() & options.keys()):
        raise ValueError(f"agent_options must not set {taken[0]}: use --{taken[0]}")
    agent = call_factory(name, sizes | {"settings": settings}, given | options)
    try:
        with torch.random.fork_rng(devices=[]):
            return check_agent(agent, observation_shape, action_size)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from problem.__cause__


def check_agent(agent: object, observation_shape: Shape, action_size: int) -> Agent:
    """Compares an agent with the protocol, then tries it on an empty observation.

    Raises:
        ValueError: With the first thing that is wrong.
    """
    if agent is None or isinstance(agent, type):
        raise ValueError(f"the factory must return an agent, got {agent!r}")
    missing = [name for name in _FUNCTIONS if name not in dir(agent)]
    if missing:
        raise ValueError(
            f"the factory must return an agent, but {kind(agent)} has no {', '.join(missing)}; "
            "revbis.agents.BaseAgent has defaults for all but act, update, state_dict and "
            "load_state_dict"
        )
    for name in _FUNCTIONS:
        if not callable(getattr(agent, name)):
            raise ValueError(f"{name} must be a function, got {kind(getattr(agent, name))}")
    agent = cast("Agent", agent)
    words = ["replay", "step", "with_metrics=..."]
    check_call("update", agent.update, words, None, 0, with_metrics=True)
    saved = _saved(try_call("state_dict()", agent.state_dict))
    dtype = np.dtype(np.uint8 if len(observation_shape) == 3 else np.float32)
    _check_actions(agent, np.zeros(observation_shape, dtype), action_size)
    _check_embeddings(agent, np.zeros((_ROWS, *observation_shape), dtype))
    check_status(try_call("status()", agent.status))
    try_call("load_state_dict(state_dict())", agent.load_state_dict, saved)
    return agent


def _saved(state: object) -> dict[str, Any]:
    """The state as it comes back from a checkpoint, which holds no other objects."""
    if not isinstance(state, dict):
        raise ValueError(f"state_dict() must return a dict, got {kind(state)}")
    buffer = io.BytesIO()
    try:
        torch.save(state, buffer)
        loaded: dict[str, Any] = read_tensors(buffer.getvalue())
    except Exception as problem:
        raise ValueError(
            "state_dict() must hold tensors, numbers, texts, lists and dicts only: a checkpoint "
            f"cannot restore it ({schema.reason(problem)})"
        ) from problem
    return loaded


def _check_actions(agent: Agent, observation: NDArray[Any], action_size: int) -> None:
    actions = []
    for explore in (True, False, False):
        call = f"act(observation, step, explore={explore})"
        try_call("begin_episode()", agent.begin_episode)
        action = try_call(call, agent.act, observation, 0, explore=explore)
        if not isinstance(action, np.ndarray):
            raise ValueError(f"{call} must return a NumPy array, got {kind(action)}")
        schema.finite_matrix(action, (action_size,), call)
        if action.dtype != np.float32 or np.abs(action).max() > 1:
            raise ValueError(
                f"{call} must return float32 in [-1, 1], got {action.dtype} up to "
                f"{np.abs(action).max():g}"
            )
        actions.append(action)
    if not np.array_equal(actions[1], actions[2]):
        raise ValueError(
            "act(observation, step, explore=False) must be a function of the episode's "
            "observations, but two episodes began with different actions: draw from a generator "
            "that begin_episode() seeds anew"
        )


@torch.no_grad()
def _check_embeddings(agent: Agent, observations: NDArray[Any]) -> None:
    embeddings = try_call("embed(observations)", agent.embed, torch.from_numpy(observations))
    check_returned_tensor("embed(observations)", embeddings, (_ROWS, None), _ROWS)
    distances = try_call("distance(x, y)", agent.distance, embeddings, embeddings[:1])
    check_returned_tensor("distance(x, y)", distances, (_ROWS, 1), _ROWS)
