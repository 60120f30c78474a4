"""What a user asks `revbis tabular` for: where the MDP comes from, and how to solve it.

Plain data with the flags' help texts; nothing heavy is imported, so that `--help` is instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ExampleName = Literal["toy", "toy-printed", "grid", "rooms", "garnet", "delay", "coins"]
_DEFAULT_SIZES = {"grid": 8, "rooms": 11, "garnet": 100, "delay": 20}


@dataclass(frozen=True)
class Source:
    """Where the MDP comes from: pass one of --example, --mdp and --gym."""

    example: ExampleName | None = None
    """A built-in MDP. toy: the paper's example; toy-printed: with the rewards of its numbers.
    grid, rooms: a grid world, open or with four rooms. garnet: a random MDP.
    delay: two chains, one of which ends in a reward. coins: what the revised metric cannot see."""
    mdp: Path | None = None
    """A .npz file: from FiniteMDP.save, or with arrays P (S,A,S), R (S,A) and perhaps policy."""
    gym: str | None = None
    """The id of a Gymnasium environment with a transition table, such as FrozenLake-v1."""
    policy: str = "own"
    """own (that of the example or the file; uniform if it has none), uniform, optimal,
    or a .npy file with (S,A) probabilities or (S,) actions."""
    size: int | None = None
    """Size of the example: side of a grid, states of a garnet, steps of a delay."""
    slip: float = 0.2
    """Probability that a move on a grid slips to the side."""
    seed: int = 0
    """Seed of a garnet."""

    @property
    def label(self) -> str:
        """The MDP as the user named it."""
        return str(self.example or self.gym or self.mdp)

    @property
    def name(self) -> str:
        """A name for files that differs between different MDPs."""
        parts = [self.example or self.gym or name_of_file(self.mdp or "")]
        if self.example in _DEFAULT_SIZES:
            parts.append(str(self.example_size))
        if self.example in ("grid", "rooms") and self.slip != Source.slip:
            parts.append(f"slip-{digits(self.slip)}")
        if self.example == "garnet" and self.seed != Source.seed:
            parts.append(f"seed-{self.seed}")
        return "-".join(parts)

    @property
    def example_size(self) -> int:
        """The requested size, or the example's default; 0 for those that have none."""
        from revbis.io import schema

        if self.size is None:
            return _DEFAULT_SIZES.get(self.example or "", 0)
        return schema.integer(self.size, "--size", 1)


@dataclass(frozen=True)
class SolveSettings:
    """Which metrics to solve, and how accurately."""

    metric: str = "revised"
    """The metric, or all of them."""
    gamma: float = 0.9
    """Discount factor, in [0, 1)."""
    c: float | None = None
    """Weighted form: weights 1−c on the reward gap and c on the next-state term."""
    tol: float = 1e-6
    """Target error of every distance; the certified error is printed."""
    solver: str = "auto"
    """auto, or a solver that applies. MICo and revised: doubling, jacobi, low_rank, in_place.
    The others: policy_iteration. Deterministic transitions: pointer_doubling, gather."""


def name_of_file(path: str | Path) -> str:
    """A file's name with a few digits of its content: files in two folders may share a name."""
    from revbis.io.files import digest

    return f"{Path(path).stem}-{digest(Path(path))[:6]}"


def digits(number: float) -> str:
    """A number with every digit that distinguishes it from another."""
    return f"{float(number)}".removesuffix(".0")
