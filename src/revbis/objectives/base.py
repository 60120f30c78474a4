"""What an objective is: the protocol, its inputs and outputs, and a skeleton to build on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from revbis.objectives.distances import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Level = Literal["state", "state_action"]


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
        """Which of policy_action and next_policy_action a call must pass by name; often ()."""

    def __call__(
        self,
        z: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_z: Tensor,
        generator: torch.Generator | None = None,
        **policy_actions: Tensor,
    ) -> ObjectiveOutput:
        """The losses of one batch.

        Args:
            z: Embeddings φ(s), [B, D], with gradient.
            action: [B, A].
            reward: [B] or [B, 1]; for n-step transitions the discounted sum.
            discount: [B] or [B, 1]: γⁿ, and 0 where the episode terminated.
            next_z: Embeddings of the next states, [B, D]; no gradient reaches them.
            generator: Draws whatever is random.
            **policy_actions: Those that `policy_actions` names: actions of the current policy,
                [B, A], at the states of z (policy_action) and at the next (next_policy_action).
        """

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """Distances between embeddings, [N, D] × [M, D] → [N, M], or [N] rowwise (M = N)."""

    def scale(self, z: Tensor) -> Tensor:
        """φ(s) as `distance` takes it, [B, D] → [B, D]: scaled to length 1, or as it is."""

    def embed(self, z: Tensor, action: Tensor) -> Tensor:
        """What is compared, [B, D]: ψ(φ(s), a), or the scaled φ(s) where there is no ψ."""

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
    batch: Transitions, latent_dim: int, action_dim: int, policy_actions: tuple[str, ...] = ()
) -> Transitions:
    """Checks shapes, flattens [B, 1] to [B], and detaches what must carry no gradient.

    Args:
        batch: As it came.
        latent_dim: D.
        action_dim: A.
        policy_actions: Names of the policy's actions that are needed; others are left out.
    """
    unused: dict[str, Any] = {name: None for name in _ACTIONS_AT if name not in policy_actions}
    batch = batch._replace(**unused)
    for name in policy_actions:
        if getattr(batch, name) is None:
            raise ValueError(
                f"this objective needs {name}=[B, {action_dim}]: actions drawn from the current "
                f"policy at {_ACTIONS_AT[name]}"
            )
    _check_tensors(batch)
    size = batch.z.shape[0] if batch.z.ndim else 0
    for name, tensor in batch.tensors().items():
        if name in ("reward", "discount"):
            continue
        width = latent_dim if name in ("z", "next_z") else action_dim
        if tensor.shape != (size, width):
            raise ValueError(f"{name} must be [{size or 'B'}, {width}], got {list(tensor.shape)}")
    if size < 2:
        raise ValueError(f"the batch must have at least 2 transitions to form pairs, got {size}")
    detached = ("next_z", *policy_actions)
    return batch._replace(
        reward=_column(batch.reward, size, "reward"),
        discount=_column(batch.discount, size, "discount"),
        **{name: getattr(batch, name).detach() for name in detached},
    )


def _check_tensors(batch: Transitions) -> None:
    """Real tensors on one device; embeddings are floats."""
    for name, tensor in batch.tensors().items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
        kind = "floats" if name in ("z", "next_z") else "real numbers"
        if tensor.is_complex() or (kind == "floats" and not tensor.is_floating_point()):
            raise ValueError(f"{name} must hold {kind}, got {tensor.dtype}")
        if tensor.device != batch.z.device:
            raise ValueError(f"{name} is on {tensor.device}, but z is on {batch.z.device}")


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
    if steps.device.type not in _LOOKED_AT:
        return
    with torch.no_grad():
        total = torch.stack([t.detach().float().sum() for t in tensors.values()]).sum()
        if torch.isfinite(total):
            return
        for name, tensor in tensors.items():
            bad = int((~torch.isfinite(tensor)).sum())
            if bad:
                raise NonFiniteError(name, bad, tensor.numel(), int(steps))


def _column(tensor: Tensor, size: int, name: str) -> Tensor:
    if tensor.shape not in ((size,), (size, 1)):
        raise ValueError(f"{name} must be [{size}] or [{size}, 1], got {list(tensor.shape)}")
    return tensor.detach().reshape(size).to(torch.promote_types(tensor.dtype, torch.float32))


_SAMPLE = 4096  # distances that quantiles are read from


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectiveOutput:
    """Losses of one batch, and detached tensors that describe it.

    The two without a default are needed; metrics that need one that is None are left out.

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
        action_dim: A, the width of the actions.
        normalisation: Scale embeddings to length 1.

    Attributes:
        compares: What `embed` embeds: "state" or "state_action".
        metric: The exact metric it is meant to learn, one of `revbis.tabular.METRICS`.
        policy_actions: Which of policy_action and next_policy_action a call must pass.
        steps: Batches so far.
    """

    compares: Level = "state"
    metric: str = "revised"
    policy_actions: tuple[str, ...] = ()
    steps: Tensor

    def __init__(self, latent_dim: int, action_dim: int, *, normalisation: bool = False) -> None:
        super().__init__()
        self.latent_dim, self.action_dim, self.normalisation = latent_dim, action_dim, normalisation
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
    ) -> ObjectiveOutput:
        """The losses of one batch; arguments as for `Objective`.

        Adaptive weights do not use the discount, as in Eq. 9. The generator draws the partners when
        pairs are permuted.

        Raises:
            ValueError: For wrong shapes, or an action of the policy that is missing.
            NonFiniteError: For NaN or infinity in an input or a loss, on a CPU.
        """
        given = Transitions(z, action, reward, discount, next_z, policy_action, next_policy_action)
        batch = check_transitions(given, self.latent_dim, self.action_dim, self.policy_actions)
        out = self.compute(batch, generator)
        if not isinstance(out, ObjectiveOutput):
            raise TypeError(f"compute must return an ObjectiveOutput, got {type(out).__name__}")
        refuse_non_finite(batch.tensors() | out.losses, self.steps)
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
