"""What an objective is: the protocol, its inputs and outputs, and a skeleton to build on."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.objectives.distances import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Level = Literal["state", "state_action"]
Policy = Callable[[Any], Tensor]
_LOG = logging.getLogger("revbis")


@runtime_checkable
class Objective(Protocol):
    """A loss on embeddings that makes their distances a bisimulation metric.

    It owns its heads alone; the encoder φ stays with the agent. `BaseObjective` has defaults for
    everything but the loss and the distance.
    """

    @property
    def compares(self) -> Level:
        """What `embed` embeds: "state" or "state_action"."""

    @property
    def metric(self) -> str:
        """The exact metric it is meant to learn, one of `revbis.tabular.METRICS`."""

    @property
    def policy_actions(self) -> tuple[str, ...]:
        """Which of policy_action and next_policy_action it needs; often ()."""

    def __call__(
        self,
        z: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_z: Tensor,
        generator: torch.Generator | None = None,
        **policy: Any,
    ) -> ObjectiveOutput:
        """The losses of one batch.

        Args:
            z: Embeddings φ(s), [B, D], with gradient.
            action: [B, A].
            reward: [B] or [B, 1]; for n-step transitions the discounted sum.
            discount: [B] or [B, 1]: γⁿ, and 0 where the episode terminated.
            next_z: Embeddings of the next states, [B, D]; no gradient reaches them.
            generator: Draws whatever is random.
            **policy: `policy`, a function that draws an action of the current policy at each state
                of a batch, [B, A]. It is called without gradient where an action is needed, and
                nowhere else: with z or next_z or, given `states=(s, next_s)`, with s or next_s.
                Or the actions themselves, those that `policy_actions` names, [B, A]: at the states
                of z (policy_action) and at the next ones (next_policy_action). The agents of this
                package pass these; `BaseObjective` takes either.
        """

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M], or [N] rowwise (M = N)."""

    def scale(self, z: Tensor) -> Tensor:
        """φ(s) as `distance` takes it, [B, D] → [B, D]: scaled to length 1, or as it is."""

    def embed(self, z: Tensor, action: Tensor) -> Tensor:
        """What is compared, [B, D]: ψ(φ(s), a), or the scaled φ(s) where there is no ψ."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `loss` trains beside the encoder's; of some methods there are none.

        The agents of this package use the two parts below.
        """

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `representation_loss` trains beside the encoder's."""

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `coefficient_loss` trains; none where there is no coefficient."""

    def status(self) -> dict[str, float]:
        """Numbers for progress lines and records.

        `c`, where it is among them, means weights (1−c, c) in the targets; else they are (1, γ).
        `reward_scale`: reward gaps are divided by it, so distances times it are in their unit.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> object:
        """Continues where the state was taken."""

    def to(self, device: torch.device, /) -> Self:
        """Moves it to a device."""


class NonFiniteError(ArithmeticError):
    """NaN or infinity in an input or a loss.

    Attributes:
        tensor: Name of the input or loss.
        count: Number of its non-finite values.
        step: The objective's step, counted from 0.
    """

    def __init__(self, tensor: str, count: int, size: int, step: int) -> None:
        self.tensor, self.count, self.step = tensor, count, step
        super().__init__(
            f"{tensor} has {count} non-finite values of {size} at objective step {step}; "
            "lower the learning rate, or check where they come from"
        )


_LOOKED_AT = ("cpu",)  # devices whose numbers can be read without waiting


def can_look(tensor: Tensor) -> bool:
    """Whether a tensor's numbers can be read without waiting for its device."""
    return tensor.device.type in _LOOKED_AT


_ROUNDING = 0.02  # of probabilities in half precision
_EQUAL_BATCHES = 100  # after so many batches with equal rewards there is a warning
_ACTIONS_AT = {"policy_action": "the states of z", "next_policy_action": "the next states"}


class Transitions(NamedTuple):
    """A batch with checked shapes.

    z and next_z are [B, D], action [B, A], reward and discount [B]; the current policy's actions
    are [B, A] where the objective uses them and None elsewhere.
    """

    z: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_z: Tensor
    policy_action: Tensor | None = None
    next_policy_action: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """By name, without the policy's actions that are None."""
        optional = {name for name in _ACTIONS_AT if getattr(self, name) is None}
        return {name: value for name, value in self._asdict().items() if name not in optional}


def check_transitions(
    batch: Transitions,
    latent_dim: int,
    action_dim: int,
    *,
    dtype: torch.dtype | None = None,
    discrete: bool = False,
) -> Transitions:
    """Checks a batch without the policy's actions; gives it the form that losses are computed from.

    [B, 1] becomes [B], integer actions one-hot vectors, all but actions one type of number. What
    must carry no gradient is detached.

    Args:
        batch: As it came.
        latent_dim: D.
        action_dim: A.
        dtype: Of the result; None for z's, but at least float32.
        discrete: Actions may be integers, [B] or [B, 1].
    """
    given = batch._asdict()
    for name in ("z", "action", "reward", "discount", "next_z"):
        _check_tensor(name, given[name], batch.z)
    size = batch.z.shape[0] if batch.z.ndim else 0
    for name in ("z", "next_z"):
        if given[name].shape != (size, latent_dim):
            raise ValueError(
                f"{name} must be [{size or 'B'}, {latent_dim}], got {list(given[name].shape)}"
            )
    action = as_vectors("action", batch.action, size, action_dim, discrete=discrete)
    if size < 2:
        raise ValueError(f"the batch must have at least 2 transitions to form pairs, got {size}")
    dtype = dtype or torch.promote_types(batch.z.dtype, torch.float32)
    reward, discount = (_column(name, given[name], size, dtype) for name in ("reward", "discount"))
    _check_discount(batch.discount)
    return Transitions(batch.z.to(dtype), action, reward, discount, batch.next_z.detach().to(dtype))


def _check_tensor(name: str, tensor: object, z: Tensor) -> None:
    """A real tensor on z's device; embeddings are floats."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    kind = "floats" if name in ("z", "next_z") else "real numbers"
    if tensor.is_complex() or (kind == "floats" and not tensor.is_floating_point()):
        raise ValueError(f"{name} must hold {kind}, got {tensor.dtype}")
    if tensor.device != z.device:
        raise ValueError(f"{name} is on {tensor.device}, but z is on {z.device}")


def _check_discount(discount: Tensor) -> None:
    """γⁿ or 0, not a mask; values are looked at on a CPU only. `refuse_non_finite` has the rest."""
    advice = "pass γ, and 0 where the episode terminated: gamma * (1 - terminated.float())"
    if discount.dtype == torch.bool:
        raise ValueError(f"discount must hold numbers in [0, 1], got torch.bool; {advice}")
    if can_look(discount):
        low, high = (float(bound) for bound in discount.detach().aminmax())
        bad = low if low < 0 else high
        if not 0 <= bad <= 1 and math.isfinite(bad):
            raise ValueError(f"discount must hold numbers in [0, 1], got {bad:g}; {advice}")


def _column(name: str, tensor: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    if tensor.shape not in ((size,), (size, 1)):
        raise ValueError(f"{name} must be [{size}] or [{size}, 1], got {list(tensor.shape)}")
    return tensor.detach().reshape(size).to(torch.promote_types(dtype, torch.float32))


def as_vectors(name: str, action: Tensor, size: int, width: int, *, discrete: bool) -> Tensor:
    """Actions as vectors, [B, A]; of discrete ones, integers [B] or [B, 1] become one-hot.

    Raises:
        ValueError: For other shapes; on a CPU, for integers that are not below A, and for vectors
            of discrete actions that are neither one-hot nor probabilities.
    """
    single = action.shape in ((size,), (size, 1))
    integers = single and not action.is_floating_point()
    if discrete and integers:
        return _one_hot(name, action.reshape(size).long(), width)
    if action.shape == (size, width):
        if discrete:
            _check_probabilities(name, action, width)
        return action
    advice = "; to pass integers, make_objective(..., discrete=True)" if integers else ""
    if discrete and single:
        advice = f" of {action.dtype}; pass {name}.long()"
    wanted = f"[{size or 'B'}, {width}]" + (f" or integers, [{size}]" if discrete else "")
    raise ValueError(f"{name} must be {wanted}, got {list(action.shape)}{advice}")


def _check_probabilities(name: str, action: Tensor, width: int) -> None:
    """Refuses what is neither one-hot nor probabilities; `refuse_non_finite` has NaN."""
    if not can_look(action) or not len(action):
        return
    numbers = action.detach().double()
    total = numbers.sum(dim=1)
    off = int((total - 1).abs().argmax())
    low = float(numbers.min())
    if low < -_ROUNDING or abs(float(total[off]) - 1) > _ROUNDING:
        what = f"{low:g}" if low < -_ROUNDING else f"a row whose sum is {float(total[off]):g}"
        raise ValueError(
            f"{name} must hold, as discrete=True, integers from 0 to {width - 1}, one-hot vectors "
            f"or probabilities, whose rows sum to 1; got {what}; for actions that are vectors of "
            "numbers leave discrete out"
        )


def _one_hot(name: str, action: Tensor, width: int) -> Tensor:
    if can_look(action) and len(action):
        low, high = (int(bound) for bound in action.aminmax())
        if low < 0 or high >= width:
            raise ValueError(
                f"{name} must hold integers from 0 to {width - 1}, as action_dim is {width}; "
                f"got {low if low < 0 else high}"
            )
    return functional.one_hot(action, width).float()


def policy_states(
    policy: Policy | None, states: tuple[Any, Any] | None, z: Tensor, next_z: Tensor
) -> dict[str, Any]:
    """What the policy is called with for each of its actions.

    Raises:
        ValueError: For a policy that cannot be called, or states that are not two batches.
    """
    if policy is not None and not callable(policy):
        raise ValueError(
            f"policy must be a function from states to actions, got {type(policy).__name__}; "
            "pass actions as policy_action= and next_policy_action="
        )
    if states is None:
        states = (z.detach(), next_z.detach())
    if not isinstance(states, tuple | list) or len(states) != 2:
        raise ValueError(
            "states must be a pair, (states, next_states), as your policy takes them; got "
            f"{type(states).__name__}"
        )
    return dict(zip(_ACTIONS_AT, states, strict=True))


def random_partners(
    z: Tensor, generator: torch.Generator | None, *, others: bool = False
) -> Tensor:
    """A random permutation of the batch, on z's device: each element's partner.

    Args:
        z: [B, D].
        generator: Draws it.
        others: No element is its own partner: the permutation is one cycle.
    """
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r:.80}")
    device = z.device if generator is None else generator.device
    order = torch.randperm(len(z), generator=generator, device=device).to(z.device)
    return torch.empty_like(order).scatter_(0, order, order.roll(-1)) if others else order


def refuse_non_finite(tensors: dict[str, Tensor], steps: Tensor) -> None:
    """Raises `NonFiniteError` for the first tensor with a NaN or infinity, on a CPU.

    On other devices every look would make the host wait: there the losses are NaN, and whoever logs
    them sees it. One sum over everything is checked first.
    """
    if not can_look(steps):
        return
    with torch.no_grad():
        total = torch.stack([t.detach().float().sum() for t in tensors.values()]).sum()
        if torch.isfinite(total):
            return
        for name, tensor in tensors.items():
            bad = int((~torch.isfinite(tensor)).sum())
            if bad:
                raise NonFiniteError(name, bad, tensor.numel(), int(steps))


_SAMPLE = 4096  # distances that quantiles are read from


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectiveOutput:
    """Losses of one batch, and detached tensors that describe it.

    The two without a default are needed; metrics that need one that is None are left out. B is one
    more than the batch's where a complete form has seen a termination: the last row is then the
    absorbing state.

    Attributes:
        representation_loss: Scalar; its gradient reaches the embeddings z and the objective's own
            heads, never next_z or the coefficient.
        embedding: What was compared, [B, D].
        prediction: Predicted distances, [B, B], or [B] for permuted pairs; None where the loss is
            not on distances.
        coefficient_loss: Scalar whose gradient reaches raw_c alone; None without a coefficient.
        self_distance: Predicted distance of each element to itself, [B].
        gap: Reward gaps, of the prediction's shape (or a scalar).
        following: Next-state distances, of the prediction's shape.
        reward_weight: Weight of the gap.
        next_weight: Weight of the next-state distance: c, or the discount of each pair.
        tie_loss: The part of `representation_loss` that ties φ's distances to ψ's.
        tie_target: What φ's distances are regressed on by it, of the prediction's shape.
        predicted: By name, what a model predicted and what it should have: `next`, embeddings
            [B, D], and `reward`, [B].
    """

    representation_loss: Tensor
    embedding: Tensor
    prediction: Tensor | None = None
    coefficient_loss: Tensor | None = None
    self_distance: Tensor | None = None
    gap: Tensor | None = None
    following: Tensor | None = None
    reward_weight: Tensor | None = None
    next_weight: Tensor | None = None
    tie_loss: Tensor | None = None
    tie_target: Tensor | None = None
    predicted: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def loss(self) -> Tensor:
        """All losses in one scalar; as each reaches only what it trains, one backward serves."""
        loss, of_coefficient = self.representation_loss, self.coefficient_loss
        return loss if of_coefficient is None else loss + of_coefficient

    @property
    def losses(self) -> dict[str, Tensor]:
        """The losses by name, with gradient."""
        losses = {"representation_loss": self.representation_loss}
        if self.coefficient_loss is not None:
            losses["coefficient_loss"] = self.coefficient_loss
        return losses

    @cached_property
    def metrics(self) -> dict[str, Tensor]:
        """Detached scalars by name, computed on first access; docs/metrics.md explains each."""
        metrics = {name: loss.detach() for name, loss in self.losses.items()}
        if self.next_weight is not None:
            metrics["c"] = self.next_weight.mean()
        metrics |= self._shares() | {
            "embedding_norm": torch.linalg.vector_norm(self.embedding, dim=1).mean(),
            "effective_rank": effective_rank(self.embedding),
        }
        if self.prediction is not None:
            metrics |= _distance_metrics(self.prediction)
        for name, (guess, actual) in self.predicted.items():
            metrics[f"{name}_error"] = relative_error(guess, actual)
        if self.tie_loss is not None:
            metrics["tie_loss"] = self.tie_loss
        if self.self_distance is not None:
            metrics["self_distance"] = self.self_distance.mean()
        return metrics

    def _shares(self) -> dict[str, Tensor]:
        """Shares of the two terms in the mean target."""
        if self.gap is None or self.reward_weight is None:
            return {}
        if self.following is None or self.next_weight is None:
            return {}
        reward = (self.reward_weight * self.gap).mean()
        following = (self.next_weight * self.following).mean()
        total = (reward + following).clamp_min(torch.finfo(reward.dtype).tiny)
        return {"reward_share": reward / total, "next_share": following / total}


def _distance_metrics(prediction: Tensor) -> dict[str, Tensor]:
    """Quantiles of the distances, and the share of those near 0."""
    flat = prediction.flatten()
    sample = flat[:: max(1, len(flat) // _SAMPLE)]
    low, middle, high = torch.quantile(sample, sample.new_tensor([0.05, 0.5, 0.95]))
    return {
        "distance_q05": low,
        "distance_q50": middle,
        "distance_q95": high,
        "near_zero_fraction": (sample < 0.01 * sample.max()).to(sample.dtype).mean(),
    }


def relative_error(guess: Tensor, actual: Tensor) -> Tensor:
    """E/(E + V), E the squared error of a prediction and V the variance of what it predicts.

    0 is exact, ½ as good as the mean; it is finite where nothing varies, too.

    Args:
        guess: [B] or [B, D].
        actual: Of the same shape.
    """
    error = (guess - actual).square().sum()
    total = error + (actual - actual.mean(dim=0)).square().sum()
    return error / total.clamp_min(torch.finfo(total.dtype).tiny)


def effective_rank(x: Tensor) -> Tensor:
    """Exp of the entropy of the normalised spectrum of x's covariance: 1 when collapsed, D at most.

    NaN if x is not finite.

    Args:
        x: [B, D].
    """
    centred = x - x.mean(dim=0)
    wide = x.shape[1] > x.shape[0]
    gram = centred @ centred.T if wide else centred.T @ centred  # their spectra differ by zeros
    if gram.device.type == "mps":
        gram = gram.cpu()  # PyTorch has no eigenvalues there
    if not gram.isfinite().all():  # LAPACK would raise
        return x.new_full((), torch.nan)
    spectrum = torch.linalg.eigvalsh(gram).clamp_min(0)
    share = spectrum / spectrum.sum().clamp_min(torch.finfo(x.dtype).tiny)
    rank: Tensor = torch.special.entr(share).sum().exp().to(x.device)
    return rank


class BaseObjective(nn.Module):
    """Checks batches and losses; a subclass writes `compute` and `distance`.

    The defaults are those of an objective that compares states with weights (1, γ). A subclass
    with ψ sets `compares` and overrides `embed`; one with a coefficient overrides
    `coefficient_parameters` and `status`.

    Args:
        latent_dim: D, the width of the embeddings.
        action_dim: A, the width of the actions, or the number of discrete ones.
        normalisation: Scale embeddings to length 1.
        discrete: Actions may be integers below A, [B] or [B, 1]; losses see one-hot vectors.
        psi: The owner's state-action encoder, psi(z, action) → [B, D], for an objective that has
            one: it is read instead of a head of the objective's own, with z as the owner has it.
            Its parameters stay the owner's.

    Attributes:
        compares: What `embed` embeds: "state" or "state_action".
        metric: The exact metric it is meant to learn, one of `revbis.tabular.METRICS`.
        policy_actions: Which of policy_action and next_policy_action it needs.
        steps: Batches so far.
        psi: The state-action encoder, where there is one.
        owned: Whether ψ is the owner's.
    """

    psi: Any
    compares: Level = "state"
    metric: str = "revised"
    policy_actions: tuple[str, ...] = ()
    steps: Tensor
    _on_equal_rewards = (
        "",
        "; if it is when episodes end that matters, use a complete form such as simsr-rev-full "
        "or energy-rev-full, for which the end of an episode is a state without rewards",
    )
    _equal_batches: int | None = 0  # at the start, with equal rewards; None: not counted any more

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        normalisation: bool = False,
        discrete: bool = False,
        psi: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.owned = psi is not None
        if psi is not None:  # past PyTorch's registration: parameters and state are without it
            object.__setattr__(self, "psi", psi)
        self.latent_dim, self.action_dim = latent_dim, action_dim
        self.normalisation, self.discrete = normalisation, discrete
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:
        """The losses of a checked batch, whose rewards and discounts are [B]."""
        raise NotImplementedError(f"{type(self).__name__} must define compute(batch, generator)")

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M], or [N] rowwise."""
        raise NotImplementedError(f"{type(self).__name__} must define distance(x, y, rowwise)")

    def forward(
        self,
        z: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_z: Tensor,
        generator: torch.Generator | None = None,
        policy_action: Tensor | None = None,
        next_policy_action: Tensor | None = None,
        *,
        policy: Policy | None = None,
        states: tuple[Any, Any] | None = None,
    ) -> ObjectiveOutput:
        """The losses of one batch; arguments as for `Objective`.

        Embeddings and rewards may have any float type: losses are computed in that of the
        objective's parameters, or in z's where there are none. The generator draws the partners
        when pairs are permuted.

        Raises:
            ValueError: For wrong shapes, a discount outside [0, 1] (on a CPU), or an action of the
                policy that is missing.
            NonFiniteError: For NaN or infinity in an input or a loss, on a CPU.
        """
        dtype = next((p.dtype for p in self.parameters() if p.is_floating_point()), None)
        batch = check_transitions(
            Transitions(z, action, reward, discount, next_z),
            self.latent_dim,
            self.action_dim,
            dtype=dtype,
            discrete=self.discrete,
        )
        places = policy_states(policy, states, z, next_z)
        given = {"policy_action": policy_action, "next_policy_action": next_policy_action}
        for name in self.policy_actions:
            drawn = self._policy_action(name, given[name], policy, places[name], batch.z)
            batch = batch._replace(**{name: drawn})
        refuse_non_finite(batch.tensors(), self.steps)  # before anything remembers them
        out = self.compute(batch, generator)
        if not isinstance(out, ObjectiveOutput):
            raise TypeError(f"compute must return an ObjectiveOutput, got {type(out).__name__}")
        refuse_non_finite(out.losses, self.steps)
        self._watch(out.gap)
        self.steps += 1
        return out

    def scale(self, z: Tensor) -> Tensor:
        """φ(s) as it is compared, [B, D]: scaled to length 1 with `normalisation`."""
        return normalise(z) if self.normalisation else z

    def embed(self, z: Tensor, action: Tensor) -> Tensor:  # noqa: ARG002
        """What is compared, [B, D]: φ(s); the action plays no part."""
        return self.scale(z)

    def representation_parameters(self) -> Iterator[nn.Parameter]:
        """The trainable parameters, except the coefficient's."""
        others = set(self.coefficient_parameters())
        return (p for p in self.parameters() if p.requires_grad and p not in others)

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """None: the weights are (1, γ)."""
        return iter(())

    def status(self) -> dict[str, float]:
        """Nothing: there is no coefficient."""
        return {}

    def _policy_action(
        self, name: str, action: Tensor | None, policy: Policy | None, states: Any, z: Tensor
    ) -> Tensor:
        """An action of the policy, [B, A]: as given, or drawn at these states."""
        source = name
        if action is None:
            if policy is None:
                raise ValueError(
                    f"this objective needs actions of the current policy at {_ACTIONS_AT[name]}: "
                    f"pass policy=, which draws them, or {name}=[B, {self.action_dim}]"
                )
            with torch.no_grad():
                action, source = policy(states), "what policy returns"
        _check_tensor(source, action, z)
        size, width = len(z), self.action_dim
        return as_vectors(source, action, size, width, discrete=self.discrete).detach()

    def _watch(self, gap: Tensor | None) -> None:
        """Warns once if no batch at the start has rewards that differ; looks on a CPU only."""
        if self._equal_batches is None or gap is None or not can_look(gap):
            return
        if gap.any():
            self._equal_batches = None
            return
        self._equal_batches += 1
        if self._equal_batches == _EQUAL_BATCHES:
            self._equal_batches = None
            _LOG.warning(
                "in each of the first %d batches all rewards are equal%s: the metric compares "
                "rewards, so all distances are learned to be 0%s",
                _EQUAL_BATCHES,
                *self._on_equal_rewards,
            )
