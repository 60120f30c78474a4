"""Loading the MDP and the policy that the flags of `revbis tabular` name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revbis.tabular import examples
from revbis.tabular.mdp import FiniteMDP, as_policy
from revbis.tabular.npz import read_npy, read_npz
from revbis.tabular.settings import Source
from revbis.tabular.values import optimal_policy

Array = NDArray[np.float64]
_EXAMPLES_WITH = {
    "size": ("grid", "rooms", "garnet", "delay"),
    "slip": ("grid", "rooms"),
    "seed": ("garnet",),
}


def load(source: Source, gamma: float) -> tuple[FiniteMDP, Array]:
    """The MDP and the policy; the optimal policy is that for `gamma`.

    Raises:
        ValueError: If not exactly one source is given, it cannot be read, or a flag is not for it.
    """
    if [source.example, source.mdp, source.gym].count(None) != 2:
        raise ValueError("give one of --example, --mdp and --gym")
    for flag, names in _EXAMPLES_WITH.items():
        if getattr(source, flag) != getattr(Source, flag) and source.example not in names:
            raise ValueError(f"--{flag} is for --example {', '.join(names)}; drop it")
    mdp, own = _load(source)
    if source.policy == "optimal":
        return mdp, optimal_policy(mdp, gamma)[1]
    if source.policy == "uniform" or (source.policy == "own" and own is None):
        return mdp, mdp.uniform_policy()
    policy = own if source.policy == "own" else _policy_file(source.policy)
    assert policy is not None
    return mdp, as_policy(mdp, policy)


def _load(source: Source) -> tuple[FiniteMDP, Array | None]:
    """The MDP, and the policy that comes with it."""
    if source.mdp is not None:
        return FiniteMDP.load(source.mdp), read_npz(source.mdp).get("policy")
    if source.gym is not None:
        return FiniteMDP.from_gymnasium(source.gym), None
    size = source.example_size
    match source.example:
        case "toy":
            return examples.toy()
        case "toy-printed":
            return examples.toy("printed")
        case "grid":
            return examples.grid_world(size, slip=source.slip)
        case "rooms":
            return examples.four_rooms(size, slip=source.slip)
        case "garnet":
            return examples.garnet(size, branching=min(size, 5), seed=source.seed)
        case _:
            return examples.delay_chain(size)


def _policy_file(path: str) -> Array:
    try:
        return read_npy(path)
    except FileNotFoundError:
        raise ValueError(
            f"--policy must be own, uniform, optimal or a .npy file; there is no file {path!r}"
        ) from None
