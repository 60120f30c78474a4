"""DrQ-v2 (Yarats et al. 2022), alone or with a bisimulation objective.

First the networks, then what DrQ-v2 shares with agents built on it, then the agent.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.agents.base import BaseAgent, InferenceState, tensors_of
from revbis.agents.common import (
    Adam,
    as_device,
    as_settings,
    as_shape,
    check_batch,
    check_observation,
    check_observations,
    check_state,
    convolution,
    descent,
    fitting,
    frozen,
    restore,
    scaled_pixels,
)
from revbis.agents.linear import Linear, Readouts
from revbis.agents.settings import DrQV2Settings
from revbis.io import schema
from revbis.io.machine import check_bfloat16
from revbis.objectives import make_objective, simsr_distance
from revbis.objectives.base import BaseObjective

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from revbis.agents.base import Metrics
    from revbis.agents.common import Group
    from revbis.agents.settings import ActorCriticSettings, Shape
    from revbis.objectives.base import Objective, ObjectiveOutput
    from revbis.replay import Batch, Replay

Values = tuple[Tensor, Tensor, Tensor]  # q1, q2 and their targets, [B] each
_EDGE = 1e-6  # distance of actions from the ends of [−1, 1]


# The networks


class PixelEncoder(nn.Module):
    """Four 3×3 convolutions with ReLU on pixels/255 − ½.

    Tensors are channels-last, which is faster for convolutions. Features are in the same order
    (row, column, channel), so flattening is a view.

    Args:
        shape: (channels, height, width) of an observation.
        channels: Channels of each convolution.
        strides: Strides of the four convolutions.

    Raises:
        ValueError: If the image is too small for the strides.
    """

    def __init__(self, shape: Sequence[int], channels: int, strides: Sequence[int]) -> None:
        super().__init__()
        inputs = [shape[0], *[channels] * (len(strides) - 1)]
        self.convolutions = nn.ModuleList(
            convolution(n, channels, stride) for n, stride in zip(inputs, strides, strict=True)
        )
        try:
            with torch.no_grad():
                self.size = self.forward(torch.zeros(1, *shape, dtype=torch.uint8)).shape[1]
        except RuntimeError:
            raise ValueError(
                f"images of {shape[1]}x{shape[2]} are too small for four convolutions with strides "
                f"{tuple(strides)}: use larger images or smaller strides"
            ) from None

    def forward(self, observation: Tensor) -> Tensor:
        """uint8 [B, C, H, W] → float [B, size]."""
        device = observation.device.type
        half = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if half else torch.float32
        x = scaled_pixels(observation, dtype)
        for layer in self.convolutions:
            x = functional.relu(layer(x), inplace=True)
        return x.permute(0, 2, 3, 1).flatten(start_dim=1)


class VectorEncoder(nn.Module):
    """Two hidden layers with ReLU, for observations that are vectors of numbers.

    Args:
        inputs: Length of an observation.
        hidden: Width of both layers.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(Linear(inputs, hidden, "relu"), Linear(hidden, hidden, "relu"))
        self.size = hidden

    def forward(self, observation: Tensor) -> Tensor:
        """float32 [B, inputs] → [B, size]."""
        features: Tensor = self.layers(observation)
        return features


class ProjectedEncoder(nn.Module):
    """An encoder and φ's projection: what actor and critic read in decoupled mode.

    Args:
        body: The encoder.
        width: D, of φ.

    Attributes:
        finish: What makes φ of its projection, [B, D] → [B, D].
    """

    finish: Callable[[Tensor], Tensor]

    def __init__(self, body: PixelEncoder | VectorEncoder, width: int) -> None:
        super().__init__()
        self.body, self.size = body, width
        self.projection = Linear(body.size, width)

    def project(self, observation: Tensor) -> Tensor:
        """The projection of observations, [B, D]."""
        projected: Tensor = self.projection(self.body(observation))
        return projected

    def forward(self, observation: Tensor) -> Tensor:
        """The φ of observations, [B, D], without gradient."""
        with torch.no_grad():
            return self.finish(self.project(observation))


class Policy(nn.Module):
    """Mean action from the actor's readout of the features."""

    def __init__(self, feature_dim: int, hidden: int, action_size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(feature_dim)
        self.layers = _mlp(feature_dim, hidden, action_size)

    def logits(self, readout: Tensor) -> Tensor:
        """What the last tanh makes actions of, [B, feature_dim] → [B, A]."""
        logits: Tensor = self.layers(torch.tanh(self.norm(readout))).float()
        return logits

    def forward(self, readout: Tensor) -> Tensor:
        """[B, feature_dim] → [B, A] in [−1, 1]."""
        return torch.tanh(self.logits(readout))


class TwinQ(nn.Module):
    """Two action values from the critic's readout of the features."""

    def __init__(self, feature_dim: int, hidden: int, action_size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(feature_dim)
        self.q1 = _mlp(feature_dim + action_size, hidden, 1)
        self.q2 = _mlp(feature_dim + action_size, hidden, 1)

    def trunk(self, readout: Tensor) -> Tensor:
        """The representation of the observation that both heads share, [B, feature_dim]."""
        return torch.tanh(self.norm(readout))

    def forward(self, readout: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """[B, feature_dim] and [B, A] → two values, [B] each."""
        x = torch.cat([self.trunk(readout), action], dim=1)
        return self.q1(x).squeeze(1).float(), self.q2(x).squeeze(1).float()


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        Linear(inputs, hidden, "relu"), Linear(hidden, hidden, "relu"), Linear(hidden, outputs)
    )


class ActorCriticParts:
    """An actor and a twin critic that share one encoder, on their device.

    Attributes:
        encoder: The encoder that all of them share.
        readouts: The first linear layers after it: critic, projection (φ's last), actor, target.
        policy: The rest of the actor.
        critic: The rest of the critic.
        target: The target critic, a slowly moving copy.
        tokens: What the critics read of an action: by default the action itself.
        projection: Whether a loss beside the critic's reads the features, too.

    Args:
        observation_shape: (C, H, W) of images, or (D,) of vectors.
        action_size: Dimension of an action.
        settings: Sizes.
        device: Where the networks are.
        projection: Whether a loss beside the critic's reads the features, too.
        tokens: Maps actions to tokens, [B, A] → [B, T]; None for the actions themselves.
        token_size: T; None for A.
    """

    settings: ActorCriticSettings

    def __init__(
        self,
        observation_shape: Shape,
        action_size: int,
        settings: ActorCriticSettings,
        device: torch.device,
        *,
        projection: bool,
        tokens: nn.Module | None = None,
        token_size: int | None = None,
    ) -> None:
        self.settings = s = settings
        self.encoder = self.make_encoder(observation_shape).to(device)
        # The critic is computed together with the projection, and the projection together with
        # actor and target, so these are adjacent.
        widths = {"critic": s.feature_dim} | ({"projection": s.latent_dim} if projection else {})
        widths |= {"actor": s.feature_dim, "target": s.feature_dim}
        self.readouts = Readouts(self.encoder.size, widths, device)
        self.readouts.init_orthogonal("critic", "actor")
        self.policy = Policy(s.feature_dim, s.hidden, action_size).to(device)
        self.tokens = nn.Identity() if tokens is None else tokens.to(device)
        self.critic = TwinQ(s.feature_dim, s.hidden, token_size or action_size).to(device)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        critic, target = (self.readouts.of(name) for name in ("critic", "target"))
        for parameter, slow in zip(critic, target, strict=True):
            slow.requires_grad_(False).copy_(parameter.detach())
        if projection:  # drawn last, so that it does not change the others
            self.readouts.init_orthogonal("projection")
        if s.compile:
            for network in (self.encoder, self.policy, self.critic, self.target):
                network.compile()
        self._critic_parameters: list[Tensor] = [*critic, *self.critic.parameters()]
        self._target_parameters: list[Tensor] = [*target, *self.target.parameters()]

    def make_encoder(self, shape: Shape) -> PixelEncoder | VectorEncoder | ProjectedEncoder:
        """The encoder of observations of a shape."""
        s = self.settings
        if len(shape) == 3:
            return PixelEncoder(shape, s.channels, s.strides)
        return VectorEncoder(shape[0], s.hidden)

    def heads(self) -> list[nn.Parameter]:
        """What a loss beside the critic's trains beside the encoder."""
        return []

    def make_optimisers(self) -> dict[str, Adam]:
        """Each parameter is in one; alternating, those of encoder and tokens are in two."""
        s, heads = self.settings, self.heads()
        encoder: list[Tensor] = [*self.encoder.parameters(), *self.tokens.parameters()]
        actor = [*self.readouts.of("actor"), *self.policy.parameters()]
        own = heads and s.mode == "decoupled"  # the critic's gradient does not reach the encoder
        trained = [*([] if own else encoder), *self._critic_parameters]
        critic: list[Group] = [{"params": trained, "lr": s.learning_rate}]
        groups: dict[str, list[Group]] = {"critic": critic}
        groups["actor"] = [{"params": actor, "lr": s.learning_rate}]
        rate = s.objective_learning_rate
        if heads and s.mode in ("alternating", "decoupled"):
            groups["objective"] = [{"params": [*encoder, *heads], "lr": rate}]
        elif heads:
            critic.append({"params": heads, "lr": rate})
        return {name: Adam(group) for name, group in groups.items()}

    def move_target(self, rate: float) -> None:
        """Moves the target critic towards the critic: target += rate · (critic − target)."""
        with torch.no_grad():
            torch._foreach_lerp_(self._target_parameters, self._critic_parameters, rate)

    def phi(self, features: Tensor) -> Tensor | None:  # noqa: ARG002
        """What a loss beside the critic's compares, [B, latent_dim]; None without one."""
        return None

    def embeddings(self, observations: Tensor) -> dict[str, Tensor]:
        """The critic's `trunk` of observations, and `phi` if there is one, [B, D] each."""
        features = self.encoder(observations)
        trunk = self.critic.trunk(self.readouts(features, "critic")[0]).float()
        phi = self.phi(features)
        return {"trunk": trunk} if phi is None else {"phi": phi, "trunk": trunk}

    def modules(self) -> dict[str, Any]:
        """The networks by name, as a checkpoint has them; no tokens where they are the actions."""
        names = ("encoder", "readouts", "policy", "critic", "target", "tokens")
        modules = {name: getattr(self, name) for name in names}
        return {n: each for n, each in modules.items() if not isinstance(each, nn.Identity)}


class Parts(ActorCriticParts):
    """The networks of DrQ-v2, with the objective that its settings name.

    Attributes:
        norm: What follows φ's projection: LayerNorm with `encoder_norm`, else nothing.
        objective: The loss with its heads that trains the encoder too, or None.
    """

    settings: DrQV2Settings

    def __init__(
        self, shape: Shape, action_size: int, settings: DrQV2Settings, device: torch.device
    ) -> None:
        s, self.decoupled = settings, settings.decoupled
        projection = settings.objective is not None and not self.decoupled
        super().__init__(shape, action_size, s, device, projection=projection)
        self.norm: nn.Module = nn.Identity()
        self.objective: Objective | None = None
        if s.objective is not None:
            if s.encoder_norm:
                self.norm = nn.LayerNorm(s.latent_dim).to(device)
            made = make_objective(s.objective, s.latent_dim, action_size, **s.objective_options)
            self.objective = made.to(device)
            if s.compile and isinstance(self.objective, nn.Module):
                self.objective.compile()
        if isinstance(self.encoder, ProjectedEncoder):
            self.encoder.finish = self.finish

    def make_encoder(self, shape: Shape) -> PixelEncoder | VectorEncoder | ProjectedEncoder:
        """The encoder of observations; decoupled, with φ's projection."""
        encoder = super().make_encoder(shape)
        if not self.decoupled:
            return encoder
        assert not isinstance(encoder, ProjectedEncoder)
        return ProjectedEncoder(encoder, self.settings.latent_dim)

    def finish(self, projected: Tensor) -> Tensor:
        """φ as the objective compares it, of its projection, [B, latent_dim]."""
        assert self.objective is not None
        return self.objective.scale(self.norm(projected.float()))

    def heads(self) -> list[nn.Parameter]:
        """What the objective trains beside the encoder: projection, own heads, norm."""
        if self.objective is None:
            return []
        projection = [] if self.decoupled else self.readouts.of("projection")
        heads = [*projection, *self.objective.representation_parameters()]
        return [*heads, *self.norm.parameters()]

    def make_optimisers(self) -> dict[str, Adam]:
        """As for every actor-critic, and one for the coefficient if it is learned."""
        optimisers = super().make_optimisers()
        raw_c = [] if self.objective is None else list(self.objective.coefficient_parameters())
        if raw_c:
            rate = self.settings.coefficient_learning_rate
            optimisers["coefficient"] = Adam([{"params": raw_c, "lr": rate}])
        return optimisers

    def phi(self, features: Tensor) -> Tensor | None:
        """φ as the objective compares it, [B, latent_dim]."""
        if self.objective is None:
            return None
        if self.decoupled:
            return features
        return self.finish(self.readouts(features, "projection")[0])

    def modules(self) -> dict[str, Any]:
        """The networks by name, as a checkpoint has them; without what there is none of."""
        norm = {} if isinstance(self.norm, nn.Identity) else {"norm": self.norm}
        objective = {} if self.objective is None else {"objective": self.objective}
        return super().modules() | norm | objective


# What DrQ-v2 shares with agents built on it


def noisy_action(
    mean: Tensor, deviation: float, generator: torch.Generator, clip: float | None = None
) -> Tensor:
    """Mean plus Gaussian noise, clipped to [−1, 1] with a straight-through gradient.

    Args:
        mean: [B, A].
        deviation: Standard deviation of the noise.
        generator: Draws the noise, on the mean's device.
        clip: Largest absolute value of the noise; None for no limit.
    """
    noise = torch.randn(mean.shape, generator=generator, device=mean.device).mul_(deviation)
    if clip is not None:
        noise.clamp_(-clip, clip)
    action = mean + noise
    inside = action.detach().clamp(_EDGE - 1, 1 - _EDGE)
    return inside + (action - action.detach()) if action.requires_grad else inside


def linear_schedule(start: float, end: float, steps: int, step: int) -> float:
    """Linear interpolation from start to end over `steps` steps; `end` afterwards."""
    done = min(max(step / steps, 0.0), 1.0)
    return (1 - done) * start + done * end


@torch.no_grad()
def feature_norm(gradient: Tensor, weight: Tensor) -> Tensor:
    """Norm of the gradient that a linear readout passes on to the features, ‖G W‖.

    It is the root of tr(G W Wᵀ Gᵀ): G W itself, one number for each feature of each image, need
    not exist.

    Args:
        gradient: G, at the readout's outputs, [B, N].
        weight: W, [N, F].
    """
    gradient, weight = gradient.float(), weight.float()
    return ((gradient @ (weight @ weight.T)) * gradient).sum().clamp_min(0).sqrt()


def balance(critic: Tensor, objective: Tensor, weight: float) -> Tensor:
    """The factor that makes the objective's gradient `weight` times as long as the critic's.

    It is 0 where the objective's gradient is 0, or too short for such a factor to exist.
    """
    factor = weight * critic / objective
    return torch.where(torch.isfinite(factor), factor, 0.0)


def gradient_share(critic: Tensor, objective: Tensor) -> Metrics:
    """The objective's share of two lengths, in [0, 1], as a metric."""
    total = (critic + objective).clamp_min(torch.finfo(objective.dtype).tiny)
    return {"objective/gradient_share": objective / total}


def objective_metrics(metrics: Metrics) -> Metrics:
    """Losses and metrics of an objective, under its name."""
    return {f"objective/{name}": value.detach() for name, value in metrics.items()}


class StepSizes:
    """How far the critic's and then the objective's step moved the encoder.

    Args:
        encoder: Whose parameters move; None to measure nothing.
    """

    def __init__(self, encoder: nn.Module | None) -> None:
        self._encoder = encoder
        self._places: list[Tensor] = []
        self.mark()

    def mark(self) -> None:
        """Remembers where the parameters are now: at first, between the steps and after them."""
        if self._encoder is not None:
            parameters = [parameter.detach().flatten() for parameter in self._encoder.parameters()]
            self._places.append(torch.cat(parameters))

    def share(self) -> Metrics:
        """The second step's share of the two, if they are measured."""
        if self._encoder is None:
            return {}
        critic, objective = ((b - a).norm() for a, b in pairwise(self._places))
        return gradient_share(critic, objective)


class SplitReadouts:
    """The readouts of critic and projection, where gradients stop: there losses are told apart.

    Args:
        readouts: Of the agent.
        features: [B, F], with gradient.

    Attributes:
        critic: The critic's readout, [B, feature_dim], a leaf.
        projection: The projection's, [B, latent_dim], a leaf.
    """

    def __init__(self, readouts: Readouts, features: Tensor) -> None:
        self._outputs = readouts(features, "critic", "projection")
        self._weights = [readouts.weights[name] for name in ("critic", "projection")]
        self.critic, self.projection = (each.detach().requires_grad_() for each in self._outputs)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """At the two readouts, after the losses' backward pass."""
        assert self.critic.grad is not None and self.projection.grad is not None
        return self.critic.grad, self.projection.grad

    def feature_norms(self) -> tuple[Tensor, Tensor]:
        """Lengths of the two gradients at the features."""
        critic, projection = map(feature_norm, self.gradients(), self._weights)
        return critic, projection

    def backward(self, critic: Tensor, projection: Tensor) -> None:
        """Continues the backward pass with these gradients, through readouts and encoder."""
        torch.autograd.backward(self._outputs, (critic, projection))


def critic_loss(q1: Tensor, q2: Tensor, target_q: Tensor) -> Tensor:
    """Mean squared errors of both values, [B] each, a scalar."""
    return functional.mse_loss(q1, target_q) + functional.mse_loss(q2, target_q)


def critic_metrics(loss: Tensor, q1: Tensor, q2: Tensor, target_q: Tensor) -> Metrics:
    """The critic's loss and mean values."""
    return {
        "critic_loss": loss.detach(),
        "critic_q1": q1.detach().mean(),
        "critic_q2": q2.detach().mean(),
        "critic_target_q": target_q.mean(),
    }


class ActorCritic(BaseAgent):
    """Acting, embedding, the steps of critic and actor, and the state: a subclass adds `learn`.

    Args as for the agents, and:
        make_parts: Makes the networks from shape, action size, settings and device.
        method: What states are of.

    Attributes:
        parts: The networks.
        optimisers: By name.
    """

    parts: ActorCriticParts
    settings: ActorCriticSettings

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: ActorCriticSettings,
        make_parts: Callable[..., ActorCriticParts],
        *,
        method: str,
        seed: int,
        device: str | torch.device,
    ) -> None:
        self.observation_shape = as_shape(observation_shape)
        self.action_size: int = schema.convert(action_size, schema.Size, "action_size")
        self.settings, self.device, self._method = settings, as_device(device), method
        self._half = settings.half_precision
        if self._half:
            check_bfloat16(self.device.type)
        sequence = np.random.SeedSequence(schema.integer(seed, "seed", 0))
        seeds = [int(word) for word in sequence.generate_state(3)]
        with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw from its global generator
            torch.manual_seed(seeds[0])
            shape = self.observation_shape
            self.parts = make_parts(shape, self.action_size, settings, self.device)
        self.optimisers = self.parts.make_optimisers()
        self._explore_generator = torch.Generator().manual_seed(seeds[1])
        self._update_generator = torch.Generator(self.device).manual_seed(seeds[2])

    def deviation(self, step: int) -> float:
        """Standard deviation of the noise at an agent step."""
        s = self.settings
        return linear_schedule(s.noise_start, s.noise_end, s.noise_steps, step)

    @torch.no_grad()
    def act(self, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[np.float32]:
        """The action for one observation, [A] in [−1, 1].

        Exploring, it is uniformly random at first, and has noise later. Otherwise it is the mean
        action, and no random numbers are drawn.
        """
        check_observation(observation, self.observation_shape)
        if explore and step < self.settings.explore_steps:
            uniform = torch.rand(self.action_size, generator=self._explore_generator)
            return np.asarray(2 * uniform.numpy() - 1, dtype=np.float32)
        features = self.encode(torch.tensor(observation, device=self.device)[None])
        mean = self.mean_action(features).cpu()
        if explore:
            mean = noisy_action(mean, self.deviation(step), self._explore_generator)
        return np.asarray(mean[0].numpy(), dtype=np.float32)

    def embed(self, observations: Tensor) -> Tensor:
        """φ of a batch, [B, latent_dim]; without one the critic's trunk, [B, feature_dim]."""
        embeddings = self.embeddings(observations)
        return embeddings.get("phi", embeddings["trunk"])

    @torch.no_grad()
    def embeddings(self, observations: Tensor) -> dict[str, Tensor]:
        """The critic's `trunk` of a batch, [B, feature_dim], and `phi` if there is one."""
        check_observations(observations, self.observation_shape)
        with self.precision():
            return self.parts.embeddings(observations.to(self.device))

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """SimSR's distance, [N, D] × [M, D] → [N, M]: there is no other one."""
        return simsr_distance(x, y).detach()

    def encode(self, observations: Tensor) -> Tensor:
        """Features, [B, F], in the precision of the settings."""
        with self.precision():
            features: Tensor = self.parts.encoder(observations)
        return features

    def read(self, features: Tensor, *names: str) -> tuple[Tensor, ...]:
        """Readouts of features, together; their order is critic, projection, actor, target."""
        with self.precision():
            outputs: tuple[Tensor, ...] = self.parts.readouts(features, *names)
        return outputs

    @torch.no_grad()
    def mean_action(self, features: Tensor) -> Tensor:
        """The policy's mean action, [B, A]."""
        with self.precision():
            mean: Tensor = self.parts.policy(self.parts.readouts(features, "actor")[0])
        return mean

    def noisy(self, mean: Tensor, deviation: float) -> Tensor:
        """An action as updates use it, with clipped noise, [B, A]."""
        return noisy_action(mean, deviation, self._update_generator, self.settings.noise_clip)

    @torch.no_grad()
    def targets(
        self, batch: Batch, actor: Tensor, target: Tensor, deviation: float
    ) -> tuple[Tensor, Tensor]:
        """The critic's targets r + γⁿ min Q̄(s′, a′), [B], and the actions a′, [B, A].

        Args:
            batch: Transitions.
            actor: The actor's readout of the next states.
            target: The target critic's.
            deviation: Of the noise on a′.
        """
        with self.precision():
            action = self.noisy(self.parts.policy(actor), deviation)
            q1, q2 = self.parts.target(target, self.parts.tokens(action))
            return batch.reward + batch.discount * torch.minimum(q1, q2), action

    def critic_step(self, batch: Batch, features: Tensor, target_q: Tensor) -> Metrics:
        """Updates encoder and critic by the critic's loss alone.

        Args:
            batch: Transitions.
            features: Of its observations, with gradient.
            target_q: The critic's targets.
        """
        parts = self.parts
        with self.precision():
            (readout,) = parts.readouts(features, "critic")
            q1, q2 = parts.critic(readout, parts.tokens(batch.action))
        loss = critic_loss(q1, q2, target_q)
        with descent(self.optimisers, "critic"):
            loss.backward()  # type: ignore[no-untyped-call]
        return critic_metrics(loss, q1, q2, target_q)

    def joint_step(
        self,
        read: SplitReadouts,
        values: Values,
        losses: tuple[Tensor, Tensor | None],
        *,
        with_metrics: bool,
    ) -> Metrics:
        """Updates encoder, critic and objective by L_critic + weight · L_objective.

        Args:
            read: Readouts of one encoder pass, from which both losses are.
            values: Both values of the critic and their targets.
            losses: The objective's, and that of its coefficient, which reaches nothing else, so
                that one pass serves both.
            with_metrics: Also return the objective's share of the gradient.
        """
        representation_loss, coefficient_loss = losses
        share, of_critic = {}, critic_loss(*values)
        loss = of_critic + self.settings.objective_weight * representation_loss
        if coefficient_loss is not None:
            loss = loss + coefficient_loss
        with descent(self.optimisers, "critic", "coefficient"):
            loss.backward()  # type: ignore[no-untyped-call]
            if with_metrics:
                share = gradient_share(*read.feature_norms())
            read.backward(*read.gradients())
        return critic_metrics(of_critic, *values) | share

    def balanced_step(
        self,
        read: SplitReadouts,
        values: Values,
        losses: tuple[Tensor, Tensor | None],
        *,
        with_metrics: bool,
    ) -> Metrics:
        """As `joint_step`, but at the features the objective's gradient is given a length.

        It is `objective_weight` times as long as the critic's.
        """
        representation_loss, coefficient_loss = losses
        of_critic = critic_loss(*values)
        loss = of_critic + representation_loss
        if coefficient_loss is not None:
            loss = loss + coefficient_loss
        with descent(self.optimisers, "critic", "coefficient"):
            loss.backward()  # type: ignore[no-untyped-call]
            critic, objective = read.feature_norms()
            factor = balance(critic, objective, self.settings.objective_weight)
            critic_gradient, objective_gradient = read.gradients()
            read.backward(critic_gradient, objective_gradient * factor)
        share = gradient_share(critic, objective * factor) if with_metrics else {}
        return critic_metrics(of_critic, *values) | share

    def actor_step(self, features: Tensor, deviation: float) -> Metrics:
        """Updates the actor to increase the smaller value; encoder and critic do not change.

        Args:
            features: Without gradient.
            deviation: Of the noise on actions.
        """
        parts, penalty = self.parts, self.settings.action_penalty
        with self.precision():
            with torch.no_grad():
                (readout,) = parts.readouts(features, "critic")
            before_tanh = parts.policy.logits(parts.readouts(features, "actor")[0])
            action = self.noisy(torch.tanh(before_tanh), deviation)
            with frozen(parts.critic, parts.tokens):
                q1, q2 = parts.critic(readout, parts.tokens(action))
        loss = -torch.minimum(q1, q2).mean()
        metrics = {"actor_loss": loss.detach()}
        if penalty:
            size = before_tanh.square().mean()
            metrics["actor_logits"] = size.detach().sqrt()
            loss = loss + penalty * size
        with descent(self.optimisers, "actor"):
            loss.backward()  # type: ignore[no-untyped-call]
        return metrics

    def critic_and_actor(self, batch: Batch, deviation: float) -> Metrics:
        """DrQ-v2 alone: a step of encoder and critic, then one of the actor."""
        with torch.no_grad():
            actor, target = self.read(self.encode(batch.next_obs), "actor", "target")
        target_q, _ = self.targets(batch, actor, target, deviation)
        features = self.encode(batch.obs)
        metrics = self.critic_step(batch, features, target_q)
        return metrics | self.actor_step(features.detach(), deviation)

    def precision(self) -> torch.autocast:
        """A context in which the networks run in the precision of the settings."""
        # Before PyTorch 2.11 casts cached without gradient are reused where one is needed.
        return torch.autocast(self.device.type, torch.bfloat16, self._half, cache_enabled=False)

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: tensors, numbers and names only.

        As in PyTorch, the tensors are not copies: save or copy them before training continues.
        """
        return {
            "method": self._method,
            "mode": self.settings.mode,
            "networks": {name: part.state_dict() for name, part in self.parts.modules().items()},
            "optimisers": {name: adam.state_dict() for name, adam in self.optimisers.items()},
            "explore_generator": self._explore_generator.get_state(),
            "update_generator": self._update_generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned.

        Raises:
            ValueError: If the state is of another method or mode, or does not fit this agent.
        """
        mode = {"mode": self.settings.mode} if self.parts.heads() else {}
        check_state(state, method=self._method, **mode)
        with fitting():
            modules = self.parts.modules()
            for name in modules | state["networks"]:  # neither may have one that the other has not
                modules[name].load_state_dict(state["networks"][name])
            for name, adam in self.optimisers.items():
                adam.load(state["optimisers"][name]["state"])
            self._explore_generator.set_state(state["explore_generator"].cpu())
            restore(self._update_generator, state["update_generator"])


# The agent


class NextStep(NamedTuple):
    """What the objective compares next: φ̄ of the next states, and the policy's actions there."""

    z: Tensor
    action: Tensor | None


class DrQV2(ActorCritic):
    """An actor and a twin critic that share one encoder, which the critic's loss trains.

    With an objective, φ is the same encoder followed by a separate projection and, if asked for,
    LayerNorm, which only the objective trains. φ̄, the embedding of next states, is φ without
    gradient: the paper's "stop-gradient version of φ", not a slowly moving copy. Likewise the
    critic's target uses the online encoder.

    Args:
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action.
        settings: Objective, sizes and rates.
        seed: Seed of the networks, the exploration and the updates.
        device: Device of the networks.

    Raises:
        ValueError: For sizes that do not match, or bfloat16 on a CPU without it.
    """

    parts: Parts
    settings: DrQV2Settings

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: DrQV2Settings,
        *,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        settings = as_settings(settings, DrQV2Settings)
        sizes, method = (observation_shape, action_size), settings.objective or "drqv2"
        super().__init__(*sizes, settings, Parts, method=method, seed=seed, device=device)

    def status(self) -> dict[str, float]:
        """The adaptive coefficient c, if the objective has one."""
        return {} if self.parts.objective is None else self.parts.objective.status()

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """The objective's distance, [N, D] × [M, D] → [N, M]; without objective, SimSR's."""
        objective = self.parts.objective
        if objective is None:
            return super().distance(x, y)
        # Some objectives read distances by a head; embeddings may be on the CPU meanwhile.
        return objective.distance(x.to(self.device), y.to(self.device)).detach().to(x.device)

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:
        """One update on a batch from the replay buffer; see `learn`."""
        batch = replay.sample(self.settings.batch_size)
        return self.learn(batch, step, with_metrics=with_metrics)

    def learn(self, batch: Batch, step: int, *, with_metrics: bool = False) -> Metrics:
        """One step of critic, actor, objective, coefficient and target (Algorithm 1).

        Args:
            batch: Transitions from the replay buffer, already augmented by random shifts.
            step: Agent steps so far, for the noise schedule.
            with_metrics: Also return the objective's metrics, which take time to compute.

        Returns:
            Losses and metrics as scalar tensors; docs/metrics.md explains each.
        """
        batch = check_batch(batch, self.observation_shape, self.action_size, self.device)
        if self.settings.one_step and batch.one_step is None:
            raise ValueError("the batch has no one_step: pass one_step=True to Replay")
        objective, deviation = self.parts.objective, self.deviation(step)
        if objective is None:
            metrics = self.critic_and_actor(batch, deviation)
        elif self.settings.mode in ("alternating", "decoupled"):
            metrics = self._alternating(batch, objective, deviation, with_metrics)
        else:
            metrics = self._together(batch, objective, deviation, with_metrics)
        self.parts.move_target(self.settings.target_rate)
        noise = {"actor_std": torch.tensor(deviation)}
        return metrics | noise | {"batch_reward": batch.reward.mean()}

    def _together(
        self, batch: Batch, objective: Objective, deviation: float, with_metrics: bool
    ) -> Metrics:
        """Joint and balanced: critic and objective share the encoder passes and a step."""
        parts = self.parts
        # Targets, without gradient: one pass where critic and objective use the same next states.
        with torch.no_grad():
            next_features = self.encode(batch.next_obs)
            if self.settings.one_step:
                actor, target = self.read(next_features, "actor", "target")
                target_q, _ = self.targets(batch, actor, target, deviation)
                following = self._following(batch, objective, deviation)
            else:
                z, actor, target = self.read(next_features, "projection", "actor", "target")
                target_q, action = self.targets(batch, actor, target, deviation)
                following = NextStep(z, action)
        # Predictions.
        features = self.encode(batch.obs)
        with self.precision():
            read = SplitReadouts(parts.readouts, features)
            q1, q2 = parts.critic(read.critic, parts.tokens(batch.action))
        # Losses.
        policy_action = self._policy_action(features, objective, deviation)
        out = self._compare(batch, objective, read.projection, following, policy_action)
        # Steps.
        step = self.joint_step if self.settings.mode == "joint" else self.balanced_step
        losses = (out.representation_loss, out.coefficient_loss)
        metrics = step(read, (q1, q2, target_q), losses, with_metrics=with_metrics)
        metrics |= self.actor_step(features.detach(), deviation)
        return metrics | objective_metrics(out.metrics if with_metrics else out.losses)

    def _alternating(
        self, batch: Batch, objective: Objective, deviation: float, with_metrics: bool
    ) -> Metrics:
        """The steps of critic and actor, then the objective's with encoder passes of its own.

        Decoupled, only the latter reaches the encoder.
        """
        measured = with_metrics and not self.parts.decoupled
        sizes = StepSizes(self.parts.encoder if measured else None)
        metrics = self.critic_and_actor(batch, deviation)
        sizes.mark()
        out = self.objective_step(batch, objective, deviation)
        sizes.mark()
        metrics |= objective_metrics(out.metrics if with_metrics else out.losses)
        return metrics | sizes.share()

    def objective_step(
        self, batch: Batch, objective: Objective, deviation: float
    ) -> ObjectiveOutput:
        """Updates φ, ψ and c by the objective alone."""
        # Targets, without gradient.
        following = self._following(batch, objective, deviation)
        # Predictions.
        z, features = self._projected(batch.obs)
        # Losses.
        policy_action = self._policy_action(features, objective, deviation)
        out = self._compare(batch, objective, z, following, policy_action)
        # Step.
        with descent(self.optimisers, "objective", "coefficient"):
            out.loss.backward()  # type: ignore[no-untyped-call]
        return out

    def _projected(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """φ before its norm, [B, latent_dim], and the features that the actor reads, [B, F]."""
        encoder = self.parts.encoder
        if isinstance(encoder, ProjectedEncoder):
            with self.precision():
                z = encoder.project(observations)
            return z, self.parts.finish(z)
        features = self.encode(observations)
        return self.read(features, "projection")[0], features

    @torch.no_grad()
    def _following(self, batch: Batch, objective: Objective, deviation: float) -> NextStep:
        """φ̄ of the objective's next states, and the policy's actions there if it uses them."""
        one_step = batch.one_step if self.settings.one_step else None
        seen = batch.next_obs if one_step is None else one_step.next_obs
        next_z, features = self._projected(seen)
        if "next_policy_action" not in objective.policy_actions:
            return NextStep(next_z, None)
        return NextStep(next_z, self.noisy(self.mean_action(features), deviation))

    def _policy_action(
        self, features: Tensor, objective: Objective, deviation: float
    ) -> Tensor | None:
        """The current policy's actions at these features, if the objective uses them."""
        if "policy_action" not in objective.policy_actions:
            return None
        return self.noisy(self.mean_action(features.detach()), deviation)

    def _compare(
        self,
        batch: Batch,
        objective: Objective,
        z: Tensor,
        following: NextStep,
        policy_action: Tensor | None,
    ) -> ObjectiveOutput:
        """The objective's losses, of one-step or n-step transitions."""
        reward, discount = batch.reward, batch.discount
        if self.settings.one_step and batch.one_step is not None:
            reward, discount = batch.one_step.reward, batch.one_step.discount
        given: dict[str, Any] = {"policy_action": policy_action}
        given["next_policy_action"] = following.action
        actions = {name: given[name] for name in objective.policy_actions}
        with torch.no_grad():
            next_z = self.parts.norm(following.z.float())
        transitions = (self.parts.norm(z.float()), batch.action, reward, discount, next_z)
        return objective(*transitions, self._update_generator, **actions)


def acting(agent: DrQV2) -> InferenceState:
    """Encoder, actor and φ; without objective, the critic's trunk in the place of φ."""
    parts = agent.parts
    tensors = acting_tensors(parts, norm=parts.norm)
    if parts.objective is not None and type(parts.objective).scale is not BaseObjective.scale:
        # What a scaling of its own reads is not known.
        tensors |= {
            f"objective.{name}": each for name, each in parts.objective.state_dict().items()
        }
    return InferenceState(agent.observation_shape, agent.action_size, tensors)


def acting_tensors(parts: ActorCriticParts, **modules: nn.Module) -> dict[str, Tensor]:
    """Tensors of encoder, actor, projection and modules; without projection, the critic's trunk."""
    projected = "projection" in parts.readouts.weights
    tensors = tensors_of(encoder=parts.encoder, policy=parts.policy, **modules)
    if not projected:
        tensors |= tensors_of(trunk=parts.critic.norm)
    for name in ("actor", "projection" if projected else "critic"):
        weight, bias = (parameter.detach() for parameter in parts.readouts.of(name))
        tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return tensors
