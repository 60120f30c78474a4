"""MDPs whose states have images: the scenarios of the benchmark against exact metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from revbis.io import schema
from revbis.tabular import FiniteMDP, action_value, examples, optimal_policy, policy_value, solve
from revbis.tabular.mdp import as_mdp, as_policy
from revbis.tabular.operators import independent_coupling, reward_gap, state_action_distance, target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CELL = 2  # pixels
_SIDE = 16  # pixels of a random image
_BLOCK = 4096  # observations that are drawn at a time


def draw_grid(mdp: FiniteMDP) -> Tensor:
    """One small image per state: floor, walls and the agent, [S, 3, H, W] floats in [0, 1].

    Raises:
        ValueError: If the MDP has no grid.
    """
    if mdp.grid is None:
        raise ValueError("the MDP has no grid to draw its states from: give it one, or pass images")
    rows, columns = mdp.grid.max(axis=0) + 1
    floor = np.zeros((rows, columns), dtype=np.float32)
    floor[mdp.grid[:, 0], mdp.grid[:, 1]] = 0.5
    background = np.kron(floor, np.ones((_CELL, _CELL), dtype=np.float32))
    images = np.repeat(background[None, None], 3, axis=1).repeat(mdp.n_states, axis=0)
    for state, (row, column) in enumerate(mdp.grid):
        cell = (slice(row * _CELL, (row + 1) * _CELL), slice(column * _CELL, (column + 1) * _CELL))
        images[(state, slice(None), *cell)] = np.array([1.0, 0.2, 0.1])[:, None, None]
    return torch.from_numpy(images)


def random_images(count: int, seed: int) -> Tensor:
    """An image of random pixels for each state, [S, 3, H, W]: looks say nothing about behaviour."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, _SIDE, _SIDE, generator=generator)


def observe_states(
    images: Tensor, states: Tensor, noise: float, generator: torch.Generator
) -> Tensor:
    """Observations of states as bytes, [N, C, H, W]: every pixel with Gaussian noise of its own.

    Args:
        images: One per state, [S, C, H, W].
        states: [N].
        noise: Standard deviation of the noise; pixels are clipped to [0, 1].
        generator: Draws the noise.
    """
    observations = torch.empty(len(states), *images.shape[1:], dtype=torch.uint8)
    for first in range(0, len(states), _BLOCK):
        clean = images[states[first : first + _BLOCK]]
        pixels = clean + noise * torch.randn(clean.shape, generator=generator)
        observations[first : first + _BLOCK] = (pixels.clamp_(0, 1) * 255).round_()
    return observations


Array = NDArray[np.float64]
_TEMPERATURE = 0.02


@dataclass(frozen=True, eq=False)
class Problem:
    """What an encoder is trained on, small enough that the exact metric is known.

    Attributes:
        mdp: The MDP.
        images: An image of each state, [S, C, H, W] floats in [0, 1].
        behaviour: The policy that collects transitions, (S, A).
        target: The policy whose metric is wanted, (S, A).
        outcomes: Equally likely rewards of each state and action, (S, A, K), whose means are
            `mdp.rewards`; None where rewards are not random.
        pixel_noise: Standard deviation of the noise in every pixel of every observation; 0 where a
            state always looks the same.
        factors: The value of each factor in each state, (S,), where states are products of factors.
        lumped: A smaller problem with the same exact metrics, and the state of it that each state
            is bisimilar to, (S,); None if there is none.

    Raises:
        ValueError: If the images, policies or outcomes do not fit the MDP.
    """

    mdp: FiniteMDP
    images: Tensor
    behaviour: Array
    target: Array
    outcomes: Array | None = None
    pixel_noise: float = 0.0
    factors: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    lumped: tuple[Problem, NDArray[np.int64]] | None = None

    def __post_init__(self) -> None:
        shape = as_mdp(self.mdp).rewards.shape
        _check_images(self.images, shape[0])
        for policy in (self.behaviour, self.target):
            as_policy(self.mdp, policy)
        noise = schema.number(self.pixel_noise, "pixel_noise")
        if not 0 <= noise < np.inf:
            raise ValueError(f"pixel_noise must be a finite number from 0, got {noise:g}")
        if self.outcomes is None:
            return
        count = np.shape(self.outcomes)[-1] if np.ndim(self.outcomes) == 3 else 0
        outcomes = schema.finite_matrix(self.outcomes, (*shape, max(count, 1)), "outcomes")
        if not np.allclose(outcomes.mean(axis=2), self.mdp.rewards):
            raise ValueError("the means of outcomes over its last axis must be the MDP's rewards")

    @property
    def off_policy(self) -> bool:
        """Whether another policy collects than the one whose metric is wanted."""
        return not np.array_equal(self.behaviour, self.target)


@dataclass(frozen=True)
class Dataset:
    """Collected transitions: states, actions, rewards and next states, [N] each."""

    s: Tensor
    a: Tensor
    r: Tensor
    s2: Tensor


def collect_dataset(problem: Problem, count: int, generator: np.random.Generator) -> Dataset:
    """Transitions from uniformly drawn states under the behaviour policy."""
    mdp = problem.mdp
    s = generator.integers(mdp.n_states, size=count)
    a = _draw(problem.behaviour[s], generator)
    s2 = _draw(mdp.transitions[s * mdp.n_actions + a].toarray(), generator)
    r = mdp.rewards[s, a]
    if problem.outcomes is not None:
        r = problem.outcomes[s, a, generator.integers(problem.outcomes.shape[2], size=count)]
    states, actions, following = (torch.from_numpy(x) for x in (s, a, s2))
    return Dataset(states, actions, torch.from_numpy(r.astype(np.float32)), following)


def every_transition(problem: Problem) -> tuple[Dataset, Tensor]:
    """All transitions that have a chance, and how likely each is given state and action, [N]."""
    mdp = problem.mdp
    kept: dict[str, list[float]] = {name: [] for name in ("s", "a", "r", "s2", "p")}
    for s, a in mdp.state_actions:
        law = mdp.transitions[[s * mdp.n_actions + a]]
        rewards = [mdp.rewards[s, a]] if problem.outcomes is None else problem.outcomes[s, a]
        for r in rewards:
            count = len(law.indices)
            parts = ([s] * count, [a] * count, [r] * count, law.indices, law.data / len(rewards))
            for values, part in zip(kept.values(), parts, strict=True):
                values.extend(part)
    s, a, r, s2, p = (torch.as_tensor(np.array(values)) for values in kept.values())
    return Dataset(s, a, r.float(), s2.long()), p


def near_greedy(mdp: FiniteMDP, gamma: float) -> Array:
    """The softmax of the optimal action values at a low temperature, (S, A)."""
    q = action_value(mdp, optimal_policy(mdp, gamma)[0], gamma)
    weights = np.exp((q - q.max(axis=1, keepdims=True)) / _TEMPERATURE)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _check_images(images: object, states: int) -> None:
    wanted = f"an image for each of its {states} states, floats in [0, 1] of shape [S, C, H, W]"
    if not isinstance(images, Tensor):
        raise ValueError(f"the MDP needs {wanted}, got {type(images).__name__}")
    if images.ndim != 4 or len(images) != states or not images.is_floating_point():
        raise ValueError(f"the MDP needs {wanted}, got {images.dtype} of {list(images.shape)}")
    if not bool(((images >= 0) & (images <= 1)).all()):  # false for NaN, too
        raise ValueError(f"the MDP needs {wanted}, but some pixels are not in [0, 1]")


def _draw(probabilities: Array, generator: np.random.Generator) -> NDArray[np.int64]:
    """One index from each row of probabilities."""
    edges = probabilities.cumsum(axis=1)
    edges[:, -1] = 1.0
    return np.asarray((generator.random((len(edges), 1)) >= edges).sum(axis=1))


# Factors of a state, whether actions move them and rewards depend on them: the first and third do.
FACTORS = {
    "controllable_relevant": "controllable, relevant",
    "controllable_irrelevant": "controllable, irrelevant",
    "exogenous_relevant": "exogenous, relevant",
    "exogenous_irrelevant": "exogenous, irrelevant",
}
_VALUES = 4  # of each factor, on a ring
_MOVES = 0.8  # chance that a factor moves on; else it stays
# By the value of a relevant factor: no two of the sums are the same.
_FACTOR_REWARDS = {
    "controllable_relevant": (0.0, 0.3, 0.5, 0.1),
    "exogenous_relevant": (0.0, 0.07, 0.41, 0.23),
}
_PART = 8  # pixels: side of a factor's part of an image


def factored_mdp(
    names: Sequence[str], values: int = _VALUES
) -> tuple[FiniteMDP, dict[str, NDArray[np.int64]]]:
    """An MDP whose state is some of `FACTORS`, each on a ring, and the value of each in each state.

    Two bits of an action move the controllable factors, each its own, one step up or down; the
    exogenous ones move up. The reward is a sum over the relevant ones.

    Args:
        names: The factors.
        values: How many values each has.
    """
    ring = np.roll(np.eye(values), 1, axis=1)
    up = scipy.sparse.csr_array(_MOVES * ring + (1 - _MOVES) * np.eye(values))
    down = scipy.sparse.csr_array(up.T)
    transitions = []
    for bits in product((up, down), repeat=2):
        moved = {"controllable_relevant": bits[0], "controllable_irrelevant": bits[1]}
        joint = scipy.sparse.csr_array([[1.0]])
        for name in names:
            joint = scipy.sparse.csr_array(scipy.sparse.kron(joint, moved.get(name, up)))
        transitions.append(joint)
    table = np.array(list(product(range(values), repeat=len(names))), dtype=np.int64)
    factors = {name: table[:, place] for place, name in enumerate(names)}
    reward = np.zeros(len(table))
    for name, paid in _FACTOR_REWARDS.items():
        if name in factors:
            reward += np.asarray(paid)[factors[name]]
    return FiniteMDP(transitions, np.repeat(reward[:, None], len(transitions), axis=1)), factors


def draw_factors(factors: Mapping[str, NDArray[np.int64]], *, mixed: bool) -> Tensor:
    """An image of each state, [S, 3, 16, 16]: a quarter for each factor, a square for its value.

    Args:
        factors: Four of them, the value of each in each state, (S,); values below 4.
        mixed: Whether a fixed rotation of the pixels makes each depend on all factors.
    """
    first = next(iter(factors.values()))
    pictures = np.zeros((len(first), 2 * _PART, 2 * _PART))
    half = _PART // 2
    for place, value in enumerate(factors.values()):
        for state, at in enumerate(value):
            row, column = (
                _PART * (place // 2) + half * (at // 2),
                _PART * (place % 2) + half * (at % 2),
            )
            pictures[state, row : row + half, column : column + half] = 1.0
    if mixed:
        size = pictures[0].size
        basis, triangle = np.linalg.qr(np.random.default_rng(_SEED).normal(size=(size, size)))
        rotation = basis * np.where(np.diag(triangle) < 0, -1.0, 1.0)
        turned = (pictures.reshape(len(first), -1) - pictures.mean()) @ rotation.T
        pictures = (0.5 + 0.5 * turned / np.abs(turned).max()).reshape(pictures.shape)
    return torch.from_numpy(np.repeat(pictures[:, None], 3, axis=1).astype(np.float32))


def _build_factors(*, mixed: bool) -> Problem:
    mdp, factors = factored_mdp(tuple(FACTORS))
    relevant = tuple(_FACTOR_REWARDS)
    small, kept = factored_mdp(relevant)
    labels = sum(
        factors[name] * _VALUES ** (len(relevant) - 1 - i) for i, name in enumerate(relevant)
    )
    images = draw_factors(factors, mixed=mixed)
    first = np.unique(labels, return_index=True)[1]
    uniform = small.uniform_policy()
    lumped = Problem(small, images[first], uniform, uniform, factors=kept)
    uniform = mdp.uniform_policy()
    return Problem(mdp, images, uniform, uniform, factors=factors, lumped=(lumped, labels))


_SLIP = 0.5
_GARNET = {"n_states": 60, "n_actions": 4, "branching": 2}
_SEED = 0  # of the Garnet and of its images: they are part of the benchmark
_SPREAD = 0.5  # of random rewards, at the right edge
_PIXEL_NOISE = 0.2


@dataclass(frozen=True)
class Scenario:
    """One setting: an MDP, its rewards, what is seen of it, and whose metric is wanted.

    Attributes:
        mdp: "rooms" (four rooms), "slip" (an open grid, half of the moves slip), "garnet" (a
            random MDP whose states are fixed random images) or "factors" (256 states that are
            products of four factors: controllable or not, relevant or not).
        rewards: "fixed", or "random": drawn at each transition, r(s, a) ± σ(s) with equal chance,
            where σ grows from 0 at the left edge of the grid to 0.5 at the right.
        pixels: "clean", "noisy": every pixel of every observation has Gaussian noise of its own,
            of standard deviation 0.2, or "mixed": a fixed rotation of all pixels.
        policy: "uniform" collects and is judged, or "off-policy": uniform collects, and the metric
            of a near-greedy policy is wanted.
    """

    mdp: Literal["rooms", "slip", "garnet", "factors"]
    rewards: Literal["fixed", "random"] = "fixed"
    pixels: Literal["clean", "noisy", "mixed"] = "clean"
    policy: Literal["uniform", "off-policy"] = "uniform"

    @property
    def description(self) -> str:
        """The scenario in one short line."""
        names = {"rooms": "four rooms", "slip": "a slippery grid", "garnet": "a Garnet"}
        name = (names | {"factors": "four factors, two of them irrelevant"})[self.mdp]
        parts = [
            name,
            "random rewards" if self.rewards == "random" else "",
            "noise in every pixel" if self.pixels == "noisy" else "",
            "rotated pixels" if self.pixels == "mixed" else "",
            "uniform data, near-greedy policy" if self.policy == "off-policy" else "uniform policy",
        ]
        return ", ".join(filter(None, parts))


SCENARIOS = {
    "rooms": Scenario("rooms"),
    "rooms-off-policy": Scenario("rooms", policy="off-policy"),
    "rooms-noisy": Scenario("rooms", pixels="noisy"),
    "slip": Scenario("slip", rewards="random"),
    "garnet": Scenario("garnet"),
    "garnet-off-policy": Scenario("garnet", policy="off-policy"),
    "factors": Scenario("factors"),
    "factors-mixed": Scenario("factors", pixels="mixed"),
}
# What is run when none is named.
USUAL = tuple(name for name, scenario in SCENARIOS.items() if scenario.mdp != "factors")


@cache
def build(name: str, size: int, gamma: float) -> Problem:
    """The problem of a scenario.

    Args:
        name: Of `SCENARIOS`.
        size: Side of the grids.
        gamma: Discount factor, which the near-greedy policy depends on.
    """
    scenario = SCENARIOS[name]
    if scenario.mdp == "factors":
        return _build_factors(mixed=scenario.pixels == "mixed")
    if scenario.mdp == "garnet":
        mdp = examples.garnet(**_GARNET, seed=_SEED).mdp
        images = random_images(mdp.n_states, _SEED)
    else:
        rooms = scenario.mdp == "rooms"
        mdp = (examples.four_rooms(size) if rooms else examples.grid_world(size, slip=_SLIP)).mdp
        images = draw_grid(mdp)
    uniform = mdp.uniform_policy()
    return Problem(
        mdp,
        images,
        behaviour=uniform,
        target=near_greedy(mdp, gamma) if scenario.policy == "off-policy" else uniform,
        outcomes=_spread_rewards(mdp) if scenario.rewards == "random" else None,
        pixel_noise=_PIXEL_NOISE if scenario.pixels == "noisy" else 0.0,
    )


def _spread_rewards(mdp: FiniteMDP) -> Array:
    """Two equally likely rewards around each mean, further apart to the right, (S, A, 2)."""
    assert mdp.grid is not None
    column = mdp.grid[:, 1]
    spread = (_SPREAD * column / column.max())[:, None]
    return np.stack([mdp.rewards - spread, mdp.rewards + spread], axis=2)


Whose = Literal["target", "behaviour"]


@lru_cache(maxsize=8)  # the methods of a scenario share theirs, unless c is learned
def exact_distances(
    problem: Problem, whose: Whose, metric: str, level: str, gamma: float, c: float | None
) -> Array:
    """The exact metric of one of the problem's policies, (n, n).

    Only the revised metric sees the laws of random rewards, by E|r − r'|; the others are defined
    on mean rewards.

    Args:
        problem: The MDP and its policies.
        whose: The policy.
        metric: One of `revbis.tabular.METRICS`.
        level: "state", or "state_action" for the available pairs.
        gamma: Discount factor.
        c: Weights (1−c, c) instead of (1, γ), unless None.
    """
    if problem.lumped is not None:
        small, labels = problem.lumped
        solved = exact_distances(small, whose, metric, level, gamma, c)
        if level == "state_action":
            states, actions = problem.mdp.state_actions.T
            labels = labels[states] * problem.mdp.n_actions + actions
        return solved[np.ix_(labels, labels)]
    policy = getattr(problem, whose)
    if level == "state_action" and metric in ("revised", "mico"):  # MICo's G is the revised one
        U = exact_distances(problem, whose, "revised", "state", gamma, c)
        return _between_pairs(problem, U, *((1.0, gamma) if c is None else (1 - c, c)))
    mdp = problem.mdp
    if metric == "revised" and problem.outcomes is not None:
        count = problem.outcomes.shape[2]
        mdp = _outcomes_as_actions(mdp, problem.outcomes)
        policy = np.repeat(policy, count, axis=1) / count
    return solve(metric, mdp, policy, gamma, c=c, level=level).matrix()


@cache
def exact_value_gaps(problem: Problem, whose: Whose, level: str, gamma: float) -> Array:
    """|V(s) − V(t)| of a policy, or |Q(x) − Q(y)| between state-action pairs, (n, n)."""
    value = policy_value(problem.mdp, getattr(problem, whose), gamma)
    if level == "state_action":
        value = action_value(problem.mdp, value, gamma)[problem.mdp.available]
    return np.abs(value[:, None] - value)


def _between_pairs(problem: Problem, U: Array, reward_weight: float, discount: float) -> Array:
    """G from U: Eq. 3, with the laws of random rewards."""
    if problem.outcomes is None:
        return state_action_distance(problem.mdp, U, reward_weight, discount)
    mdp = problem.mdp
    states, actions = mdp.state_actions.T
    laws = problem.outcomes[states, actions]
    gap = reward_gap(laws, np.full_like(laws, 1 / laws.shape[1]))
    following = independent_coupling(mdp.transitions[states * mdp.n_actions + actions], U)
    return target(gap, following, reward_weight, discount)


def _outcomes_as_actions(mdp: FiniteMDP, outcomes: Array) -> FiniteMDP:
    """The same MDP where each outcome of an action is an action of its own: rewards are fixed."""
    n, m, k = outcomes.shape
    rows = [mdp.transitions[np.arange(n) * m + a] for a in range(m)]
    mask = np.repeat(mdp.available, k, axis=1)
    return FiniteMDP([row for row in rows for _ in range(k)], outcomes.reshape(n, m * k), mask=mask)
