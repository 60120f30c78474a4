"""The parts of the agent: networks, objective, and which optimiser trains which parameter."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from revbis.agents.adam import Adam
from revbis.agents.linear import Readouts
from revbis.agents.networks import PixelEncoder, Policy, TwinQ, VectorEncoder
from revbis.objectives import make_objective

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from revbis.agents.adam import Group
    from revbis.agents.drqv2.auxiliary import Auxiliary
    from revbis.agents.drqv2.settings import DrQV2Settings


class Following(NamedTuple):
    """What the objective compares next: φ̄ of the next states, and the policy's actions there."""

    z: Tensor
    action: Tensor | None


class Parts:
    """The networks of an agent, on their device.

    Attributes:
        encoder: The encoder that all of them share.
        readouts: The first linear layers after it: critic, projection (φ's last), actor, target.
        policy: The rest of the actor.
        critic: The rest of the critic.
        target: The target critic, a slowly moving copy.
        tokens: What the critics read of an action: by default the action itself.
        norm: What follows φ's projection: LayerNorm with `encoder_norm`, else nothing.
        objective: The loss with its heads that trains the encoder too, or None.

    Args:
        observation_shape: (C, H, W) of images, or (D,) of vectors.
        action_size: Dimension of an action.
        settings: Sizes and rates.
        device: Where the networks are.
        objective: Makes the objective, if there is one.
        tokens: Maps actions to tokens, [B, A] → [B, T]; None for the actions themselves.
        token_size: T; None for A.
    """

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        action_size: int,
        settings: DrQV2Settings,
        device: torch.device,
        objective: Callable[[], Auxiliary] | None = None,
        tokens: nn.Module | None = None,
        token_size: int | None = None,
    ) -> None:
        s = settings
        self.encoder: PixelEncoder | VectorEncoder
        if len(observation_shape) == 3:
            self.encoder = PixelEncoder(observation_shape, s.channels, s.strides).to(device)
        else:
            self.encoder = VectorEncoder(observation_shape[0], s.hidden).to(device)
        # The critic is computed together with the projection, and the projection together with
        # actor and target, so these are adjacent.
        widths = {"critic": s.feature_dim, "projection": s.latent_dim}
        widths |= {"actor": s.feature_dim, "target": s.feature_dim}
        if objective is None:
            del widths["projection"]
        self.readouts = Readouts(self.encoder.size, widths, device)
        self.readouts.draw("critic", "actor")
        self.policy = Policy(s.feature_dim, s.hidden, action_size).to(device)
        self.tokens = nn.Identity() if tokens is None else tokens.to(device)
        self.critic = TwinQ(s.feature_dim, s.hidden, token_size or action_size).to(device)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        for critic, target in zip(
            *(self.readouts.of(n) for n in ("critic", "target")), strict=True
        ):
            target.requires_grad_(False).copy_(critic.detach())
        self.objective: Auxiliary | None = None
        self.norm: nn.Module = nn.Identity()
        if objective is not None:  # drawn last, so that it does not change the others
            self.readouts.draw("projection")
            if s.encoder_norm:
                self.norm = nn.LayerNorm(s.latent_dim).to(device)
            self.objective = objective().to(device)
        if s.compile:
            networks = (self.encoder, self.policy, self.critic, self.target, self.objective)
            for network in networks:
                if isinstance(network, nn.Module):
                    network.compile()
        self._critic_parameters: list[Tensor] = [
            *self.readouts.of("critic"),
            *self.critic.parameters(),
        ]
        self._target_parameters: list[Tensor] = [
            *self.readouts.of("target"),
            *self.target.parameters(),
        ]

    def make_optimisers(self, settings: DrQV2Settings) -> dict[str, Adam]:
        """Each parameter is in one; alternating, those of encoder and tokens are in two."""
        s = settings
        encoder: list[Tensor] = [*self.encoder.parameters(), *self.tokens.parameters()]
        critic: list[Group] = [{"params": encoder + self._critic_parameters, "lr": s.learning_rate}]
        groups = {"critic": critic}
        actor = [*self.readouts.of("actor"), *self.policy.parameters()]
        groups["actor"] = [{"params": actor, "lr": s.learning_rate}]
        if self.objective is not None:
            heads: list[Tensor] = [*self.readouts.of("projection")]
            heads += [*self.objective.representation_parameters(), *self.norm.parameters()]
            if s.mode != "alternating":
                critic.append({"params": heads, "lr": s.objective_learning_rate})
            else:
                rate = s.objective_learning_rate
                groups["objective"] = [{"params": encoder + heads, "lr": rate}]
            raw_c = list(self.objective.coefficient_parameters())
            if raw_c:
                groups["coefficient"] = [{"params": raw_c, "lr": s.coefficient_learning_rate}]
        return {name: Adam(group) for name, group in groups.items()}

    def move_target(self, rate: float) -> None:
        """Moves the target critic towards the critic: target += rate · (critic − target)."""
        with torch.no_grad():
            torch._foreach_lerp_(self._target_parameters, self._critic_parameters, rate)

    def embeddings(self, observations: Tensor) -> dict[str, Tensor]:
        """The critic's `trunk` of observations, and `phi` if there is an objective, [B, D] each."""
        features = self.encoder(observations)
        trunk = self.critic.trunk(self.readouts(features, "critic")[0]).float()
        if self.objective is None:
            return {"trunk": trunk}
        z = self.readouts(features, "projection")[0].float()
        return {"phi": self.objective.scale(self.norm(z)), "trunk": trunk}

    @contextmanager
    def frozen_critic(self) -> Iterator[None]:
        """Within the context, parameters of critic and tokens get no gradient."""
        for network in (self.critic, self.tokens):
            network.requires_grad_(False)
        try:
            yield
        finally:
            for network in (self.critic, self.tokens):
                network.requires_grad_(True)

    def modules(self) -> dict[str, nn.Module | Auxiliary]:
        """The networks by name; without the tokens where they are the actions."""
        modules: dict[str, nn.Module | Auxiliary] = {
            "encoder": self.encoder,
            "readouts": self.readouts,
            "policy": self.policy,
            "critic": self.critic,
            "target": self.target,
        }
        optional = {"tokens": self.tokens, "norm": self.norm}
        modules |= {n: part for n, part in optional.items() if not isinstance(part, nn.Identity)}
        return modules if self.objective is None else modules | {"objective": self.objective}


def make_parts(
    observation_shape: tuple[int, ...],
    action_size: int,
    settings: DrQV2Settings,
    device: torch.device,
) -> Parts:
    """The networks of DrQ-v2, with the objective that its settings name."""
    s, make = settings, None
    if s.objective is not None:
        sizes = (s.latent_dim, action_size)
        make = partial(make_objective, s.objective, *sizes, **s.objective_options)
    return Parts(observation_shape, action_size, s, device, make)
