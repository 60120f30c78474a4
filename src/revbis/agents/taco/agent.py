"""TACO (Zheng et al. 2023): DrQ-v2 whose critic reads action tokens, with three more losses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from revbis.agents.drqv2.agent import DrQV2
from revbis.agents.drqv2.inputs import check_batch
from revbis.agents.drqv2.parts import Following, Parts
from revbis.agents.taco.networks import ActionTokens, TacoHeads, TacoOutput
from revbis.agents.taco.sampling import sample_batch
from revbis.agents.taco.settings import TacoSettings
from revbis.agents.taco.work import parts_of_the_work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from revbis.agents.drqv2.auxiliary import Auxiliary
    from revbis.agents.protocol import Metrics
    from revbis.replay import Batch, Replay, Window


class Taco(DrQV2):
    """DrQ-v2 with TACO's losses in the place of an objective, and its modes.

    Two shifts of the same observations are encoded, one of them with gradient for the losses. The
    rest is shared with the critic:

    - joint, balanced: the critic's pass has the gradient; the second shift is encoded without.
    - alternating: the second shift has the gradient, in a step of its own. What it is compared
      with is from the passes of the critic's step, before that step.

    Args:
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action.
        settings: Losses, tokens, sizes and rates.
        seed: Seed of the networks, the exploration and the updates.
        device: Device of the networks.

    Raises:
        ValueError: For sizes that do not match, or mixed precision on a CPU.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: TacoSettings,
        *,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        if not isinstance(settings, TacoSettings):
            raise ValueError(f"settings must be TacoSettings, got {settings!r:.80}")
        self._taco = settings
        super().__init__(observation_shape, action_size, settings.drqv2, seed=seed, device=device)
        self._method = "taco"
        self._projected: list[Tensor] = []  # of the critic's passes: next observations, then these

    def _make_parts(self) -> Parts:
        taco, tokens = self._taco, None
        size = taco.token_size(self.action_size)
        if taco.tokens == "learned":
            tokens = ActionTokens(self.action_size, size)
        heads = partial(TacoHeads, taco, size) if taco.has_losses else None
        shape, device = self.observation_shape, self.device
        return Parts(shape, self.action_size, self.settings, device, heads, tokens, size)

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:
        """One update on a batch from the replay buffer; see `learn`."""
        if self.parts.objective is None:
            return super().update(replay, step, with_metrics=with_metrics)
        with self.stopwatch("sample"):
            batch = sample_batch(replay, self.settings.batch_size, self._taco.action_steps)
        return self.learn(batch, step, with_metrics=with_metrics)

    def learn(self, batch: Batch, step: int, *, with_metrics: bool = False) -> Metrics:
        """One step of critic, actor, TACO's losses and target.

        Args:
            batch: Transitions with a window of K steps (without losses no window is needed).
            step: Agent steps so far, for the noise schedule.
            with_metrics: Also return the losses' metrics, which take time to compute.

        Returns:
            Losses and metrics as scalar tensors; docs/metrics.md explains each.
        """
        batch = check_batch(batch, self.observation_shape, self.action_size, self.device)
        if self.parts.objective is not None:
            steps = 0 if batch.window is None else batch.window.action.shape[1]
            if steps != self._taco.action_steps:
                wanted = f"{self._taco.action_steps} steps, as `sample_batch` returns"
                raise ValueError(f"the batch must have a window of {wanted}, got {steps} steps")
        self._projected = []
        return super().learn(batch, step, with_metrics=with_metrics)

    def work(self, replay: Replay) -> dict[str, Callable[[], None]]:
        """The encoder passes of an update, and TACO's losses given embeddings.

        Gradients are discarded; no parameter changes.
        """
        heads = self.parts.objective
        if not isinstance(heads, TacoHeads):
            return super().work(replay)
        batch = sample_batch(replay, self.settings.batch_size, self._taco.action_steps)
        alternating = not self._shared
        return parts_of_the_work(self.parts, heads, batch, _window(batch), alternating=alternating)

    def _encode(self, observations: Tensor) -> Tensor:
        """The critic's features; alternating, their projections are kept for the losses."""
        features = super()._encode(observations)
        if self.parts.objective is not None and not self._shared:
            with torch.no_grad():
                self._projected += self.parts.readouts(features, "projection")
        return features

    def _compare(
        self,
        batch: Batch,
        objective: Auxiliary,
        z: Tensor,
        following: Following,
        policy_action: Tensor | None,  # noqa: ARG002
    ) -> TacoOutput:
        """The losses where they share the critic's pass."""
        positive = self._project(_window(batch).obs) if self._taco.curl_loss else z
        return self._losses(batch, objective, z, following.z, positive)

    def _objective_step(
        self,
        batch: Batch,
        objective: Auxiliary,
        deviation: float,  # noqa: ARG002
    ) -> TacoOutput:
        """Updates encoder, tokens and heads, with one more encoder pass."""
        next_projected, positive = self._projected
        self._projected = []
        with self._precision():
            features = self.parts.encoder(_window(batch).obs)
            (projected,) = self.parts.readouts(features, "projection")
        out = self._losses(batch, objective, projected, next_projected, positive)
        with self._descent("objective"):
            out.representation_loss.backward()  # type: ignore[no-untyped-call]
        return out

    def _losses(
        self, batch: Batch, heads: Auxiliary, projected: Tensor, following: Tensor, positive: Tensor
    ) -> TacoOutput:
        window = _window(batch)
        assert isinstance(heads, TacoHeads)
        if window.next_obs is not None:  # K is not the critic's n
            following = self._project(window.next_obs)
        tokens = self.parts.tokens(window.action.flatten(0, 1)).reshape(len(batch.reward), -1)
        inputs = (projected.float(), tokens, batch.reward, following.float(), positive.float())
        out: TacoOutput = heads(*inputs)
        return out

    @torch.no_grad()
    def _project(self, observations: Tensor) -> Tensor:
        with self._precision():
            features = self.parts.encoder(observations)
            (projected,) = self.parts.readouts(features, "projection")
        assert isinstance(projected, Tensor)
        return projected


def _window(batch: Batch) -> Window:
    assert batch.window is not None
    return batch.window
