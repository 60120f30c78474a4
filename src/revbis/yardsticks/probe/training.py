"""Trains an encoder by an objective alone: no reward is maximised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from revbis.objectives import NonFiniteError, Objective, ObjectiveOutput, make_objective
from revbis.objectives.registry import accepted_options
from revbis.system.factories import described
from revbis.yardsticks.probe.images import observe
from revbis.yardsticks.probe.problem import Dataset, Problem, collect

if TYPE_CHECKING:
    from collections.abc import Callable

_HIDDEN = 256  # width of the objective's head
_REPORT_EVERY = 50  # steps


@dataclass(frozen=True)
class ProbeSettings:
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
    """φ of the probe: a convolution and one Linear."""

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


def make(method: str, actions: int, settings: ProbeSettings) -> Objective:
    """The objective with the probe's settings, of those that it accepts.

    Args:
        method: An objective's name, or package.module:factory.
        actions: Number of actions.
        settings: Those of the probe.
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

    def __init__(self, problem: Problem, method: str, seed: int, settings: ProbeSettings) -> None:
        torch.manual_seed(seed)
        self.problem, self.method, self.settings = problem, method, settings
        self.generator = torch.Generator().manual_seed(seed)
        self.data = collect(problem, settings.transitions, np.random.default_rng(seed))
        self.encoder = StateEncoder(tuple(problem.images.shape[1:]), settings.latent_dim)
        self.objective = make(method, problem.mdp.n_actions, settings)
        self._observed = _observations(problem, self.data, self.generator)
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

    def _call(self) -> ObjectiveOutput:
        """The objective's losses of a batch."""
        rows = torch.randint(len(self.data.s), (self.settings.batch,), generator=self.generator)
        one_hot = torch.eye(self.problem.mdp.n_actions)
        discount = torch.full((self.settings.batch,), self.settings.gamma)
        z, next_z = self._embed(rows)
        actions = {name: self._draw(name, rows) for name in self.objective.policy_actions}
        action, reward = one_hot[self.data.a[rows]], self.data.r[rows]
        try:
            return self.objective(
                z, action, reward, discount, next_z, generator=self.generator, **actions
            )
        except (ValueError, NonFiniteError):
            raise
        except Exception as error:
            raise ValueError(f"calling the objective raised {described(error)}") from error

    def _embed(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of states and of next states; no gradient is needed of the next."""
        if self._observed is None:  # the states are few: embed each once, then gather
            z = self.encoder(self.problem.images)
            return z[self.data.s[rows]], z[self.data.s2[rows]].detach()
        with torch.no_grad():
            next_z = self.encoder(self._observed[1][rows])
        return self.encoder(self._observed[0][rows]), next_z

    def _draw(self, name: str, rows: Tensor) -> Tensor:
        """Actions of the target policy, one-hot: at the states, or at the next ones."""
        states = self.data.s if name == "policy_action" else self.data.s2
        drawn = torch.multinomial(self._target[states[rows]], 1, generator=self.generator)
        return torch.eye(self.problem.mdp.n_actions)[drawn[:, 0]]


def _observations(
    problem: Problem, data: Dataset, generator: torch.Generator
) -> tuple[Tensor, Tensor] | None:
    """What was seen of states and next states, where the same state never looks the same."""
    if problem.pixel_noise == 0:
        return None
    first, second = (
        observe(problem.images, states, problem.pixel_noise, generator)
        for states in (data.s, data.s2)
    )
    return first, second
