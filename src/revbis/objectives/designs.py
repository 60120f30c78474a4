"""MICo, SimSR, their revised and complete forms and the ablations as points of one grid.

Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_DISTANCES = {"mico": "MICo", "simsr": "SimSR", "energy": "energy"}


@dataclass(frozen=True)
class Design:
    """One point of the grid: distance × what is compared × what follows × tie × weights.

    Attributes:
        distance: "mico", "simsr" or "energy".
        state_action: Whether ψ embeds state-action pairs; without it states are compared.
        adaptive: Weights (1−c, c) with c learned; else (1, γ).
        follows: What the target's second term compares: the next "states" by φ, or "pairs" of next
            states and the current policy's actions there by ψ.
        tied: Whether φ's distances are regressed on ψ's under the current policy's actions: the
            equation that the paper's loss leaves out.
        released: The loss of the authors' released code: no gradient through the second member of
            a pair, and the batch's mean reward gap for every pair, whose variance c sees too. Their
            action embedding and initialisation are not reproduced (docs/deviations.md).
    """

    distance: Literal["mico", "simsr", "energy"]
    state_action: bool
    adaptive: bool
    follows: Literal["states", "pairs"] = "states"
    tied: bool = False
    released: bool = False

    @property
    def normalised(self) -> bool:
        """Whether embeddings are scaled to length 1 unless the user says otherwise.

        SimSR's are, and the paper scales MICo's too. On unit vectors MICo's distance lives in
        [1.0014, 1.157] and cannot express its targets, so that the forms that are to reach them
        leave its embeddings as they are. The energy distance needs their length.
        """
        paper = not self.tied and self.follows == "states"
        return self.distance == "simsr" or (self.distance == "mico" and paper)

    @property
    def independent(self) -> bool:
        """Whether an element's pair with itself is left out.

        A sample and itself are not two independent draws: their reward gap is always 0. The
        published methods include such pairs.
        """
        return self.tied or self.follows == "pairs" or self.distance == "energy"

    @property
    def policy_actions(self) -> tuple[str, ...]:
        """The actions of the current policy that a batch must hold."""
        if self.follows == "pairs":
            return ("next_policy_action",)
        return ("policy_action",) if self.tied else ()

    @property
    def description(self) -> str:
        """The design in one short line."""
        if self.released:
            return f"{self.distance}-rev with the loss of the authors' released code"
        compared = "pairs" if self.state_action else "states"
        weights = "(1−c, c)" if self.adaptive else "(1, γ)"
        name = _DISTANCES[self.distance]
        if self.tied:
            return f"{name}: pairs, and states tied to them, {weights}"
        if self.follows == "pairs":
            return f"{name}: pairs, followed by pairs, {weights}"
        return f"{name} distance between {compared}, weights {weights}"


def _complete(distance: Literal["mico", "simsr", "energy"]) -> dict[str, Design]:
    return {
        f"{distance}-rev-full": Design(distance, True, True, tied=True),
        f"{distance}-rev-full-no-c": Design(distance, True, False, tied=True),
    }


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
    **_complete("mico"),
    **_complete("simsr"),
    "energy": Design("energy", state_action=False, adaptive=False),
    **_complete("energy"),
    "mico-rev-pairs": Design("mico", state_action=True, adaptive=True, follows="pairs"),
    "simsr-rev-pairs": Design("simsr", state_action=True, adaptive=True, follows="pairs"),
}
