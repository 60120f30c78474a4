"""Objectives from outside the package: one that works, and factories that do not."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.objectives import (
    BaseObjective,
    ObjectiveOutput,
    Transitions,
    make_objective,
    pair_discount,
    reward_gap,
    target,
)

not_a_function = 3


class Euclidean(BaseObjective):
    """Euclidean distances between states through a linear head."""

    def __init__(self, latent_dim: int, action_dim: int, *, width: int = 8) -> None:
        super().__init__(latent_dim, action_dim)
        self.head = nn.Linear(latent_dim, width)

    def embed(self, z: Tensor, action: Tensor) -> Tensor:
        return self.head(z)

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        return torch.linalg.vector_norm(x - y, dim=1) if rowwise else torch.cdist(x, y)

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:
        embedding = self.embed(batch.z, batch.action)
        prediction = self.distance(embedding, embedding)
        with torch.no_grad():
            next_embedding = self.embed(batch.next_z, batch.action)
            following = self.distance(next_embedding, next_embedding)
            weight = pair_discount(batch.discount, batch.discount)
            targets = target(reward_gap(batch.reward, batch.reward), following, 1.0, weight)
        return ObjectiveOutput(
            representation_loss=functional.huber_loss(prediction, targets),
            embedding=embedding.detach(),
            prediction=prediction.detach(),
            next_weight=weight,
        )


make = Euclidean


class Weighted(Euclidean):
    """With a learned coefficient, and a metric of its own on pairs of state and action."""

    compares = "state_action"
    metric = "mico"

    def __init__(self, latent_dim: int, action_dim: int) -> None:
        super().__init__(latent_dim, action_dim)
        self.raw = nn.Parameter(torch.zeros(()))

    def coefficient_parameters(self):
        return iter([self.raw])

    def status(self):
        return {"c": float(torch.sigmoid(self.raw.detach()))}

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:
        out = super().compute(batch, generator)
        return replace(out, coefficient_loss=torch.sigmoid(self.raw).square(), next_weight=None)


def changed(**members: Any) -> Any:
    """A factory of the working objective with some members replaced."""

    def factory(latent_dim: int, action_dim: int) -> Any:
        return type("Changed", (Euclidean,), members)(latent_dim, action_dim)

    return factory


def losing(**fields: Any) -> Any:
    """A factory of the working objective with some fields of its output replaced."""

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:
        out = Euclidean.compute(self, batch, generator)
        return replace(out, **{name: change(out) for name, change in fields.items()})

    return changed(compute=compute)


def raises(latent_dim: int, action_dim: int) -> None:
    raise KeyError("head\nof two lines")


def returns_none(latent_dim: int, action_dim: int) -> None:
    return None


def returns_a_class(latent_dim: int, action_dim: int) -> type:
    return Euclidean


def returns_a_network(latent_dim: int, action_dim: int) -> nn.Module:
    return nn.Linear(latent_dim, action_dim)


def takes_nothing() -> nn.Module:
    return make_objective("simsr", 4, 2)


def wrong_width(latent_dim: int, action_dim: int) -> BaseObjective:
    return Euclidean(latent_dim + 1, action_dim)


without_compute = changed(compute=BaseObjective.compute)
without_distance = changed(distance=BaseObjective.distance)
wrong_level = changed(compares="pair")
wrong_metric = changed(metric="revisd")
flat_distance = changed(distance=lambda self, x, y, rowwise=False: (x[0] - y[0]).abs())
infinite_distance = changed(
    distance=lambda self, x, y, rowwise=False: torch.full(
        (len(x),) if rowwise else (len(x), len(y)), float("inf")
    )
)
squeezed = changed(embed=lambda self, z, action: z.mean(dim=1))
scales_to_none = changed(scale=lambda self, z: None)
tensors = changed(representation_parameters=lambda self: iter([torch.zeros(3)]))
overlapping = changed(
    coefficient_parameters=lambda self: self.head.parameters(),
    representation_parameters=lambda self: self.head.parameters(),
)
talkative = changed(status=lambda self: "fine")
undecided = changed(status=lambda self: {"c": float("nan")})
forgetful = changed(load_state_dict=lambda self, state: self.no_such_attribute)
unmovable = changed(to=lambda self, device: None)
no_output = changed(compute=lambda self, batch, generator: batch.z.sum())
returns_loss = changed(forward=lambda self, *batch, generator=None: batch[0].sum())
per_pair = losing(representation_loss=lambda out: out.prediction)
detached = losing(representation_loss=lambda out: out.representation_loss.detach())
without_z = changed(
    compute=lambda self, batch, generator: replace(
        Euclidean.compute(self, batch, generator), representation_loss=self.head.weight.sum()
    )
)
no_gradient_at_zero = changed(
    distance=lambda self, x, y, rowwise=False: (
        ((x - y) if rowwise else (x[:, None] - y)).square().sum(dim=-1).sqrt()
    )
)
short_prediction = losing(prediction=lambda out: out.prediction[1:])
no_embedding = losing(embedding=lambda out: None)
lost_coefficient = losing(coefficient_loss=lambda out: out.representation_loss)
