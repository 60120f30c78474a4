"""MR.Q (Fujimoto et al. 2025): values and policy read embeddings that other losses train.

First the losses, then the networks, then the agent.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

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
    check_tensor,
    descent,
    fitting,
    frozen,
    moved,
    observation_type,
    restore,
    scaled_pixels,
)
from revbis.agents.drqv2 import balance, gradient_share, objective_metrics
from revbis.agents.inference import elu_
from revbis.agents.linear import linear
from revbis.agents.settings import MODEL, MRQSettings, feature_sides
from revbis.io import schema
from revbis.io.machine import check_bfloat16
from revbis.objectives import make_objective
from revbis.objectives.base import BaseObjective, effective_rank
from revbis.objectives.registry import trains_psi
from revbis.replay import TransitionReplay

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from revbis.agents.base import Metrics
    from revbis.agents.settings import Shape
    from revbis.objectives.base import Objective
    from revbis.replay import Batch, Replay, Windows

_BINS, _LARGEST = 65, 10.0  # of two-hot rewards; their largest, as symexp takes it
_LEAST_PRIORITY = 1.0
_TEMPERATURE = 10.0  # of Gumbel-softmax, for discrete actions
_CENTRED = 512  # images that the mean image is measured on


# The losses


def symexp(x: Tensor) -> Tensor:
    """sign(x) (exp|x| − 1), of any shape."""
    return x.sign() * (x.abs().exp() - 1)


def reward_bins(device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """The rewards that the classes stand for: symexp of equally spaced numbers, [65]."""
    spaced = torch.linspace(-_LARGEST, _LARGEST, _BINS, device=device, dtype=torch.float64)
    return symexp(spaced).to(dtype)


def two_hot_loss(logits: Tensor, reward: Tensor, bins: Tensor) -> Tensor:
    """Cross-entropy to the two bins around each reward, weighted by how near they are, [...].

    Args:
        logits: [..., N].
        reward: [...]; beyond the outermost bins it counts as they do.
        bins: In ascending order, [N].
    """
    reward = reward.clamp(bins[0], bins[-1])
    above = torch.bucketize(reward, bins, right=True).clamp(1, len(bins) - 1)
    low, high = bins[above - 1], bins[above]
    share = (reward - low) / (high - low)  # of the upper one
    log_p = functional.log_softmax(logits, dim=-1)
    chosen = log_p.gather(-1, torch.stack([above - 1, above], dim=-1))
    return -((1 - share) * chosen[..., 0] + share * chosen[..., 1])


class ModelLosses(NamedTuple):
    """Sums over the steps of means over the batch, scalars.

    Attributes:
        consistency: Squared error of the embeddings.
        reward: Cross-entropy of the rewards.
        termination: Squared error of the terminations.
    """

    consistency: Tensor
    reward: Tensor
    termination: Tensor


class Predicted(NamedTuple):
    """What the model predicts along T steps of B windows.

    Attributes:
        zs: The next embeddings, unrolled from the first observation, [T, B, D].
        reward: Logits of the rewards' bins, [T, B, N].
        termination: [T, B].
    """

    zs: Tensor
    reward: Tensor
    termination: Tensor


class Observed(NamedTuple):
    """What it should predict, without gradient.

    Attributes:
        zs: The target encoder's embeddings of the next observations, [T, B, D].
        reward: [T, B].
        termination: 1 where an episode terminated, else 0, [T, B].
        valid: 0 beyond an episode's end, else 1, [T, B].
    """

    zs: Tensor
    reward: Tensor
    termination: Tensor
    valid: Tensor


def model_losses(predicted: Predicted, observed: Observed, bins: Tensor) -> ModelLosses:
    """The three losses of the model; what comes after an episode's end counts as 0.

    Args:
        predicted: By the model.
        observed: What it should be.
        bins: Of the rewards, [N].
    """
    valid, size = observed.valid, observed.valid.shape[1]
    away = (predicted.zs - observed.zs).square().mean(dim=2)
    surprise = two_hot_loss(predicted.reward, observed.reward, bins)
    wrong = (predicted.termination - observed.termination).square()
    return ModelLosses(*((valid * each).sum() / size for each in (away, surprise, wrong)))


def value_targets(batch: Batch, next_q: Tensor, scale: float, next_scale: float) -> Tensor:
    """(r + γⁿ Q̄(s′, a′)) in units of the current reward scale, [B].

    Args:
        batch: Transitions of up to n steps.
        next_q: The smaller target value, in units of the scale that it was learned with, [B].
        scale: The current reward scale.
        next_scale: The one of the target value.
    """
    return (batch.reward + batch.discount * next_q * next_scale) / scale


def value_loss(q: Tensor, target_q: Tensor) -> Tensor:
    """Huber loss of both values, [2, B] and [B], a scalar; its threshold is the least priority."""
    return functional.smooth_l1_loss(q, target_q.expand_as(q), beta=_LEAST_PRIORITY)


def priorities(q: Tensor, target_q: Tensor, exponent: float) -> Tensor:
    """The larger error of both values, at least 1, to the exponent, [B] (LAP).

    With the Huber loss they have the gradient of an absolute error under uniform draws, wherever
    errors are above 1 (Fujimoto et al. 2020).
    """
    return (q - target_q).abs().amax(dim=0).clamp_min(_LEAST_PRIORITY).pow(exponent)


def policy_loss(q: Tensor, logits: Tensor, penalty: float) -> Tensor:
    """Minus the mean of both values, and a penalty on what the policy's actions are made of.

    Args:
        q: Values of the policy's actions, [2, B].
        logits: The policy's outputs, [B, A].
        penalty: Weight of their mean square.
    """
    return penalty * logits.square().mean() - q.mean()


def gumbel_softmax(logits: Tensor, generator: torch.Generator) -> Tensor:
    """A relaxed choice, [B, A] → [B, A], by Gumbel noise on the logits and a softmax of them."""
    drawn = torch.empty_like(logits, requires_grad=False).exponential_(generator=generator)
    return torch.softmax((logits - drawn.log()) / _TEMPERATURE, dim=-1)


def one_hot(x: Tensor) -> Tensor:
    """1 at the largest number of each row and 0 elsewhere, [B, A] → [B, A]."""
    return torch.zeros_like(x).scatter_(-1, x.argmax(dim=-1, keepdim=True), 1.0)


# The networks


def normalised(x: Tensor) -> Tensor:
    """LayerNorm without parameters, over the last dimension."""
    return functional.layer_norm(x, x.shape[-1:])


def _elu(x: Tensor) -> Tensor:
    """ELU in place; without gradients a compiled loop, which takes a quarter of the time."""
    return functional.elu(x, inplace=True) if torch.is_grad_enabled() else elu_(x)


def _normalised_elu(x: Tensor) -> Tensor:
    return _elu(normalised(x))


def _normalised_relu(x: Tensor) -> Tensor:
    return functional.relu(normalised(x), inplace=True)


@torch.no_grad()
def _xavier(weight: Tensor, inputs: int, outputs: int) -> None:
    """Draws weights as for a layer of this size, with the gain of ReLU."""
    bound = math.sqrt(2) * math.sqrt(6 / (inputs + outputs))
    nn.init.uniform_(weight, -bound, bound)


class Layer(nn.Linear):
    """A linear layer with Xavier's weights, and biases of 0.

    Args:
        inputs: Width of the input.
        outputs: Width of the output.
        fans: Inputs and outputs of the larger layer that it is a part of; None if it is none.
        bias: Whether it has biases.
    """

    def __init__(
        self, inputs: int, outputs: int, fans: tuple[int, int] | None = None, *, bias: bool = True
    ) -> None:
        super().__init__(inputs, outputs, bias=bias)
        _xavier(self.weight, *(fans or (inputs, outputs)))
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] → [..., outputs]."""
        return linear(x, self.weight, self.bias)


class PixelEncoder(nn.Module):
    """φ of images: four 3×3 convolutions with ELU on pixels/255 − ½, then a normalised layer.

    Tensors are channels-last, which is faster for convolutions. With `centre_images` a mean image
    takes the place of ½, once `centre` has measured it.

    Args:
        shape: (channels, height, width) of an observation.
        settings: Sizes.

    Raises:
        ValueError: If the image is too small for the strides.
    """

    def __init__(self, shape: Shape, settings: MRQSettings) -> None:
        super().__init__()
        channels, strides = settings.channels, settings.strides
        sides = feature_sides(shape[1:], strides)
        self.mean: Tensor | None  # of images, minus ½
        self.register_buffer("mean", torch.zeros(shape) if settings.centre_images else None)
        self.convolutions = nn.ModuleList()
        inputs = shape[0]
        for stride in strides:
            layer = nn.Conv2d(inputs, channels, kernel_size=3, stride=stride)
            nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"))
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
            self.convolutions.append(layer)
            inputs = channels
        self.last = Layer(channels * math.prod(sides), settings.latent_dim)

    def forward(self, observation: Tensor) -> Tensor:
        """uint8 [B, C, H, W] → zs, [B, latent_dim]."""
        x = scaled_pixels(observation, torch.float32).to(self.last.weight.dtype)
        if self.mean is not None:
            x = x.sub_(self.mean[None].contiguous(memory_format=torch.channels_last))
        for layer in self.convolutions:
            x = _elu(layer(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return _normalised_elu(self.last(x.permute(0, 2, 3, 1).flatten(start_dim=1)))

    @torch.no_grad()
    def centre(self, observations: Tensor) -> None:
        """Takes the mean of images, uint8 [B, C, H, W], as the one that is subtracted.

        Most of an image is the same in all of them. Left in, it is most of what the convolutions
        see, zs hardly depends on the state, and learning takes long to find where it does.
        """
        assert self.mean is not None
        scaled = scaled_pixels(observations, torch.float32)
        self.mean.copy_(scaled.mean(dim=0))

    def each(self, observations: Tensor) -> Tensor:
        """uint8 [B, T, C, H, W] → [T, B, latent_dim], step by step, which takes less memory."""
        return torch.stack([self(seen) for seen in observations.unbind(dim=1)])


class VectorEncoder(nn.Module):
    """φ of vectors: three normalised layers with ELU."""

    def __init__(self, inputs: int, settings: MRQSettings) -> None:
        super().__init__()
        hidden = settings.hidden
        self.first, self.second = Layer(inputs, hidden), Layer(hidden, hidden)
        self.last = Layer(hidden, settings.latent_dim)

    def forward(self, observation: Tensor) -> Tensor:
        """float32 [..., inputs] → zs, [..., latent_dim]."""
        x = observation.to(self.first.weight.dtype)
        for layer in (self.first, self.second, self.last):
            x = _normalised_elu(layer(x))
        return x

    def each(self, observations: Tensor) -> Tensor:
        """float32 [B, T, inputs] → [T, B, latent_dim]."""
        return self.forward(observations.transpose(0, 1))


class StateActionEncoder(nn.Module):
    """ψ, from zs and an action to zsa.

    The first layer reads zs beside the action's embedding. It is two, one for each, which are added
    up: the part of all actions of a window is computed at once.
    """

    def __init__(self, action_size: int, settings: MRQSettings) -> None:
        super().__init__()
        width, embedded, hidden = settings.latent_dim, settings.action_dim, settings.hidden
        fans = (width + embedded, hidden)
        self.action = Layer(action_size, embedded)
        self.of_zs = Layer(width, hidden, fans)
        self.of_action = Layer(embedded, hidden, fans, bias=False)
        self.second, self.last = Layer(hidden, hidden), Layer(hidden, width)

    def forward(self, zs: Tensor, action: Tensor) -> Tensor:
        """[B, latent_dim] and [B, A] → zsa, [B, latent_dim]."""
        return self.join(zs, self.read(action))

    def read(self, action: Tensor) -> Tensor:
        """What the first layer makes of actions, [..., A] → [..., hidden]."""
        action = action.to(self.action.weight.dtype)
        part: Tensor = self.of_action(_elu(self.action(action)))
        return part

    def join(self, zs: Tensor, part: Tensor) -> Tensor:
        """The zsa of zs, [B, latent_dim], and what `read` returned of the action, [B, hidden]."""
        x = _normalised_elu(self.of_zs(zs).add_(part))
        zsa: Tensor = self.last(_normalised_elu(self.second(x)))
        return zsa


class Model(nn.Module):
    """Linear readouts of zsa: the next zs, the reward's bins, termination."""

    def __init__(self, width: int) -> None:
        super().__init__()
        fans = (width, width + _BINS + 1)
        self.next, self.ending = Layer(width, width, fans), Layer(width, _BINS + 1, fans)

    def endings(self, zsa: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the reward's bins, [..., 65], and termination, [...], of zsa, [..., D]."""
        both = self.ending(zsa)
        return both[..., :_BINS], both[..., _BINS]


class TwinQ(nn.Module):
    """Two values of zsa; their first layers are the halves of one, as both read the same."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first = Layer(inputs, 2 * hidden, (inputs, hidden))
        self.second, self.third = (
            nn.ModuleList(Layer(hidden, hidden) for _ in range(2)) for _ in range(2)
        )
        self.last = nn.ModuleList(Layer(hidden, 1) for _ in range(2))

    def forward(self, zsa: Tensor) -> Tensor:
        """[B, inputs] → [2, B]."""
        both = _normalised_elu(self.first(zsa).unflatten(1, (2, -1))).unbind(dim=1)
        rest = zip(both, self.second, self.third, self.last, strict=True)
        values = []
        for x, *layers, last in rest:
            for layer in layers:
                x = _normalised_elu(layer(x))  # noqa: PLW2901
            values.append(last(x))
        return torch.cat(values, dim=1).T


class Policy(nn.Module):
    """From zs to what actions are made of: two normalised layers with ReLU, and a linear one."""

    def __init__(self, inputs: int, hidden: int, action_size: int) -> None:
        super().__init__()
        self.first, self.second = Layer(inputs, hidden), Layer(hidden, hidden)
        self.last = Layer(hidden, action_size)

    def forward(self, zs: Tensor) -> Tensor:
        """[B, inputs] → [B, A]."""
        x = _normalised_relu(self.second(_normalised_relu(self.first(zs))))
        logits: Tensor = self.last(x)
        return logits


class Networks(nn.Module):
    """All that is learned.

    Attributes:
        phi: φ, from observations to zs.
        psi: ψ, from zs and an action to zsa.
        model: From zsa to what comes next.
        values: From zsa to two values.
        policy: From zs to what actions are made of.
    """

    def __init__(self, shape: Shape, action_size: int, settings: MRQSettings) -> None:
        super().__init__()
        s, pixels = settings, len(shape) == 3
        self.phi: PixelEncoder | VectorEncoder
        self.phi = PixelEncoder(shape, s) if pixels else VectorEncoder(shape[0], s)
        self.psi = StateActionEncoder(action_size, s)
        self.model = Model(s.latent_dim)
        self.values = TwinQ(s.latent_dim, s.hidden)
        self.policy = Policy(s.latent_dim, s.hidden, action_size)

    def unroll(self, zs: Tensor, action: Tensor) -> Predicted:
        """What the model predicts from zs, [B, D], along actions, [B, T, A].

        Only the embeddings go step by step; the other readouts see all steps together.
        """
        pairs, following = [], []
        for part in self.psi.read(action.transpose(0, 1)).unbind():
            pairs.append(self.psi.join(zs, part))
            zs = self.model.next(pairs[-1])
            following.append(zs)
        return Predicted(torch.stack(following), *self.model.endings(torch.stack(pairs)))


class Target(nn.Module):
    """Copies that targets are read from; the model needs none."""

    def __init__(self, networks: Networks) -> None:
        super().__init__()
        self._sources = (networks.phi, networks.psi, networks.values, networks.policy)
        self.phi, self.psi = copy.deepcopy(networks.phi), copy.deepcopy(networks.psi)
        self.values, self.policy = copy.deepcopy(networks.values), copy.deepcopy(networks.policy)
        self.requires_grad_(False)

    @torch.no_grad()
    def copy(self) -> None:
        """Becomes as the networks are now."""
        parts = (self.phi, self.psi, self.values, self.policy)
        own: list[Tensor] = [each for part in parts for each in part.parameters()]
        theirs: list[Tensor] = [each for part in self._sources for each in part.parameters()]
        torch._foreach_copy_(own, theirs)


# The agent


class Loss(NamedTuple):
    """A loss of the encoders.

    Attributes:
        total: What is minimised; what a coefficient's loss adds to it reaches nothing else.
        heads: The parameters that it trains beside φ and ψ.
        metrics: By name; those that take time to compute on demand.
    """

    total: Tensor
    heads: list[nn.Parameter]
    metrics: Callable[[], Metrics]


class MRQ(BaseAgent):
    """Encoders with losses of their own, and values and a policy that read them.

    The encoders are φ, zs = φ(s), and ψ, zsa = ψ(zs, a). The settings name their losses: that of
    MR.Q's own model, and any objectives, to which φ and ψ are the agent's. Values and policy have
    no part in them.

    Args:
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action, or the number of discrete ones.
        settings: Sizes, rates and losses of the encoders.
        seed: Seed of the networks, the exploration and the updates.
        device: Device of the networks.
        discrete: Whether actions are a choice, of one-hot vectors.

    Attributes:
        objectives: Those of the settings, by name.

    Raises:
        ValueError: For sizes that do not match, or if nothing trains ψ.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: MRQSettings,
        *,
        seed: int,
        device: str | torch.device = "cpu",
        discrete: bool = False,
    ) -> None:
        self.observation_shape = as_shape(observation_shape)
        self.action_size: int = schema.convert(action_size, schema.Size, "action_size")
        self.settings, self.device = as_settings(settings, MRQSettings), as_device(device)
        self._half = self.settings.half_precision
        if self._half:
            check_bfloat16(self.device.type)
        self.discrete = schema.flag(discrete, "discrete")
        self._reach = 0.5 if discrete else 1.0  # of noise: choices are in [0, 1], not [−1, 1]
        sequence = np.random.SeedSequence(schema.integer(seed, "seed", 0))
        seeds = [int(word) for word in sequence.generate_state(3)]
        with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw from its global generator
            torch.manual_seed(seeds[0])
            networks = Networks(self.observation_shape, self.action_size, settings)
            self.networks = networks.to(self.device)
            self.objectives = {name: self._objective(name) for name in settings.objectives}
        self.target = Target(self.networks)
        _check_psi(self.networks.psi, settings, self.objectives.values())
        self.optimisers = self._make_optimisers()
        self._bins = reward_bins(self.device)
        self._explore_generator = torch.Generator().manual_seed(seeds[1])
        self._update_generator = torch.Generator(self.device).manual_seed(seeds[2])
        self._updates = 0
        self._scale, self._target_scale = 1.0, 1.0  # units of the values and of the target's

    def _objective(self, name: str) -> Objective:
        """An objective that compares the agent's zs and zsa."""
        psi = None if trains_psi(name) is False else self.networks.psi
        made = make_objective(name, self.settings.latent_dim, self.action_size, psi=psi)
        return made.to(self.device)

    def _make_optimisers(self) -> dict[str, Adam]:
        s, n, objectives = self.settings, self.networks, self.objectives.values()
        encoders = [*n.phi.parameters(), *n.psi.parameters(), *n.model.parameters()]
        for objective in objectives:
            encoders += objective.representation_parameters()
        trained = {
            "encoders": (encoders, s.encoder_learning_rate),
            "values": (list(n.values.parameters()), s.learning_rate),
            "policy": (list(n.policy.parameters()), s.learning_rate),
        }
        optimisers = {
            name: Adam([{"params": parameters, "lr": rate}], s.weight_decay)
            for name, (parameters, rate) in trained.items()
        }
        raw_c = [each for objective in objectives for each in objective.coefficient_parameters()]
        if raw_c:
            optimisers["coefficient"] = Adam([{"params": raw_c, "lr": s.coefficient_learning_rate}])
        return optimisers

    @property
    def metric(self) -> Objective | None:
        """The objective whose distances `distance` has: the first, if there is one."""
        return next(iter(self.objectives.values()), None)

    def status(self) -> dict[str, float]:
        """The adaptive coefficient c and the reward scale of the first objective that has them."""
        status: dict[str, float] = {}
        for objective in self.objectives.values():
            status = objective.status() | status
        return status

    @torch.no_grad()
    def act(self, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[np.float32]:
        """The action for one observation, [A] in [−1, 1]; of discrete ones a one-hot vector.

        Exploring, it is uniformly random at first, and has noise later. Otherwise it is the
        policy's, and no random numbers are drawn.
        """
        check_observation(observation, self.observation_shape)
        if explore and step < self.settings.explore_steps:
            action = 2 * torch.rand(1, self.action_size, generator=self._explore_generator) - 1
        else:
            with self._precision():
                zs = self.networks.phi(torch.tensor(observation, device=self.device)[None])
                action = self._full(self.networks.policy(zs)).cpu()
            if explore:
                action = self._activated(action, self._explore_generator)
                noise = torch.randn(action.shape, generator=self._explore_generator)
                action = action + self._reach * self.settings.noise * noise
            elif not self.discrete:
                action = torch.tanh(action)
        return np.asarray(self._realised(action)[0].numpy(), dtype=np.float32)

    def _activated(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """What the policy's outputs stand for, [B, A]: an action, or a relaxed choice."""
        return gumbel_softmax(logits, generator) if self.discrete else torch.tanh(logits)

    def _realised(self, action: Tensor) -> Tensor:
        """What can be done, [B, A]: clipped to [−1, 1], or the one-hot choice."""
        return one_hot(action) if self.discrete else action.clamp(-1, 1)

    @torch.no_grad()
    def embed(self, observations: Tensor) -> Tensor:
        """The embeddings zs of a batch, as the first objective compares them, [B, latent_dim]."""
        check_observations(observations, self.observation_shape)
        with self._precision():
            zs = self._full(self.networks.phi(observations.to(self.device)))
        return zs if self.metric is None else self.metric.scale(zs)

    @torch.no_grad()
    def embeddings(self, observations: Tensor) -> dict[str, Tensor]:
        """Two of each observation: phi, as `embed`, and psi, the zsa of the policy's action.

        The values read zsa, and the policy zs.
        """
        check_observations(observations, self.observation_shape)
        with self._precision():
            zs = self.networks.phi(observations.to(self.device))
            logits = self._full(self.networks.policy(zs))
            action = one_hot(logits) if self.discrete else torch.tanh(logits)
            zsa = self._full(self.networks.psi(zs, action))
        return {"phi": self.embed(observations), "psi": zsa}

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances of the first objective, [N, D] × [M, D] → [N, M]; else Euclidean ones.

        In these the model is learned.
        """
        if self.metric is None:
            return torch.cdist(x, y).detach()
        # Some objectives read distances by a head; embeddings may be on the CPU meanwhile.
        return self.metric.distance(x.to(self.device), y.to(self.device)).detach().to(x.device)

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:  # noqa: ARG002
        """A step of values and policy, on transitions drawn by their priorities, which it renews.

        At the first of every `target_every` updates, targets are copied, and the encoders get
        `target_every` updates before it.

        Returns:
            Losses and metrics as scalar tensors, which docs/metrics.md explains.
        """
        if not isinstance(replay, TransitionReplay):
            kind = type(replay).__name__
            raise ValueError(f"mrq draws by priority and needs a TransitionReplay, got {kind}")
        s, metrics = self.settings, {}
        if self._updates == 0 and s.centre_images:
            self.centre(replay)
        if self._updates % s.target_every == 0:
            self.begin_period(replay.mean_reward_size())
            about = (replay.discount, replay.has_terminations())
            for left in reversed(range(s.target_every)):
                windows = replay.sample_windows(s.batch_size, s.horizon)
                metrics = self.learn_encoders(windows, *about, with_metrics=left == 0)
        self._updates += 1
        drawn = replay.sample_transitions(s.batch_size)
        learned, priority = self.learn(drawn.batch)
        replay.set_priorities(drawn.entry, priority.cpu().numpy())
        return metrics | learned

    def centre(self, replay: TransitionReplay) -> None:
        """Measures the mean image that φ and the target encoder subtract; vectors have none."""
        windows = replay.sample_windows(_CENTRED, self.settings.horizon)
        images = self._checked_windows(windows).obs[:, 0]
        for encoder in (self.networks.phi, self.target.phi):
            if isinstance(encoder, PixelEncoder):
                encoder.centre(images)

    def begin_period(self, reward_size: float) -> None:
        """Copies the networks to their targets, and takes a new unit for values.

        Args:
            reward_size: Mean absolute reward of the replay buffer.
        """
        self.target.copy()
        self._target_scale = self._scale
        if reward_size > 0:  # else there was no reward yet, and nothing to measure it by
            self._scale = reward_size

    def learn_encoders(
        self, windows: Windows, discount: float, terminates: bool, *, with_metrics: bool = False
    ) -> Metrics:
        """One step of φ, ψ and what their losses train beside them.

        Args:
            windows: Of `horizon` steps, already augmented by random shifts.
            discount: γ.
            terminates: Whether the model predicts terminations, too.
            with_metrics: Return metrics, which take time to compute.
        """
        windows = self._checked_windows(windows)
        # Targets, without gradient.
        with torch.no_grad(), self._precision():
            observed = Observed(
                self._full(self.target.phi.each(windows.obs[:, 1:])),
                windows.reward.T.contiguous(),
                1 - windows.discount.T,
                windows.valid.T,
            )
        # Losses, told apart at zs, where gradients stop.
        with self._precision():
            zs = self._full(self.networks.phi(windows.obs[:, 0]))
        leaf = zs.detach().requires_grad_()
        losses = [
            self._model_loss(leaf, windows, observed, terminates)
            if name == MODEL
            else self._objective_loss(self.objectives[name], leaf, windows, observed, discount)
            for name in self.settings.representation
        ]
        # Step.
        with descent(self.optimisers, "encoders", "coefficient"):
            gradient, share = self._backward(leaf, losses)
            zs.backward(gradient)  # type: ignore[no-untyped-call]
        if not with_metrics:
            return {}
        metrics = {
            "objective/effective_rank": effective_rank(leaf.detach()),
            "objective/embedding_norm": torch.linalg.vector_norm(leaf.detach(), dim=1).mean(),
        }
        for loss in reversed(losses):  # of equal names, the first one's count
            metrics |= loss.metrics()
        return metrics | share

    def _model_loss(
        self, zs: Tensor, windows: Windows, observed: Observed, terminates: bool
    ) -> Loss:
        s, model = self.settings, self.networks.model
        with self._precision():
            unrolled = self.networks.unroll(zs, windows.action)
        predicted = Predicted(*map(self._full, unrolled))
        losses = model_losses(predicted, observed, self._bins)
        total = s.consistency_weight * losses.consistency + s.reward_weight * losses.reward
        if terminates:
            total = total + s.termination_weight * losses.termination
        named = {"model_loss": total} | {
            f"{name}_loss": each for name, each in losses._asdict().items()
        }
        return Loss(
            total,
            list(model.parameters()),
            lambda: {name: loss.detach() for name, loss in named.items()},
        )

    def _objective_loss(
        self, objective: Objective, zs: Tensor, windows: Windows, observed: Observed, gamma: float
    ) -> Loss:
        """The objective's loss on the first steps of the windows."""
        next_zs, states = observed.zs[0], {"policy_action": zs.detach()}
        states["next_policy_action"] = next_zs
        actions = {name: self._policy_action(states[name]) for name in objective.policy_actions}
        transitions = (zs, windows.action[:, 0], windows.reward[:, 0])
        following = (gamma * windows.discount[:, 0], next_zs)
        out = objective(*transitions, *following, self._update_generator, **actions)
        heads = [*objective.representation_parameters(), *objective.coefficient_parameters()]
        return Loss(out.loss, heads, lambda: objective_metrics(out.metrics))

    def _backward(self, zs: Tensor, losses: list[Loss]) -> tuple[Tensor, Metrics]:
        """Gives ψ and the heads of the losses their gradients.

        Those of φ and ψ by the second and each further loss are scaled so that they are
        `objective_weight` times as long at zs as the first loss's. The heads see one loss each, and
        Adam does not see its scale.

        Returns:
            The gradient at zs, and the further losses' share of it, if there are any.
        """
        if len(losses) == 1:
            losses[0].total.backward()  # type: ignore[no-untyped-call]
            assert zs.grad is not None
            return zs.grad, {}
        shared = [zs, *self.networks.psi.parameters()]
        total: list[Tensor] = []
        first, others = torch.zeros(()), torch.zeros(())
        for loss in losses:
            inputs = [*shared, *loss.heads]
            found = torch.autograd.grad(loss.total, inputs, allow_unused=True)
            gradients = [
                torch.zeros_like(given) if gradient is None else gradient
                for given, gradient in zip(inputs, found, strict=True)
            ]
            length = torch.linalg.vector_norm(gradients[0])
            if total:
                factor = balance(first, length, self.settings.objective_weight)
                total = [a.add_(factor * b) for a, b in zip(total, gradients, strict=False)]
                others = others + factor * length
            else:
                first, total = length, gradients[: len(shared)]
            for head, gradient in zip(loss.heads, gradients[len(shared) :], strict=True):
                head.grad = gradient
        for parameter, gradient in zip(shared[1:], total[1:], strict=True):
            parameter.grad = gradient
        return total[0], gradient_share(first, others)

    def learn(self, batch: Batch) -> tuple[Metrics, Tensor]:
        """One step of the values, then one of the policy.

        Args:
            batch: Transitions of up to n steps, already augmented by random shifts.

        Returns:
            Losses and metrics as scalar tensors, values in units of rewards; and the priorities of
            the transitions, [B].
        """
        batch = check_batch(batch, self.observation_shape, self.action_size, self.device)
        networks, s = self.networks, self.settings
        # Targets and what is read of the encoders, without gradient.
        with torch.no_grad(), self._precision():
            target_q = self._targets(batch)
            zs = networks.phi(batch.obs)
            zsa = networks.psi(zs, batch.action)
        # The values.
        with self._precision():
            q = self._full(networks.values(zsa))
        loss = value_loss(q, target_q)
        with descent(self.optimisers, "values"):
            loss.backward()  # type: ignore[no-untyped-call]
            norm = clip_grad_norm_(networks.values.parameters(), s.gradient_clip, foreach=True)
        # The policy.
        with frozen(networks.psi, networks.values):
            with self._precision():
                logits = self._full(networks.policy(zs))
                action = self._activated(logits, self._update_generator)
                of_policy = self._full(networks.values(networks.psi(zs, action)))
            with descent(self.optimisers, "policy"):
                policy_loss(of_policy, logits, s.action_penalty).backward()  # type: ignore[no-untyped-call]
        q = q.detach()
        metrics = {
            "critic_loss": loss.detach(),
            "critic_q1": q[0].mean() * self._scale,
            "critic_q2": q[1].mean() * self._scale,
            "critic_target_q": target_q.mean() * self._scale,
            "gradient_norm": norm.detach(),
            "actor_loss": of_policy.detach().mean() * -self._scale,
            "actor_logits": logits.detach().square().mean().sqrt(),
            "actor_std": torch.tensor(s.noise),
            "value_scale": torch.tensor(self._scale),
            "batch_reward": batch.reward.mean(),
        }
        return metrics, priorities(q, target_q, s.priority_exponent)

    def _targets(self, batch: Batch) -> Tensor:
        """The values' targets, [B]."""
        target = self.target
        zs = target.phi(batch.next_obs)
        action = self._noisy(self._full(target.policy(zs)))
        next_q = self._full(target.values(target.psi(zs, action))).amin(dim=0)
        return value_targets(batch, next_q, self._scale, self._target_scale)

    @torch.no_grad()
    def _policy_action(self, zs: Tensor) -> Tensor:
        """An action of the current policy at each zs, [B, A]."""
        with self._precision():
            logits = self._full(self.networks.policy(zs))
        return self._noisy(logits)

    def _noisy(self, logits: Tensor) -> Tensor:
        """An action as updates use it, with clipped noise, [B, A]."""
        s, generator, most = self.settings, self._update_generator, self.settings.noise_clip
        mean = self._activated(logits, generator)
        noise = torch.randn(mean.shape, generator=generator, device=self.device)
        noise = noise.mul_(s.target_noise).clamp_(-most, most)
        return self._realised(mean + self._reach * noise)

    def _checked_windows(self, windows: Windows) -> Windows:
        """The windows on the device, if their shapes and types are the agent's."""
        size, steps, shape = len(windows.obs), self.settings.horizon, self.observation_shape
        check_tensor("obs", windows.obs, (size, steps + 1, *shape), observation_type(shape))
        check_tensor("action", windows.action, (size, steps, self.action_size))
        for name in ("reward", "discount", "valid"):
            check_tensor(name, getattr(windows, name), (size, steps))
        return moved(windows, self.device)

    def _precision(self) -> torch.autocast:
        """A context in which the networks run in the precision of the settings."""
        return torch.autocast(self.device.type, torch.bfloat16, self._half, cache_enabled=False)

    def _full(self, x: Tensor) -> Tensor:
        """What a network returned, in full precision."""
        return x.float() if self._half else x

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: tensors, numbers and names only.

        As in PyTorch, the tensors are not copies: save or copy them before training continues.
        """
        return {
            "method": "mrq",
            "representation": " ".join(self.settings.representation),
            "networks": {name: part.state_dict() for name, part in self._modules().items()},
            "optimisers": {name: adam.state_dict() for name, adam in self.optimisers.items()},
            "explore_generator": self._explore_generator.get_state(),
            "update_generator": self._update_generator.get_state(),
            "updates": self._updates,
            "scale": self._scale,
            "target_scale": self._target_scale,
        }

    def _modules(self) -> dict[str, Any]:
        """What is in a state, by name."""
        return {"networks": self.networks, "target": self.target} | self.objectives

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned.

        Raises:
            ValueError: If the state is of another method, or does not fit this agent.
        """
        losses = " ".join(self.settings.representation)
        check_state(state, method="mrq", representation=losses)
        with fitting():
            for name, part in self._modules().items():
                part.load_state_dict(state["networks"][name])
            for name, adam in self.optimisers.items():
                adam.load(state["optimisers"][name]["state"])
            restore(self._explore_generator, state["explore_generator"])
            restore(self._update_generator, state["update_generator"])
            self._updates = schema.integer(state["updates"], "updates", 0)
            self._scale = _unit(state["scale"], "scale")
            self._target_scale = _unit(state["target_scale"], "target_scale")


def _unit(value: object, name: str) -> float:
    """A unit of values: as large or small as rewards are."""
    unit = schema.number(value, name)
    if not 0 < unit < math.inf:
        raise ValueError(f"{name} must be finite and above 0, got {unit}")
    return unit


def _check_psi(psi: nn.Module, settings: MRQSettings, objectives: Collection[Objective]) -> None:
    """Refuses objectives of the user's own that train ψ twice, or leave it as it is."""
    own = set(psi.parameters())
    if any(own.intersection(objective.representation_parameters()) for objective in objectives):
        raise ValueError(
            "an objective has the agent's ψ among its own parameters, which would be trained "
            "twice: give it to BaseObjective.__init__ as psi, and do not assign it to self.psi"
        )
    trained = any(getattr(objective, "psi", None) is psi for objective in objectives)
    if not trained and MODEL not in settings.representation:
        raise ValueError(
            f"nothing trains the state-action encoder: {' and '.join(settings.objectives)} must "
            f"take it as psi, or add {MODEL} to --representation"
        )


def acting(agent: MRQ) -> InferenceState:
    """φ and the policy."""
    tensors = tensors_of(phi=agent.networks.phi, policy=agent.networks.policy)
    metric = agent.metric
    if metric is not None and type(metric).scale is not BaseObjective.scale:
        # What a scaling of its own reads is not known.
        tensors |= {f"objective.{name}": each for name, each in metric.state_dict().items()}
    sizes = (agent.observation_shape, agent.action_size)
    return InferenceState(*sizes, tensors, discrete=agent.discrete)
