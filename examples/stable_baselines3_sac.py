"""Stable-Baselines3's SAC with an objective that also trains the critic's features.

Run it: python examples/stable_baselines3_sac.py --steps 5000 --objective simsr-rev-full
"""

import argparse
from typing import Any

import torch
from stable_baselines3 import SAC
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from revbis import runtime
from revbis.objectives import make_objective

LATENT = 50


class Encoder(BaseFeaturesExtractor):
    """φ: an MLP; for pixels, put convolutions here."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space, features_dim=LATENT)
        inputs = observation_space.shape[0]
        self.layers = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, LATENT))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(observations)


class BisimulationSAC(SAC):
    """SAC whose every training step is followed by one step of a bisimulation objective."""

    def __init__(self, *args: Any, objective: str = "simsr-rev-full", **kwargs: Any) -> None:
        kwargs.setdefault("policy_kwargs", {"features_extractor_class": Encoder})
        self.objective_name = objective
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        super()._setup_model()
        actions = self.action_space.shape[0]
        self.objective = make_objective(self.objective_name, LATENT, actions).to(self.device)
        encoder = self.critic.features_extractor.parameters()
        trained = [*encoder, *self.objective.parameters()]
        self.objective_optimiser = torch.optim.Adam(trained, lr=1e-4)

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        super().train(gradient_steps, batch_size)
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            encoder = self.critic.features_extractor
            out = self.objective(
                encoder(batch.observations),
                batch.actions,
                batch.rewards,
                self.gamma * (1 - batch.dones),
                encoder(batch.next_observations),
                policy=self.actor,
                states=(batch.observations, batch.next_observations),
            )
            self.objective_optimiser.zero_grad()
            out.loss.backward()
            self.objective_optimiser.step()
        for name, value in out.metrics.items():
            self.logger.record(f"objective/{name}", float(value))

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        states, tensors = super()._get_torch_save_params()
        return [*states, "objective", "objective_optimiser"], tensors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--objective", default="simsr-rev-full")
    given = parser.parse_args()
    runtime.prepare(threads=1)  # networks this small gain nothing from more threads
    agent = BisimulationSAC("MlpPolicy", given.env, objective=given.objective, verbose=1)
    agent.learn(given.steps, log_interval=4)
