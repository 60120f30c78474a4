"""The settings of every agent. Imports no torch, so that flags and files are read without it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import tyro
from msgspec import Meta

from revbis.io import schema
from revbis.io.plugins import is_factory_name
from revbis.io.schema import (
    Above,
    AboveOrZero,
    Batch,
    Count,
    CountOrZero,
    Fraction,
    Share,
    Size,
    SizeOrZero,
    Stride,
    Text,
    UpTo4096,
)
from revbis.objectives.registry import (
    OBJECTIVES,
    accepted_options,
    check_name,
    needs_one_step,
    trains_psi,
)

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of an agent: flags, defaults and checks. Subclasses add their own.

    Raises:
        ValueError: If a value is not of its type or out of range.
    """

    batch_size: Batch = 1024
    """Transitions in an update."""
    explore_steps: CountOrZero = 2000
    """Agent steps with uniformly random actions at the start."""

    def __post_init__(self) -> None:
        schema.validate_fields(self)

    @property
    def one_step(self) -> bool:
        """Whether batches must also include the one-step transition."""
        return False

    @property
    def least_steps(self) -> int:
        """Steps of the shortest episode that an update can learn from."""
        return 1

    @property
    def half_precision(self) -> bool:
        """Whether the networks run in bfloat16, which not every processor can."""
        return False

    @property
    def prioritised(self) -> Literal["sequences", "transitions"] | None:
        """What the replay buffer must draw by priority; None for nothing."""
        return None

    @property
    def variant(self) -> str:
        """What distinguishes its runs from others of the method, in folders and tables."""
        return ""

    @property
    def code(self) -> tuple[str, ...]:
        """The user's own code that the settings name, as package.module:factory."""
        return ()

    @property
    def idle(self) -> dict[str, str]:
        """The settings that have no effect beside others, and what they need."""
        return {}

    def check(self, observation_shape: Shape) -> None:
        """Refuses settings from which no agent can be built, before anything is built.

        Args:
            observation_shape: (C, H, W) of stacked frames, or (D,) of vectors.

        Raises:
            ValueError: With the requirement, the value and what to do.
        """

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:  # noqa: ARG002
        """Approximate memory of an update, in bytes.

        Args:
            observation_shape: (C, H, W) of stacked frames, or (D,) of vectors.
            batch: Transitions in the update.
        """
        return 0

    def for_inference(self) -> Self:
        """Settings with the same networks, for reading a trained agent on any machine."""
        return self


@dataclass(frozen=True, kw_only=True)
class OwnSettings(AgentSettings):
    """Settings of a user's own agent, whose options only its factory knows."""

    agent_options: tuple[Text, ...] = ()
    """NAME=VALUE for the factory of your own agent; a VALUE is a number, true, a [list] or text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.options  # noqa: B018 (refuses words that are no options)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of the factory by name."""
        options: dict[str, Any] = {}
        for word in self.agent_options:
            name, equals, value = word.partition("=")
            if not equals or not name.isidentifier():
                raise ValueError(f"agent_options must be NAME=VALUE, got {word!r:.80}")
            if name in options:
                raise ValueError(f"agent_options has {name} more than once")
            try:
                options[name] = json.loads(value)
            except (ValueError, RecursionError):
                options[name] = value
        return options


_KERNELS = (3, 3, 3, 3)  # sides of the convolutions' windows, of DrQ-v2
KERNELS = (7, 5, 3, 3)  # the same, of TD-MPC
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
    """

    mode: Literal["joint", "alternating", "balanced", "decoupled"] = "alternating"
    """joint adds the objective to the critic's loss; alternating gives it its own encoder pass;
    balanced needs one pass too, and scales its gradient at the features to the critic's; decoupled
    (not for taco) lets critic and actor read φ, and the objective alone train the encoder."""
    feature_dim: Size = 50
    """Width of the actor's and the critic's trunk."""
    latent_dim: Size = 50
    """Width of the objective's embeddings."""
    hidden: Size = 1024
    """Width of hidden layers."""
    channels: UpTo4096 = 32
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

    @property
    def idle(self) -> dict[str, str]:
        """With alternating steps, whose size Adam determines, a loss has no weight."""
        alternating = self.mode == "alternating"
        return {"objective_weight": "--mode balanced or joint"} if alternating else {}

    def check(self, observation_shape: Shape) -> None:
        """Refuses images too small for the convolutions."""
        if len(observation_shape) == 3:
            feature_sides(observation_shape[1:], self.strides)

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:
        """Memory of the images and of the convolutions' activations in an update."""
        if len(observation_shape) != 3:
            return 0
        _, numbers = _numbers(observation_shape, self.channels, self.strides)
        return _PASSES * batch * numbers * _FLOAT

    def for_inference(self) -> Self:
        """The same settings, not compiled and in full precision."""
        return replace(self, compile=False, precision="float32")


# The settings of DrQ-v2 that have no effect without an objective. Those that set or need one of its
# options have that as their value; they have no effect with an objective that lacks it.
OF_OBJECTIVE: dict[str, str | None] = {
    "mode": None,
    "latent_dim": None,
    "objective_learning_rate": None,
    "objective_weight": None,
    "encoder_norm": None,
    "transition": None,
    "coefficient_learning_rate": "coefficient",
    "objective_loss": "loss",
    "normalisation": "normalisation",
    "pairing": "pairing",
    "beta": "beta",
    "coefficient": "coefficient",
    "reward_scale": "reward_scale",
    "objective_hidden": "hidden",
}


@dataclass(frozen=True, kw_only=True)
class DrQV2Settings(ActorCriticSettings):
    """DrQ-v2 and its bisimulation objective; the defaults are the paper's."""

    objective: Annotated[Text | None, tyro.conf.Suppress] = None
    """The objective by name or as package.module:factory; it follows from the method."""
    encoder_norm: bool = False
    """LayerNorm on φ, the objective's embedding: between its linear projection and the objective's
    own scaling, for states and next states; the objective trains it. The trunks of actor and critic
    always have theirs."""
    coefficient_learning_rate: Above = 1e-4
    """Adam's learning rate for the coefficient c."""
    transition: Literal["n_step", "one_step"] = "n_step"
    """Transition that the objective learns from; the critic always uses the n-step one. zp,
    deepmdp, laws, laws-zp and means, which model one action, require one_step, and have it by
    default."""
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
    default: running for the -full methods and means-pairs."""
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
    def decoupled(self) -> bool:
        """Whether critic and actor read φ, which the objective alone trains."""
        return self.objective is not None and self.mode == "decoupled"

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


def feature_sides(
    sides: Sequence[int], strides: Sequence[int], kernels: Sequence[int] = _KERNELS
) -> list[int]:
    """Sides of the last convolution's output.

    Raises:
        ValueError: If images of these sides are too small for four convolutions; with what to do.
    """
    after = [_sides_after(side, kernels, strides) for side in sides]
    if min(map(min, after)) < 1:
        raise ValueError(
            f"images of {sides[0]}x{sides[1]} are too small for four convolutions with strides "
            f"{tuple(strides)}: use more pixels or smaller strides"
        )
    return [each[-1] for each in after]


def _sides_after(side: int, kernels: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Sides of each convolution's output; below 1 from where the image is too small."""
    sides = [side]
    for kernel, stride in zip(kernels, strides, strict=True):
        sides.append((sides[-1] - kernel) // stride + 1)
    return sides[1:]


def _numbers(
    shape: Shape, channels: int, strides: Sequence[int], kernels: Sequence[int] = _KERNELS
) -> tuple[int, int]:
    """How many numbers an image has, and how many it has with all convolutions' outputs."""
    image, after = math.prod(shape), _sides_after(shape[1], kernels, strides)
    return image, image + channels * sum(side**2 for side in after)


@dataclass(frozen=True, kw_only=True)
class TacoSettings(ActorCriticSettings):
    """TACO; the defaults are those of its public code.

    Raises:
        ValueError: If a value is out of range, or settings contradict each other.
    """

    action_steps: UpTo4096 = 3
    """Actions in a sequence, K: the losses look this many agent steps ahead."""
    tokens: Literal["learned", "identity"] = "learned"
    """What the critic and the losses read of an action: a learned embedding, or the action."""
    token_dim: Size | None = None
    """Width of a learned token; None for int(1.25 A) + 1, with A numbers in an action."""
    taco_loss: bool = True
    """Tell what follows an action sequence from what follows the others of the batch."""
    curl_loss: bool = True
    """Tell another shift of the same image from the other images of the batch."""
    reward_loss: bool = True
    """Predict the n-step reward from the embedding and the action sequence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "decoupled":
            raise ValueError(
                "mode decoupled is DrQ-v2's, whose critic reads an objective's φ; use joint, "
                "alternating or balanced"
            )
        if self.token_dim is not None and self.tokens == "identity":
            raise ValueError("token_dim is of learned tokens: drop it, or use tokens learned")
        if self.has_losses and self.explore_steps < self.action_steps:
            raise ValueError(
                f"explore_steps must be at least action_steps, {self.action_steps}, so that there "
                f"is a sequence to learn from; got {self.explore_steps}"
            )

    @property
    def has_losses(self) -> bool:
        """Whether any of the three losses is on."""
        return self.taco_loss or self.curl_loss or self.reward_loss

    @property
    def least_steps(self) -> int:
        """Those of an action sequence."""
        return self.action_steps if self.has_losses else 1

    def token_size(self, action_size: int) -> int:
        """Width of what the critic reads of an action of this size."""
        if self.tokens == "identity":
            return action_size
        return int(1.25 * action_size) + 1 if self.token_dim is None else self.token_dim


@dataclass(frozen=True, kw_only=True)
class TDMPCSettings(AgentSettings):
    """TD-MPC; the defaults are its authors' for pixels."""

    batch_size: Batch = 256
    """Sequences in an update."""
    explore_steps: CountOrZero = 5000
    """Agent steps with uniformly random actions at the start."""
    latent_dim: Size = 50
    """Width of the latent state z."""
    hidden: Size = 512
    """Width of hidden layers of dynamics, reward, values and policy."""
    encoder_hidden: Size = 256
    """Width of the hidden layer that encodes state vectors."""
    channels: UpTo4096 = 32
    """Channels of each convolution."""
    strides: tuple[Stride, Stride, Stride, Stride] = (2, 2, 2, 2)
    """Strides of the four convolutions."""
    learning_rate: Above = 3e-4
    """Adam's learning rate."""
    horizon: UpTo4096 = 5
    """Steps that the model is unrolled and trained over, and that plans have in the end."""
    horizon_steps: Count = 25_000
    """Agent steps over which plans grow from one step to --horizon."""
    loss_decay: Share = 0.5
    """Factor of the losses of each further step of the horizon."""
    consistency_weight: AboveOrZero = 2.0
    """Weight of the latent dynamics' loss."""
    reward_weight: AboveOrZero = 0.5
    """Weight of the reward's loss."""
    value_weight: AboveOrZero = 0.1
    """Weight of the values' loss."""
    gradient_clip: Above = 10.0
    """Largest length of a gradient; longer ones are shortened to it."""
    target_rate: Share = 0.01
    """Rate τ of the targets' moving average."""
    target_every: Count = 2
    """Updates between two steps of the targets."""
    priority_exponent: AboveOrZero = 0.6
    """Exponent of the value errors by which sequences are drawn; 0 draws all alike."""
    importance_exponent: AboveOrZero = 0.4
    """Exponent of the weights that correct for it; 0 corrects nothing."""
    iterations: UpTo4096 = 6
    """Iterations of the planner."""
    samples: Size = 512
    """Action sequences that the planner draws in each iteration."""
    policy_samples: SizeOrZero = 25
    """Action sequences that the policy proposes to the planner."""
    elites: Size = 64
    """Best action sequences from which the next iteration's distribution is fitted."""
    temperature: Above = 0.5
    """How much an elite's weight depends on its return."""
    momentum: AboveOrZero = 0.1
    """Share of the previous mean in the planner's new one."""
    noise_start: AboveOrZero = 0.5
    """Least standard deviation of planned actions at the start."""
    noise_end: AboveOrZero = 0.05
    """Least standard deviation of planned actions at the end; also that of the policy's noise."""
    noise_steps: Count = 25_000
    """Agent steps over which the noise decays from --noise-start to --noise-end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        candidates = self.samples + self.policy_samples
        if self.elites > candidates:
            raise ValueError(
                f"elites must be at most samples + policy_samples = {candidates}, got {self.elites}"
            )
        if self.momentum > 1:
            raise ValueError(f"momentum must be at most 1, got {self.momentum:g}")

    @property
    def prioritised(self) -> Literal["sequences"]:
        """Sequences are drawn by their priority."""
        return "sequences"

    @property
    def least_steps(self) -> int:
        """Those of the horizon."""
        return self.horizon

    def check(self, observation_shape: Shape) -> None:
        """Refuses images too small for the convolutions."""
        if len(observation_shape) == 3:
            feature_sides(observation_shape[1:], self.strides, KERNELS)

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:
        """Memory of the images and of the convolutions' activations in an update."""
        if len(observation_shape) != 3:
            return 0
        image, numbers = _numbers(observation_shape, self.channels, self.strides, KERNELS)
        return batch * ((self.horizon + 1) * image + _PASSES * numbers * _FLOAT)


_DREAMER_PASSES = 6  # encoder and decoder: activations, their gradients, temporaries
_LEAST_SIDE = 8  # with one convolution; the last one leaves 4×4
Length = Annotated[int, Meta(ge=2, le=4096)]


@dataclass(frozen=True, kw_only=True)
class DreamerV3Settings(AgentSettings):
    """Dreamer-v3; the defaults are those of sheeprl's size S."""

    batch_size: Batch = 16
    """Sequences in an update."""
    explore_steps: CountOrZero = 1024
    """Agent steps with uniformly random actions at the start."""
    sequence_length: Length = 64
    """Observations in a sequence; shorter episodes are not learned from."""
    hidden: Size = 512
    """Width of hidden layers."""
    layers: UpTo4096 = 2
    """Hidden layers of actor, critic and of the heads of the model."""
    channels: UpTo4096 = 32
    """Channels of the first convolution; each further one has twice as many."""
    recurrent_dim: Size = 512
    """Width of the recurrent state."""
    groups: UpTo4096 = 32
    """Categorical variables of the stochastic state."""
    classes: UpTo4096 = 32
    """Classes of each of them."""
    horizon: UpTo4096 = 15
    """Steps that actor and critic imagine."""
    learning_rate: Above = 1e-4
    """Adam's learning rate for the world model."""
    actor_learning_rate: Above = 3e-5
    """Adam's learning rate for the actor."""
    critic_learning_rate: Above = 3e-5
    """Adam's learning rate for the critic."""
    entropy_weight: AboveOrZero = 3e-4
    """Weight of the actor's entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.explore_steps < self.sequence_length:
            raise ValueError(
                f"explore_steps must be at least sequence_length = {self.sequence_length}, so that "
                f"the first update finds a sequence, got {self.explore_steps}"
            )

    @property
    def least_steps(self) -> int:
        """Those between the observations of a sequence."""
        return self.sequence_length - 1

    def check(self, observation_shape: Shape) -> None:
        """Refuses images whose sides the convolutions cannot halve down to four."""
        side = observation_shape[-1]
        if len(observation_shape) == 3 and (side < _LEAST_SIDE or side & (side - 1)):
            raise ValueError(
                f"dreamerv3 needs a power of 2 from {_LEAST_SIDE} on for pixels, got {side}; "
                "use 32 or 64"
            )

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:
        """Memory of the images and of the convolutions' activations in an update."""
        if len(observation_shape) != 3:
            return 0
        numbers = observation_shape[0] * observation_shape[-1] ** 2
        side, channels = observation_shape[-1] // 2, self.channels
        while side >= _LEAST_SIDE // 2:
            numbers += channels * side**2
            side, channels = side // 2, channels * 2
        return _DREAMER_PASSES * batch * self.sequence_length * numbers * _FLOAT


MODEL = "model"  # MR.Q's own representation loss


@dataclass(frozen=True, kw_only=True)
class MRQSettings(AgentSettings):
    """MR.Q; the defaults are those of its public code."""

    representation: tuple[Text, ...] = (MODEL,)
    """The losses that train the encoders, in any number: model is MR.Q's own, others are objectives
    by name or as package.module:factory."""
    objective_weight: AboveOrZero = 0.1
    """Length of the gradient at zs of the second and each further loss, relative to the first's."""
    coefficient_learning_rate: Above = 1e-4
    """Adam's learning rate for the coefficient c of objectives that have one."""
    batch_size: Batch = 256
    """Transitions in an update, and windows in one of the encoders."""
    explore_steps: CountOrZero = 10_000
    """Agent steps with uniformly random actions at the start."""
    latent_dim: Size = 512
    """Width of zs, the embedding of a state, and of zsa, that of a state and an action."""
    action_dim: Size = 256
    """Width of an action's embedding, from which zsa is made."""
    hidden: Size = 512
    """Width of hidden layers."""
    channels: UpTo4096 = 32
    """Channels of each convolution."""
    strides: tuple[Stride, Stride, Stride, Stride] = (2, 2, 2, 1)
    """Strides of the four convolutions."""
    centre_images: bool = False
    """Subtract from all images the mean image that the replay buffer has when learning starts."""
    learning_rate: Above = 3e-4
    """AdamW's learning rate for values and policy."""
    encoder_learning_rate: Above = 1e-4
    """AdamW's learning rate for the encoders and the heads of their losses."""
    weight_decay: AboveOrZero = 1e-4
    """AdamW's weight decay."""
    horizon: UpTo4096 = 5
    """Steps that the model is unrolled over."""
    consistency_weight: AboveOrZero = 1.0
    """Weight of the latent dynamics in the model's loss."""
    reward_weight: AboveOrZero = 0.1
    """Weight of the rewards in the model's loss."""
    termination_weight: AboveOrZero = 0.1
    """Weight of terminations in the model's loss, once an episode has terminated."""
    gradient_clip: Above = 20.0
    """Largest length of the values' gradient; longer ones are shortened to it."""
    target_every: Count = 250
    """Updates between two copies of the networks to their targets; with each copy the encoders get
    as many updates in a row."""
    priority_exponent: AboveOrZero = 0.4
    """Exponent of the value errors by which transitions are drawn; 0 draws all alike."""
    action_penalty: AboveOrZero = 1e-5
    """Weight of the mean square of the policy's output before its tanh, which keeps it from
    saturating."""
    noise: AboveOrZero = 0.2
    """Standard deviation of the exploration noise."""
    target_noise: AboveOrZero = 0.2
    """Standard deviation of the noise on target actions."""
    noise_clip: Above = 0.3
    """Largest absolute noise on target actions."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the networks' activations; bfloat16 requires a GPU, or a processor with instructions for
    it (revbis doctor). Parameters, losses, targets and objectives are float32."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.representation
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"representation must name at least one loss, and none twice, got {list(names)}"
            )
        schema.convert(
            self.batch_size * (self.horizon + 1), schema.Batch, "batch_size · (horizon + 1)"
        )
        for name in self.objectives:
            check_name(name, "representation", also=(MODEL,))
        if all(name != MODEL and trains_psi(name) is False for name in names):
            raise ValueError(
                f"representation must train the state-action encoder, which {' and '.join(names)} "
                f"does not have: add {MODEL}"
            )
        if self.objectives and self.batch_size < 2:
            raise ValueError(
                f"batch_size must be at least 2 to form pairs for {self.objectives[0]}, got 1"
            )

    @property
    def objectives(self) -> tuple[str, ...]:
        """The losses that are objectives."""
        return tuple(name for name in self.representation if name != MODEL)

    @property
    def variant(self) -> str:
        """The losses, unless there is only the model's."""
        return "" if self.representation == (MODEL,) else ",".join(self.representation)

    @property
    def half_precision(self) -> bool:
        """Whether the networks run in bfloat16."""
        return self.precision == "bfloat16"

    def for_inference(self) -> Self:
        """The same settings, in full precision."""
        return replace(self, precision="float32")

    @property
    def code(self) -> tuple[str, ...]:
        """The objectives that are the user's own."""
        return tuple(name for name in self.objectives if is_factory_name(name))

    @property
    def prioritised(self) -> Literal["transitions"]:
        """Transitions are drawn by their priority."""
        return "transitions"

    def check(self, observation_shape: Shape) -> None:
        """Refuses images too small for the convolutions."""
        if len(observation_shape) == 3:
            feature_sides(observation_shape[1:], self.strides)

    def activation_bytes(self, observation_shape: Shape, batch: int) -> int:
        """Memory of the images and of the convolutions' activations in an encoder update."""
        if len(observation_shape) != 3:
            return 0
        image, numbers = _numbers(observation_shape, self.channels, self.strides)
        return batch * ((self.horizon + 1) * image + _PASSES * numbers * _FLOAT)
