"""How near a learned metric comes to the exact one it is meant to be.

A grid world is rendered as small images. Transitions are collected under a fixed policy, and an
encoder is trained by an objective alone: no reward is maximised. Every state can be enumerated, so
the learned distances are compared with the exact fixed point of the same method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from revbis.objectives import Objective, make_objective, normalise
from revbis.tabular import (
    Comparison,
    FiniteMDP,
    MetricResult,
    action_value,
    compare,
    policy_value,
    solve,
)

Array = NDArray[np.float64]
_CELL = 2  # pixels


@dataclass(frozen=True)
class ProbeSettings:
    """What is trained and for how long."""

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
        normalised: Whether embeddings were scaled to length 1.
        seed: The seed.
        level: "state", or "state_action" where ψ is compared.
        c: The weight of the next-state term at the end: γ, or the learned coefficient.
        learned: Distances after training, (n, n).
        untrained: Distances before training, (n, n).
        exact: The exact fixed point.
        trained: Comparison of `learned` with `exact`.
        start: Comparison of `untrained` with `exact`.
        encoder_rank: Spearman correlation of φ's own distances, between states, with the exact U;
            without ψ that is what `trained` says.
        untrained_encoder_rank: The same before training.
        value_rank: Spearman correlation of `learned` with |ΔV| (|ΔQ| between pairs).
        untrained_value_rank: The same before training.
    """

    method: str
    normalised: bool
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
    """One small image a state: floor, walls, and the agent, [S, 3, H, W] floats in [0, 1]."""
    if mdp.grid is None:
        raise ValueError("the probe renders grid worlds: the MDP needs a grid")
    rows, columns = mdp.grid.max(axis=0) + 1
    floor = np.zeros((rows, columns), dtype=np.float32)
    floor[mdp.grid[:, 0], mdp.grid[:, 1]] = 0.5
    background = np.kron(floor, np.ones((_CELL, _CELL), dtype=np.float32))
    images = np.repeat(background[None, None], 3, axis=1).repeat(mdp.n_states, axis=0)
    for state, (row, column) in enumerate(mdp.grid):
        here = (slice(row * _CELL, (row + 1) * _CELL), slice(column * _CELL, (column + 1) * _CELL))
        images[(state, slice(None), *here)] = np.array([1.0, 0.2, 0.1])[:, None, None]
    return torch.from_numpy(images)


class PixelEncoder(nn.Module):
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
class Transitions:
    """Logged transitions: states, actions, rewards and next states, [N] each."""

    s: Tensor
    a: Tensor
    r: Tensor
    s2: Tensor


def collect(
    mdp: FiniteMDP, policy: Array, count: int, generator: np.random.Generator
) -> Transitions:
    """Transitions from uniformly drawn states under the policy."""
    s = generator.integers(mdp.n_states, size=count)
    a = _draw(policy[s], generator)
    rows = mdp.transitions[s * mdp.n_actions + a].toarray()
    s2 = _draw(rows, generator)
    r = torch.from_numpy(mdp.rewards[s, a].astype(np.float32))
    return Transitions(torch.from_numpy(s), torch.from_numpy(a), r, torch.from_numpy(s2))


def probe(
    mdp: FiniteMDP,
    policy: Array,
    method: str,
    seed: int,
    settings: ProbeSettings,
    progress: Callable[[], None] | None = None,
) -> Measurement:
    """Trains one method and measures it.

    Args:
        mdp: A grid world.
        policy: The policy that collects, (S, A).
        method: An objective's name.
        seed: Of data, initialisation and batches.
        settings: What is trained and for how long.
        progress: Called after each step.
    """
    torch.manual_seed(seed)
    images = render_states(mdp)
    data = collect(mdp, policy, settings.transitions, np.random.default_rng(seed))
    encoder = PixelEncoder((3, images.shape[2], images.shape[3]), settings.latent_dim)
    objective = make_objective(
        method, settings.latent_dim, mdp.n_actions, normalisation=settings.normalisation, hidden=256
    )
    before, states_before = _distances(mdp, encoder, objective, images)
    c = _train(mdp, encoder, objective, images, data, seed, settings, progress)
    after, states_after = _distances(mdp, encoder, objective, images)
    exact = exact_fixed_point(mdp, policy, objective, settings.gamma, c)
    states = exact
    if exact.level == "state_action":
        states = solve("revised", mdp, policy, settings.gamma, c=exact.c)
    gaps = _value_gaps(mdp, policy, settings.gamma, exact.level)
    return Measurement(
        method=method,
        normalised=settings.normalisation,
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
    """The exact metric that a method's targets are a sample of.

    Sampled rewards make the reward gap of every method E|r − r'|, the revised one, also where the
    method's name is MICo or SimSR: under a random policy the sampled loss never sees mean rewards.
    """
    design = getattr(objective, "design", None)
    if design is None:
        return solve("pi_bisimulation", mdp, policy, gamma)
    level = "state_action" if design.state_action else "state"
    return solve("revised", mdp, policy, gamma, c=c if design.adaptive else None, level=level)


def _train(
    mdp: FiniteMDP,
    encoder: nn.Module,
    objective: Objective,
    images: Tensor,
    data: Transitions,
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
        out.representation_loss.backward()
        optimiser.step()
        if coefficient_optimiser is not None and out.coefficient_loss is not None:
            coefficient_optimiser.zero_grad(set_to_none=True)
            out.coefficient_loss.backward()
            coefficient_optimiser.step()
        if progress is not None:
            progress()
    return float(out.next_weight.mean())


@torch.no_grad()
def _distances(
    mdp: FiniteMDP, encoder: nn.Module, objective: Objective, images: Tensor
) -> tuple[Array, Array]:
    """Distances of all that the method compares, and those of φ between all states."""
    z = encoder(images)
    states, actions = torch.from_numpy(mdp.state_actions.copy()).T
    pairs = objective.embed(z[states], torch.eye(mdp.n_actions)[actions])
    z = normalise(z) if objective.normalisation else z
    between_states = objective.distance(z, z).double().numpy()
    if getattr(objective, "psi", None) is None:
        return between_states, between_states
    return objective.distance(pairs, pairs).double().numpy(), between_states


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
