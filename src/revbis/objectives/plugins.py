"""A user's own objective: made by its factory and tried on a small random batch."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args

import torch
from torch import Tensor, nn

from revbis.io import plugins, schema
from revbis.io.plugins import call_factory, check_status, kind, try_call
from revbis.objectives.base import Level, Objective, ObjectiveOutput, Transitions
from revbis.tabular import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROWS, _OTHERS = 6, 4
_MEMBERS = sorted(  # that the package itself uses
    name for name in vars(Objective) if not name.startswith("_") and name != "parameters"
)
_check_tensor = partial(plugins.check_returned_tensor, batch=_ROWS)


def load_plugin(
    name: str, latent_dim: int, action_dim: int, options: Mapping[str, Any] | None = None
) -> Objective:
    """What `package.module:factory` returns, once it has been tried.

    The trial draws from no generator of the caller's and leaves the objective's state as it was.

    Raises:
        ValueError: If the factory is missing or raises, or what it returns does not work as an
            objective; one line that says why.
        ModuleNotFoundError: If the factory's module needs one that is not installed.
    """
    sizes = {"latent_dim": latent_dim, "action_dim": action_dim}
    objective = call_factory(name, sizes, options or {})
    try:
        with torch.random.fork_rng(devices=[]):
            return check_objective(objective, latent_dim, action_dim)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from problem.__cause__


def check_objective(objective: object, latent_dim: int, action_dim: int) -> Objective:
    """Compares an objective with the protocol, then tries it on a small random batch.

    Raises:
        ValueError: With the first thing that is wrong.
    """
    if objective is None or isinstance(objective, type):
        raise ValueError(f"the factory must return an objective, got {objective!r}")
    missing = _missing(objective)
    if missing or not callable(objective):
        raise ValueError(
            f"the factory must return an objective, but {kind(objective)} has no "
            f"{', '.join(missing) or '__call__'}; revbis.objectives.BaseObjective has the defaults"
        )
    objective = cast("Objective", objective)
    schema.choice(objective.compares, get_args(Level), "compares")
    schema.choice(objective.metric, METRICS, "metric")
    generator = torch.Generator().manual_seed(0)
    batch = _random_batch(latent_dim, action_dim, generator)
    actions = _policy_actions(objective, batch.action)
    state = deepcopy(try_call("state_dict()", objective.state_dict))
    _check_parameters(objective)
    _check_embeddings(objective, batch)
    out = try_call("calling the objective", objective, *batch[:5], generator=generator, **actions)
    _check_output(out, batch, bool(list(objective.coefficient_parameters())))
    check_status(try_call("status()", objective.status))
    try_call("load_state_dict(state_dict())", objective.load_state_dict, state)
    if _missing(try_call("to(device)", objective.to, torch.device("cpu"))):
        raise ValueError("to(device) must return the objective")
    return objective


def _missing(objective: object) -> list[str]:
    return [member for member in _MEMBERS if member not in dir(objective)]


def _random_batch(latent_dim: int, action_dim: int, generator: torch.Generator) -> Transitions:
    z, next_z = torch.randn(2, _ROWS, latent_dim, generator=generator)
    action = 2 * torch.rand(_ROWS, action_dim, generator=generator) - 1
    reward, discount = torch.rand(_ROWS, generator=generator), torch.full((_ROWS,), 0.9)
    discount[0] = 0.0  # an episode that terminated
    return Transitions(z.requires_grad_(), action, reward, discount, next_z)


def _policy_actions(objective: Objective, action: Tensor) -> dict[str, Tensor]:
    names = objective.policy_actions
    if not isinstance(names, tuple):
        raise ValueError(f"policy_actions must be a tuple of names, got {names!r:.80}")
    for name in names:
        schema.choice(name, ("policy_action", "next_policy_action"), "policy_actions")
    return {name: action.flip(0) for name in names}


def _check_parameters(objective: Objective) -> None:
    kinds = {
        "representation_parameters()": objective.representation_parameters,
        "coefficient_parameters()": objective.coefficient_parameters,
    }
    seen: set[nn.Parameter] = set()
    for name, function in kinds.items():
        parameters = try_call(name, lambda function=function: list(function()))
        for parameter in parameters:
            if not isinstance(parameter, nn.Parameter) or not parameter.requires_grad:
                raise ValueError(
                    f"{name} must give trainable torch.nn.Parameters, got {kind(parameter)}"
                )
        if seen & set(parameters):
            raise ValueError(f"{name} must not repeat what representation_parameters() gives")
        seen |= set(parameters)


@torch.no_grad()
def _check_embeddings(objective: Objective, batch: Transitions) -> None:
    rows, width = batch.z.shape
    scaled = try_call("scale(z)", objective.scale, batch.z)
    _check_tensor("scale(z)", scaled, (rows, width))
    embedding = try_call("embed(z, action)", objective.embed, batch.z, batch.action)
    _check_tensor("embed(z, action)", embedding, (rows, None))
    for x in (scaled, embedding):
        distances = try_call("distance(x, y)", objective.distance, x, x[:_OTHERS])
        _check_tensor("distance(x, y)", distances, (rows, _OTHERS))
        pairs = try_call("distance(x, y, rowwise=True)", objective.distance, x, x, rowwise=True)
        _check_tensor("distance(x, y, rowwise=True)", pairs, (rows,))


def _check_output(out: object, batch: Transitions, has_coefficient: bool) -> None:
    if not isinstance(out, ObjectiveOutput):
        raise ValueError(f"calling the objective must give an ObjectiveOutput, got {kind(out)}")
    for name, loss in out.losses.items():
        _check_tensor(name, loss, ())
    if has_coefficient != (out.coefficient_loss is not None):
        raise ValueError(
            "coefficient_loss and coefficient_parameters() must both be there, or neither"
        )
    loss, rows = out.representation_loss, len(batch.z)
    gradient = None
    if loss.requires_grad:
        (gradient,) = torch.autograd.grad(loss, batch.z, allow_unused=True, retain_graph=True)
    if gradient is None:
        raise ValueError("representation_loss must depend on z, or it trains no encoder")
    _check_tensor("the gradient of representation_loss with respect to z", gradient, batch.z.shape)
    _check_tensor("embedding", out.embedding, (rows, None))
    if out.prediction is not None:
        permuted = isinstance(out.prediction, Tensor) and out.prediction.ndim == 1
        _check_tensor("prediction", out.prediction, (rows,) if permuted else (rows, rows))
    for name, value in try_call("metrics", lambda: out.metrics).items():
        _check_tensor(f"metrics[{name!r}]", value, ())
