"""MICo, SimSR, energy, their revised and complete forms and the ablations: points of one grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from revbis.objectives.base import (
    BaseObjective,
    ObjectiveOutput,
    Transitions,
    as_vectors,
    can_look,
    random_partners,
)
from revbis.objectives.distances import energy_distance, mico_distance, simsr_distance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from revbis.objectives.registry import Design


def reward_gap(reward: Tensor, other: Tensor, *, rowwise: bool = False) -> Tensor:
    """Gaps |r_i − r_j|, [N] and [M] → [N, M], or [N] rowwise."""
    return (reward - other).abs() if rowwise else (reward[:, None] - other).abs()


def smooth_gap(reward: Tensor, other: Tensor, *, rowwise: bool = False) -> Tensor:
    """Smooth-L1 gaps, [N] and [M] → [N, M], or [N] rowwise: those of the authors' released code.

    There gaps of shape [B, 1] meet distances of shape [B]. The broadcast sets each distance beside
    every pair's gap, so that φ and ψ see the batch's mean gap alone, and c also its variance.
    """
    gap = reward_gap(reward, other, rowwise=rowwise)
    return functional.smooth_l1_loss(gap, torch.zeros_like(gap), reduction="none")


def pair_discount(discount: Tensor, other: Tensor, *, rowwise: bool = False) -> Tensor:
    """Discount of a pair, the geometric mean of its two: [N] and [M] → [N, M], or [N] rowwise.

    It is γⁿ where both are, and 0 as soon as one of the two has terminated.
    """
    left, right = discount.sqrt(), other.sqrt()
    return left * right if rowwise else left[:, None] * right


def absorbing_discount(discount: Tensor, other: Tensor, *, rowwise: bool = False) -> Tensor:
    """`pair_discount`, but the other's where one of a pair has terminated: it stays where it is.

    0 is left where both have; nothing follows there.
    """
    left = discount if rowwise else discount[:, None]
    both = pair_discount(discount, other, rowwise=rowwise)
    return torch.where(both > 0, both, torch.maximum(left, other))


def gaussian_w2(
    mean: Tensor, deviation: Tensor, other: tuple[Tensor, Tensor], *, rowwise: bool = False
) -> Tensor:
    r"""2-Wasserstein distances of diagonal Gaussians, \(\sqrt{‖μ_i−μ_j‖² + ‖σ_i−σ_j‖²}\).

    Args:
        mean: [N, D].
        deviation: [N, D], standard deviations.
        other: Means and deviations of the others, [M, D].
        rowwise: Compare row i with row i only.

    Returns:
        [N, M], or [N] rowwise.
    """
    left, right = torch.cat([mean, deviation], dim=1), torch.cat(other, dim=1)
    if rowwise:
        return (left - right).square().sum(dim=1).sqrt()
    return torch.cdist(left, right)


def target(
    gap: Tensor, following: Tensor, reward_weight: Tensor | float, next_weight: Tensor | float
) -> Tensor:
    """Weighted reward gap plus weighted next-state distance (Eq. 9 with weights 1−c and c)."""
    return reward_weight * gap + next_weight * following


class AdaptiveCoefficient(nn.Module):
    """(1−c, c) = softmax(raw_c), starting at (½, ½)."""

    def __init__(self) -> None:
        super().__init__()
        self.raw_c = nn.Parameter(torch.zeros(2))

    def forward(self) -> tuple[Tensor, Tensor]:
        """The weights of the reward gap and of the next-state distance."""
        reward_weight, next_weight = torch.softmax(self.raw_c, dim=0)
        return reward_weight, next_weight


_SLOWEST = 0.002  # weight of a new batch in the running means, at least


class RunningScale(nn.Module):
    """Divides reward gaps so that the mean distance of the exact metric is about ½.

    With weights that add up to 1 the mean distance is the mean gap; with (1, γ) it is the mean gap
    over 1 − γ. Running means of gap and discount are part of the state; they begin with the first
    batch whose rewards differ. Multiplying all rewards by a constant leaves the scaled gaps as they
    were. Once there is an absorbing state, the mean gap counts as half the mean |r| at least: then
    the mean distance to that state is about 1 at most.
    """

    gap: Tensor
    discount: Tensor
    batches: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gap", torch.zeros(()))
        self.register_buffer("discount", torch.zeros(()))
        self.register_buffer("batches", torch.zeros(()))

    @property
    def value(self) -> Tensor:
        """What gaps are divided by: 1 while all of them were 0."""
        scale = 2 * self.gap / (1 - self.discount).clamp_min(1e-3)
        return torch.where(scale > 0, scale, 1.0)

    @torch.no_grad()
    def forward(self, gap: Tensor, discount: Tensor | None, ends: Tensor | None = None) -> Tensor:
        """The gaps divided by the scale, which takes them into account first.

        Args:
            gap: Reward gaps of a batch.
            discount: Weights of the next-state term where those of the gaps are 1; else None.
            ends: Gaps to the absorbing state, |r|, if there is one.
        """
        mean = gap.mean().to(self.gap.dtype)
        if ends is not None:
            mean = torch.maximum(mean, ends.mean().to(mean.dtype) / 2)
        self.batches += (mean + self.batches) > 0  # counted from the first reward on
        rate = (1 / self.batches.clamp_min(1)).clamp_min(_SLOWEST)
        self.gap.lerp_(mean, rate)
        if discount is not None:
            self.discount.lerp_(discount.mean().to(self.discount.dtype), rate)
        return gap / self.value


_LOOK_EVERY = 100  # batches, on a device that has to be waited for


class AbsorbingState(nn.Module):
    """Where a terminated episode stays, with reward 0 whatever the action: one more row of a batch.

    Its embedding is fixed. SimSR's distance does not change if all embeddings are rotated, nor the
    energy distance if they are shifted, so it is the others that find their places around it; a
    distance of (almost) 0 to itself is built in. MICo's can express neither. The row joins with the
    first batch that has a terminated transition; which batch that was is part of the state. A GPU
    is asked only every hundredth batch.

    Args:
        distance: That of the design.
        latent_dim: D.
    """

    z: Tensor
    since: Tensor

    def __init__(self, distance: str, latent_dim: int) -> None:
        super().__init__()
        z = torch.zeros(1, latent_dim)
        if distance == "energy":
            z[0, -1] = -10.0  # softplus of it is next to nothing
        else:
            z[0, 0] = 1.0 if distance == "simsr" else 0.01
        self.register_buffer("z", z, persistent=False)
        self.register_buffer("since", torch.tensor(-1))
        self._batch: int | None = None  # as far as the host knows; None: read it from `steps`
        self._joined = False

    @torch.no_grad()
    def joins(self, discount: Tensor, steps: Tensor) -> bool:
        """Whether the row is part of this batch.

        Args:
            discount: [B], 0 where the episode terminated.
            steps: Batches so far.
        """
        if self._joined:
            return True
        look = can_look(discount)
        first = (self.since < 0) & (discount == 0).any()
        self.since.copy_(torch.where(first, steps, self.since))
        if self._batch is None:  # as after loading: whether it had joined follows from the state
            self._batch = int(steps)
            last = self._batch if look else self._batch // _LOOK_EVERY * _LOOK_EVERY
            self._joined = 0 <= int(self.since) <= last
        elif look or self._batch % _LOOK_EVERY == 0:
            self._joined = int(self.since) >= 0
        self._batch += 1
        return self._joined

    def extend(self, batch: Transitions) -> Transitions:
        """The batch with this state as its last row, and as what follows each termination."""
        z, zero = self.z.to(batch.z.dtype), batch.reward.new_zeros(1)
        ended = (batch.discount == 0)[:, None]
        policy, following = batch.policy_action, batch.next_policy_action
        if following is not None:  # one action, 0, stands for all that are taken there
            following = torch.where(ended, following.new_zeros(()), following)
        return Transitions(
            z=torch.cat([batch.z, z]),
            action=_with_zeros(batch.action),
            reward=torch.cat([batch.reward, zero]),
            discount=torch.cat([batch.discount, zero]),
            next_z=torch.cat([torch.where(ended, z, batch.next_z), z]),
            policy_action=None if policy is None else _with_zeros(policy),
            next_policy_action=None if following is None else _with_zeros(following),
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # States of objectives from before there was this one have no `since`.
        state_dict.setdefault(f"{prefix}since", torch.tensor(-1))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._batch, self._joined = None, False


Loss = Literal["huber", "squared"]
Pairing = Literal["all", "permuted"]
RewardScale = Literal["none", "running"]


class StateActionEncoder(nn.Module):
    """ψ: an MLP with one hidden layer from [φ(s), a] to an embedding of the pair."""

    def __init__(self, latent_dim: int, action_dim: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(latent_dim + action_dim, hidden), nn.ReLU(), nn.Linear(hidden, latent_dim)
        )

    def forward(self, z: Tensor, action: Tensor) -> Tensor:
        """[B, D] and [B, A] → [B, D]."""
        embedding: Tensor = self.layers(torch.cat([z, action.to(z.dtype)], dim=1))
        return embedding


class BisimulationObjective(BaseObjective):
    """Regresses distances of embeddings on their own one-step targets.

    Args:
        latent_dim: D.
        action_dim: A.
        design: The point of the grid.
        loss: "huber" (the paper's pseudocode) or "squared" (its Eq. 7).
        normalisation: Scale embeddings of states and of pairs to length 1.
        beta: Weight of the angle in MICo's distance.
        hidden: Width of ψ's hidden layer.
        pairing: "all" pairs of a batch, or each element with one other ("permuted").
        coefficient: Where the design has weights (1−c, c): c is "learned", the "discount" of each
            pair, or this number.
        reward_scale: Divide reward gaps by a "running" scale, or by "none".
        discrete: Actions may be integers.
        psi: The owner's ψ, where the design has one; None for one of its own.
    """

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        design: Design,
        loss: Loss = "huber",
        normalisation: bool = True,
        beta: float = 0.1,
        hidden: int = 1024,
        pairing: Pairing = "all",
        coefficient: Literal["learned", "discount"] | float = "learned",
        reward_scale: RewardScale = "none",
        discrete: bool = False,
        psi: nn.Module | None = None,
    ) -> None:
        embedding: dict[str, Any] = {"normalisation": normalisation, "discrete": discrete}
        super().__init__(latent_dim, action_dim, **embedding, psi=psi)
        self.design, self.beta = design, beta
        self.compares = "state_action" if design.state_action else "state"
        self.policy_actions = design.policy_actions
        self.rowwise = pairing == "permuted"
        self.squared = loss == "squared"
        self.regression = nn.MSELoss() if self.squared else nn.HuberLoss()
        if not self.owned:
            sizes = (latent_dim, action_dim, hidden)
            self.psi = StateActionEncoder(*sizes) if design.state_action else None
        learned = design.adaptive and coefficient == "learned"
        self.coefficient = AdaptiveCoefficient() if learned else None
        self.c = coefficient if isinstance(coefficient, float) else None
        self.reward_scale = RunningScale() if reward_scale == "running" else None
        exact = design.independent
        self.absorbing = AbsorbingState(design.distance, latent_dim) if exact else None
        if exact:
            self._on_equal_rewards = (" and none terminated", "")

    def compile(self, *args: Any, **options: Any) -> None:
        """Compiles the losses, but not the look at whether a batch has a termination."""
        if self.absorbing is not None:
            joins = torch.compiler.disable(self.absorbing.joins)  # type: ignore[no-untyped-call]
            self.absorbing.joins = joins  # type: ignore[method-assign]
        super().compile(*args, **options)

    def compute(self, batch: Transitions, generator: torch.Generator | None) -> ObjectiveOutput:
        """The losses of a checked batch; the generator draws partners when pairs are permuted."""
        joined = self.absorbing is not None and self.absorbing.joins(batch.discount, self.steps)
        if self.absorbing is not None and joined:
            batch = self.absorbing.extend(batch)
        partner = None
        if self.rowwise:
            partner = random_partners(batch.z, generator, others=self.design.independent)
        embedding = self._embed(batch.z, batch.action)
        prediction = self._between(embedding, partner)
        gap, reward_weight, next_weight = self._weighted_gap(batch, partner, joined)
        following = self._following(batch, partner)
        targets = target(gap, following, reward_weight, next_weight)

        loss = self._regress(prediction, targets.detach())
        tie_loss, tie_target = self._tie(batch, partner)
        detached = embedding.detach()
        return ObjectiveOutput(
            representation_loss=loss if tie_loss is None else loss + tie_loss,
            coefficient_loss=self._coefficient_loss(batch, partner, prediction.detach(), targets),
            embedding=detached,
            prediction=prediction.detach(),
            self_distance=self.distance(detached, detached, rowwise=True),
            gap=gap,
            following=following,
            reward_weight=reward_weight.detach(),
            next_weight=next_weight.detach(),
            tie_loss=None if tie_loss is None else tie_loss.detach(),
            tie_target=tie_target,
        )

    def distance(self, x: Tensor, y: Tensor, *, rowwise: bool = False) -> Tensor:
        """The distance of this objective between embeddings, [N, D] × [M, D] → [N, M]."""
        if self.design.distance == "mico":
            return mico_distance(x, y, self.beta, rowwise=rowwise)
        if self.design.distance == "simsr":
            return simsr_distance(x, y, rowwise=rowwise)
        return energy_distance(x, y, rowwise=rowwise)

    def embed(self, z: Tensor, action: Tensor) -> Tensor:
        """What is compared: ψ(φ(s), a), or φ(s) where there is no ψ, [B, D]."""
        if self.discrete and self.psi is not None:
            action = as_vectors("action", action, len(z), self.action_dim, discrete=True)
        return self._embed(z, action)

    def coefficient_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `coefficient_loss` trains: raw_c."""
        return iter(()) if self.coefficient is None else self.coefficient.parameters()

    def status(self) -> dict[str, float]:
        """The coefficient c and the scale of the reward gaps, where there are such."""
        status = {}
        if self.coefficient is not None:
            status["c"] = float(self.coefficient()[1].detach())
        elif self.c is not None:
            status["c"] = self.c
        if self.reward_scale is not None:
            status["reward_scale"] = float(self.reward_scale.value)
        return status

    def _embed(self, z: Tensor, action: Tensor) -> Tensor:
        """`embed` of checked actions."""
        scaled = self.scale(z)
        if self.psi is None:
            return scaled
        return self.scale(self.psi(z if self.owned else scaled, action))

    def _between(self, x: Tensor, partner: Tensor | None) -> Tensor:
        """Distances of the pairs, [B, B], or [B] for permuted ones."""
        other = x if partner is None else x[partner]
        if self.design.released:
            other = other.detach()
        return self.distance(x, other, rowwise=self.rowwise)

    def _regress(self, prediction: Tensor, targets: Tensor) -> Tensor:
        targets = targets.expand_as(prediction)
        if self.design.independent and not self.rowwise:
            prediction, targets = off_diagonal(prediction), off_diagonal(targets)
        loss: Tensor = self.regression(prediction, targets)
        return loss

    @torch.no_grad()
    def _following(self, batch: Transitions, partner: Tensor | None) -> Tensor:
        """Distances of what follows: of the next states, or of pairs under the policy.

        Where there is an absorbing state they are 0 where both of a pair are there. Else, with
        weights (1−c, c), they are 0 where one of a pair has terminated; with (1, γ) their weight
        is, and the released code does not look at it.
        """
        if batch.next_policy_action is None:
            following = self._between(self.scale(batch.next_z), partner)
        else:
            embedding = self._embed(batch.next_z, batch.next_policy_action)
            following = self._between(embedding, partner)
        alive = batch.discount > 0
        left, right = alive if self.rowwise else alive[:, None], _of(alive, partner)
        if self.absorbing is not None:
            following *= left | right
        elif self.design.adaptive and not self.design.released:
            following *= left & right
        return following

    def _tie(
        self, batch: Transitions, partner: Tensor | None
    ) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """The loss that makes φ's distances the mean of ψ's under the policy, and its targets."""
        if batch.policy_action is None:
            return None, None
        with torch.no_grad():
            targets = self._between(self._embed(batch.z, batch.policy_action), partner)
        return self._regress(self._between(self.scale(batch.z), partner), targets), targets

    def _coefficient_loss(
        self, batch: Transitions, partner: Tensor | None, prediction: Tensor, targets: Tensor
    ) -> Tensor | None:
        if self.coefficient is None:
            return None
        loss = self._regress(prediction, targets)
        if self.design.released and self.squared:
            # There each distance meets every pair's gap: that adds what the gaps vary by.
            gaps = self._smooth_gaps(batch, partner)
            loss = loss + self.coefficient()[0].square() * gaps.var(correction=0)
        return loss

    def _weighted_gap(
        self, batch: Transitions, partner: Tensor | None, joined: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reward gaps, their weight, and the weight of what follows.

        `joined`: whether the last row is the absorbing state.
        """
        if self.design.released:
            gap = self._smooth_gaps(batch, partner).mean()
        else:
            gap = reward_gap(batch.reward, _of(batch.reward, partner), rowwise=self.rowwise)
            gap = gap.square() if self.design.means else gap
        weights = self._weights(batch.discount, partner)
        if self.reward_scale is not None:
            power = 2 if self.design.means else 1
            ends = batch.reward.abs() ** power if joined else None
            gap = self.reward_scale(gap, None if self.design.adaptive else weights[1], ends)
        return gap, *weights

    def _weights(self, discount: Tensor, partner: Tensor | None) -> tuple[Tensor, Tensor]:
        """The weights of the gaps and of what follows: (1−c, c) or (1, γ)."""
        if self.coefficient is not None:
            reward_weight, next_weight = self.coefficient()
            return reward_weight, next_weight
        one = torch.ones_like(discount[:1] if self.rowwise else discount[None])
        if self.c is not None:
            return one * (1 - self.c), one * self.c
        between = pair_discount if self.absorbing is None else absorbing_discount
        pairs = between(discount, _of(discount, partner), rowwise=self.rowwise)
        if not self.design.adaptive:
            return one, pairs
        # Pairs without a discount have terminated: their gaps weigh as much as those of others.
        return 1 - torch.where(pairs > 0, pairs, pairs.max()), pairs

    def _smooth_gaps(self, batch: Transitions, partner: Tensor | None) -> Tensor:
        return smooth_gap(batch.reward, _of(batch.reward, partner), rowwise=self.rowwise)


def off_diagonal(x: Tensor) -> Tensor:
    """The entries of a square matrix beside its diagonal, [N, N] → [N − 1, N], without a copy."""
    n = len(x)
    return x.flatten()[1:].view(n - 1, n + 1)[:, :-1]


def _with_zeros(x: Tensor) -> Tensor:
    """The rows of x, and one of zeros."""
    return torch.cat([x, x.new_zeros(1, x.shape[1])])


def _of(x: Tensor, partner: Tensor | None) -> Tensor:
    return x if partner is None else x[partner]
