"""Objectives whose state-action encoder is their owner's."""

import pytest
import torch
from torch import nn

from revbis.objectives import OBJECTIVES, make_objective

WITH_PSI = [name for name, entry in OBJECTIVES.items() if entry.psi]
WITHOUT = [name for name, entry in OBJECTIVES.items() if not entry.psi]


class Psi(nn.Module):
    """Keeps what it was called with."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.seen = []

    def forward(self, z, action):
        self.seen.append(z)
        return self.layer(torch.cat([z, action], dim=1))


def batch():
    generator = torch.Generator().manual_seed(0)
    z, next_z = (torch.randn(5, 4, generator=generator) for _ in range(2))
    action, reward = torch.rand(5, 2, generator=generator), torch.rand(5, generator=generator)
    return z.requires_grad_(), action, reward, torch.full((5,), 0.9), next_z


@pytest.mark.parametrize("name", WITH_PSI)
def test_the_owners_psi_is_trained_and_stays_the_owners(name):
    psi = Psi()
    objective = make_objective(name, 4, 2, psi=psi)
    assert objective.psi is psi and objective.owned
    own = {*objective.parameters(), *objective.representation_parameters()}
    assert not own & set(psi.parameters())
    assert not any("psi" in key for key in objective.state_dict())
    assert list(objective.to("cpu").state_dict()) == list(objective.state_dict())
    transitions = batch()
    actions = {each: transitions[1].flip(0) for each in objective.policy_actions}
    objective(*transitions, torch.Generator().manual_seed(1), **actions).loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in psi.parameters())
    assert psi.seen[0] is transitions[0] or torch.equal(psi.seen[0], transitions[0])
    make_objective(name, 4, 2, psi=Psi()).load_state_dict(objective.state_dict())


@pytest.mark.parametrize("name", ["zp", "deepmdp"])
def test_models_are_linear_in_psi(name):
    objective = make_objective(name, 4, 2, psi=Psi())
    shapes = [tuple(p.shape) for p in objective.parameters()]
    assert shapes == [(4, 4), (4,), (1, 4), (1,)][: 4 if name == "deepmdp" else 2]
    z, action, reward, discount, next_z = batch()
    out = objective(z, action, reward, discount, next_z)
    pair = objective.psi(z, action)
    wanted = (objective.dynamics(pair) - next_z).square().sum(dim=1).mean()
    if name == "deepmdp":
        wanted = wanted + (objective.reward(pair).squeeze(1) - reward).square().mean()
    assert torch.allclose(out.loss, wanted)


@pytest.mark.parametrize("name", WITHOUT)
def test_an_objective_without_psi_takes_none(name):
    with pytest.raises(ValueError, match=f"{name} has no state-action encoder: make it without"):
        make_objective(name, 4, 2, psi=Psi())


def test_psi_must_be_a_module():
    with pytest.raises(ValueError, match=r"psi must be a module, psi\(z, action\), got 3"):
        make_objective("simsr-rev", 4, 2, psi=3)


def make_own(latent_dim, action_dim):
    return make_objective("simsr", latent_dim, action_dim)


def make_own_with_psi(latent_dim, action_dim, psi=None):
    return make_objective("simsr-rev", latent_dim, action_dim, psi=psi)


def test_a_factory_gets_psi_if_it_has_such_an_argument():
    psi = Psi()
    assert make_objective(f"{__name__}:make_own_with_psi", 4, 2, psi=psi).psi is psi
    assert not make_objective(f"{__name__}:make_own", 4, 2, psi=psi).owned
