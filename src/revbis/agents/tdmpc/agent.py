"""TD-MPC (Hansen et al. 2022): plans with a latent model that is learned with its value."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from revbis import checks
from revbis.agents.adam import Adam
from revbis.agents.drqv2.inputs import (
    as_action_size,
    as_device,
    as_shape,
    check_observation,
    check_observations,
    check_state,
    fitting,
)
from revbis.agents.generators import restore
from revbis.agents.networks import linear_schedule, noisy_action
from revbis.agents.tdmpc.inputs import (
    as_settings,
    check_probability,
    check_replay,
    check_sequences,
)
from revbis.agents.tdmpc.losses import (
    Predictions,
    Targets,
    importance_weights,
    policy_loss,
    sequence_losses,
)
from revbis.agents.tdmpc.networks import Model, Target
from revbis.agents.tdmpc.planner import NOISE_CLIP, Search, following_mean, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from revbis.agents.protocol import Metrics, Stopwatch
    from revbis.agents.tdmpc.settings import TDMPCSettings
    from revbis.replay import Replay, Sequences

_LEAST_PRIORITY = 1e-6
_PATIENCE = 20  # times the horizon: transitions without an episode that long


class TDMPC:
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
        self.action_size = action_size = as_action_size(action_size)
        self.settings, self.device = as_settings(settings), as_device(device)
        sequence = np.random.SeedSequence(checks.whole(seed, "seed", 0))
        seeds = [int(word) for word in sequence.generate_state(4)]
        with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw from its global generator
            torch.manual_seed(seeds[0])
            self.model = Model(self.observation_shape, action_size, settings).to(self.device)
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
        self.stopwatch: Stopwatch = lambda _: nullcontext()

    def status(self) -> dict[str, float]:
        """Nothing: there is no number that a progress line should show."""
        return {}

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
        self._step = checks.whole(numbers["step"], "step", 0)
        self._discount = checks.discount(numbers["discount"], "discount")

    def begin_episode(self) -> None:
        """The next action is an episode's first: its plan starts from nothing."""
        self._new_episode = True

    @torch.no_grad()
    def act(self, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[np.float32]:
        """The first action of a plan, [A] in [−1, 1].

        Args:
            observation: Of the agent's observation shape.
            step: Agent steps so far, for the schedules; evaluation takes those of the last update.
            explore: Act uniformly at random at first, and with noise later. Otherwise return the
                action as planned. Planning itself draws random numbers, in evaluation from a
                generator that starts anew with each episode.
        """
        check_observation(observation, self.observation_shape)
        step = checks.whole(step, "step", 0) if checks.flag(explore, "explore") else self._step
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
        found = plan(self.model, z, start, self._search(step), generator)
        self._plans[explore] = following_mean(found.mean, self.settings.horizon)
        action = found.actions[0]
        if explore:
            noise = torch.randn(action.shape, generator=generator, device=self.device)
            action = action + found.deviation[0] * noise
        return np.asarray(action.clamp(-1, 1).cpu().numpy(), dtype=np.float32)

    @torch.no_grad()
    def embed(self, observations: Tensor) -> Tensor:
        """The latent states z of a batch, [B, latent_dim].

        Args:
            observations: [B, *observation_shape].
        """
        check_observations(observations, self.observation_shape)
        z: Tensor = self.model.encoder(observations.to(self.device))
        return z

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """The Euclidean distance, in which dynamics are learned, [N, D] × [M, D] → [N, M]."""
        return torch.cdist(x, y).detach()

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:
        """One update on sequences drawn by their priorities, which it renews; see `learn`.

        Returns:
            Losses and metrics; nothing while no episode is as long as the horizon.

        Raises:
            ValueError: If many episodes are shorter than the horizon, and none is as long.
        """
        checks.flag(with_metrics, "with_metrics")
        replay, horizon = check_replay(replay), self.settings.horizon
        if not replay.count_sequences(horizon):
            if len(replay) > _PATIENCE * horizon:
                raise ValueError(f"no episode so far had {horizon} steps: use a smaller --horizon")
            return {}
        with self.stopwatch("sample"):
            drawn = replay.sample_prioritised(self.settings.batch_size, horizon, shift="image")
        metrics, priority = self.learn(drawn.sequences, drawn.probability, replay.discount, step)
        with self.stopwatch("priorities"):
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
        sequences = check_sequences(
            sequences, self.observation_shape, self.action_size, s.horizon, self.device
        )
        self._step = checks.whole(step, "step", 0)
        self._discount = checks.discount(discount, "discount")
        probability = check_probability(probability, len(sequences.obs), self.device)
        weight = importance_weights(probability, s.importance_exponent)
        with self.stopwatch("targets"):
            target = self._targets(sequences)
        with self.stopwatch("model"):
            latents, metrics, priority = self._model_step(sequences, target, weight)
        with self.stopwatch("actor"):
            metrics |= self._actor_step(latents)
        self._updates += 1
        if self._updates % s.target_every == 0:
            with self.stopwatch("move_target"):
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
        optimiser = self.optimisers["model"]
        optimiser.zero_grad()
        loss = (weight * total).mean()
        (loss / s.horizon).backward()  # type: ignore[no-untyped-call]
        norm = clip_grad_norm_(model.learned(), s.gradient_clip)
        optimiser.step()
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
        model.values.requires_grad_(False)
        value = model.value(z, self._noisy(model.policy(z))).reshape(latents.shape[:2])
        model.values.requires_grad_(True)
        loss = policy_loss(value, s.loss_decay)
        optimiser = self.optimisers["actor"]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(model.actor.parameters(), s.gradient_clip)
        optimiser.step()
        return {"actor_loss": loss.detach()}

    def _noisy(self, mean: Tensor) -> Tensor:
        return noisy_action(mean, self.settings.noise_end, self._update_generator, NOISE_CLIP)

    def _no_plan(self) -> Tensor:
        return torch.zeros((self.settings.horizon, self.action_size), device=self.device)

    def _search(self, step: int) -> Search:
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

    def work(self, replay: Replay) -> dict[str, Callable[[], None]]:
        """The encoder passes of an update, and a plan of the full horizon.

        Gradients are discarded; no parameter and no generator of the agent changes.
        """
        s = self.settings
        obs = replay.sample_sequences(s.batch_size, s.horizon, shift="image").obs.to(self.device)
        gradient = torch.randn(s.batch_size, s.latent_dim, device=self.device)
        generator = torch.Generator(self.device).manual_seed(0)
        search = self._search(max(s.horizon_steps, s.noise_steps))

        def encode() -> None:
            for parameter in self.model.encoder.parameters():
                parameter.grad = None
            with torch.no_grad():
                for encoder in (self.model.encoder, self.target.encoder):
                    for following in obs[:, 1:].unbind(dim=1):
                        encoder(following)
            self.model.encoder(obs[:, 0]).backward(gradient)

        @torch.no_grad()
        def act() -> None:
            plan(self.model, self.model.encoder(obs[:1, 0]), self._no_plan(), search, generator)

        return {"encoder": encode, "action": act}

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
            self._load(state)

    def _load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["networks"]["model"])
        self.target.load_state_dict(state["networks"]["target"])
        for name, adam in self.optimisers.items():
            adam.load(state["optimisers"][name]["state"])
        restore(self._explore_generator, state["explore_generator"])
        restore(self._update_generator, state["update_generator"])
        self._plans[True] = self._no_plan().copy_(state["plan"])
        self._updates = checks.whole(state["updates"], "updates", 0)
        self.restore_last_update(state)
        self._new_episode = False
