"""How much of its exact metric a learned metric has: the benchmark behind `revbis probe`.

The states of a small MDP are rendered as images. Transitions are collected under one policy, and an
encoder is trained by an objective alone: no reward is maximised. Every state can be enumerated, so
the learned distances are compared with the exact metric of the same method.
"""

from revbis.yardsticks.probe.measurement import Measurement, measure
from revbis.yardsticks.probe.measures import Agreement
from revbis.yardsticks.probe.problem import Problem
from revbis.yardsticks.probe.scenarios import SCENARIOS, build
from revbis.yardsticks.probe.training import ProbeSettings

__all__ = [
    "SCENARIOS",
    "Agreement",
    "Measurement",
    "ProbeSettings",
    "Problem",
    "build",
    "measure",
]
