"""The settings of DrQ-v2. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import tyro

from revbis.agents.settings import AgentSettings, Shape
from revbis.objectives.registry import (
    OBJECTIVES,
    accepted_options,
    check_name,
    needs_one_step,
)
from revbis.schema import Above, AboveOrZero, Count, Few, Fraction, Share, Size, Stride, Text

_KERNEL = 3  # side of a convolution's window
_FLOAT = 4  # bytes
_OPTIONS_OF = {
    "beta": "MICo's distance",
    "coefficient": "weights (1-c, c)",
    "reward_scale": "reward gaps of single pairs",
}
_WITHOUT = {"normalisation": "needs the length of embeddings", "pairing": "compares no pairs"}
_PASSES = 4  # activations in memory at once: forward, gradients, next batch, temporaries


@dataclass(frozen=True, kw_only=True)
class ActorCriticSettings(AgentSettings):
    """The networks, rates and noise of DrQ-v2 and of agents built on it.

    An objective is here any loss that trains the encoder beside the critic's.

    Raises:
        ValueError: If a value is out of range.
    """

    mode: Literal["joint", "alternating", "balanced"] = "alternating"
    """joint adds the objective to the critic's loss; alternating gives it its own encoder pass;
    balanced needs one pass too, and scales its gradient at the features to the critic's."""
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
    """Adam's learning rate for encoder, critic and actor."""
    objective_learning_rate: Above = 1e-4
    """Adam's learning rate for the objective's projection and heads (alternating: and encoder)."""
    objective_weight: AboveOrZero = 1.0
    """Weight of the objective: joint, relative to the critic's loss; balanced, length of its
    gradient at the features relative to the critic's."""
    target_rate: Share = 0.01
    """Rate τ of the target critic's moving average."""
    action_penalty: AboveOrZero = 0.0
    """Weight of the mean square of the actor's output before its tanh, which keeps it from
    saturating."""
    noise_clip: Above = 0.3
    """Largest absolute noise in target actions and in the actor's loss."""
    noise_start: AboveOrZero = 1.0
    """Standard deviation of the exploration noise at the start."""
    noise_end: AboveOrZero = 0.1
    """Standard deviation of the exploration noise at the end."""
    noise_steps: Count = 2_000_000
    """Agent steps over which the noise decays from --noise-start to --noise-end."""
    compile: bool = False
    """Compile the networks and the objective with torch.compile."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the networks' activations; bfloat16 requires a GPU, or a processor with instructions for
    it (revbis doctor). Parameters, losses, targets and distances are float32."""

    @property
    def half_precision(self) -> bool:
        """Whether the networks run in bfloat16."""
        return self.precision == "bfloat16"

    def check(self, observation_shape: Shape) -> None:
        """Refuses images too small for the convolutions."""
        if len(observation_shape) == 3:
            check_strides(observation_shape[1:], self.strides)

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:
        """Memory of the images and of the convolutions' activations in an update."""
        if len(observation_shape) != 3:
            return 0
        channels, side, _ = observation_shape
        numbers = channels * side**2
        for stride in self.strides:
            side = (side - _KERNEL) // stride + 1
            numbers += self.channels * side**2
        return _PASSES * batch * numbers * _FLOAT

    def for_reading(self) -> Self:
        """The same settings, not compiled and in full precision."""
        return replace(self, compile=False, precision="float32")


@dataclass(frozen=True, kw_only=True)
class DrQV2Settings(ActorCriticSettings):
    """DrQ-v2 and its bisimulation objective; the defaults are the paper's.

    Raises:
        ValueError: If a value is out of range.
    """

    objective: Annotated[Text | None, tyro.conf.Suppress] = None
    """The objective by name or as package.module:factory; it follows from the method."""
    encoder_norm: bool = False
    """LayerNorm on φ, the objective's embedding: between its linear projection and the objective's
    own scaling, for states and next states; the objective trains it. drqv2 alone has no φ, and the
    trunks of actor and critic always have theirs, so there it changes nothing."""
    coefficient_learning_rate: Above = 1e-4
    """Adam's learning rate for the coefficient c."""
    transition: Literal["n_step", "one_step"] = "n_step"
    """Transition that the objective learns from; the critic always uses the n-step one. zp and
    deepmdp, which model one action, require one_step, and have it by default."""
    objective_loss: Literal["huber", "squared"] | None = None
    """Loss of the objective's regression; None for the objective's default."""
    normalisation: bool | None = None
    """Scale embeddings to length 1; None for the objective's default."""
    pairing: Literal["all", "permuted"] | None = None
    """Compare all pairs of a batch, or one partner each; None for the objective's default."""
    beta: Above | None = None
    """Weight of the angle in MICo's distance; None for 0.1."""
    coefficient: Literal["learned", "discount"] | Fraction | None = None
    """The c of methods with weights (1-c, c): learned, the discount, or this number; None for
    learned."""
    reward_scale: Literal["none", "running"] | None = None
    """Divide the objective's reward gaps by their running mean; None for the objective's
    default: running for the -full methods."""
    objective_hidden: Size | None = None
    """Width of the objective's hidden layer; None for the objective's default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective is not None:
            check_name(self.objective)
            if self.batch_size < 2:
                raise ValueError(
                    f"batch_size must be at least 2 to form pairs for {self.objective}, got 1"
                )
        owner = self.objective or "drqv2"
        for option, of in _OPTIONS_OF.items():
            value = getattr(self, option)
            if value is not None and option not in accepted_options(owner):
                raise ValueError(f"{option} is an option of {of}, which {owner} does not have")
        for option, why in _WITHOUT.items():
            known = owner not in OBJECTIVES or option in accepted_options(owner)
            if getattr(self, option) is not None and not known:
                raise ValueError(f"{owner} {why}: leave --{option} out")
        if needs_one_step(owner) and self.transition == "n_step":
            raise ValueError(
                f"{owner} predicts what follows one action: transition must be one_step, got n_step"
            )

    @property
    def one_step(self) -> bool:
        """Whether batches must also include the one-step transition, for the objective."""
        return self.objective is not None and self.transition == "one_step"

    @property
    def objective_options(self) -> dict[str, Any]:
        """The options for `make_objective` that are set."""
        options = {
            "loss": self.objective_loss,
            "normalisation": self.normalisation,
            "pairing": self.pairing,
            "beta": self.beta,
            "coefficient": self.coefficient,
            "reward_scale": self.reward_scale,
            "hidden": self.objective_hidden,
        }
        return {name: value for name, value in options.items() if value is not None}


def check_strides(sides: Sequence[int], strides: Sequence[int]) -> None:
    """Refuses images that are too small for the four convolutions.

    Raises:
        ValueError: With what to do.
    """
    side = min(sides)
    for stride in strides:
        side = (side - _KERNEL) // stride + 1
        if side < 1:
            raise ValueError(
                f"images of {sides[0]}x{sides[1]} are too small for four convolutions with strides "
                f"{tuple(strides)}: use more pixels or smaller strides"
            )
