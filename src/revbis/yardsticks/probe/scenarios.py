"""The settings of the benchmark, each with a name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from revbis.tabular import FiniteMDP, examples
from revbis.yardsticks.probe.images import draw_grid, random_images
from revbis.yardsticks.probe.problem import Array, Problem, near_greedy

_SLIP = 0.5
_GARNET = {"n_states": 60, "n_actions": 4, "branching": 2}
_SEED = 0  # of the Garnet and of its images: they are part of the benchmark
_SPREAD = 0.5  # of random rewards, at the right edge
_PIXEL_NOISE = 0.2


@dataclass(frozen=True)
class Scenario:
    """One setting: an MDP, its rewards, what is seen of it, and whose metric is wanted.

    Attributes:
        mdp: "rooms" (four rooms), "slip" (an open grid, half of the moves slip) or "garnet" (a
            random MDP whose states are fixed random images).
        rewards: "fixed", or "random": drawn at each transition, r(s, a) ± σ(s) with equal chance,
            where σ grows from 0 at the left edge of the grid to 0.5 at the right.
        pixels: "clean", or "noisy": every pixel of every observation has Gaussian noise of its own,
            of standard deviation 0.2.
        policy: "uniform" collects and is judged, or "off-policy": uniform collects, and the metric
            of a near-greedy policy is wanted.
    """

    mdp: Literal["rooms", "slip", "garnet"]
    rewards: Literal["fixed", "random"] = "fixed"
    pixels: Literal["clean", "noisy"] = "clean"
    policy: Literal["uniform", "off-policy"] = "uniform"

    @property
    def description(self) -> str:
        """The scenario in one short line."""
        name = {"rooms": "four rooms", "slip": "a slippery grid", "garnet": "a Garnet"}[self.mdp]
        parts = [
            name,
            "random rewards" if self.rewards == "random" else "",
            "noise in every pixel" if self.pixels == "noisy" else "",
            "uniform data, near-greedy policy" if self.policy == "off-policy" else "uniform policy",
        ]
        return ", ".join(filter(None, parts))


SCENARIOS = {
    "rooms": Scenario("rooms"),
    "rooms-off-policy": Scenario("rooms", policy="off-policy"),
    "rooms-noisy": Scenario("rooms", pixels="noisy"),
    "slip": Scenario("slip", rewards="random"),
    "garnet": Scenario("garnet"),
    "garnet-off-policy": Scenario("garnet", policy="off-policy"),
}


@cache
def build(name: str, size: int, gamma: float) -> Problem:
    """The problem of a scenario.

    Args:
        name: Of `SCENARIOS`.
        size: Side of the grids.
        gamma: Discount factor, which the near-greedy policy depends on.
    """
    scenario = SCENARIOS[name]
    if scenario.mdp == "garnet":
        mdp = examples.garnet(**_GARNET, seed=_SEED).mdp
        images = random_images(mdp.n_states, _SEED)
    else:
        rooms = scenario.mdp == "rooms"
        mdp = (examples.four_rooms(size) if rooms else examples.grid_world(size, slip=_SLIP)).mdp
        images = draw_grid(mdp)
    uniform = mdp.uniform_policy()
    return Problem(
        mdp,
        images,
        behaviour=uniform,
        target=near_greedy(mdp, gamma) if scenario.policy == "off-policy" else uniform,
        outcomes=_spread_rewards(mdp) if scenario.rewards == "random" else None,
        pixel_noise=_PIXEL_NOISE if scenario.pixels == "noisy" else 0.0,
    )


def _spread_rewards(mdp: FiniteMDP) -> Array:
    """Two equally likely rewards around each mean, further apart to the right, (S, A, 2)."""
    assert mdp.grid is not None
    column = mdp.grid[:, 1]
    spread = (_SPREAD * column / column.max())[:, None]
    return np.stack([mdp.rewards - spread, mdp.rewards + spread], axis=2)
