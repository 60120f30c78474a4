"""Stable-Baselines3's SAC with simsr-rev: the critic's features are also trained by the objective.

Run it: python examples/stable_baselines3_sac.py --steps 5000
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

    def __init__(self, *args: Any, objective: str = "simsr-rev", **kwargs: Any) -> None:
        kwargs.setdefault("policy_kwargs", {"features_extractor_class": Encoder})
        self.objective_name = objective
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        super()._setup_model()
        actions = self.action_space.shape[0]
        self.objective = make_objective(self.objective_name, LATENT, actions).to(self.device)
        encoder = self.critic.features_extractor.parameters()
        heads = self.objective.representation_parameters()
        self.objective_optimiser = torch.optim.Adam([*encoder, *heads], lr=1e-4)
        raw_c = list(self.objective.coefficient_parameters())
        self.coefficient_optimiser = torch.optim.Adam(raw_c, lr=1e-4) if raw_c else None

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
            )
            self.objective_optimiser.zero_grad()
            out.representation_loss.backward()
            self.objective_optimiser.step()
            if out.coefficient_loss is not None:
                self.coefficient_optimiser.zero_grad()
                out.coefficient_loss.backward()
                self.coefficient_optimiser.step()
        for name, value in out.metrics.items():
            self.logger.record(f"objective/{name}", float(value))

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        states, tensors = super()._get_torch_save_params()
        own = ["objective", "objective_optimiser", "coefficient_optimiser"]
        return [*states, *(name for name in own if getattr(self, name) is not None)], tensors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--env", default="Pendulum-v1")
    given = parser.parse_args()
    runtime.prepare(threads=1)  # networks this small gain nothing from more threads
    BisimulationSAC("MlpPolicy", given.env, verbose=1).learn(given.steps, log_interval=4)
