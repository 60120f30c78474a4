"""The benchmark against exact metrics: an encoder trained by an objective alone, and compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from revbis.io.files import atomic_file
from revbis.objectives import (
    LawObjective,
    Objective,
    ObjectiveOutput,
    Transitions,
    make_objective,
)
from revbis.objectives.registry import accepted_options
from revbis.representation.cells import (
    Record,
    calling_objective,
    cell_path,
    code_key,
    read_cell,
    stored,
    write_cell,
)
from revbis.representation.measures import (
    Agreement,
    agreement,
    denoising_factor,
    draw_others,
    factor_probes,
    factor_shares,
    rank_correlation,
)
from revbis.representation.problems import (
    SCENARIOS,
    Problem,
    Whose,
    build,
    collect_dataset,
    every_transition,
    exact_distances,
    exact_value_gaps,
    observe_states,
)
from revbis.tabular.readers import read_npz

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

BENCHMARK = 1  # its version: raised when numbers change, so that other results are not read

Array = NDArray[np.float64]
_HIDDEN = 256  # width of the objective's head
_REPORT_EVERY = 50  # steps
_RENDERINGS = 8  # pairs of observations that a distance between states is the mean of
_POSITIVES = 16
_MOST_DOTS = 1500
_NOISY = 1.5  # how much longer a step takes with noisy pixels, and with ψ or a tie
_WITH_PSI = 0.3
_WITH_POLICY = 0.2


@dataclass(frozen=True)
class ExactnessSettings:
    """What is trained, and for how long.

    Learning rates fall to 0 in equal steps.

    Attributes:
        gamma: Discount factor.
        steps: Gradient steps.
        normalisation: Scale embeddings to length 1, for objectives that have that option; None
            leaves it to the objective.
        transitions: Number of collected transitions.
        batch: Transitions in a batch.
        latent_dim: Width of the embeddings.
        learning_rate: Of the encoder and the objective's heads.
        coefficient_rate: Learning rate of the coefficient.
    """

    gamma: float = 0.9
    steps: int = 2000
    normalisation: bool | None = None
    transitions: int = 20_000
    batch: int = 128
    latent_dim: int = 50
    learning_rate: float = 3e-3
    coefficient_rate: float = 1e-3


class StateEncoder(nn.Module):
    """φ of the benchmark: a convolution and one Linear."""

    def __init__(self, shape: tuple[int, ...], latent_dim: int) -> None:
        super().__init__()
        convolution = nn.Sequential(
            nn.Conv2d(shape[0], 16, 4, stride=2, padding=1), nn.ReLU(), nn.Flatten()
        )
        width = convolution(torch.zeros(1, *shape)).shape[1]
        self.layers = nn.Sequential(*convolution, nn.Linear(width, latent_dim))

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W], floats in [0, 1] or bytes, → [N, D]."""
        pixels = images if images.is_floating_point() else images / 255
        z: Tensor = self.layers(pixels - 0.5)
        return z


def make(method: str, actions: int, settings: ExactnessSettings) -> Objective:
    """The objective with the benchmark's settings, of those that it accepts.

    Args:
        method: An objective's name, or package.module:factory.
        actions: Number of actions.
        settings: Those of the benchmark.
    """
    options: dict[str, Any] = {"hidden": _HIDDEN}
    if settings.normalisation is not None:
        options["normalisation"] = settings.normalisation
    accepted = accepted_options(method)
    chosen = {name: value for name, value in options.items() if name in accepted}
    return make_objective(method, settings.latent_dim, actions, **chosen)


class Training:
    """An encoder, an objective and the data they are trained on.

    Args:
        problem: What is learned.
        method: An objective's name, or package.module:factory.
        seed: Of data, initialisation and batches.
        settings: What is trained, and for how long.
    """

    def __init__(
        self, problem: Problem, method: str, seed: int, settings: ExactnessSettings
    ) -> None:
        torch.manual_seed(seed)
        self.problem, self.method, self.settings = problem, method, settings
        self.generator = torch.Generator().manual_seed(seed)
        self.data = collect_dataset(problem, settings.transitions, np.random.default_rng(seed))
        self.encoder = StateEncoder(tuple(problem.images.shape[1:]), settings.latent_dim)
        self.objective = make(method, problem.mdp.n_actions, settings)
        self._observed: tuple[Tensor, Tensor] | None = None
        if problem.pixel_noise:  # the same state never looks the same
            self._observed = self._observe(self.data.s), self._observe(self.data.s2)
        self._target = torch.from_numpy(problem.target).float()

    def run(self, progress: Callable[[int], None]) -> None:
        """Trains; progress is called with a number of further steps.

        Raises:
            ValueError: If the objective raises one, or anything else.
            NonFiniteError: If training diverges.
        """
        settings, objective = self.settings, self.objective
        trained = [*self.encoder.parameters(), *objective.representation_parameters()]
        optimisers = [torch.optim.Adam(trained, lr=settings.learning_rate, fused=True)]
        raw_c = list(objective.coefficient_parameters())
        if raw_c:
            optimisers.append(torch.optim.Adam(raw_c, lr=settings.coefficient_rate, fused=True))
        rates = [
            torch.optim.lr_scheduler.LinearLR(each, 1.0, 0.0, settings.steps) for each in optimisers
        ]
        for step in range(settings.steps):
            out = self._call()
            losses = (out.representation_loss, out.coefficient_loss)
            for loss, optimiser in zip(losses, optimisers, strict=False):
                optimiser.zero_grad(set_to_none=True)
                assert loss is not None
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            for rate in rates:
                rate.step()
            if step % _REPORT_EVERY == _REPORT_EVERY - 1:
                progress(_REPORT_EVERY)
        progress(settings.steps % _REPORT_EVERY)

    def error_bound(self) -> float | None:
        """The objective's bound on its error, from all transitions; None if it has none.

        None with noise, too: then there are more observations than can be enumerated.
        """
        objective, problem = self.objective, self.problem
        if not isinstance(objective, LawObjective) or problem.pixel_noise:
            return None
        data, chance = every_transition(problem)
        count = problem.mdp.n_actions
        action = torch.eye(count)[data.a]
        with torch.no_grad():
            z = self.encoder(problem.images)
        discount = torch.full_like(data.r, self.settings.gamma)
        batch = Transitions(z[data.s], action, data.r, discount, z[data.s2], action)
        pairs = functional.one_hot(data.s * count + data.a).T * chance
        taken = torch.from_numpy(problem.target)[data.s, data.a]
        states = functional.one_hot(data.s).T * chance * taken
        return objective.error_bound(batch, pairs=pairs, states=states).total

    def _call(self) -> ObjectiveOutput:
        """The objective's losses of a batch."""
        rows = torch.randint(len(self.data.s), (self.settings.batch,), generator=self.generator)
        one_hot = torch.eye(self.problem.mdp.n_actions)
        discount = torch.full((self.settings.batch,), self.settings.gamma)
        z, next_z = self._embed(rows)
        actions = {name: self._draw(name, rows) for name in self.objective.policy_actions}
        action, reward = one_hot[self.data.a[rows]], self.data.r[rows]
        with calling_objective():
            return self.objective(
                z, action, reward, discount, next_z, generator=self.generator, **actions
            )

    def _embed(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of states and of next states; no gradient is needed of the next."""
        if self._observed is None:  # the states are few: embed each once, then gather
            z = self.encoder(self.problem.images)
            return z[self.data.s[rows]], z[self.data.s2[rows]].detach()
        with torch.no_grad():
            next_z = self.encoder(self._observed[1][rows])
        return self.encoder(self._observed[0][rows]), next_z

    def _observe(self, states: Tensor) -> Tensor:
        return observe_states(self.problem.images, states, self.problem.pixel_noise, self.generator)

    def _draw(self, name: str, rows: Tensor) -> Tensor:
        """Actions of the target policy, one-hot: at the states, or at the next ones."""
        states = self.data.s if name == "policy_action" else self.data.s2
        drawn = torch.multinomial(self._target[states[rows]], 1, generator=self.generator)
        return torch.eye(self.problem.mdp.n_actions)[drawn[:, 0]]


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
        metric: The exact metric that it is compared with.
        claims: The policy whose metric its loss learns: "target" where it asks for actions of that
            policy, else "behaviour".
        c: Weight of the next-state term at the end: γ, or the coefficient.
        phi: φ between states, against U; behind its own head where an objective that compares
            states has one.
        psi: ψ between state-action pairs, against G; None where the objective compares states.
        denoising: Denoising factor of φ; None where pixels do not distract.
        untrained_denoising: The same before training.
        bound: Bound on the error of φ's distances by its own residuals; None of objectives that
            have none.
        factors: What φ keeps of each factor, as R² and as share of the variance; empty where states
            have none.
        untrained_factors: The same before training.
    """

    metric: str
    claims: Literal["target", "behaviour"]
    c: float
    phi: Compared
    psi: Compared | None
    denoising: float | None
    untrained_denoising: float | None
    bound: float | None
    factors: dict[str, float]
    untrained_factors: dict[str, float]


def measure(
    problem: Problem,
    method: str,
    seed: int = 0,
    settings: ExactnessSettings | None = None,
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
    settings = settings or ExactnessSettings()
    training = Training(problem, method, seed, settings)
    noise, before = _denoising(training, seed), _distances(training, seed)
    kept_before = _factors(training, seed)
    training.run(progress or (lambda _: None))
    after, objective = _distances(training, seed), training.objective
    status = objective.status()
    c, unit = status.get("c"), status.get("reward_scale", 1.0)
    compared = {}
    for level, learned in after.items():

        def exact(whose: Whose, level: str = level) -> tuple[Array, Array]:
            solved = exact_distances(problem, whose, objective.metric, level, settings.gamma, c)
            return solved, exact_value_gaps(problem, whose, level, settings.gamma)

        wanted = exact("target")
        others = agreement(unit * learned, *exact("behaviour")) if problem.off_policy else None
        i, j = np.triu_indices(len(learned), 1)
        start = before[level] + before[level].T
        compared[level] = Compared(
            learned=unit * learned,
            exact=wanted[0],
            target=agreement(unit * learned, *wanted),
            behaviour=others,
            untrained=rank_correlation(start[i, j], wanted[0][i, j]),
        )
    return Measurement(
        metric=objective.metric,
        claims="target" if objective.policy_actions else "behaviour",
        c=settings.gamma if c is None else c,
        phi=compared["state"],
        psi=compared.get("state_action"),
        denoising=_denoising(training, seed),
        untrained_denoising=noise,
        bound=training.error_bound(),
        factors=_factors(training, seed),
        untrained_factors=kept_before,
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
            training.encoder(observe_states(problem.images, every, problem.pixel_noise, generator))
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
    seen = observe_states(problem.images, states, problem.pixel_noise, generator)
    z = training.objective.scale(training.encoder(seen)).reshape(1 + _POSITIVES, count, -1)
    others = draw_others(_POSITIVES, count, generator)
    negatives = z[1:][torch.arange(_POSITIVES)[:, None], others]
    return denoising_factor(z[0], z[1:], negatives, torch.float32)


@torch.no_grad()
def _factors(training: Training, seed: int) -> dict[str, float]:
    """What φ, as `distance` takes it, keeps of each factor: read by a linear map, and its share."""
    problem = training.problem
    if not problem.factors:
        return {}
    z = _numbers(training.objective.scale(training.encoder(problem.images)))
    read = factor_probes(z, problem.factors, np.random.default_rng(seed))
    shares = factor_shares(z, problem.factors)
    return {f"{name}_r2": value for name, value in read.items()} | {
        f"{name}_share": value for name, value in shares.items()
    }


def _numbers(tensor: Tensor) -> Array:
    return np.asarray(tensor.double().numpy())


@dataclass(frozen=True)
class ExactnessCell:
    """One cell.

    Attributes:
        scenario: A name of `SCENARIOS`.
        method: An objective's name, or package.module:factory.
        seed: The seed.
        size: Side of the grids.
        settings: What is trained, and for how long.
    """

    scenario: str
    method: str
    seed: int
    size: int
    settings: ExactnessSettings

    @property
    def title(self) -> str:
        """The cell in a few words."""
        return f"{self.method} on {self.scenario}, seed {self.seed}"

    @property
    def steps(self) -> int:
        """Gradient steps."""
        return self.settings.steps

    @property
    def label(self) -> str:
        """What its files are named after."""
        return f"{self.scenario}.{self.method}.{self.seed}"

    @property
    def key(self) -> Record:
        """Everything that the result depends on."""
        return {
            "scenario": [self.scenario, asdict(SCENARIOS[self.scenario])],
            "method": self.method,
            "seed": self.seed,
            "size": self.size,
            "settings": asdict(self.settings),
            **code_key(self.method, BENCHMARK),
        }


def plan(
    scenarios: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    size: int,
    settings: ExactnessSettings,
) -> dict[ExactnessCell, float]:
    """The cells, seed by seed, the longest of each first, and how much work each is.

    Raises:
        ValueError: For an objective or a grid that cannot be made, before time is spent on others.
    """
    problems = {name: build(name, size, settings.gamma) for name in scenarios}
    cost = {}
    for method in dict.fromkeys(methods):
        for actions in {problem.mdp.n_actions for problem in problems.values()}:
            objective = make(method, actions, settings)
        psi = _WITH_PSI * (objective.compares == "state_action")
        cost[method] = 1 + psi + _WITH_POLICY * len(objective.policy_actions)
    cells = {
        ExactnessCell(scenario, method, seed, size, settings): settings.steps
        * cost[method]
        * (_NOISY if SCENARIOS[scenario].pixels == "noisy" else 1.0)
        for scenario in problems
        for method in cost
        for seed in range(seeds)
    }
    return dict(sorted(cells.items(), key=lambda item: (item[0].seed, -item[1])))


def run_cell(out: Path, cell: ExactnessCell, progress: Callable[[int], None]) -> None:
    """Trains and measures a cell, and writes its result.

    Raises:
        ValueError: If the objective cannot be made, or raises.
        NonFiniteError: If training diverges.
        OSError: If the result cannot be written.
    """
    problem = build(cell.scenario, cell.size, cell.settings.gamma)
    result = measure(problem, cell.method, cell.seed, cell.settings, progress)
    row: Record = {
        "scenario": cell.scenario,
        "method": cell.method,
        "seed": cell.seed,
        "metric": result.metric,
        "claims": result.claims,
        "c": result.c,
    }
    dots = {}
    for name, compared in (("phi", result.phi), ("psi", result.psi)):
        if compared is not None:
            row |= {f"{name}_{key}": value for key, value in asdict(compared.target).items()}
            if compared.behaviour is not None:
                others = asdict(compared.behaviour).items()
                row |= {f"{name}_behaviour_{key}": value for key, value in others}
            row[f"{name}_spearman_untrained"] = compared.untrained
            dots[name] = _some_pairs(compared)
    row |= {"denoising": result.denoising, "denoising_untrained": result.untrained_denoising}
    if result.bound is not None:
        largest = float(np.abs(result.phi.learned - result.phi.exact).max())
        row |= {"bound": result.bound, "largest_error": largest}
    row |= result.factors
    row |= {f"{name}_untrained": value for name, value in result.untrained_factors.items()}
    if cell.seed == 0:  # for the picture
        with atomic_file(_dots_path(cell, out)) as file:
            np.savez_compressed(file, allow_pickle=False, **dots)
    write_cell(cell, out, row)


def read_exactness(cell: ExactnessCell, out: Path) -> Record | None:
    """The result of a cell, None if there is none; one that cannot be read counts as none."""
    row = read_cell(cell, out)
    try:
        read_dots(cell, out)
    except ValueError:
        return None
    return row


def read_dots(cell: ExactnessCell, out: Path) -> dict[str, np.ndarray]:
    """Learned and exact distances of some pairs: `phi` and `psi`, (2, n); {} if there are none.

    Raises:
        ValueError: If their file cannot be read.
    """
    path = stored(_dots_path(cell, out))
    return read_npz(path) if path.exists() else {}


def _dots_path(cell: ExactnessCell, out: Path) -> Path:
    return cell_path(cell, out).with_suffix(".npz")


def _some_pairs(compared: Compared) -> NDArray[np.float32]:
    """Learned and exact distances of at most 1,500 pairs, (2, n)."""
    i, j = np.triu_indices(len(compared.exact), 1)
    count = min(_MOST_DOTS, len(i))
    chosen = np.random.default_rng(0).choice(len(i), count, replace=False)
    pairs = (i[chosen], j[chosen])
    return np.stack([compared.learned[pairs], compared.exact[pairs]]).astype(np.float32)
