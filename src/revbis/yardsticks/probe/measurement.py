"""One method on one problem with one seed: trained, and compared with its exact metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revbis.yardsticks.probe.exact import Whose, exact_distances, value_gaps
from revbis.yardsticks.probe.images import observe
from revbis.yardsticks.probe.measures import (
    Agreement,
    agreement,
    denoising_factor,
    rank_correlation,
)
from revbis.yardsticks.probe.training import ProbeSettings, Training

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.yardsticks.probe.problem import Problem

Array = NDArray[np.float64]
_RENDERINGS = 8  # pairs of observations that a distance between states is the mean of
_POSITIVES = 16


@dataclass(frozen=True, eq=False)
class Compared:
    """Learned distances beside the exact ones.

    Attributes:
        learned: After training, in the unit of rewards, (n, n).
        exact: Of the target policy, (n, n).
        target: Agreement with the exact metric of the target policy.
        behaviour: The same for the policy that collected; None where it is the same policy.
        untrained: Rank correlation with `exact` before training.
    """

    learned: Array
    exact: Array
    target: Agreement
    behaviour: Agreement | None
    untrained: float


@dataclass(frozen=True, eq=False)
class Measurement:
    """What a method learned of its exact metric.

    Attributes:
        method: The objective's name.
        seed: The seed.
        metric: The exact metric that it is compared with.
        claims: The policy whose metric its loss learns: "target" where it asks for actions of that
            policy, else "behaviour".
        c: Weight of the next-state term at the end: γ, or the coefficient.
        phi: φ between states, against U; behind its own head where an objective that compares
            states has one.
        psi: ψ between state-action pairs, against G; None where the objective compares states.
        denoising: Denoising factor of φ; None where pixels do not distract.
        untrained_denoising: The same before training.
    """

    method: str
    seed: int
    metric: str
    claims: Literal["target", "behaviour"]
    c: float
    phi: Compared
    psi: Compared | None
    denoising: float | None
    untrained_denoising: float | None


def measure(
    problem: Problem,
    method: str,
    seed: int = 0,
    settings: ProbeSettings | None = None,
    progress: Callable[[int], None] | None = None,
) -> Measurement:
    """Trains an encoder by one objective alone and compares it with its exact metric.

    Args:
        problem: An MDP with images and policies.
        method: An objective's name, or package.module:factory.
        seed: Of data, initialisation and batches.
        settings: What is trained, and for how long.
        progress: Called now and then with a number of further steps.

    Raises:
        ValueError: If the objective cannot be made, or raises.
        NonFiniteError: If training diverges.
    """
    settings = settings or ProbeSettings()
    training = Training(problem, method, seed, settings)
    noise, before = _denoising(training, seed), _distances(training, seed)
    training.run(progress or (lambda _: None))
    after, objective = _distances(training, seed), training.objective
    status = objective.status()
    c, unit = status.get("c"), status.get("reward_scale", 1.0)
    compared = {}
    for level, learned in after.items():

        def exact(whose: Whose, level: str = level) -> tuple[Array, Array]:
            solved = exact_distances(problem, whose, objective.metric, level, settings.gamma, c)
            return solved, value_gaps(problem, whose, level, settings.gamma)

        wanted = exact("target")
        others = agreement(unit * learned, *exact("behaviour")) if problem.off_policy else None
        start = _upper(before[level], wanted[0])
        compared[level] = Compared(
            learned=unit * learned,
            exact=wanted[0],
            target=agreement(unit * learned, *wanted),
            behaviour=others,
            untrained=rank_correlation(*start),
        )
    return Measurement(
        method=method,
        seed=seed,
        metric=objective.metric,
        claims="target" if objective.policy_actions else "behaviour",
        c=settings.gamma if c is None else c,
        phi=compared["state"],
        psi=compared.get("state_action"),
        denoising=_denoising(training, seed),
        untrained_denoising=noise,
    )


@torch.no_grad()
def _distances(training: Training, seed: int) -> dict[str, Array]:
    """Distances between states and, where ψ embeds them, between pairs of state and action.

    Where pixels distract, a distance is the mean over pairs of independent observations.
    """
    problem = training.problem
    if problem.pixel_noise == 0:
        z = training.encoder(problem.images)
        return _all_pairs(training, z, z)
    generator = torch.Generator().manual_seed(seed)
    every = torch.arange(problem.mdp.n_states)
    total: dict[str, Array] = {}
    for _ in range(_RENDERINGS):
        x, y = (
            training.encoder(observe(problem.images, every, problem.pixel_noise, generator))
            for _ in range(2)
        )
        for level, distances in _all_pairs(training, x, y).items():
            total[level] = total.get(level, 0.0) + distances / _RENDERINGS
    return total


def _all_pairs(training: Training, x: Tensor, y: Tensor) -> dict[str, Array]:
    """Distances between embeddings of the states in x and in y, by level."""
    objective, mdp = training.objective, training.problem.mdp
    one_hot = torch.eye(mdp.n_actions)
    if objective.compares == "state":  # the action plays no part
        action = one_hot[:1].expand(len(x), -1)
        return {
            "state": _numbers(objective.distance(*(objective.embed(z, action) for z in (x, y))))
        }
    states, actions = torch.from_numpy(mdp.state_actions.copy()).T
    pairs = (objective.embed(z[states], one_hot[actions]) for z in (x, y))
    return {
        "state": _numbers(objective.distance(objective.scale(x), objective.scale(y))),
        "state_action": _numbers(objective.distance(*pairs)),
    }


@torch.no_grad()
def _denoising(training: Training, seed: int) -> float | None:
    """The denoising factor of φ, as `distance` takes it."""
    problem = training.problem
    if problem.pixel_noise == 0:
        return None
    generator = torch.Generator().manual_seed(seed)
    count = problem.mdp.n_states
    states = torch.arange(count).repeat(1 + _POSITIVES)
    seen = observe(problem.images, states, problem.pixel_noise, generator)
    z = training.objective.scale(training.encoder(seen)).reshape(1 + _POSITIVES, count, -1)
    return denoising_factor(z[0], z[1:], generator)


def _upper(learned: Array, exact: Array) -> tuple[Array, Array]:
    i, j = np.triu_indices(len(exact), 1)
    return (learned + learned.T)[i, j], exact[i, j]


def _numbers(tensor: Tensor) -> Array:
    return np.asarray(tensor.double().numpy())
