"""TD-MPC (Hansen et al. 2022): plans with a latent model that is learned with its value."""

from __future__ import annotations

import copy
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
    check_observation,
    check_observations,
    check_state,
    check_tensor,
    convolution,
    descent,
    fitting,
    frozen,
    moved,
    observation_type,
    restore,
)
from revbis.agents.drqv2 import linear_schedule, noisy_action
from revbis.agents.linear import Linear
from revbis.agents.settings import KERNELS, TDMPCSettings, feature_sides
from revbis.agents.tdmpc_planner import NOISE_CLIP, PackedModel, Search, following_mean, plan
from revbis.io import schema
from revbis.replay import PrioritisedReplay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from revbis.agents.base import Metrics
    from revbis.replay import Replay, Sequences

_LARGEST = 1e4  # a sequence's losses and priorities are cut there


class Predictions(NamedTuple):
    """What the model predicts along T steps of B sequences.

    Attributes:
        z: Latent states after each step, unrolled from the first observation, [T, B, D].
        reward: Rewards, [T, B].
        q1: Values of the state before each step and its action, [T, B].
        q2: The other ones, [T, B].
    """

    z: Tensor
    reward: Tensor
    q1: Tensor
    q2: Tensor


class Targets(NamedTuple):
    """What the predictions should be, without gradient.

    Attributes:
        z: The target encoder's latent states of the next observations, [T, B, D].
        reward: Rewards received, [T, B].
        q: One-step targets of the values, [T, B].
    """

    z: Tensor
    reward: Tensor
    q: Tensor


class SequenceLosses(NamedTuple):
    """Sums over the horizon, step t weighted by decayᵗ, [B] each.

    Attributes:
        consistency: Mean squared error of the latent states.
        reward: Squared error of the reward.
        value: Squared errors of both values.
        priority: Absolute errors of both values.
    """

    consistency: Tensor
    reward: Tensor
    value: Tensor
    priority: Tensor


def step_weights(count: int, decay: float, device: torch.device) -> Tensor:
    """Weights decayᵗ of the steps, [count, 1]."""
    return (decay ** torch.arange(count, device=device, dtype=torch.float32))[:, None]


def sequence_losses(predicted: Predictions, target: Targets, decay: float) -> SequenceLosses:
    """The four losses of each sequence (Hansen et al. 2022).

    Args:
        predicted: Of T steps of B sequences.
        target: The same, without gradient.
        decay: ρ, the factor of each further step.
    """
    weight = step_weights(len(target.reward), decay, target.reward.device)
    errors = torch.stack([predicted.q1, predicted.q2]) - target.q
    losses = (
        (predicted.z - target.z).square().mean(dim=2),
        (predicted.reward - target.reward).square(),
        errors.square().sum(dim=0),
        errors.detach().abs().sum(dim=0),
    )
    sums = ((weight * loss).sum(dim=0).clamp(max=_LARGEST) for loss in losses)
    return SequenceLosses(*sums)


def policy_loss(value: Tensor, decay: float) -> Tensor:
    """Minus the mean value of the policy's actions, summed over steps with weights decayᵗ.

    Args:
        value: The smaller value at each latent state, [T + 1, B].
        decay: ρ, the factor of each further step.
    """
    return -(step_weights(len(value), decay, value.device) * value).sum(dim=0).mean()


def importance_weights(probability: Tensor, exponent: float) -> Tensor:
    """Weights probability⁻ᵝ, scaled so that the largest is 1, [B] (Schaul et al. 2016).

    Args:
        probability: With which each sequence was drawn, [B].
        exponent: β; 0 weights all alike.
    """
    return (probability / probability.min()) ** -exponent


class PixelEncoder(nn.Module):
    """Four convolutions with ReLU on pixels/255, then a linear layer.

    Tensors are channels-last, which is faster for convolutions.

    Args:
        shape: (channels, height, width) of an observation.
        settings: Sizes.

    Raises:
        ValueError: If the image is too small for the strides.
    """

    def __init__(self, shape: tuple[int, ...], settings: TDMPCSettings) -> None:
        super().__init__()
        channels, strides = settings.channels, settings.strides
        inputs = [shape[0], channels, channels, channels]
        self.convolutions = nn.ModuleList(
            map(convolution, inputs, [channels] * 4, strides, KERNELS)
        )
        height, width = feature_sides(shape[1:], strides, KERNELS)
        self.last = Linear(channels * height * width, settings.latent_dim)

    def forward(self, observation: Tensor) -> Tensor:
        """uint8 [B, C, H, W] → z, [B, latent_dim]."""
        x = observation.to(torch.float32, memory_format=torch.channels_last).div_(255)
        for layer in self.convolutions:
            x = functional.relu(layer(x), inplace=True)
        z: Tensor = self.last(x.permute(0, 2, 3, 1).flatten(start_dim=1))
        return z


class VectorEncoder(nn.Module):
    """One hidden layer with ELU, for observations that are vectors of numbers."""

    def __init__(self, inputs: int, settings: TDMPCSettings) -> None:
        super().__init__()
        self.first = Linear(inputs, settings.encoder_hidden)
        self.last = Linear(settings.encoder_hidden, settings.latent_dim)

    def forward(self, observation: Tensor) -> Tensor:
        """float32 [B, inputs] → z, [B, latent_dim]."""
        z: Tensor = self.last(functional.elu(self.first(observation), inplace=True))
        return z


class MLP(nn.Module):
    """Two hidden layers with ELU."""

    def __init__(self, inputs: int, hidden: int, outputs: int, *, zero: bool = False) -> None:
        super().__init__()
        self.first, self.second = Linear(inputs, hidden), Linear(hidden, hidden)
        self.last = Linear(hidden, outputs)
        if zero:
            nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] → [B, outputs]."""
        x = functional.elu(self.first(x), inplace=True)
        y: Tensor = self.last(functional.elu(self.second(x), inplace=True))
        return y


class Q(nn.Module):
    """A value whose first layer is normalised and followed by tanh; it starts as 0."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first, self.norm = Linear(inputs, hidden), nn.LayerNorm(hidden)
        self.second, self.last = Linear(hidden, hidden), Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] → [B]."""
        x = torch.tanh(self.norm(self.first(x)))
        y: Tensor = self.last(functional.elu(self.second(x), inplace=True))
        return y.squeeze(1)


class TwinQ(nn.Module):
    """Two values of a latent state and an action."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.q1, self.q2 = Q(inputs, hidden), Q(inputs, hidden)

    def forward(self, z: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """[B, latent_dim] and [B, A] → two values, [B] each."""
        x = torch.cat([z, action], dim=1)
        return self.q1(x), self.q2(x)


class Model(nn.Module):
    """The task-oriented latent dynamics, and the policy.

    Attributes:
        encoder: h, from observations to z.
        dynamics: d, from z and an action to the next z.
        reward: R, from z and an action to the reward.
        values: Q, from z and an action to two values.
        actor: π, from z to an action before its tanh.
    """

    def __init__(self, shape: tuple[int, ...], action_size: int, settings: TDMPCSettings) -> None:
        super().__init__()
        s = settings
        both = s.latent_dim + action_size
        pixels = len(shape) == 3
        self.encoder: PixelEncoder | VectorEncoder
        self.encoder = PixelEncoder(shape, s) if pixels else VectorEncoder(shape[0], s)
        self.dynamics = MLP(both, s.hidden, s.latent_dim)
        self.reward = MLP(both, s.hidden, 1, zero=True)
        self.values = TwinQ(both, s.hidden)
        self.actor = MLP(s.latent_dim, s.hidden, action_size)

    def policy(self, z: Tensor) -> Tensor:
        """The policy's mean action, [B, A]."""
        return torch.tanh(self.actor(z))

    def value(self, z: Tensor, action: Tensor) -> Tensor:
        """The smaller of the two values, [B]."""
        return torch.minimum(*self.values(z, action))

    def learned(self) -> list[nn.Parameter]:
        """What the model's loss trains: everything but the policy."""
        parts = (self.encoder, self.dynamics, self.reward, self.values)
        return [parameter for part in parts for parameter in part.parameters()]


class Target(nn.Module):
    """Slowly moving copies of encoder and values; nothing else of the model needs one."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(model.encoder)
        self.values = copy.deepcopy(model.values)
        self.requires_grad_(False)

    @torch.no_grad()
    def follow(self, model: Model, rate: float) -> None:
        """Moves towards the model: target += rate · (model − target)."""
        sources: list[Tensor] = [*model.encoder.parameters(), *model.values.parameters()]
        torch._foreach_lerp_(list(self.parameters()), sources, rate)


_LEAST_PRIORITY = 1e-6
_PATIENCE = 20  # times the horizon: transitions without an episode that long


class TDMPC(BaseAgent):
    """Encoder, latent dynamics, reward, twin values and policy, and a planner that uses them.

    Training and evaluation each have a plan and a generator of their own. An episode's kind follows
    from the first action asked for after `begin_episode`, so that evaluating in the middle of a
    training episode changes neither its plan nor its random numbers. Evaluation's generator starts
    anew with each episode: what it does depends on the networks and the episode alone.

    Args:
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action.
        settings: Sizes, rates and the planner.
        seed: Seed of the networks, the exploration, the updates and the planner.
        device: Device of the networks.

    Raises:
        ValueError: For sizes that do not match.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: TDMPCSettings,
        *,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        self.observation_shape = as_shape(observation_shape)
        self.action_size: int = schema.convert(action_size, schema.Size, "action_size")
        self.settings, self.device = as_settings(settings, TDMPCSettings), as_device(device)
        sequence = np.random.SeedSequence(schema.integer(seed, "seed", 0))
        seeds = [int(word) for word in sequence.generate_state(4)]
        with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw from its global generator
            torch.manual_seed(seeds[0])
            self.model = Model(self.observation_shape, self.action_size, settings).to(self.device)
        self.target = Target(self.model)
        trained = {"model": self.model.learned(), "actor": self.model.actor.parameters()}
        rate = settings.learning_rate
        self.optimisers = {
            name: Adam([{"params": list(parameters), "lr": rate}])
            for name, parameters in trained.items()
        }
        self._explore_generator = torch.Generator(self.device).manual_seed(seeds[1])
        self._update_generator = torch.Generator(self.device).manual_seed(seeds[2])
        self._evaluate_generator, self._evaluate_seed = torch.Generator(self.device), seeds[3]
        self._new_episode = True
        self._plans = {explore: self._no_plan() for explore in (True, False)}
        # Of the last update. Before the first one all predicted returns are 0, whatever γ is.
        self._step, self._updates, self._discount = 0, 0, 0.0

    def deviation(self, step: int) -> float:
        """Least standard deviation of planned actions at an agent step."""
        s = self.settings
        return linear_schedule(s.noise_start, s.noise_end, s.noise_steps, step)

    def horizon(self, step: int) -> int:
        """Steps of a plan at an agent step."""
        s = self.settings
        return int(linear_schedule(1, s.horizon, s.horizon_steps, step))

    @property
    def last_update(self) -> dict[str, float]:
        """The step and the discount of the last update, which plans depend on."""
        return {"step": self._step, "discount": self._discount}

    def restore_last_update(self, numbers: Mapping[str, Any]) -> None:
        """Sets what `last_update` returned."""
        self._step = schema.integer(numbers["step"], "step", 0)
        self._discount = schema.discount(numbers["discount"], "discount")

    def begin_episode(self) -> None:
        """The next action is an episode's first: its plan starts from nothing."""
        self._new_episode = True

    @torch.no_grad()
    def act(self, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[np.float32]:
        """The first action of a plan, [A] in [−1, 1].

        Exploring, it is uniformly random at first, and has noise later. Otherwise it is as planned,
        by the schedules at the last update, with random numbers of a generator that starts anew
        with each episode.
        """
        check_observation(observation, self.observation_shape)
        step = step if explore else self._step
        generator = self._explore_generator if explore else self._evaluate_generator
        if self._new_episode:
            self._new_episode = False
            self._plans[explore] = self._no_plan()
            if not explore:
                generator.manual_seed(self._evaluate_seed)
        if explore and step < self.settings.explore_steps:
            uniform = torch.rand(self.action_size, generator=generator, device=self.device)
            return np.asarray(2 * uniform.cpu().numpy() - 1, dtype=np.float32)
        z = self.model.encoder(torch.tensor(observation, device=self.device)[None])
        start = self._plans[explore][: self.horizon(step)]
        model = PackedModel(self.model, self.settings.samples, len(start))
        planned = plan(model, z, start, self.search(step), generator)
        self._plans[explore] = following_mean(planned.mean, self.settings.horizon)
        action = planned.actions[0]
        if explore:
            noise = torch.randn(action.shape, generator=generator, device=self.device)
            action = action + planned.deviation[0] * noise
        return np.asarray(action.clamp(-1, 1).cpu().numpy(), dtype=np.float32)

    @torch.no_grad()
    def embed(self, observations: Tensor) -> Tensor:
        """The latent states z of a batch, [B, latent_dim]."""
        check_observations(observations, self.observation_shape)
        z: Tensor = self.model.encoder(observations.to(self.device))
        return z

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """The Euclidean distance, in which dynamics are learned, [N, D] × [M, D] → [N, M]."""
        return torch.cdist(x, y).detach()

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:  # noqa: ARG002
        """One update on sequences drawn by their priorities, which it renews; see `learn`.

        Returns:
            Losses and metrics; nothing while no episode is as long as the horizon.

        Raises:
            ValueError: If many episodes are shorter than the horizon, and none is as long.
        """
        if not isinstance(replay, PrioritisedReplay):
            kind = type(replay).__name__
            raise ValueError(f"tdmpc draws by priority and needs a PrioritisedReplay, got {kind}")
        horizon = self.settings.horizon
        if not replay.count_sequences(horizon):
            if len(replay) > _PATIENCE * horizon:
                raise ValueError(f"no episode so far had {horizon} steps: use a smaller --horizon")
            return {}
        drawn = replay.sample_prioritised(self.settings.batch_size, horizon, shift="image")
        metrics, priority = self.learn(drawn.sequences, drawn.probability, replay.discount, step)
        priority = (priority + _LEAST_PRIORITY) ** self.settings.priority_exponent
        replay.set_priorities(drawn.entry, priority.cpu().numpy())
        return metrics

    def learn(
        self, sequences: Sequences, probability: Tensor, discount: float, step: int
    ) -> tuple[Metrics, Tensor]:
        """One step of the model, the policy and the targets.

        Args:
            sequences: Of `horizon` steps, already augmented by random shifts.
            probability: With which each of them was drawn, [B].
            discount: γ.
            step: Agent steps so far.

        Returns:
            Losses and metrics as scalar tensors, which docs/metrics.md explains; and the error of
            each sequence's values, [B].
        """
        s = self.settings
        size, shape = len(sequences.obs), self.observation_shape
        check_tensor("obs", sequences.obs, (size, s.horizon + 1, *shape), observation_type(shape))
        check_tensor("action", sequences.action, (size, s.horizon, self.action_size))
        for name in ("reward", "discount"):
            check_tensor(name, getattr(sequences, name), (size, s.horizon))
        check_tensor("probability", probability, (size,))
        sequences = moved(sequences, self.device)
        self._step, self._discount = step, discount
        probability = probability.to(self.device, torch.float32, non_blocking=True)
        weight = importance_weights(probability, s.importance_exponent)
        target = self._targets(sequences)
        latents, metrics, priority = self._model_step(sequences, target, weight)
        metrics |= self._actor_step(latents)
        self._updates += 1
        if self._updates % s.target_every == 0:
            self.target.follow(self.model, s.target_rate)
        return metrics | {
            "actor_std": torch.tensor(self.deviation(step)),
            "plan_horizon": torch.tensor(float(self.horizon(step))),
            "batch_reward": sequences.reward.mean(),
        }, priority

    @torch.no_grad()
    def _targets(self, sequences: Sequences) -> Targets:
        """What the model should predict, for all steps at once."""
        following = sequences.obs[:, 1:].unbind(dim=1)
        z = torch.cat([self.model.encoder(obs) for obs in following])
        target_z = torch.stack([self.target.encoder(obs) for obs in following])
        action = self._noisy(self.model.policy(z))
        value = torch.minimum(*self.target.values(z, action)).reshape(target_z.shape[:2])
        reward = sequences.reward.T
        return Targets(target_z, reward, reward + self._discount * sequences.discount.T * value)

    def _model_step(
        self, sequences: Sequences, target: Targets, weight: Tensor
    ) -> tuple[Tensor, Metrics, Tensor]:
        """Updates encoder, dynamics, reward and values; returns the latents, [T + 1, B, D]."""
        s, model = self.settings, self.model
        latents, predicted = self._predict(sequences)
        losses = sequence_losses(predicted, target, s.loss_decay)
        total = s.consistency_weight * losses.consistency
        total = total + s.reward_weight * losses.reward + s.value_weight * losses.value
        loss = (weight * total).mean()
        with descent(self.optimisers, "model"):
            (loss / s.horizon).backward()  # type: ignore[no-untyped-call]
            norm = clip_grad_norm_(model.learned(), s.gradient_clip)
        metrics = {
            "model_loss": loss.detach(),
            "consistency_loss": losses.consistency.detach().mean(),
            "reward_loss": losses.reward.detach().mean(),
            "critic_loss": losses.value.detach().mean(),
            "critic_q1": predicted.q1.detach().mean(),
            "critic_q2": predicted.q2.detach().mean(),
            "critic_target_q": target.q.mean(),
            "gradient_norm": norm.detach(),
        }
        return latents.detach(), metrics, losses.priority

    def _predict(self, sequences: Sequences) -> tuple[Tensor, Predictions]:
        """Unrolls the dynamics from the first observations.

        Only the dynamics go step by step; reward and values read all latent states together.
        """
        model, shape = self.model, sequences.reward.T.shape
        actions = sequences.action.transpose(0, 1)
        latents = [model.encoder(sequences.obs[:, 0])]
        for action in actions:
            latents.append(model.dynamics(torch.cat([latents[-1], action], dim=1)))
        z, a = torch.cat(latents[:-1]), actions.flatten(0, 1)
        reward = model.reward(torch.cat([z, a], dim=1)).reshape(shape)
        q1, q2 = (q.reshape(shape) for q in model.values(z, a))
        unrolled = torch.stack(latents)
        return unrolled, Predictions(unrolled[1:], reward, q1, q2)

    def _actor_step(self, latents: Tensor) -> Metrics:
        """Updates the policy to increase the smaller value along the predicted states."""
        model, s = self.model, self.settings
        z = latents.flatten(0, 1)
        with frozen(model.values):
            value = model.value(z, self._noisy(model.policy(z))).reshape(latents.shape[:2])
        loss = policy_loss(value, s.loss_decay)
        with descent(self.optimisers, "actor"):
            loss.backward()  # type: ignore[no-untyped-call]
            clip_grad_norm_(model.actor.parameters(), s.gradient_clip)
        return {"actor_loss": loss.detach()}

    def _noisy(self, mean: Tensor) -> Tensor:
        return noisy_action(mean, self.settings.noise_end, self._update_generator, NOISE_CLIP)

    def _no_plan(self) -> Tensor:
        return torch.zeros((self.settings.horizon, self.action_size), device=self.device)

    def search(self, step: int) -> Search:
        """How plans are searched for at an agent step."""
        s = self.settings
        return Search(
            iterations=s.iterations,
            samples=s.samples,
            policy_samples=s.policy_samples,
            elites=s.elites,
            temperature=s.temperature,
            momentum=s.momentum,
            discount=self._discount,
            least_deviation=self.deviation(step),
            policy_deviation=s.noise_end,
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: tensors, numbers and names only.

        As in PyTorch, the tensors are not copies: save or copy them before training continues. The
        plan is that of the running training episode.
        """
        return {
            "method": "tdmpc",
            "networks": {"model": self.model.state_dict(), "target": self.target.state_dict()},
            "optimisers": {name: adam.state_dict() for name, adam in self.optimisers.items()},
            "explore_generator": self._explore_generator.get_state(),
            "update_generator": self._update_generator.get_state(),
            "plan": self._plans[True],
            "step": self._step,
            "updates": self._updates,
            "discount": self._discount,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned.

        Raises:
            ValueError: If the state is of another method, or does not fit this agent.
        """
        check_state(state, method="tdmpc")
        with fitting():
            self.model.load_state_dict(state["networks"]["model"])
            self.target.load_state_dict(state["networks"]["target"])
            for name, adam in self.optimisers.items():
                adam.load(state["optimisers"][name]["state"])
            restore(self._explore_generator, state["explore_generator"])
            restore(self._update_generator, state["update_generator"])
            self._plans[True] = self._no_plan().copy_(state["plan"])
            self._updates = schema.integer(state["updates"], "updates", 0)
            self.restore_last_update(state)
        self._new_episode = False


def acting(agent: TDMPC) -> InferenceState:
    """The model, and the step and the discount of the last update."""
    return InferenceState(
        agent.observation_shape,
        agent.action_size,
        tensors_of(model=agent.model),
        agent.last_update,
        agent.restore_last_update,
    )
