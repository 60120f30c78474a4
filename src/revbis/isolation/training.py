"""Trains a fresh encoder by an objective alone, as DrQ-v2 would in alternating mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from revbis.agents.drqv2.parts import make_parts
from revbis.agents.drqv2.settings import DrQV2Settings
from revbis.objectives import NonFiniteError
from revbis.system.factories import described

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.agents.drqv2.auxiliary import Auxiliary, AuxiliaryOutput
    from revbis.config import Config
    from revbis.isolation.source import Source
    from revbis.replay import Batch

# Every objective has its own defaults, whatever the run's method was given.
_OWN = dict.fromkeys(
    ("objective_loss", "normalisation", "pairing", "beta", "coefficient", "reward_scale")
    + ("objective_hidden",)
)
_REPORT_EVERY = 10  # steps


def settings_of(config: Config, method: str) -> DrQV2Settings:
    """Settings of an agent with this objective, of the run's sizes and rates.

    Raises:
        ValueError: If the method has no objective.
    """
    agent = config.with_settings(method=method, mode="alternating", **_OWN).agent.for_reading()
    if not isinstance(agent, DrQV2Settings) or agent.objective is None:
        raise ValueError(f"{method} has no objective that could train an encoder alone")
    return agent


class PolicyNeededError(ValueError):
    """An objective needs actions that the run's policy cannot give."""


class Isolated:
    """An encoder, its projection and an objective, untrained.

    Args:
        source: The run whose replay buffer it is trained on.
        method: The objective.
        seed: Of initialisation and batches.

    Raises:
        ValueError: If the objective cannot be made, or needs what the run does not have.
    """

    def __init__(self, source: Source, method: str, seed: int) -> None:
        self._source, self._settings = source, settings_of(source.config, method)
        shape, actions = source.observation_shape, source.action_size
        with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw from its global generator
            torch.manual_seed(seed)
            self._parts = make_parts(shape, actions, self._settings, torch.device("cpu"))
        assert self._parts.objective is not None
        self.objective: Auxiliary = self._parts.objective
        if self.objective.policy_actions and not source.acts_in_batches:
            raise PolicyNeededError(
                f"{method} needs actions of the run's policy, which only DrQ-v2 runs can give; "
                f"the run's method is {source.config.method}; name others with --methods"
            )
        optimisers = self._parts.make_optimisers(self._settings)
        names = [name for name in ("objective", "coefficient") if name in optimisers]
        self._optimisers = [optimisers[name] for name in names]
        self._generator = torch.Generator().manual_seed(seed)
        self._seed = seed

    def run(self, steps: int, progress: Callable[[int], None]) -> None:
        """Trains; progress is called with a number of further steps.

        Raises:
            ValueError: If the objective raises one, or anything else.
            NonFiniteError: If training diverges.
        """
        replay = self._source.replay(self._seed, one_step=self._settings.one_step)
        for step in range(1, steps + 1):
            out = self._compare(replay.sample(self._settings.batch_size))
            loss = out.representation_loss
            if out.coefficient_loss is not None:  # it reaches raw_c only: one pass serves both
                loss = loss + out.coefficient_loss
            for optimiser in self._optimisers:
                optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for optimiser in self._optimisers:
                optimiser.step()
            if step % _REPORT_EVERY == 0:
                progress(_REPORT_EVERY)
        progress(steps % _REPORT_EVERY)

    @torch.no_grad()
    def embeddings(self, observations: Tensor) -> dict[str, Tensor]:
        """φ of a batch as `distance` compares it, [B, latent_dim]."""
        return {"phi": self.objective.scale(self._embed(observations))}

    @torch.no_grad()
    def distance(self, _: str, z: Tensor) -> Tensor:
        """The objective's distances, [N, D] → [N, N]."""
        return self.objective.distance(z, z)

    def _embed(self, observations: Tensor) -> Tensor:
        projected = self._parts.readouts(self._parts.encoder(observations), "projection")[0]
        z: Tensor = self._parts.norm(projected)
        return z

    def _compare(self, batch: Batch) -> AuxiliaryOutput:
        """The objective's losses of a batch."""
        reward, discount, next_obs = batch.reward, batch.discount, batch.next_obs
        if batch.one_step is not None:
            reward, discount, next_obs = batch.one_step
        with torch.no_grad():
            next_z = self._embed(next_obs)
        places = {"policy_action": batch.obs, "next_policy_action": next_obs}
        actions = {
            name: self._source.policy_actions(places[name], self._generator)
            for name in self.objective.policy_actions
        }
        try:
            return self.objective(
                self._embed(batch.obs),
                batch.action,
                reward,
                discount,
                next_z,
                generator=self._generator,
                **actions,
            )
        except (ValueError, NonFiniteError):
            raise
        except Exception as error:
            raise ValueError(f"calling the objective raised {described(error)}") from error
