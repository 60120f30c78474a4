"""DrQ-v2 (Yarats et al. 2022), alone or with a bisimulation objective."""

from __future__ import annotations

import copy
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.agents.base import InferenceState, tensors_of
from revbis.agents.common import (
    Adam,
    Linear,
    Readouts,
    as_action_size,
    as_device,
    as_settings,
    as_shape,
    check_batch,
    check_observation,
    check_observations,
    check_state,
    fitting,
    restore,
    scaled_pixels,
)
from revbis.io import schema
from revbis.io.machine import check_bfloat16
from revbis.objectives import make_objective, simsr_distance
from revbis.objectives.base import BaseObjective

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from revbis.agents.base import Metrics, Stopwatch
    from revbis.agents.common import Group
    from revbis.agents.settings import DrQV2Settings
    from revbis.replay import Batch, Replay

_EDGE = 1e-6  # distance of actions from the ends of [−1, 1]


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
            _convolution(n, channels, stride) for n, stride in zip(inputs, strides, strict=True)
        )
        self.size = self._probe(shape, strides)

    def forward(self, observation: Tensor) -> Tensor:
        """uint8 [B, C, H, W] → float [B, size]."""
        x = scaled_pixels(observation, _activation_type(observation.device.type))
        for convolution in self.convolutions:
            x = functional.relu(convolution(x), inplace=True)
        return x.permute(0, 2, 3, 1).flatten(start_dim=1)

    @torch.no_grad()
    def _probe(self, shape: Sequence[int], strides: Sequence[int]) -> int:
        try:
            return self.forward(torch.zeros(1, *shape, dtype=torch.uint8)).shape[1]
        except RuntimeError:
            raise ValueError(
                f"images of {shape[1]}x{shape[2]} are too small for four convolutions with strides "
                f"{tuple(strides)}: use larger images or smaller strides"
            ) from None


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
    noise = torch.randn(mean.shape, generator=generator, device=mean.device) * deviation
    if clip is not None:
        noise = noise.clamp(-clip, clip)
    action = mean + noise
    inside = action.detach().clamp(_EDGE - 1, 1 - _EDGE)
    return inside + (action - action.detach())


def linear_schedule(start: float, end: float, steps: int, step: int) -> float:
    """Linear interpolation from start to end over `steps` steps; `end` afterwards."""
    done = min(max(step / steps, 0.0), 1.0)
    return (1 - done) * start + done * end


def _activation_type(device: str) -> torch.dtype:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32


def _convolution(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, bias=True)
    nn.init.orthogonal_(convolution.weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
    return convolution


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        Linear(inputs, hidden, "relu"), Linear(hidden, hidden, "relu"), Linear(hidden, outputs)
    )


class AuxiliaryOutput(Protocol):
    """The losses of one batch."""

    @property
    def representation_loss(self) -> Tensor:
        """Scalar that trains the embeddings and the loss's own heads."""

    @property
    def coefficient_loss(self) -> Tensor | None:
        """Scalar that trains a coefficient alone; None without one."""

    @property
    def losses(self) -> dict[str, Tensor]:
        """Every loss by name."""

    @property
    def metrics(self) -> dict[str, Tensor]:
        """Every loss and metric by name, detached."""


class Auxiliary(Protocol):
    """A loss on embeddings with heads of its own; the encoder stays with the agent."""

    @property
    def policy_actions(self) -> tuple[str, ...]:
        """Which of policy_action and next_policy_action a call must pass by name."""

    def __call__(
        self,
        z: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_z: Tensor,
        generator: torch.Generator | None = None,
        **policy_actions: Tensor,
    ) -> AuxiliaryOutput:
        """The losses of one batch; only z carries a gradient to the encoder."""

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M]."""

    def scale(self, z: Tensor) -> Tensor:
        """The embedding as `distance` takes it, from the projection's output, [B, D]."""

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `representation_loss` trains beside the encoder's."""

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `coefficient_loss` trains."""

    def status(self) -> dict[str, float]:
        """Numbers for progress lines and records."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> object:
        """Continues where the state was taken."""

    def to(self, device: torch.device, /) -> Self:
        """Moves it to a device."""


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


def gradient_share(critic: Tensor, objective: Tensor) -> dict[str, Tensor]:
    """The objective's share of two lengths, in [0, 1], as a metric."""
    total = (critic + objective).clamp_min(torch.finfo(objective.dtype).tiny)
    return {"objective/gradient_share": objective / total}


def feature_gradients(
    gradients: list[Tensor], weights: list[Tensor], weight: float | None
) -> tuple[list[Tensor], Metrics]:
    """Gradients at the readouts of critic and objective, and the objective's share.

    Args:
        gradients: The critic's and the objective's, [B, N] each.
        weights: Of the two readouts, [N, F] each.
        weight: Makes the objective's this many times as long at the features as the critic's; None
            leaves it as it is.
    """
    critic, objective = map(feature_norm, gradients, weights)
    if weight is not None:
        factor = balance(critic, objective, weight)
        gradients = [gradients[0], gradients[1] * factor]
        objective = objective * factor
    return gradients, gradient_share(critic, objective)


def objective_metrics(out: AuxiliaryOutput, every: bool) -> Metrics:
    """The losses of an objective, or every metric of it, under its name."""
    metrics = out.metrics if every else out.losses
    return {f"objective/{name}": value.detach() for name, value in metrics.items()}


class StepSizes:
    """How far the critic's and then the objective's step moved the encoder.

    Args:
        encoder: Whose parameters move; None to measure nothing.
    """

    def __init__(self, encoder: nn.Module | None) -> None:
        self._parameters = [] if encoder is None else list(encoder.parameters())
        self._place = [parameter.detach().clone() for parameter in self._parameters]
        self._sizes: list[Tensor] = []

    @torch.no_grad()
    def measure(self) -> None:
        """Takes the step since the last measurement."""
        if not self._parameters:
            return
        place = [parameter.detach().clone() for parameter in self._parameters]
        moved = [new - old for new, old in zip(place, self._place, strict=True)]
        self._sizes.append(torch.cat([each.flatten() for each in moved]).norm())
        self._place = place

    def share(self) -> dict[str, Tensor]:
        """The second step's share of the two, if they were measured."""
        return gradient_share(*self._sizes) if self._sizes else {}


class NextStep(NamedTuple):
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
        self.readouts.init_orthogonal("critic", "actor")
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
            self.readouts.init_orthogonal("projection")
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


def parts_of_the_work(parts: Parts, batch: Batch) -> dict[str, Callable[[], None]]:
    """The encoder passes of an update on this batch, and the objective given embeddings."""
    encoder, objective = parts.encoder, parts.objective
    gradient = torch.randn(len(batch.obs), encoder.size) / encoder.size

    def encode() -> None:
        for parameter in encoder.parameters():
            parameter.grad = None
        with torch.no_grad():
            encoder(batch.next_obs)
        encoder(batch.obs).backward(gradient)

    if objective is None:
        return {"encoder": encode}
    width = len(parts.readouts.weights["projection"])
    z, next_z = (torch.randn(len(batch.obs), width) for _ in range(2))
    actions: dict[str, Any] = dict.fromkeys(objective.policy_actions, batch.action)
    trained = [*objective.representation_parameters(), *objective.coefficient_parameters()]

    def compare() -> None:
        x = z.clone().requires_grad_()
        out = objective(x, batch.action, batch.reward, batch.discount, next_z, **actions)
        loss = out.representation_loss
        if out.coefficient_loss is not None:
            loss = loss + out.coefficient_loss
        torch.autograd.grad(loss, [x, *trained])

    return {"encoder": encode, "objective": compare}


class DrQV2:
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

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: DrQV2Settings,
        *,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        self.observation_shape = as_shape(observation_shape)
        self.action_size = action_size = as_action_size(action_size)
        self.settings, self.device = as_settings(settings), as_device(device)
        if settings.half_precision:
            check_bfloat16(self.device.type)
        sequence = np.random.SeedSequence(schema.integer(seed, "seed", 0))
        seeds = [int(word) for word in sequence.generate_state(3)]
        with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw from its global generator
            torch.manual_seed(seeds[0])
            self.parts = self._make_parts()
        self.optimisers = self.parts.make_optimisers(settings)
        self._explore_generator = torch.Generator().manual_seed(seeds[1])
        self._update_generator = torch.Generator(self.device).manual_seed(seeds[2])
        self._shared = self.parts.objective is not None and settings.mode != "alternating"
        self._one_step, self._method = settings.one_step, settings.objective or "drqv2"
        self.stopwatch: Stopwatch = lambda _: nullcontext()

    def _make_parts(self) -> Parts:
        return make_parts(self.observation_shape, self.action_size, self.settings, self.device)

    def deviation(self, step: int) -> float:
        """Standard deviation of the noise at an agent step."""
        s = self.settings
        return linear_schedule(s.noise_start, s.noise_end, s.noise_steps, step)

    def status(self) -> dict[str, float]:
        """The adaptive coefficient c, if the objective has one."""
        objective = self.parts.objective
        return {} if objective is None else objective.status()

    def begin_episode(self) -> None:
        """Does nothing: an action depends on the current observation only."""

    @torch.no_grad()
    def act(self, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[np.float32]:
        """The action for one observation, [A] in [−1, 1].

        Args:
            observation: Of the agent's observation shape.
            step: Agent steps so far.
            explore: Act uniformly at random at first, and with noise later. Otherwise return the
                mean action and draw no random numbers.
        """
        check_observation(observation, self.observation_shape)
        schema.integer(step, "step", 0)
        schema.flag(explore, "explore")
        if explore and step < self.settings.explore_steps:
            uniform = torch.rand(self.action_size, generator=self._explore_generator)
            return np.asarray(2 * uniform.numpy() - 1, dtype=np.float32)
        with self._precision():
            features = self.parts.encoder(torch.tensor(observation, device=self.device)[None])
            mean = self._mean_action(features).cpu()
        if explore:
            mean = noisy_action(mean, self.deviation(step), self._explore_generator)
        return np.asarray(mean[0].numpy(), dtype=np.float32)

    def embed(self, observations: Tensor) -> Tensor:
        """φ of a batch, [B, latent_dim]; without objective, the critic's trunk, [B, feature_dim].

        Args:
            observations: [B, *observation_shape].
        """
        embeddings = self.embeddings(observations)
        return embeddings.get("phi", embeddings["trunk"])

    @torch.no_grad()
    def embeddings(self, observations: Tensor) -> dict[str, Tensor]:
        """The critic's `trunk` of a batch, [B, feature_dim], and `phi` if there is an objective."""
        check_observations(observations, self.observation_shape)
        with self._precision():
            return self.parts.embeddings(observations.to(self.device))

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """The objective's distance, [N, D] × [M, D] → [N, M]; without objective, SimSR's."""
        objective = self.parts.objective
        between: Tensor = simsr_distance(x, y) if objective is None else objective.distance(x, y)
        return between.detach()

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:
        """One update on a batch from the replay buffer; see `learn`."""
        with self.stopwatch("sample"):
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
        if self._one_step and batch.one_step is None:
            raise ValueError("the batch has no one_step: pass one_step=True to Replay")
        schema.integer(step, "step", 0)
        schema.flag(with_metrics, "with_metrics")
        deviation = self.deviation(step)
        alternating = self.parts.objective is not None and not self._shared
        sizes = StepSizes(self.parts.encoder if alternating and with_metrics else None)
        with self.stopwatch("critic"):
            features, metrics, out = self._critic_step(batch, deviation, with_metrics)
        sizes.measure()
        with self.stopwatch("actor"):
            metrics |= self._actor_step(features, deviation)
        if self.parts.objective is not None and not self._shared:
            with self.stopwatch("objective"):
                out = self._objective_step(batch, self.parts.objective, deviation)
            sizes.measure()
        with self.stopwatch("move_target"):
            self.parts.move_target(self.settings.target_rate)
        if out is not None:
            metrics |= objective_metrics(out, with_metrics) | sizes.share()
        return metrics | {
            "actor_std": torch.tensor(deviation),
            "batch_reward": batch.reward.mean(),
        }

    def _critic_step(
        self, batch: Batch, deviation: float, with_metrics: bool = False
    ) -> tuple[Tensor, Metrics, AuxiliaryOutput | None]:
        """Updates encoder and critic; in joint and balanced mode together with the objective."""
        parts, out = self.parts, None
        with self._precision():
            with self.stopwatch("targets"):
                target_q, following = self._targets(batch, deviation)
            features = self._encode(batch.obs)
            reads = ("critic", "projection") if self._shared else ("critic",)
            outputs = parts.readouts(features, *reads)
            # Gradients stop at the readouts first: there the two losses are told apart.
            ends = [output.detach().requires_grad_() for output in outputs]
            q1, q2 = parts.critic(ends[0], parts.tokens(batch.action))
        loss = functional.mse_loss(q1, target_q) + functional.mse_loss(q2, target_q)
        critic_loss = loss.detach()
        if parts.objective is not None and following is not None:
            with self.stopwatch("objective"):
                action = self._policy_action(features, parts.objective, deviation)
                out = self._compare(batch, parts.objective, ends[1], following, action)
            weight = self.settings.objective_weight if self.settings.mode == "joint" else 1.0
            loss = loss + weight * out.representation_loss
            if out.coefficient_loss is not None:  # it reaches raw_c only: one pass serves both
                loss = loss + out.coefficient_loss
        with self._descent("critic", *(("coefficient",) if self._shared else ())):
            loss.backward()  # type: ignore[no-untyped-call]
            gradients, share = self._feature_gradients(ends, with_metrics)
            torch.autograd.backward(outputs, gradients)
        metrics = {
            "critic_loss": critic_loss,
            "critic_q1": q1.detach().mean(),
            "critic_q2": q2.detach().mean(),
            "critic_target_q": target_q.mean(),
        }
        return features.detach(), metrics | share, out

    def _feature_gradients(
        self, ends: list[Tensor], with_metrics: bool
    ) -> tuple[list[Tensor], Metrics]:
        """Gradients at the readouts, the objective's scaled in balanced mode, and its share."""
        gradients = [end.grad for end in ends if end.grad is not None]
        balanced = self.settings.mode == "balanced"
        if not self._shared or not (balanced or with_metrics):
            return gradients, {}
        weights = [self.parts.readouts.weights[name] for name in ("critic", "projection")]
        weight = self.settings.objective_weight if balanced else None
        gradients, share = feature_gradients(gradients, weights, weight)
        return gradients, share if with_metrics else {}

    @torch.no_grad()
    def _targets(self, batch: Batch, deviation: float) -> tuple[Tensor, NextStep | None]:
        """The critic's targets, [B], and what follows where the objective shares the pass."""
        parts = self.parts
        features = self._encode(batch.next_obs)
        both = self._shared and not self._one_step  # critic and objective use the same next states
        reads = ("projection", "actor", "target") if both else ("actor", "target")
        *z, actor, critic = parts.readouts(features, *reads)
        action = self._noisy(parts.policy(actor), deviation)
        q1, q2 = parts.target(critic, parts.tokens(action))
        target_q = batch.reward + batch.discount * torch.minimum(q1, q2)
        if not self._shared:
            return target_q, None
        return target_q, NextStep(z[0], action) if both else self._following(batch, deviation)

    def _actor_step(self, features: Tensor, deviation: float) -> Metrics:
        """Updates the actor to increase the smaller value; encoder and critic do not change."""
        parts, penalty = self.parts, self.settings.action_penalty
        with self._precision():
            with torch.no_grad():
                (readout,) = parts.readouts(features, "critic")
            before_tanh = parts.policy.logits(parts.readouts(features, "actor")[0])
            action = self._noisy(torch.tanh(before_tanh), deviation)
            with parts.frozen_critic():
                q1, q2 = parts.critic(readout, parts.tokens(action))
        loss = -torch.minimum(q1, q2).mean()
        metrics = {"actor_loss": loss.detach()}
        if penalty:
            size = before_tanh.square().mean()
            metrics["actor_logits"] = size.detach().sqrt()
            loss = loss + penalty * size
        with self._descent("actor"):
            loss.backward()  # type: ignore[no-untyped-call]
        return metrics

    def _objective_step(
        self, batch: Batch, objective: Auxiliary, deviation: float
    ) -> AuxiliaryOutput:
        """Updates φ, ψ and c, with a separate encoder pass."""
        with self._precision():
            following = self._following(batch, deviation)
            features = self.parts.encoder(batch.obs)
            (z,) = self.parts.readouts(features, "projection")
            action = self._policy_action(features, objective, deviation)
        out = self._compare(batch, objective, z, following, action)
        loss = out.representation_loss
        if out.coefficient_loss is not None:
            loss = loss + out.coefficient_loss
        with self._descent("objective", "coefficient"):
            loss.backward()  # type: ignore[no-untyped-call]
        return out

    def _compare(
        self,
        batch: Batch,
        objective: Auxiliary,
        z: Tensor,
        following: NextStep,
        policy_action: Tensor | None,
    ) -> AuxiliaryOutput:
        reward, discount = batch.reward, batch.discount
        if self._one_step and batch.one_step is not None:
            reward, discount = batch.one_step.reward, batch.one_step.discount
        given: dict[str, Any] = {"policy_action": policy_action}
        given["next_policy_action"] = following.action
        actions = {name: given[name] for name in objective.policy_actions}
        with torch.no_grad():
            next_z = self.parts.norm(following.z.float())
        transitions = (self.parts.norm(z.float()), batch.action, reward, discount, next_z)
        return objective(*transitions, self._update_generator, **actions)

    @torch.no_grad()
    def _policy_action(
        self, features: Tensor, objective: Auxiliary, deviation: float
    ) -> Tensor | None:
        """The current policy's actions at these features, if the objective uses them."""
        if "policy_action" not in objective.policy_actions:
            return None
        with self._precision():
            return self._noisy(self._mean_action(features.detach()), deviation)

    @torch.no_grad()
    def _following(self, batch: Batch, deviation: float) -> NextStep:
        """φ̄ of the objective's next states, and the policy's actions there if it uses them."""
        next_obs, objective = batch.next_obs, self.parts.objective
        if self._one_step and batch.one_step is not None:
            next_obs = batch.one_step.next_obs
        features = self.parts.encoder(next_obs)
        (next_z,) = self.parts.readouts(features, "projection")
        if objective is None or "next_policy_action" not in objective.policy_actions:
            return NextStep(next_z, None)
        return NextStep(next_z, self._noisy(self._mean_action(features), deviation))

    def _encode(self, observations: Tensor) -> Tensor:
        features: Tensor = self.parts.encoder(observations)
        return features

    def _mean_action(self, features: Tensor) -> Tensor:
        mean: Tensor = self.parts.policy(self.parts.readouts(features, "actor")[0])
        return mean

    def _noisy(self, mean: Tensor, deviation: float) -> Tensor:
        return noisy_action(mean, deviation, self._update_generator, self.settings.noise_clip)

    @contextmanager
    def _descent(self, *names: str) -> Iterator[None]:
        """One step of each named optimiser that exists, by the gradients made within."""
        optimisers = [self.optimisers[name] for name in names if name in self.optimisers]
        for optimiser in optimisers:
            optimiser.zero_grad()
        yield
        for optimiser in optimisers:
            optimiser.step()

    def _precision(self) -> torch.autocast:
        enabled = self.settings.half_precision
        # Before PyTorch 2.11 casts cached without gradient are reused where one is needed.
        return torch.autocast(self.device.type, torch.bfloat16, enabled, cache_enabled=False)

    def work(self, replay: Replay) -> dict[str, Callable[[], None]]:
        """The encoder passes of an update, and the objective given embeddings.

        Gradients are discarded; no parameter changes.
        """
        return parts_of_the_work(self.parts, replay.sample(self.settings.batch_size))

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
        check_state(state, method=self._method, mode=self.settings.mode)
        with fitting():
            self._load(state)

    def _load(self, state: dict[str, Any]) -> None:
        modules = self.parts.modules()
        for name in modules | state["networks"]:  # neither may have one that the other has not
            modules[name].load_state_dict(state["networks"][name])
        for name, adam in self.optimisers.items():
            adam.load(state["optimisers"][name]["state"])
        self._explore_generator.set_state(state["explore_generator"].cpu())
        restore(self._update_generator, state["update_generator"])


def acting(agent: DrQV2) -> InferenceState:
    """Encoder, actor and φ; without objective, the critic's trunk in the place of φ."""
    tensors, objective = base_tensors(agent), agent.parts.objective
    if objective is not None and type(objective).scale is not BaseObjective.scale:
        # What a scaling of its own reads is not known.
        tensors |= {f"objective.{name}": each for name, each in objective.state_dict().items()}
    return InferenceState(agent.observation_shape, agent.action_size, tensors)


def base_tensors(agent: DrQV2) -> dict[str, Tensor]:
    """The tensors by name, without those of the objective."""
    parts = agent.parts
    embedding = "critic" if parts.objective is None else "projection"
    tensors = tensors_of(encoder=parts.encoder, policy=parts.policy, norm=parts.norm)
    if parts.objective is None:
        tensors |= tensors_of(trunk=parts.critic.norm)
    for name in ("actor", embedding):
        weight, bias = (parameter.detach() for parameter in parts.readouts.of(name))
        tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return tensors
