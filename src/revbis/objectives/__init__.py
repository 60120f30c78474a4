"""Bisimulation metrics as representation-learning objectives, for any PyTorch agent.

objective = make_objective("simsr-rev-full", latent_dim=50, action_dim=6)
optimiser = torch.optim.Adam([*encoder.parameters(), *objective.parameters()])
out = objective(encoder(s), action, reward, discount, encoder(next_s),
                policy=actor, states=(s, next_s))
(agent_loss + out.loss).backward()

What needs torch loads on first use: names and options can be read without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from revbis.objectives.registry import (
    DESIGNS,
    OBJECTIVES,
    Design,
    ObjectiveEntry,
    make_objective,
    register,
    unregister,
)

if TYPE_CHECKING:
    from revbis.objectives.base import (
        BaseObjective,
        NonFiniteError,
        Objective,
        ObjectiveOutput,
        Transitions,
    )
    from revbis.objectives.bisimulation import (
        AdaptiveCoefficient,
        BisimulationObjective,
        gaussian_w2,
        pair_discount,
        reward_gap,
        smooth_gap,
        target,
    )
    from revbis.objectives.dbc import DBCObjective
    from revbis.objectives.distances import (
        energy_distance,
        l1_distance,
        l2_distance,
        mico_distance,
        normalise,
        simsr_distance,
    )
    from revbis.objectives.laws import LawObjective, LawReading, LearnedBound, MeanObjective
    from revbis.objectives.prediction import PredictionObjective

_MODULES = ("base", "bisimulation", "dbc", "distances", "laws", "prediction")  # which import torch

__all__ = [
    "DESIGNS",
    "OBJECTIVES",
    "AdaptiveCoefficient",
    "BaseObjective",
    "BisimulationObjective",
    "DBCObjective",
    "Design",
    "LawObjective",
    "LawReading",
    "LearnedBound",
    "MeanObjective",
    "NonFiniteError",
    "Objective",
    "ObjectiveEntry",
    "ObjectiveOutput",
    "PredictionObjective",
    "Transitions",
    "energy_distance",
    "gaussian_w2",
    "l1_distance",
    "l2_distance",
    "make_objective",
    "mico_distance",
    "normalise",
    "pair_discount",
    "register",
    "reward_gap",
    "simsr_distance",
    "smooth_gap",
    "target",
    "unregister",
]


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        members = vars(import_module(f"revbis.objectives.{module}"))
        if name in members:
            return members[name]
    raise AttributeError(f"module 'revbis.objectives' has no attribute {name!r}")
