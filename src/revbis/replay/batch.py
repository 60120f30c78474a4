"""What a sample is."""

from typing import NamedTuple

from torch import Tensor


class OneStep(NamedTuple):
    """The one-step part of the same transitions.

    Attributes:
        reward: Of the first step, float32 [B].
        discount: γ times the environment's discount of that step, float32 [B].
        next_obs: The observation one step on, with a shift of its own.
    """

    reward: Tensor
    discount: Tensor
    next_obs: Tensor


class Batch(NamedTuple):
    """Transitions of up to n steps, on the CPU, in memory of their own.

    Attributes:
        obs: uint8 [B, stack·C, H, W], the oldest frame first; float32 [B, stack·D] for vectors.
        action: The action taken at obs, float32 [B, A].
        reward: Sum of the next m rewards, each discounted by γ and by the environment's discounts
            before it, float32 [B]; m is n, or less where the episode ends sooner.
        discount: γᵐ times the environment's m discounts: 0 if a termination is among them, float32
            [B].
        next_obs: The observation m steps on, shaped like obs.
        one_step: The first step alone, if the buffer was asked for it.
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Tensor
    one_step: OneStep | None = None


class Sequences(NamedTuple):
    """Consecutive steps, each T of them of one episode, on the CPU, in memory of their own.

    The action at obs[:, t] gives reward[:, t] and discount[:, t], and leads to obs[:, t + 1].

    Attributes:
        obs: uint8 [B, T + 1, stack·C, H, W], the oldest frame of a stack first; float32
            [B, T + 1, stack·D] for vectors.
        action: float32 [B, T, A].
        reward: Of single steps, float32 [B, T].
        discount: The environment's, without γ: 0 at a termination, float32 [B, T].
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
