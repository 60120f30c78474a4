"""How close a learned metric comes to the exact one it is meant to learn.

A grid world is rendered as small images. Transitions are collected under a fixed policy, and an
encoder is trained by an objective alone: no reward is maximised. Every state can be enumerated, so
the learned distances are compared with the exact fixed point of the same method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from revbis.objectives import NonFiniteError, Objective, make_objective
from revbis.objectives.registry import accepted_options
from revbis.tabular import (
    Comparison,
    FiniteMDP,
    MetricResult,
    action_value,
    compare,
    policy_value,
    solve,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Array = NDArray[np.float64]
_CELL = 2  # pixels
_HIDDEN = 256  # width of the objective's head


@dataclass(frozen=True)
class ProbeSettings:
    """What is trained, and for how long.

    `normalisation` applies to objectives that have that option.
    """

    gamma: float = 0.9
    transitions: int = 20_000
    steps: int = 2000
    batch: int = 128
    latent_dim: int = 50
    learning_rate: float = 1e-3
    coefficient_rate: float = 1e-3
    normalisation: bool = True


@dataclass(frozen=True, eq=False)
class Measurement:
    """Learned distances of one method beside its exact fixed point.

    Attributes:
        method: The objective's name.
        normalised: Whether embeddings were scaled to length 1; None where that is not an option of
            the objective.
        seed: The seed.
        level: "state", or "state_action" where ψ is compared.
        c: The weight of the next-state term at the end: γ, or the learned coefficient.
        learned: Distances after training, (n, n).
        untrained: Distances before training, (n, n).
        exact: The exact fixed point.
        trained: Comparison of `learned` with `exact`.
        start: Comparison of `untrained` with `exact`.
        encoder_rank: Spearman correlation of φ's own distances, between states, with the exact U;
            without ψ the same as `trained.spearman`.
        untrained_encoder_rank: The same before training.
        value_rank: Spearman correlation of `learned` with |ΔV| (|ΔQ| between pairs).
        untrained_value_rank: The same before training.
    """

    method: str
    normalised: bool | None
    seed: int
    level: str
    c: float
    learned: Array
    untrained: Array
    exact: MetricResult
    trained: Comparison
    start: Comparison
    encoder_rank: float
    untrained_encoder_rank: float
    value_rank: float
    untrained_value_rank: float


def render_states(mdp: FiniteMDP) -> Tensor:
    """One small image per state: floor, walls and the agent, [S, 3, H, W] floats in [0, 1]."""
    if mdp.grid is None:
        raise ValueError("the probe renders grid worlds: the MDP needs a grid")
    rows, columns = mdp.grid.max(axis=0) + 1
    floor = np.zeros((rows, columns), dtype=np.float32)
    floor[mdp.grid[:, 0], mdp.grid[:, 1]] = 0.5
    background = np.kron(floor, np.ones((_CELL, _CELL), dtype=np.float32))
    images = np.repeat(background[None, None], 3, axis=1).repeat(mdp.n_states, axis=0)
    for state, (row, column) in enumerate(mdp.grid):
        cell = (slice(row * _CELL, (row + 1) * _CELL), slice(column * _CELL, (column + 1) * _CELL))
        images[(state, slice(None), *cell)] = np.array([1.0, 0.2, 0.1])[:, None, None]
    return torch.from_numpy(images)


class GridEncoder(nn.Module):
    """φ of the probe: two small convolutions and one Linear."""

    def __init__(self, shape: tuple[int, int, int], latent_dim: int) -> None:
        super().__init__()
        convolutions = nn.Sequential(
            nn.Conv2d(shape[0], 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        width = convolutions(torch.zeros(1, *shape)).shape[1]
        self.layers = nn.Sequential(*convolutions, nn.Linear(width, latent_dim))

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] → [N, D]."""
        z: Tensor = self.layers(images - 0.5)
        return z


@dataclass(frozen=True)
class Dataset:
    """Collected transitions: states, actions, rewards and next states, [N] each."""

    s: Tensor
    a: Tensor
    r: Tensor
    s2: Tensor


def collect(mdp: FiniteMDP, policy: Array, count: int, generator: np.random.Generator) -> Dataset:
    """Transitions from uniformly drawn states under the policy."""
    s = generator.integers(mdp.n_states, size=count)
    a = _draw(policy[s], generator)
    rows = mdp.transitions[s * mdp.n_actions + a].toarray()
    s2 = _draw(rows, generator)
    r = torch.from_numpy(mdp.rewards[s, a].astype(np.float32))
    return Dataset(torch.from_numpy(s), torch.from_numpy(a), r, torch.from_numpy(s2))


def plan(
    names: Iterable[str], mdp: FiniteMDP, settings: ProbeSettings, scaled: Sequence[bool]
) -> list[tuple[str, ProbeSettings]]:
    """What to probe in turn: each objective with each normalisation, if it has that option.

    Args:
        names: Objectives by name or as package.module:factory.
        mdp: The grid world.
        settings: Those of every run but for the normalisation.
        scaled: Whether to normalise, in turn.

    Raises:
        ValueError: For an objective that cannot be made, before any time is spent on the others.
    """
    names = tuple(names)
    for name in names:
        make_objective(name, settings.latent_dim, mdp.n_actions, **_options(name, settings))
    return [
        (name, replace(settings, normalisation=normalisation))
        for turn, normalisation in enumerate(scaled)
        for name in names
        if turn == 0 or "normalisation" in accepted_options(name)
    ]


def probe_seeds(
    mdp: FiniteMDP,
    policy: Array,
    method: str,
    settings: ProbeSettings,
    seeds: int,
    progress: Callable[[str], None],
) -> list[Measurement]:
    """Probes one objective with the seeds from 0; progress is called after each step.

    Raises:
        ValueError: If training diverges.
    """
    raw = "normalisation" in accepted_options(method) and not settings.normalisation
    text = f"{method}, not normalised" if raw else method
    step = partial(progress, text)
    try:
        return [probe(mdp, policy, method, seed, settings, step) for seed in range(seeds)]
    except NonFiniteError as problem:
        raise ValueError(f"{text}: {problem}") from None


def probe(
    mdp: FiniteMDP,
    policy: Array,
    method: str,
    seed: int,
    settings: ProbeSettings,
    progress: Callable[[], None] | None = None,
) -> Measurement:
    """Trains one objective and compares it with its exact metric.

    Args:
        mdp: A grid world.
        policy: The policy that collects, (S, A).
        method: An objective's name, or package.module:factory.
        seed: Of data, initialisation and batches.
        settings: What is trained, and for how long.
        progress: Called after each step.
    """
    torch.manual_seed(seed)
    images = render_states(mdp)
    data = collect(mdp, policy, settings.transitions, np.random.default_rng(seed))
    encoder = GridEncoder((3, images.shape[2], images.shape[3]), settings.latent_dim)
    options = _options(method, settings)
    objective = make_objective(method, settings.latent_dim, mdp.n_actions, **options)
    before, states_before = _distances(mdp, encoder, objective, images)
    c = _train(mdp, encoder, objective, images, data, seed, settings, progress)
    after, states_after = _distances(mdp, encoder, objective, images)
    exact = exact_fixed_point(mdp, policy, objective, settings.gamma, c)
    states = exact
    if exact.level == "state_action":
        states = solve(exact.metric, mdp, policy, settings.gamma, c=exact.c)
    gaps = _value_gaps(mdp, policy, settings.gamma, exact.level)
    return Measurement(
        method=method,
        normalised=options.get("normalisation"),
        seed=seed,
        level=exact.level,
        c=c,
        learned=after,
        untrained=before,
        exact=exact,
        trained=compare(after, exact),
        start=compare(before, exact),
        encoder_rank=_rank_correlation(states_after, states.matrix()),
        untrained_encoder_rank=_rank_correlation(states_before, states.matrix()),
        value_rank=_rank_correlation(after, gaps),
        untrained_value_rank=_rank_correlation(before, gaps),
    )


def exact_fixed_point(
    mdp: FiniteMDP, policy: Array, objective: Objective, gamma: float, c: float
) -> MetricResult:
    """The exact metric that an objective is meant to learn, with the same weights.

    For MICo and SimSR too that is the revised metric: on sampled transitions the reward gap is
    E|r − r'|, and under a stochastic policy the loss never sees mean rewards.
    """
    coefficient = c if "c" in objective.status() else None
    return solve(objective.metric, mdp, policy, gamma, c=coefficient, level=objective.compares)


def _options(method: str, settings: ProbeSettings) -> dict[str, Any]:
    """The probe's own settings, of those that the objective accepts."""
    options = {"normalisation": settings.normalisation, "hidden": _HIDDEN}
    return {name: options[name] for name in options if name in accepted_options(method)}


def _train(
    mdp: FiniteMDP,
    encoder: nn.Module,
    objective: Objective,
    images: Tensor,
    data: Dataset,
    seed: int,
    settings: ProbeSettings,
    progress: Callable[[], None] | None,
) -> float:
    """Trains encoder and heads; returns the last weight of the next-state term."""
    generator = torch.Generator().manual_seed(seed)
    trained = [*encoder.parameters(), *objective.representation_parameters()]
    optimiser = torch.optim.Adam(trained, lr=settings.learning_rate)
    raw_c = list(objective.coefficient_parameters())
    coefficient_optimiser = torch.optim.Adam(raw_c, lr=settings.coefficient_rate) if raw_c else None
    discount = torch.full((settings.batch,), settings.gamma)
    one_hot = torch.eye(mdp.n_actions)
    for _ in range(settings.steps):
        rows = torch.randint(len(data.s), (settings.batch,), generator=generator)
        z = encoder(images)  # the states are few: embed each once, then gather
        out = objective(
            z[data.s[rows]],
            one_hot[data.a[rows]],
            data.r[rows],
            discount,
            z[data.s2[rows]],
            generator=generator,
        )
        optimiser.zero_grad(set_to_none=True)
        out.representation_loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if coefficient_optimiser is not None and out.coefficient_loss is not None:
            coefficient_optimiser.zero_grad(set_to_none=True)
            out.coefficient_loss.backward()  # type: ignore[no-untyped-call]
            coefficient_optimiser.step()
        if progress is not None:
            progress()
    return settings.gamma if out.next_weight is None else float(out.next_weight.mean())


@torch.no_grad()
def _distances(
    mdp: FiniteMDP, encoder: nn.Module, objective: Objective, images: Tensor
) -> tuple[Array, Array]:
    """Distances between everything that the objective compares, and those of φ between states."""
    z, one_hot = encoder(images), torch.eye(mdp.n_actions)
    if objective.compares == "state_action":
        states, actions = torch.from_numpy(mdp.state_actions.copy()).T
        compared = objective.embed(z[states], one_hot[actions])
    else:  # the action plays no part
        compared = objective.embed(z, one_hot[:1].expand(len(z), -1))
    z = objective.scale(z)
    return _all_pairs(objective, compared), _all_pairs(objective, z)


def _all_pairs(objective: Objective, x: Tensor) -> Array:
    distances: Array = objective.distance(x, x).double().numpy()
    return distances


def _value_gaps(mdp: FiniteMDP, policy: Array, gamma: float, level: str) -> Array:
    value = policy_value(mdp, policy, gamma)
    if level == "state_action":
        value = action_value(mdp, value, gamma)[mdp.available]
    return np.abs(value[:, None] - value)


def _rank_correlation(a: Array, b: Array) -> float:
    i, j = np.triu_indices(len(a), 1)
    if np.ptp(a[i, j]) == 0 or np.ptp(b[i, j]) == 0:
        return float("nan")
    return float(stats.spearmanr(a[i, j], b[i, j]).statistic)


def _draw(probabilities: Array, generator: np.random.Generator) -> NDArray[np.int64]:
    """One index from each row of probabilities."""
    edges = probabilities.cumsum(axis=1)
    edges[:, -1] = 1.0
    return np.asarray((generator.random((len(edges), 1)) >= edges).sum(axis=1))
