"""What an agent is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from revbis import checks, schema
from revbis.methods import METHODS
from revbis.schema import Above, AboveOrZero, Count, CountOrZero, Few, Share, Size, Stride


@dataclass(frozen=True)
class AgentSettings:
    """DrQ-v2 and its bisimulation objective; the defaults are the paper's.

    Raises:
        ValueError: If a value is out of range.
    """

    method: str = "drqv2"
    """drqv2 alone, or with an objective by name: mico, simsr, mico-rev, simsr-rev, ..."""
    mode: Literal["joint", "alternating"] = "alternating"
    """joint adds the objective to the critic's loss; alternating gives it its own encoder pass."""
    feature_dim: Size = 50
    """Width of the actor's and the critic's trunk."""
    latent_dim: Size = 50
    """Width of the objective's embeddings."""
    hidden: Size = 1024
    """Width of hidden layers."""
    channels: Few = 32
    """Channels of each convolution."""
    strides: tuple[Stride, Stride, Stride, Stride] = (2, 1, 1, 1)
    """Strides of the four convolutions."""
    learning_rate: Above = 1e-4
    """Adam's, for encoder, critic and actor."""
    objective_learning_rate: Above = 1e-4
    """Adam's, for the objective's projection and heads; alternating: also for its encoder steps."""
    coefficient_learning_rate: Above = 1e-4
    """Adam's, for the coefficient c."""
    objective_weight: AboveOrZero = 1.0
    """Weight of the objective beside the critic's loss, in joint mode."""
    target_rate: Share = 0.01
    """Share of the critic that enters its target at each update."""
    noise_clip: Above = 0.3
    """Largest noise in target actions and in the actor's loss."""
    noise_start: AboveOrZero = 1.0
    """Standard deviation of the exploration noise at the start."""
    noise_end: AboveOrZero = 0.1
    """Standard deviation of the exploration noise at the end."""
    noise_steps: Count = 2_000_000
    """Agent steps from start to end of the exploration noise."""
    explore_steps: CountOrZero = 2000
    """Agent steps of uniformly random actions at the start."""
    transition: Literal["n_step", "one_step"] = "n_step"
    """Which transition the objective sees; the critic always sees the n-step one."""
    objective_loss: Literal["huber", "squared"] | None = None
    """Loss of the objective's regression; None for the objective's own."""
    normalisation: bool | None = None
    """Scale embeddings to length 1; None for the objective's own choice."""
    pairing: Literal["all", "permuted"] | None = None
    """Compare all pairs of a batch or one partner each; None for the objective's own."""
    beta: Above | None = None
    """Weight of the angle in MICo's distance; None for 0.1."""
    objective_hidden: Size | None = None
    """Width of the objective's hidden layer; None for the objective's own."""
    compile: bool = False
    """Use torch.compile on the networks."""
    mixed_precision: bool = False
    """Compute networks in bfloat16 where that is safe; on GPUs only."""

    def __post_init__(self) -> None:
        schema.settle(self)
        checks.choice(self.method, METHODS, "method")
        if self.beta is not None and "mico" not in self.method:
            raise ValueError(f"beta belongs to MICo's distance, which {self.method} does not have")

    @property
    def has_objective(self) -> bool:
        """Whether there is an objective beside DrQ-v2."""
        return self.method != "drqv2"

    @property
    def objective_options(self) -> dict[str, Any]:
        """The options that were set, for `make_objective`."""
        options = {
            "loss": self.objective_loss,
            "normalisation": self.normalisation,
            "pairing": self.pairing,
            "beta": self.beta,
            "hidden": self.objective_hidden,
        }
        return {name: value for name, value in options.items() if value is not None}
