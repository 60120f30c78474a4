"""Bisimulation metrics as representation-learning objectives, for any PyTorch agent.

objective = make_objective("simsr-rev", latent_dim=50, action_dim=6)
out = objective(z, action, reward, discount, next_z)
(agent_loss + out.representation_loss).backward()
"""

from __future__ import annotations

from typing import Any

from revbis import checks
from revbis.methods import DESIGNS, OBJECTIVES, Design
from revbis.objectives.bisimulation import BisimulationObjective
from revbis.objectives.coefficient import AdaptiveCoefficient
from revbis.objectives.dbc import DBCObjective
from revbis.objectives.distances import l1_distance, mico_distance, normalise, simsr_distance
from revbis.objectives.inputs import NonFiniteError
from revbis.objectives.output import ObjectiveOutput
from revbis.objectives.targets import (
    gaussian_w2,
    mean_reward_gap,
    pair_discount,
    reward_gap,
    target,
)

Objective = BisimulationObjective | DBCObjective

_WIDEST = 16_384
_CHOICES = {"loss": ("huber", "squared"), "pairing": ("all", "permuted")}


def make_objective(name: str, latent_dim: int, action_dim: int, **options: Any) -> Objective:
    """An objective by name.

    Args:
        name: One of `OBJECTIVES`: mico, simsr; mico-rev, simsr-rev (the revised metric, ψ and c);
            …-rev-no-c and …-rev-no-sa (without the coefficient, without ψ); mico-rev-released (what
            the authors' released code computes); dbc.
        latent_dim: Width of the embeddings.
        action_dim: Width of the actions.
        **options: loss ("huber" | "squared"), normalisation (bool), beta (MICo's angle weight),
            hidden (width of the head), pairing ("all" | "permuted").

    Raises:
        ValueError: For unknown names or options, with what is known.
    """
    checks.choice(name, OBJECTIVES, "objective")
    latent_dim = checks.whole(latent_dim, "latent_dim", 1, _WIDEST)
    action_dim = checks.whole(action_dim, "action_dim", 1, _WIDEST)
    known = ["loss", "normalisation", "hidden", "pairing"] + (["beta"] if "mico" in name else [])
    for option, value in list(options.items()):
        checks.choice(option, known, f"an option of {name}")
        if option in _CHOICES:
            checks.choice(value, _CHOICES[option], option)
        elif option == "beta":
            options[option] = checks.positive(value, option)
        elif option == "hidden":
            checks.whole(value, option, 1, _WIDEST)
        else:
            checks.flag(value, option)
    if name == "dbc":
        return DBCObjective(latent_dim, action_dim, **options)
    if DESIGNS[name].released:
        options = {"loss": "squared", "pairing": "permuted"} | options
    return BisimulationObjective(DESIGNS[name], latent_dim, action_dim, **options)


__all__ = [
    "DESIGNS",
    "OBJECTIVES",
    "AdaptiveCoefficient",
    "BisimulationObjective",
    "DBCObjective",
    "Design",
    "NonFiniteError",
    "Objective",
    "ObjectiveOutput",
    "gaussian_w2",
    "l1_distance",
    "make_objective",
    "mean_reward_gap",
    "mico_distance",
    "normalise",
    "pair_discount",
    "reward_gap",
    "simsr_distance",
    "target",
]
