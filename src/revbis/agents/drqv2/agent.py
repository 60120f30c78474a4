"""DrQ-v2 (Yarats et al. 2022), alone or with a bisimulation objective."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from revbis import checks
from revbis.agents.drqv2.balance import StepSizes, feature_gradients, objective_metrics
from revbis.agents.drqv2.inputs import (
    as_action_size,
    as_device,
    as_settings,
    as_shape,
    check_batch,
    check_observation,
    check_observations,
    check_state,
    fitting,
)
from revbis.agents.drqv2.parts import Following, Parts, make_parts
from revbis.agents.drqv2.work import parts_of_the_work
from revbis.agents.generators import restore
from revbis.agents.networks import linear_schedule, noisy_action
from revbis.objectives import simsr_distance
from revbis.system.processor import check_bfloat16

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from revbis.agents.drqv2.auxiliary import Auxiliary, AuxiliaryOutput
    from revbis.agents.drqv2.settings import DrQV2Settings
    from revbis.agents.protocol import Metrics, Stopwatch
    from revbis.replay import Batch, Replay


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
        sequence = np.random.SeedSequence(checks.whole(seed, "seed", 0))
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
        checks.whole(step, "step", 0)
        checks.flag(explore, "explore")
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
        checks.whole(step, "step", 0)
        checks.flag(with_metrics, "with_metrics")
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
    def _targets(self, batch: Batch, deviation: float) -> tuple[Tensor, Following | None]:
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
        return target_q, Following(z[0], action) if both else self._following(batch, deviation)

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
        following: Following,
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
    def _following(self, batch: Batch, deviation: float) -> Following:
        """φ̄ of the objective's next states, and the policy's actions there if it uses them."""
        next_obs, objective = batch.next_obs, self.parts.objective
        if self._one_step and batch.one_step is not None:
            next_obs = batch.one_step.next_obs
        features = self.parts.encoder(next_obs)
        (next_z,) = self.parts.readouts(features, "projection")
        if objective is None or "next_policy_action" not in objective.policy_actions:
            return Following(next_z, None)
        return Following(next_z, self._noisy(self._mean_action(features), deviation))

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
