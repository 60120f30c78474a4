"""MICo, SimSR, their revised forms and the ablations as points of one grid. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_DISTANCES = {"mico": "MICo distance", "simsr": "SimSR distance"}


@dataclass(frozen=True)
class Design:
    """One point of the grid: distance × what is compared × weights.

    Attributes:
        distance: "mico" or "simsr".
        state_action: Whether ψ embeds state-action pairs; without it states are compared.
        adaptive: Weights (1−c, c) with c learned; else (1, γ).
        released: What the authors' released code does: no gradient through the second member of a
            pair, and the batch's mean reward gap for every pair.
    """

    distance: Literal["mico", "simsr"]
    state_action: bool
    adaptive: bool
    released: bool = False

    @property
    def description(self) -> str:
        """The design in one short line."""
        if self.released:
            return f"{self.distance}-rev as the authors' released code computes it"
        compared = "state-action pairs" if self.state_action else "states"
        weights = "(1−c, c)" if self.adaptive else "(1, γ)"
        return f"{_DISTANCES[self.distance]} between {compared}, weights {weights}"


DESIGNS = {
    "mico": Design("mico", state_action=False, adaptive=False),
    "simsr": Design("simsr", state_action=False, adaptive=False),
    "mico-rev": Design("mico", state_action=True, adaptive=True),
    "simsr-rev": Design("simsr", state_action=True, adaptive=True),
    "mico-rev-no-c": Design("mico", state_action=True, adaptive=False),
    "simsr-rev-no-c": Design("simsr", state_action=True, adaptive=False),
    "mico-rev-no-sa": Design("mico", state_action=False, adaptive=True),
    "simsr-rev-no-sa": Design("simsr", state_action=False, adaptive=True),
    "mico-rev-released": Design("mico", state_action=True, adaptive=True, released=True),
}
